"""The steps of a master as its options order them.

Each pair of a local and a remote step runs side by side, the remote one first because it takes
longer; or one after the other, the local one first.

Invariants:
  P1  every local step has a ticket of its own
  P2  a BLOB is sent before entries that refer to it
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.session.epochs import LogSession
from tidelog.core.session.lanes import Stage
from tidelog.core.session.messages import (
    GcBoundarySwitch,
    GroupCommit,
    LogChannelFlush,
    LogEntryWrite,
    Request,
)
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    AppendLocally,
    ChannelBatch,
    CutLocally,
    FlushLocally,
    MasterOutput,
    RecordLocally,
    Send,
    SendBlob,
    SetBoundaryLocally,
)


class Steps:
    """Lays out steps for all replicas."""

    __slots__ = ("_last_ticket", "_options", "_replicas")

    def __init__(self, options: MasterOptions, replicas: int) -> None:
        self._options = options
        self._replicas = replicas
        self._last_ticket = 0

    @property
    def last_ticket(self) -> int:
        return self._last_ticket

    def _ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def send(
        self, lane: int, message: Request, batches: tuple[ChannelBatch, ...] = ()
    ) -> tuple[MasterOutput, ...]:
        """One request to every replica."""
        return tuple(Send(replica, lane, message, batches) for replica in range(self._replicas))

    def write(
        self, lane: int, session: LogSession, batches: tuple[ChannelBatch, ...], *, end: bool
    ) -> list[Stage]:
        """Entries of a log session, and its end."""
        options, flushes = self._options, end and self._options.flush_at is FlushAt.SESSION_END
        message = LogEntryWrite(
            session.epoch,
            session_begin=session.is_empty,
            session_end=end,
            flush=flushes and options.parallel_flush,
        )
        blobs = self._blobs(lane, session, batches)
        local = self._append(lane, session.epoch, batches)
        remote = (*blobs, *self.send(lane, message, batches))
        outputs = _in_order(local, remote, is_parallel=options.parallel_append)
        if message.flush:
            outputs = (*outputs, FlushLocally(lane, self._ticket()))
        stages = [Stage(outputs, waits=bool(blobs))]
        if flushes and not message.flush:
            stages.append(Stage((FlushLocally(lane, self._ticket()),), waits=True))
            stages.append(Stage(self.send(lane, LogChannelFlush()), waits=True))
        return stages

    def _append(
        self, lane: int, epoch: int, batches: tuple[ChannelBatch, ...]
    ) -> tuple[MasterOutput, ...]:
        return (AppendLocally(lane, epoch, batches, self._ticket()),) if batches else ()

    def _blobs(
        self, lane: int, session: LogSession, batches: Sequence[ChannelBatch]
    ) -> tuple[MasterOutput, ...]:
        """P2; each only once for a log session."""
        outputs: list[MasterOutput] = []
        for blob in (blob for batch in batches for blob in batch.blobs):
            if blob not in session.blobs:
                session.blobs.add(blob)
                outputs.extend(SendBlob(replica, lane, blob) for replica in range(self._replicas))
        return tuple(outputs)

    def abort(self, lane: int, session: LogSession) -> list[Stage]:
        """Take the entries of a log session back."""
        local = (CutLocally(lane, session.llsn_begin, self._ticket()),)
        remote = self.send(lane, LogEntryWrite(session.epoch, session_abort=True))
        return [Stage(_in_order(local, remote, is_parallel=self._options.parallel_append))]

    def commit(self, epoch: int) -> list[Stage]:
        """A group commit."""
        local = (RecordLocally(epoch, self._ticket()),)
        remote = self.send(CONTROL, GroupCommit(epoch))
        if self._options.parallel_commit:
            return [Stage((*remote, *local))]
        return [Stage(local), Stage(remote, waits=True)]

    def set_boundary(self, version: int) -> list[Stage]:
        """A new GC boundary: here first, so that no replica is ever ahead."""
        local = Stage((SetBoundaryLocally(version, self._ticket()),))
        return [local, self.tell_boundary(version)]

    def tell_boundary(self, version: int) -> Stage:
        """The GC boundary, as every replica is to have it."""
        message = GcBoundarySwitch(version.to_bytes(16, "big"))
        return Stage(self.send(CONTROL, message), waits=True)


def _in_order(
    local: tuple[MasterOutput, ...], remote: tuple[MasterOutput, ...], *, is_parallel: bool
) -> tuple[MasterOutput, ...]:
    return (*remote, *local) if is_parallel else (*local, *remote)
