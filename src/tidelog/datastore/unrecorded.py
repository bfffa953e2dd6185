"""All entries of a datastore behind its last recorded epoch, and what may be added to them.

Any thread adds; the committing thread writes them and takes them out.

Invariants:
  U1  An epoch that is recorded, or is being recorded, takes no entries any more.
  U2  Nothing is taken in at or below the GC boundary: below it deletes may be gone already.
  U3  What waits is bounded, in memory and in WAL files that it keeps back.
  U4  A BLOB that a waiting entry refers to is there, and stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from tidelog.datastore.channel_tail import ChannelTail, WaitingBatch
from tidelog.errors import Busy, StaleWrite, UnknownStream, WrongState
from tidelog.formats.channel_batch import stream_of
from tidelog.limits import DATASTORE_QUEUE_BYTES_MAX, UNRECORDED_BYTES_MAX
from tidelog.storage.blob_store import BlobStore
from tidelog.storage.frame_write import BatchWrite, FrameWrite
from tidelog.storage.node_store import NodeStore


class Unrecorded:
    def __init__(
        self, node: NodeStore, blobs: BlobStore, channels: int, *, wal_file_bytes: int
    ) -> None:
        self._node = node
        self._blobs = blobs
        self._wal_file_bytes = wal_file_bytes
        self._lock = threading.Lock()
        self.tails: list[ChannelTail] = []
        self.add_channels(channels)
        self.queued_bytes = 0
        """In memory only."""
        self.bytes = 0
        self._reserved: dict[int, int] = {}
        """Channel → bytes that it will append next, on their way to a replica perhaps."""
        self._epoch = 0
        """The highest epoch whose record has begun."""
        self.boundary = max(store.boundary for store in node.streams.values())
        """The GC boundary, be it that it is just being set."""
        self._referred: set[int] | None = None
        """BLOBs that were referred to since their garbage is being collected."""

    def tail(self, channel: int) -> ChannelTail:
        if not 0 <= channel < len(self.tails):
            raise UnknownStream(f"there is no log channel {channel}, only {len(self.tails)}")
        return self.tails[channel]

    def add_channels(self, count: int) -> None:
        """Have so many channels."""
        for channel in range(len(self.tails), count):
            end = self._node.streams[stream_of(channel)].end_llsn
            self.tails.append(ChannelTail(channel, end, end))

    # -- taking in (any thread) ----------------------------------------------------------------

    def reserve(self, channel: int, size: int) -> None:
        """Keep room for what a channel appends next; Busy if there is none (U3)."""
        with self._lock:
            self._reserved.pop(channel, None)
            others = sum(self._reserved.values())
            self._check_room(self.bytes + others, size)
            self._reserved[channel] = size

    def _check_room(self, held: int, size: int, *, share: int = 1) -> None:
        node, bytes_max = self._node, share * UNRECORDED_BYTES_MAX
        if held and held + size > bytes_max:
            raise Busy(
                f"{held} bytes wait for their epochs to be recorded: "
                "end log sessions and switch the epoch"
            )
        kept_back = node.backlog * self._wal_file_bytes
        if node.backlog_is_full and kept_back > bytes_max and not node.can_flush():
            raise Busy(
                f"entries that were not recorded for long keep {node.backlog} WAL files: "
                "end log sessions and switch the epoch"
            )

    def take_in(self, channel: int, epoch: int, waiting: list[WaitingBatch]) -> bool:
        """Queue batches; False when what is queued has to be written first (U3)."""
        size = sum(batch.stored.size for batch in waiting)
        with self._lock:
            tail = self.tail(channel)
            tail.check_next(epoch, waiting)
            self._check_epoch(epoch)
            self._check_versions(waiting)
            # Who has no room reserved must get further than who has.
            self._check_room(self.bytes, size, share=2)
            if self.queued_bytes and self.queued_bytes + size > DATASTORE_QUEUE_BYTES_MAX:
                return False
            blobs = list(chain.from_iterable(batch.blobs for batch in waiting))
            if blobs:
                self._refer(blobs)
            tail.add(waiting)
            self._reserved.pop(channel, None)
            self.queued_bytes += size
            self.bytes += size
            return True

    def _check_epoch(self, epoch: int) -> None:
        """WrongState if an epoch takes no entries any more (U1)."""
        recorded = max(self._node.streams[stream_of(0)].context.version, self._epoch)
        if epoch <= recorded:
            raise WrongState(f"epoch {epoch} takes no entries: {recorded} is recorded")

    def _check_versions(self, waiting: Sequence[WaitingBatch]) -> None:
        """Refuse writes that a dropped delete may have stood against (U2)."""
        version = min((batch.version_min for batch in waiting), default=self.boundary + 1)
        if 0 < self.boundary >= version:
            raise StaleWrite(
                f"write version {version} is not above the GC boundary {self.boundary}: "
                "write with a newer version"
            )

    def _refer(self, blobs: Sequence[int]) -> None:
        """Entries may refer to BLOBs that are there, and then these stay (U4)."""
        for blob in blobs:
            if self._blobs.size(blob) is None:
                raise WrongState(f"an entry refers to BLOB {blob}, which is not there")
        if self._referred is not None:
            self._referred.update(blobs)
        self._blobs.referred(blobs)

    # -- garbage (any thread) ------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[Callable[[int], bool]]:
        """Tells how to delete a BLOB, unless a waiting entry refers to it.

        Entries that wait when this begins count, and all that come while it lasts.
        """
        with self._lock:
            waiting = (batch for tail in self.tails for batch in tail.batches)
            self._referred = {blob for batch in waiting for blob in batch.blobs}
        try:
            yield self._delete_unreferred
        finally:
            with self._lock:
                self._referred = None

    def _delete_unreferred(self, blob: int) -> bool:
        with self._lock:
            if self._referred is None or blob in self._referred:
                return False
            return self._blobs.delete_unheld(blob)

    # -- writing (committing thread) -------------------------------------------------------------

    @contextmanager
    def recording(self, epoch: int | None) -> Iterator[None]:
        """The epoch takes no further entries; if it was not recorded, it does again (U1)."""
        with self._lock:
            self._epoch = epoch or 0
        try:
            yield
        finally:
            self._epoch = 0

    def unwritten(self) -> list[BatchWrite]:
        """What is in memory only, a channel at a time."""
        with self._lock:
            return [
                BatchWrite(stream_of(tail.channel), batch.stored, batch.count)
                for tail in self.tails
                for batch in tail.unwritten()
            ]

    def ends_of(self, epoch: int, batches: Iterable[BatchWrite]) -> dict[int, int]:
        """Stream → behind its last entry of epochs up to this one, if any of them waits.

        ``batches`` count as written.
        """
        ends: dict[int, int] = {}
        written = {write.stream: write.stored.end_llsn for write in batches}
        with self._lock:
            for tail in self.tails:
                stream = stream_of(tail.channel)
                end = tail.end_of(epoch, max(tail.written_end, written.get(stream, 0)))
                if end:
                    ends[stream] = end
        return ends

    def note_written(self, frame: FrameWrite) -> None:
        """A frame is durable."""
        with self._lock:
            for write in frame.batches:
                self.tails[write.stream - 1].note_written(write.stored.end_llsn)
                self.queued_bytes -= write.stored.size
            for commit in frame.cut.commits if frame.cut else ():
                self.bytes -= self.tails[commit.stream - 1].forget_below(commit.llsn_end)

    def check_cut(self, ends: Mapping[int, int]) -> None:
        with self._lock:
            for channel, end in ends.items():
                self.tails[channel].check_cut(end)

    def cut(self, ends: Mapping[int, int]) -> None:
        """Channels end there now."""
        with self._lock:
            for channel, end in ends.items():
                self._cut_tail(self.tails[channel], end)

    def _cut_tail(self, tail: ChannelTail, end: int) -> None:
        written = tail.written_end
        for batch in tail.cut(end):
            self.bytes -= batch.stored.size
            if batch.stored.first_llsn >= written:
                self.queued_bytes -= batch.stored.size
