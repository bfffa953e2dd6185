"""Commits what is queued for a datastore: flushes, epochs, boundaries, cuts.

One thread at a time is in here: that which leads the commit queue.

Invariants:
  Z1  ``flush`` and ``record`` return only when what they promise is durable.
  Z2  A cut takes the entries of epochs up to its own, of all channels, and no others.
  Z3  What is not recorded is never shown, and is gone durably after a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.datastore.epoch_requests import (
    NO_TIME,
    ActionRequest,
    EpochRequest,
    RecordRequest,
    Timing,
)
from tidelog.datastore.unrecorded import Unrecorded
from tidelog.embedded.backlog import Backlog
from tidelog.errors import BadOption, LogError
from tidelog.formats.channel_batch import stream_of
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.wal_payloads import Truncate
from tidelog.limits import GROUP_BYTES_MAX
from tidelog.storage.frame_write import BatchWrite, FrameWrite
from tidelog.storage.node_store import NodeStore
from tidelog.types import Glsn, Llsn, StreamId, TopicId, Version


class EpochWriter:
    def __init__(
        self, node: NodeStore, topic: TopicManifest, unrecorded: Unrecorded, backlog: Backlog
    ) -> None:
        self._node = node
        self._unrecorded = unrecorded
        self._backlog = backlog
        self.topic = topic

    @property
    def epoch(self) -> int:
        """The last recorded epoch; 0 before the first."""
        return self._node.streams[self.topic.streams[0]].context.version

    def commit(self, requests: Sequence[EpochRequest]) -> None:
        """Carry out requests in their order; each is finished when this returns."""
        self._backlog.check_worker()
        group: list[EpochRequest] = []
        for request in requests:
            if isinstance(request, ActionRequest):
                self._commit_group(group)
                group = []
                _carry_out(request, request.action)
            else:
                group.append(request)
        self._commit_group(group)

    def _commit_group(self, group: Sequence[EpochRequest]) -> None:
        """Flushes and records that came together share a frame."""
        epoch = self.epoch
        waiting: list[EpochRequest] = []
        for request in group:
            if isinstance(request, RecordRequest):
                if request.epoch <= epoch:
                    request.finish(BadOption(f"epoch {request.epoch} comes after {epoch}"))
                    continue
                epoch = request.epoch
            waiting.append(request)
        if not waiting:
            return
        try:
            timing = self.write_waiting(epoch if epoch > self.epoch else None)
        except LogError as error:
            for request in waiting:
                request.finish(error)
            return
        for request in waiting:
            request.timing = timing
            request.finish()

    def write_waiting(self, epoch: int | None = None, boundary: int | None = None) -> Timing:
        """Write what waits in memory, with it the cut of an epoch and a GC boundary."""
        timing = NO_TIME
        with self._unrecorded.recording(epoch):
            *first, last = _frames(self._unrecorded.unwritten())
            for batches in first:
                timing = timing.plus(self._write(FrameWrite(batches)))
            if last or epoch is not None or boundary is not None:
                timing = timing.plus(self._write(self._last_frame(last, epoch, boundary)))
        if epoch is not None:
            self._backlog.after_order()
        return timing

    def _last_frame(
        self, batches: Sequence[BatchWrite], epoch: int | None, boundary: int | None
    ) -> FrameWrite:
        cut = None if epoch is None else self._decide(epoch, batches)
        streams = self.topic.streams if boundary is not None else ()
        return FrameWrite(batches, cut, (), (), [(stream, boundary or 0) for stream in streams])

    def _decide(self, epoch: int, batches: Sequence[BatchWrite]) -> CutDecided:
        """The cut of an epoch (Z2): GLSNs in the order of channels, and the first channel always.

        So the first channel's commit context tells the epoch, whatever channels had entries.
        """
        ends = self._unrecorded.ends_of(epoch, batches)
        high = self._node.streams[self.topic.streams[0]].context.high_watermark
        places: list[tuple[int, int, int, int]] = []
        for stream in self.topic.streams:
            context = self._node.streams[stream].context
            length = ends.get(stream, context.llsn_end) - context.llsn_end
            if length:
                places.append((stream, high + 1, context.llsn_end, length))
                high += length
            elif stream == self.topic.streams[0]:
                places.append((stream, context.glsn_end, context.llsn_end, 0))
        topic = TopicId(self.topic.topic)
        commits = [
            StreamCommit(topic, StreamId(stream), Glsn(high), Glsn(glsn), Llsn(llsn), length)
            for stream, glsn, llsn, length in places
        ]
        return CutDecided(Version(epoch), tuple(commits))

    def _write(self, frame: FrameWrite) -> Timing:
        """Make one frame durable (Z1); DiskFull and Busy leave everything as it was."""
        node = self._node
        node.vfs.check_running()
        commits = frame.cut.commits if frame.cut else ()
        others = len(commits) + len(frame.boundaries) + len(frame.truncates)
        self._backlog.before_frame(node.reserve(frame.batches, others))
        try:
            node.write(frame)
            self._unrecorded.note_written(frame)
        except BaseException as error:
            # The WAL is ahead of what is known here: nothing may follow.
            if node.vfs.failed is None:
                node.vfs.stop(f"a commit was torn away: {error!r}")
            raise
        return Timing(node.wal.write_ns // 1000, node.wal.sync_ns // 1000)

    # -- actions (between two frames) ------------------------------------------------------------

    def write_boundary(self, version: int) -> None:
        """What waits goes first: so compaction sees all that may lie below (J2)."""
        self.write_waiting(boundary=version)

    def add_channels(self, count: int) -> None:
        missing = count - len(self.topic.streams)
        if missing > 0:
            self.topic = self._node.add_streams(self.topic.topic, missing)
            self._unrecorded.add_channels(count)

    def cut_back_all(self) -> None:
        """Everything unrecorded goes."""
        tails = self._unrecorded.tails
        self.cut_back(
            {
                tail.channel: self._node.streams[stream_of(tail.channel)].ordered_end
                for tail in tails
            }
        )

    def cut_back(self, ends: Mapping[int, int]) -> None:
        """Let channels end at these LLSNs: what is in the WAL first, then what is in memory."""
        self._unrecorded.check_cut(ends)
        streams = {stream_of(channel): end for channel, end in ends.items()}
        truncates = truncates_to(self._node, streams)
        if truncates:
            self._write(FrameWrite(truncates=truncates))
        self._unrecorded.cut(ends)
        self._backlog.after_order()


def drop_at_open(node: NodeStore, topic: TopicManifest) -> None:
    """Nothing that was not recorded survives a start (Z3)."""
    ends = {stream: node.streams[stream].ordered_end for stream in topic.streams}
    truncates = truncates_to(node, ends)
    if truncates:
        node.reserve((), len(truncates))
        node.write(FrameWrite(truncates=truncates))


def truncates_to(node: NodeStore, ends: Mapping[int, int]) -> list[tuple[int, Truncate]]:
    """What to write so that streams end there."""
    return [
        (stream, Truncate(end, node.streams[stream].term))
        for stream, end in ends.items()
        if node.streams[stream].end_llsn > end
    ]


def _frames(writes: Sequence[BatchWrite]) -> list[list[BatchWrite]]:
    """Batches in groups that fit into frames; at least one group."""
    frames: list[list[BatchWrite]] = [[]]
    size = 0
    for write in writes:
        if frames[-1] and size + write.stored.size > GROUP_BYTES_MAX:
            frames.append([])
            size = 0
        frames[-1].append(write)
        size += write.stored.size
    return frames


def _carry_out(request: EpochRequest, action: Callable[[], None]) -> None:
    try:
        action()
    except LogError as error:
        request.finish(error)
    else:
        request.finish()
