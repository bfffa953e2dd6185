"""Streams of one topic that share their keys: seen at one moment, judged together.

A key may be written in any of these streams, and a delete in one hides writes in all.

Invariants:
  J1  All streams are seen between two frames: a cut shows in all of them or in none.
  J2  A write that is not ordered yet may become visible below a delete that is.  So the GC boundary
      of a pass lies below every such write.  Writes that come later are above the boundary.
  J3  What a pass does not find any more is gone for good: no crash brings it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tidelog.formats.channel_batch import version_min
from tidelog.formats.manifest import StreamState, TopicManifest
from tidelog.storage.liveness import (
    Liveness,
    MemorySource,
    StreamSources,
    compute_shared_liveness,
)
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.storage.segments import StreamView
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.stream_store import StreamStore


@dataclass(frozen=True, slots=True)
class SeenStream:
    """A stream as it was at one moment."""

    store: StreamStore
    state: StreamState
    view: StreamView
    snapshot: SnapshotState
    unordered: tuple[StoredBatch, ...]

    @property
    def index(self) -> int:
        """The last LLSN that is ordered."""
        return self.state.context.llsn_end - 1

    def sources(self) -> StreamSources:
        store = self.store
        memory = MemorySource.of(self.view.memtables, self.index, store.place.hash_seed)
        return StreamSources(self.view.segments, memory, self.index, self.state.trim_llsn_end)


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """All streams of a topic at one moment (J1)."""

    streams: tuple[SeenStream, ...]
    boundary: int
    """Of each key only the newest write at or below is needed (J2)."""

    @property
    def place(self) -> tuple[tuple[int, ...], int]:
        """What the outcome of a pass depends on, apart from files."""
        return tuple(seen.index for seen in self.streams), self.boundary

    def liveness(self, boundary: int) -> list[Liveness]:
        """What is live of the ordered entries of each stream."""
        sources = [seen.sources() for seen in self.streams]
        return compute_shared_liveness(sources, self.streams[0].store.opened, boundary=boundary)


def see_topic(node: NodeStore, topic: TopicManifest) -> SeenTopic:
    """The streams of a topic between two frames."""
    stores = [node.streams[stream] for stream in topic.streams]
    with node.applying:
        seen = tuple(_see(store) for store in stores)
    boundary = max(stream.state.boundary for stream in seen)
    return SeenTopic(seen, below_unordered(boundary, seen))


@contextmanager
def held_topic(node: NodeStore, topic: TopicManifest) -> Iterator[SeenTopic]:
    """The same, with all files held in place meanwhile."""
    with ExitStack() as stack:
        for stream in topic.streams:
            stack.enter_context(node.streams[stream].pins.pinned())
        yield see_topic(node, topic)


def below_unordered(boundary: int, streams: Sequence[SeenStream]) -> int:
    """The boundary, lowered until it lies below every write that is not ordered yet (J2)."""
    for seen in streams:
        for stored in seen.unordered:
            boundary = min(boundary, version_min(stored.view()) - 1)
    return max(boundary, 0)


def snapshot_topic(node: NodeStore, seen: SeenTopic) -> bool:
    """Snapshot all streams by one pass; False if that has to wait."""
    if node.half_flushed:
        return False  # Dead entries that a flush left out would come back from the WAL (J3).
    for stream in seen.streams:
        # Deleted segments must not come back when the deletes that stand against them are gone.
        node.vfs.sync_dir(stream.store.place.directory)
    for stream, found in zip(seen.streams, seen.liveness(seen.boundary), strict=True):
        if stream.index:
            stream.store.publish(stream.state, found, stream.snapshot)
    return True


def _see(store: StreamStore) -> SeenStream:
    state, view = store.state(), store.view
    end = state.context.llsn_end
    unordered = tuple(
        stored
        for table in view.memtables
        for stored in table.batches_between(end, max(end, store.end_llsn))
    )
    return SeenStream(store, state, view, store.snapshot, unordered)
