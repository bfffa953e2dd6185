"""What all parts of a replica share: its connections, its session, and what the store is asked for.

Invariants:
  R1  a connection has at most one request that is not answered
  R2  every request has exactly one answer, unless its connection goes before
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.core.session.channel import Channel
from tidelog.core.session.messages import Answer, Error, ErrorCode
from tidelog.core.session.output import DropBlob, Hang, ReplicaOutput, Reply, StoreOutput
from tidelog.core.session.replica_session import Link, ReplicaCounters, Session
from tidelog.errors import ReplicaRefused
from tidelog.invariants import check

TEXT_CHARS_MAX: Final = 1024
"""What the text of an error may have on the wire."""


class Step(NamedTuple):
    """What the store was asked for, and who waits for it."""

    output: StoreOutput
    link: Link
    channel: Channel | None


class State:
    """The state of a replica service, and the small changes that it is made of."""

    __slots__ = (
        "_last_ticket",
        "boundary",
        "configuration_id",
        "counters",
        "epoch",
        "links",
        "outputs",
        "session",
        "steps",
    )

    def __init__(self, configuration_id: str | None, epoch: int, boundary: int) -> None:
        self.configuration_id = configuration_id
        self.epoch = epoch
        self.boundary = boundary
        self.counters = ReplicaCounters()
        self.links: dict[int, Link] = {}
        self.session: Session | None = None
        self.steps: dict[int, Step] = {}
        self.outputs: list[ReplicaOutput] = []
        self._last_ticket = 0

    # --- answers ---

    def reply(self, link: Link, answer: Answer) -> None:
        """Answer the open request of a connection, if it is still there (R2)."""
        if self.is_there(link):
            check(link.is_busy, f"R2: connection {link.connection} has no open request")
            link.is_busy = False
            self.outputs.append(Reply(link.connection, answer))

    def error(self, link: Link, code: ErrorCode, text: str) -> None:
        """Answer that a request was not carried out."""
        self.counters.errors[code] = self.counters.errors.get(code, 0) + 1
        self.reply(link, Error(code, text[:TEXT_CHARS_MAX]))

    def refuse(self, link: Link, refused: ReplicaRefused) -> None:
        """An error leaves everything as it was; a connection that is no channel is closed."""
        self.error(link, ErrorCode(refused.code), str(refused))
        if link.session is None:
            self.hang_up(link)

    def hang_up(self, link: Link) -> None:
        """Close a connection; nothing is heard of it any more."""
        if self.is_there(link):
            del self.links[link.connection]
            self.outputs.append(Hang(link.connection))

    def is_there(self, link: Link) -> bool:
        return self.links.get(link.connection) is link

    # --- the store ---

    def ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def ask(self, output: StoreOutput, link: Link, channel: Channel | None = None) -> None:
        """Have the store do something; a connection waits for it."""
        self.steps[output.ticket] = Step(output, link, channel)
        self.outputs.append(output)

    def take_step(self, ticket: int) -> Step | None:
        """The step that has come to its end; None if that is known."""
        check(0 < ticket <= self._last_ticket, f"R2: there is no ticket {ticket}")
        step = self.steps.pop(ticket, None)
        if step is None:
            self.counters.ignored += 1
        return step

    # --- the session ---

    def end_session(self, session: Session) -> None:
        """Hang up the log channels; what was not committed goes when the next session begins."""
        self.session = None
        session.control.session = None
        for channel in session.channels or ():
            self.drop_blob(channel)
            if channel.connection is not None:
                self.hang_up(self.links[channel.connection])

    def break_session(self) -> None:
        """Entries may be missing."""
        session = self.session
        if session is not None and not session.is_broken:
            session.is_broken = True
            self.counters.broken += 1

    def drop_blob(self, channel: Channel) -> None:
        """The rest of a BLOB will not come."""
        if channel.blob is not None:
            self.outputs.append(DropBlob(channel.number, channel.blob.blob))
            channel.blob = None
