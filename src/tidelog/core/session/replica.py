"""All connections of a replica service, and the replication session that they belong to.

The shell hands over one request of a connection at a time, and the next one when it was answered.
Which answer a request has, and what becomes of the session: docs/sessions.md.

Invariants:
  R3  epoch, boundary and configuration id are what the store has, whatever became of the session
  R4  without its control channel a session is dead; without one of its log channels it is broken
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.core.session.channel import refusal
from tidelog.core.session.control_channel import ControlChannel
from tidelog.core.session.log_channels import LogChannels
from tidelog.core.session.messages import (
    Ack,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.output import (
    ChannelBatch,
    Commit,
    Prepare,
    ReplicaOutput,
    SetBoundary,
)
from tidelog.core.session.replica_session import Link, ReplicaCounters, ReplicaState
from tidelog.core.session.replica_state import State, Step
from tidelog.errors import ReplicaRefused
from tidelog.invariants import check


class ReplicaSessions:
    """All connections of a replica service.  Not thread-safe."""

    def __init__(
        self,
        *,
        configuration_id: str | None,
        epoch: int,
        boundary: int,
        blob_exists: Callable[[int], bool],
        stamp: Callable[[], str] = str,
    ) -> None:
        self._state = State(configuration_id, epoch, boundary)
        self._control = ControlChannel(self._state, stamp)
        self._logs = LogChannels(self._state, blob_exists)

    # --- how far it is ---

    @property
    def configuration_id(self) -> str | None:
        """Whose data this is; None if there is none yet."""
        return self._state.configuration_id

    @property
    def epoch(self) -> int:
        """The last group commit."""
        return self._state.epoch

    @property
    def boundary(self) -> int:
        return self._state.boundary

    @property
    def counters(self) -> ReplicaCounters:
        return self._state.counters

    @property
    def state(self) -> ReplicaState:
        session = self._state.session
        if session is None or session.channels is None:
            return ReplicaState.LISTENING
        return ReplicaState.BROKEN if session.is_broken else ReplicaState.OPEN

    def take(self) -> list[ReplicaOutput]:
        """What to carry out now, in this order."""
        outputs, self._state.outputs = self._state.outputs, []
        return outputs

    # --- connections ---

    def connected(self, connection: int) -> None:
        """A connection was made, and greeted."""
        check(connection not in self._state.links, f"R1: connection {connection} is known")
        self._state.links[connection] = Link(connection)

    def lost(self, connection: int) -> None:
        """A connection is gone."""
        link = self._state.links.pop(connection, None)
        if link is None:
            self.counters.ignored += 1
        else:
            self._forget(link)

    def undecodable(self, connection: int) -> None:
        """A connection brought bytes that are no request: it is closed.

        They may come behind a request that is open: its answer is not awaited any more.
        """
        link = self._known(connection)
        if link is not None:
            link.is_busy = True
            self._state.error(link, ErrorCode.UNEXPECTED_MESSAGE, "these bytes are no request")
            self._state.hang_up(link)
            self._forget(link)

    def _forget(self, link: Link) -> None:
        """R4."""
        self._control.forget(link)
        if link.channel is not None:
            self._logs.detach(link, link.channel)
            self._state.break_session()
        elif link.session is not None:
            self._state.end_session(link.session)

    def _known(self, connection: int) -> Link | None:
        """The connection that has brought something, unless it was closed meanwhile."""
        link = self._state.links.get(connection)
        if link is None:
            self.counters.ignored += 1
        return link

    # --- requests ---

    def received(
        self,
        connection: int,
        request: Request,
        *,
        fresh_secret: str = "",
        batches: tuple[ChannelBatch, ...] | None = (),
        data: bytes | memoryview = b"",
    ) -> None:
        """A request came, with what was attached to it."""
        link = self._known(connection)
        if link is None:
            return
        check(not link.is_busy, f"R1: connection {connection} has an open request")
        link.is_busy = True
        try:
            if link.session is None:
                self._first(link, request, fresh_secret)
            elif link.channel is None:
                self._control.received(link, link.session, request)
            else:
                self._logs.received(link, link.session, link.channel, request, batches, data)
        except ReplicaRefused as refused:
            self._state.refuse(link, refused)

    def _first(self, link: Link, request: Request, secret: str) -> None:
        """The first message decides what a connection is."""
        match request:
            case SessionBegin():
                self._control.begin(link, request, secret)
            case LogChannelCreate():
                self._logs.create(link, request)
            case SafeSnapshotSwitch():
                raise refusal(ErrorCode.NOT_SUPPORTED, "safe snapshots are not supported")
            case SessionEnd() | GroupCommit() | GcBoundarySwitch():
                raise refusal(ErrorCode.NO_SESSION, "no session has begun on this connection")
            case _:
                raise refusal(ErrorCode.NO_CHANNEL, "this connection is not a log channel")

    # --- the store ---

    def prepared(self, ticket: int, ends: tuple[int, ...]) -> None:
        """The store is ready for a session; ``ends`` has the next LLSN of each log channel."""
        step = self._state.take_step(ticket)
        if step is not None:
            self._prepared(step, ends)
            self._control.go_on()

    def _prepared(self, step: Step, ends: tuple[int, ...]) -> None:
        match step.output:
            case Prepare(configuration_id=configuration_id, channels=channels):
                check(len(ends) >= channels, "R3: every log channel has an end")
                self._state.configuration_id = configuration_id
                session = step.link.session
                if session is not None:
                    session.opened(ends[:channels])
                    self.counters.sessions += 1
                    boundary = self._state.boundary.to_bytes(16, "big")
                    self._state.reply(step.link, SessionBegun(session.secret, boundary))
            case _:
                check(False, "R3: only a session is prepared for")

    def done(self, ticket: int, *, append_us: int = 0, sync_us: int = 0) -> None:
        """The store has carried out a step."""
        step = self._state.take_step(ticket)
        if step is not None:
            self._done(step)
            self._state.reply(step.link, Ack(append_us, sync_us))
            self._control.go_on()

    def _done(self, step: Step) -> None:
        if step.channel is not None:
            step.channel.stored(step.output)
        match step.output:
            case Commit(epoch=epoch):
                self._state.epoch = epoch
                self.counters.group_commits += 1
            case SetBoundary(version=version):
                self._state.boundary = version
            case Prepare():
                check(False, "R3: what a session was prepared with must be told")

    def failed(self, ticket: int, reason: str) -> None:
        """The store could not: entries may be missing."""
        step = self._state.take_step(ticket)
        if step is None:
            return
        self._state.error(step.link, ErrorCode.WRITE_FAILED, reason)
        if isinstance(step.output, Prepare):
            self._give_up(step.link)
        else:
            self._state.break_session()
        self._control.go_on()

    def _give_up(self, link: Link) -> None:
        """A session could not begin."""
        if link.session is not None:
            self._state.end_session(link.session)
        self._state.hang_up(link)
