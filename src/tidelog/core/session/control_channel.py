"""What a replica does on its control channel, and how sessions begin.

Invariants:
  G1  the store is prepared for a session only when it does nothing for an earlier one any more
  G2  an epoch is committed only when no log channel is writing in it or in an earlier one, and no
      entry of it is taken afterwards
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.core.session.channel import refusal
from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionEnd,
)
from tidelog.core.session.output import Commit, Prepare, SetBoundary
from tidelog.core.session.replica_session import Link, Session
from tidelog.core.session.replica_state import State
from tidelog.errors import ReplicaRefused
from tidelog.invariants import check
from tidelog.limits import STREAMS_PER_TOPIC_MAX


class Beginning(NamedTuple):
    """A session that begins when the store has done its last step for the one before."""

    link: Link
    request: SessionBegin
    secret: str


class ControlChannel:
    """Begins sessions, and carries out what comes on their control channel."""

    __slots__ = ("_beginning", "_stamp", "_state")

    def __init__(self, state: State, stamp: Callable[[], str]) -> None:
        self._state = state
        self._stamp = stamp
        self._beginning: Beginning | None = None

    # --- how a session begins ---

    def begin(self, link: Link, request: SessionBegin, secret: str) -> None:
        """Begin a session, now or when the store is free for it."""
        check(secret != "", "G1: a session needs a secret")
        self._check_protocol(request.protocol_version)
        self._check_alone()
        self._check_channel_count(request.log_channel_count)
        self._beginning = Beginning(link, request, secret)
        self.go_on()

    def forget(self, link: Link) -> None:
        """The connection is gone."""
        if self._beginning is not None and self._beginning.link is link:
            self._beginning = None

    def go_on(self) -> None:
        """Begin the session that waits, if the store is free (G1)."""
        if self._beginning is None or self._is_at_work():
            return
        beginning, self._beginning = self._beginning, None
        try:
            self._prepare(*beginning)
        except ReplicaRefused as refused:
            self._state.refuse(beginning.link, refused)

    def _is_at_work(self) -> bool:
        return bool(self._state.steps)

    def _prepare(self, link: Link, request: SessionBegin, secret: str) -> None:
        self._check_configuration(request.configuration_id)
        self._check_position(request.epoch)
        self._check_history(request.stamp)
        self._state.session = link.session = Session(link, secret)
        channels = request.log_channel_count
        prepare = Prepare(self._state.ticket(), request.configuration_id, channels)
        self._state.ask(prepare, link)

    def _check_protocol(self, version: int) -> None:
        if version != SESSION_PROTOCOL:
            text = f"protocol {version} is not spoken here: it must be {SESSION_PROTOCOL}"
            raise refusal(ErrorCode.UNSUPPORTED_PROTOCOL, text)

    def _check_alone(self) -> None:
        if self._state.session is not None or self._beginning is not None:
            raise refusal(ErrorCode.SESSION_OPEN, "there is a session, and its master lives")

    def _check_channel_count(self, count: int) -> None:
        if count > STREAMS_PER_TOPIC_MAX:
            text = f"{count} log channels: at most {STREAMS_PER_TOPIC_MAX} are possible"
            raise refusal(ErrorCode.TOO_MANY_CHANNELS, text)

    def _check_configuration(self, shown: str) -> None:
        """A replica that is empty takes on any master."""
        own = self._state.configuration_id
        if own is not None and shown != own:
            text = f"the replica holds the data of {own}, and this master is {shown}"
            raise refusal(ErrorCode.WRONG_CONFIGURATION, text)

    def _check_position(self, master: int) -> None:
        replica = self._state.epoch
        if master != replica:
            text = (
                f"the master is at epoch {master}, the replica at {replica}: "
                "copy the newer side with 'tidelog restore'"
            )
            raise refusal(ErrorCode.WRONG_POSITION, text)

    def _check_history(self, stamp: str) -> None:
        """Equal epochs are equal contents only if the same life of a master made them."""
        if stamp != self._stamp():
            text = (
                f"the two sides have different histories up to epoch {self._state.epoch}: "
                "copy the right one with 'tidelog restore'"
            )
            raise refusal(ErrorCode.WRONG_POSITION, text)

    # --- requests ---

    def received(self, link: Link, session: Session, request: Request) -> None:
        """Carry out a request on the control channel."""
        match request:
            case GroupCommit(epoch=epoch):
                self._commit(link, session, epoch)
            case GcBoundarySwitch(write_version=version):
                self._set_boundary(link, session, int.from_bytes(version, "big"))
            case SessionEnd():
                self._state.end_session(session)
                self._state.reply(link, Ack())
            case SessionBegin():
                raise refusal(ErrorCode.SESSION_OPEN, "the session has begun before")
            case SafeSnapshotSwitch():
                raise refusal(ErrorCode.NOT_SUPPORTED, "safe snapshots are not supported")
            case _:
                text = f"{type(request).__name__} does not belong on the control channel"
                raise refusal(ErrorCode.UNEXPECTED_MESSAGE, text)

    def _commit(self, link: Link, session: Session, epoch: int) -> None:
        session.require_whole()
        self._check_commit(epoch)
        session.require_ended(epoch)
        session.committing = epoch
        self._state.ask(Commit(self._state.ticket(), epoch), link)

    def _check_commit(self, epoch: int) -> None:
        if epoch <= self._state.epoch:
            text = f"epoch {epoch} is not beyond the last group commit at {self._state.epoch}"
            raise refusal(ErrorCode.BAD_EPOCH, text)

    def _set_boundary(self, link: Link, session: Session, version: int) -> None:
        session.require_whole()
        self._check_boundary(version)
        if version == self._state.boundary:
            self._state.reply(link, Ack())
        else:
            self._state.ask(SetBoundary(self._state.ticket(), version), link)

    def _check_boundary(self, version: int) -> None:
        if version < self._state.boundary:
            text = f"the GC boundary is at {self._state.boundary}, {version} would go back"
            raise refusal(ErrorCode.BAD_BOUNDARY, text)
        if version >= BOUNDARY_END:
            text = f"the GC boundary {version} is too high: there is no room above it"
            raise refusal(ErrorCode.BAD_BOUNDARY, text)
