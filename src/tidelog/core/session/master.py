"""A master and all its replicas: log sessions, group commits, notices.

The shell carries out what ``take`` hands over, lane by lane, and says what came of it: ``stored``
for local steps, ``answered`` for requests.  Any answer that is an error, and any replica that is
lost, stops the master for good.

Invariants:
  M1  batches of a log channel are dense: each begins where the one before ended
  M2  a group commit begins only when every log session of its epochs is finished: flushed here and
      acknowledged by every replica
  M3  PROPAGATED of an epoch needs the answer of every replica, and STORED before it
  M4  there is at most one group commit under way
  M5  a stopped master sends nothing, and tells of no epoch that it is PROPAGATED
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.session.epochs import BOUNDARY_END, Epochs
from tidelog.core.session.lanes import Lane, LocalOutput, Stage
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Answer,
    Error,
    GroupCommit,
    LogChannelCreate,
    Request,
    SessionBegin,
    SessionBegun,
    SessionEnd,
    error_name,
)
from tidelog.core.session.options import MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    ChannelBatch,
    MasterOutput,
    Notice,
    RecordLocally,
    Send,
    SendBlob,
)
from tidelog.core.session.steps import Steps
from tidelog.errors import (
    BadOption,
    LogError,
    ReplicaRefused,
    ReplicationFailed,
    StorageFailed,
    WrongState,
)
from tidelog.invariants import check


class Commit:
    """A group commit under way."""

    __slots__ = ("epoch", "is_stored", "missing")

    def __init__(self, epoch: int, replicas: int) -> None:
        self.epoch = epoch
        self.is_stored = False
        self.missing = replicas
        """Answers that have not come."""

    @property
    def is_propagated(self) -> bool:
        """M3."""
        return self.is_stored and self.missing == 0


class Master:
    """One master and all its replicas.  Not thread-safe."""

    def __init__(
        self,
        *,
        configuration_id: str,
        epoch: int,
        ends: Sequence[int],
        replicas: int,
        options: MasterOptions,
        boundary: int = 0,
        stamp: str = "",
    ) -> None:
        self.failure: LogError | None = None
        self.is_ended = False
        self._configuration_id = configuration_id
        self._stamp = stamp
        self._replicas = replicas
        self._ends = list(ends)
        self._epochs = Epochs(epoch, len(ends))
        self._steps = Steps(options, replicas)
        self._lanes = {lane: Lane() for lane in (CONTROL, *range(len(ends)))}
        self._is_opening = False
        self._unopened = 0
        """Answers that opening still needs."""
        self._is_closing = False
        self._tickets: dict[int, int] = {}
        """The lanes of local steps that were handed out."""
        self._commit: Commit | None = None
        self._boundary = boundary
        self._wanted_boundary: int | None = None
        """One that is not under way yet."""
        self._is_boundary_next = True
        """Whether a boundary goes before a group commit: they take turns."""

    # --- how far it is ---

    @property
    def is_open(self) -> bool:
        """Whether every replica has all its lanes."""
        return self._is_opening and self._unopened == 0

    @property
    def epoch(self) -> int:
        """The current one; 0 before the first switch."""
        return self._epochs.current

    @property
    def boundary(self) -> int:
        """The GC boundary, be it that it is on its way to the store."""
        return self._boundary

    @property
    def stored_epoch(self) -> int:
        return self._epochs.stored

    @property
    def propagated_epoch(self) -> int:
        return self._epochs.propagated

    def notices(self) -> list[Notice]:
        """What became safe since the last call; STORED of an epoch before its PROPAGATED."""
        return self._epochs.take_notices()

    # --- what the application wants ---

    def open(self) -> None:
        """Begin a session with each replica, then make its log channels."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._is_opening:
            raise WrongState("the session was opened before")
        channels = len(self._ends)
        self._is_opening = True
        self._unopened = self._replicas * (1 + channels)
        begin = SessionBegin(
            SESSION_PROTOCOL, self._configuration_id, self._epochs.recorded, channels, self._stamp
        )
        self._lanes[CONTROL].put(Stage(self._steps.send(CONTROL, begin)))

    def begin(self, channel: int) -> int:
        """Begin a log session in the current epoch, which is returned."""
        self._require_open(channel)
        return self._epochs.begin(channel, self._ends[channel]).epoch

    def write(self, channel: int, batches: tuple[ChannelBatch, ...], *, end: bool = False) -> None:
        """Add entries to the open log session; with ``end`` they are its last ones."""
        self._require_open(channel)
        session = self._epochs.session(channel)
        self._continue(channel, batches)
        if batches or (end and not session.is_empty):
            stages = self._steps.write(channel, session, batches, end=end)
            self._lanes[channel].put(*stages)
            session.is_empty = False
        if end:
            self._end(channel)

    def abort(self, channel: int) -> None:
        """End the open log session without its entries."""
        self._require_open(channel)
        session = self._epochs.session(channel)
        if not session.is_empty:
            self._lanes[channel].put(*self._steps.abort(channel, session))
            self._ends[channel] = session.llsn_begin
            session.is_empty = True
        self._end(channel)

    def switch(self, epoch: int) -> None:
        """Begin an epoch: log sessions that begin from now on are of this one."""
        self._require_open()
        self._epochs.switch(epoch)
        self._advance()

    def set_boundary(self, version: int) -> None:
        """Raise the GC boundary, here and there."""
        self._require_open()
        if not self._boundary <= version < BOUNDARY_END:
            raise BadOption(
                f"the GC boundary {version} must not be below {self._boundary}, where it is, and "
                f"must be below {BOUNDARY_END}"
            )
        if version > self._boundary:
            self._boundary = self._wanted_boundary = version
            self._advance()

    def close(self) -> None:
        """End the session when what is due was done; entries of later epochs are dropped."""
        self._require_open()
        self._is_closing = True
        self._advance()

    def _require_open(self, channel: int | None = None) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if not self.is_open:
            raise WrongState("the replicas are not ready")
        if self._is_closing:
            raise WrongState("the session was closed")
        if channel is not None and not 0 <= channel < len(self._ends):
            raise BadOption(f"there is no log channel {channel}")

    def _continue(self, channel: int, batches: Sequence[ChannelBatch]) -> None:
        for batch in batches:
            check(
                self._ends[channel] == batch.llsn_begin < batch.llsn_end,
                f"M1: batch {batch.llsn_begin}..{batch.llsn_end} on channel {channel}",
            )
            self._ends[channel] = batch.llsn_end

    def _end(self, channel: int) -> None:
        mark = Stage((), waits=True, finishes=self._epochs.session(channel))
        self._epochs.end(channel)
        self._lanes[channel].put(mark)
        self._settle(channel)

    # --- what the shell tells ---

    def take(self, lane: int) -> list[MasterOutput]:
        """What to carry out on a lane now, in this order."""
        outputs = self._lanes[lane].take()
        for output in outputs:
            if not isinstance(output, Send | SendBlob):
                self._tickets[output.ticket] = lane
        return outputs

    def waits(self, lane: int) -> tuple[int, ...]:
        """The replicas that are to answer on a lane, in the order of the requests."""
        return self._lanes[lane].waits

    def is_idle(self, lane: int) -> bool:
        """Whether there is nothing to take, and nothing is awaited."""
        return self._lanes[lane].is_idle

    def stored(self, ticket: int) -> None:
        """A local step was carried out; a repeated word of it changes nothing."""
        check(0 < ticket <= self._steps.last_ticket, f"P1: there is no ticket {ticket}")
        lane = self._tickets.pop(ticket, None)
        if lane is not None:
            self._carried_out(self._lanes[lane].stored(ticket))
            self._settle(lane)

    def answered(self, replica: int, lane: int, answer: Answer) -> None:
        """A replica answered; in the order of the requests on its lane."""
        if self.failure is not None:
            return
        send = self._lanes[lane].answered(replica)
        if isinstance(answer, Error):
            self._refused(replica, send, answer)
        elif send is None or not self._fits(send.message, answer):
            self.failed(replica, f"{type(answer).__name__} answers no request")
        else:
            self._accepted(replica, send.message, answer)
            self._settle(lane)

    def failed(self, replica: int, reason: str) -> None:
        """A replica is lost."""
        self._fail(ReplicationFailed(f"replica {replica}: {reason}"))

    def store_failed(self, reason: str) -> None:
        """The local store takes nothing any more."""
        self._fail(StorageFailed(reason))

    # --- answers ---

    def _fits(self, request: Request, answer: Answer) -> bool:
        return isinstance(answer, SessionBegun) == isinstance(request, SessionBegin)

    def _refused(self, replica: int, send: Send | None, error: Error) -> None:
        request = "a BLOB" if send is None else type(send.message).__name__
        text = f"replica {replica} refused {request}: {error_name(error.code)}: {error.message}"
        if self.is_open:
            self._fail(ReplicationFailed(text))
        else:
            self._fail(ReplicaRefused(text, code=error.code))

    def _accepted(self, replica: int, request: Request, answer: Answer) -> None:
        match request, answer:
            case SessionBegin(), SessionBegun(secret=secret, boundary=boundary):
                self._unopened -= 1
                self._create_channels(replica, secret)
                self._learn_boundary(replica, int.from_bytes(boundary, "big"))
            case LogChannelCreate(), _:
                self._unopened -= 1
                self._tell_boundary()
            case GroupCommit(), _:
                self._committed()
            case SessionEnd(), _:
                self.is_ended = self._lanes[CONTROL].is_quiet
            case _:
                pass

    def _create_channels(self, replica: int, secret: str) -> None:
        for channel in range(len(self._ends)):
            create = Send(replica, channel, LogChannelCreate(secret, channel))
            self._lanes[channel].put(Stage((create,)))

    def _learn_boundary(self, replica: int, version: int) -> None:
        """A replica that was the master once may be ahead: it takes no writes below its own."""
        if version >= BOUNDARY_END:
            self.failed(replica, f"its GC boundary {version} is none: there is no room above it")
        elif version > self._boundary:
            self._boundary = self._wanted_boundary = version

    def _tell_boundary(self) -> None:
        """A replica may have missed the last one, or may know a later one than this side."""
        if not self.is_open or not self._boundary:
            return
        if self._wanted_boundary is not None:
            self._begin_boundary(self._wanted_boundary)
        else:
            self._lanes[CONTROL].put(self._steps.tell_boundary(self._boundary))

    def _fail(self, failure: LogError) -> None:
        """M5; the first failure stays."""
        if self.failure is None and not self.is_ended:
            self.failure = failure
            for lane in self._lanes.values():
                lane.stop()

    # --- progress ---

    def _settle(self, lane: int) -> None:
        """Something on a lane came to its end."""
        is_news = lane == CONTROL or self._is_closing
        while (session := self._lanes[lane].take_finished()) is not None:
            self._epochs.finished(lane, session)
            is_news = True
        if is_news:
            self._advance()

    def _advance(self) -> None:
        """Begin what is next on the control channel."""
        if self.failure is not None or not self.is_open:
            return
        if self._commit is None and self._epochs.due() is None:
            self._epochs.pass_empty()
        if self._lanes[CONTROL].is_idle and not self.is_ended:
            self._begin_next()

    def _begin_next(self) -> None:
        epoch, boundary = self._epochs.due(), self._wanted_boundary
        if boundary is not None and (epoch is None or self._is_boundary_next):
            self._begin_boundary(boundary)
        elif epoch is not None:
            self._begin_commit(epoch)
        elif self._is_closing and self._is_quiet():
            self._begin_end()

    def _begin_boundary(self, version: int) -> None:
        self._wanted_boundary = None
        self._is_boundary_next = False
        self._lanes[CONTROL].put(*self._steps.set_boundary(version))

    def _begin_commit(self, epoch: int) -> None:
        check(self._commit is None, "M4: one group commit at a time")
        self._is_boundary_next = True
        self._commit = Commit(epoch, self._replicas)
        self._lanes[CONTROL].put(*self._steps.commit(epoch))

    def _carried_out(self, output: LocalOutput) -> None:
        if isinstance(output, RecordLocally) and self._commit is not None:
            self._commit.is_stored = True
            self._epochs.record(output.epoch)
            self._complete_commit()

    def _committed(self) -> None:
        if self._commit is not None:
            self._commit.missing -= 1
            self._complete_commit()

    def _complete_commit(self) -> None:
        commit = self._commit
        if commit is not None and commit.is_propagated and self.failure is None:
            self._commit = None
            self._epochs.propagate(commit.epoch)

    def _is_quiet(self) -> bool:
        """Whether no log channel awaits anything, so that none is cut off in its request."""
        return all(lane.is_quiet for lane in self._lanes.values())

    def _begin_end(self) -> None:
        for lane in self._lanes.values():
            lane.drop_queued()
        self._lanes[CONTROL].put(Stage(self._steps.send(CONTROL, SessionEnd())))
        self.is_ended = self._replicas == 0
