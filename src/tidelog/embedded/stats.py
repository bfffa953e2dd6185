"""Figures of an open log, as values that print and serialise well.  No state."""

from __future__ import annotations

import msgspec

from tidelog.embedded.engine import Engine
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.compaction import segment_facts


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


class TopicStats(msgspec.Struct, frozen=True):
    topic: str
    versions: str
    high_watermark: int
    first_available: int
    streams: tuple[StreamStats, ...]

    @property
    def segment_bytes(self) -> int:
        return sum(stream.segment_bytes for stream in self.streams)

    @property
    def dead_bytes(self) -> int:
        return sum(stream.dead_bytes for stream in self.streams)


class LogStats(msgspec.Struct, frozen=True):
    path: str
    topics: tuple[TopicStats, ...]
    wal_file: int
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


def topic_stats(engine: Engine, topic: TopicManifest) -> TopicStats:
    streams = tuple(_stream_stats(engine, stream) for stream in topic.streams)
    first = max(engine.node.streams[stream].trim_glsn_end for stream in topic.streams)
    return TopicStats(
        topic=topic.name,
        versions=topic.versions,
        high_watermark=engine.high_watermark(topic.topic),
        first_available=first,
        streams=streams,
    )


def _stream_stats(engine: Engine, stream: int) -> StreamStats:
    store = engine.node.streams[stream]
    facts = segment_facts(store)
    size = sum(fact.bytes for fact in facts)
    live = sum(fact.live_bytes for fact in facts)
    return StreamStats(
        stream=stream,
        end_llsn=store.end_llsn,
        ordered_end_llsn=store.ordered_end,
        segments=len(facts),
        segment_bytes=size,
        live_bytes=live,
        dead_bytes=size - live,
        entries=sum(fact.entries for fact in facts),
        live_entries=sum(fact.live_entries for fact in facts),
        memtable_bytes=sum(table.size for table in store.view.memtables),
        snapshot_index=store.snapshot.index,
        trim_llsn_end=store.trim_llsn_end,
        pinned_files=store.pins.waiting,
    )


def log_stats(engine: Engine) -> LogStats:
    node, upkeep = engine.node, engine.maintenance
    counters = upkeep.counters
    return LogStats(
        path=engine.path,
        topics=tuple(topic_stats(engine, topic) for topic in node.topics.values()),
        wal_file=node.wal.number,
        wal_backlog_files=node.backlog,
        wal_frames=node.wal.frames,
        wal_bytes=node.wal.bytes_written,
        flushes=upkeep.flushes,
        snapshots=upkeep.snapshots,
        minor_compactions=counters.minor_runs,
        major_compactions=counters.major_runs,
        compaction_failures=counters.failures,
        last_compaction_failure=counters.last_failure,
        deleted_segments=counters.deleted_segments,
        rewritten_segments=counters.rewritten_segments,
        reclaimed_bytes=counters.reclaimed_bytes,
        compaction_seconds=counters.seconds,
        scrubbed_segments=upkeep.scrubbed,
        damaged_files=tuple(upkeep.damage.values()),
    )
