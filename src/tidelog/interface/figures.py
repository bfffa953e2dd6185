"""Figures of a log, as values that print and serialise well.  No state."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tidelog.interface.cluster_figures import ClusterStatus
from tidelog.interface.readers import ReaderFacts

__all__ = [
    "ClusterStatus",
    "CompactionResult",
    "LogStats",
    "PlanOutcome",
    "StreamStats",
    "TopicStats",
]


class StreamStats(msgspec.Struct, frozen=True):
    stream: int
    end_llsn: int
    ordered_end_llsn: int
    segments: int
    segment_bytes: int
    live_bytes: int
    dead_bytes: int
    entries: int
    """Entries in segments."""
    live_entries: int
    """Of these, not known to be dead."""
    memtable_bytes: int
    snapshot_index: int
    trim_llsn_end: int
    pinned_files: int
    """Replaced files that a reader still holds."""
    snapshot_entries: int
    """Entries that the last snapshot found live."""
    unsettled_entries: int
    """Entries behind the last snapshot: what is dead among them is not known yet."""
    delete_segments: tuple[int, ...]
    """Segments that a compaction would delete, and, below, rewrite."""
    rewrite_groups: tuple[tuple[int, ...], ...]
    reclaimable_bytes: int
    delete_horizon: int
    """A reader that goes on before this GLSN may have missed a delete that compaction dropped."""
    dropped_deletes: int
    """How many such deletes there were."""
    waiting_segments: int = 0
    """Of ``rewrite_groups``, those that wait for readers: see ``CompactionResult.waiting``."""
    gc_boundary: int = 0
    """Of each key only the newest write at or below it is needed; with GLSNs as versions, all."""


class TopicStats(msgspec.Struct, frozen=True):
    topic: str
    versions: str
    key_streams: int
    """Its first log streams, which keys are spread over."""
    high_watermark: int
    first_available: int
    streams: tuple[StreamStats, ...]
    delete_mark: int = 0
    """Another number with each delete that a replica drops, and with those that can be asked."""

    @property
    def delete_horizon(self) -> int:
        """A reader that goes on before this GLSN may have missed a delete, unless it began with
        nothing when ``delete_mark`` was what it is after the read.
        """
        return max(stream.delete_horizon for stream in self.streams)

    @property
    def dropped_deletes(self) -> int:
        return sum(stream.dropped_deletes for stream in self.streams)

    @property
    def segments(self) -> int:
        return sum(stream.segments for stream in self.streams)

    @property
    def segment_bytes(self) -> int:
        return sum(stream.segment_bytes for stream in self.streams)

    @property
    def dead_bytes(self) -> int:
        return sum(stream.dead_bytes for stream in self.streams)


class LogStats(msgspec.Struct, frozen=True):
    path: str
    log_id: str
    disk_bytes: int
    topics: tuple[TopicStats, ...]
    wal_file: int
    wal_files: int
    """Files of the WAL on disk, spares among them."""
    wal_disk_bytes: int
    wal_backlog_files: int
    wal_frames: int
    wal_bytes: int
    flushes: int
    snapshots: int
    minor_compactions: int
    major_compactions: int
    compaction_failures: int
    last_compaction_failure: str
    deleted_segments: int
    rewritten_segments: int
    reclaimed_bytes: int
    compaction_seconds: float
    scrubbed_segments: int
    damaged_files: tuple[str, ...]
    """What the background scrub found wrong."""
    readers: tuple[ReaderFacts, ...] = ()
    """Who gave a name and was heard of lately."""


@dataclass(slots=True)
class CompactionResult:
    """What a run did."""

    deleted: int = 0
    rewritten: int = 0
    groups: int = 0
    reclaimed_bytes: int = 0
    waiting: int = 0
    """Segments that stay until nobody reads a deleted one any more that lies between them."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: CompactionResult) -> None:
        self.deleted += other.deleted
        self.rewritten += other.rewritten
        self.groups += other.groups
        self.reclaimed_bytes += other.reclaimed_bytes
        self.waiting += other.waiting
        self.failures.extend(other.failures)


class PlanOutcome(msgspec.Struct, frozen=True):
    """What a replica of a log stream did with a part of a compaction plan."""

    stream: int
    claims: int
    """Entries that the plan calls dead."""
    dead: int
    """Of these, dead here; the others went before, or must stay for something that is only here."""
    doubtful: int
    """Of the others, those that must stay."""
    compaction: CompactionResult
    node: int = 0
    """Of a cluster."""
    refused: str = ""
    """Why this replica took nothing of it, while others did."""
