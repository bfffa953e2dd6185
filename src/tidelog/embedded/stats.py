"""Gathers the figures of an open log.  No state."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.compaction.plan import plan_major, plan_minor
from tidelog.embedded.readable import KeptLog
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.figures import LogStats, StreamStats, TopicStats
from tidelog.interface.readers import ReaderFacts, lagging
from tidelog.storage.compaction import segment_facts, settled_index, waiting_segments
from tidelog.storage.node_store import WAL_DIRECTORY
from tidelog.storage.vfs import FileKind, Vfs


def topic_stats(engine: KeptLog, topic: TopicManifest) -> TopicStats:
    here = engine.node.streams
    streams = tuple(_stream_stats(engine, stream) for stream in topic.streams if stream in here)
    return TopicStats(
        topic=topic.name,
        versions=topic.versions,
        key_streams=topic.key_streams,
        high_watermark=engine.high_watermark(topic.topic),
        first_available=engine.first_available(topic),
        streams=streams,
        delete_mark=sum(stream.dropped_deletes for stream in streams),
    )


def _stream_stats(engine: KeptLog, stream: int) -> StreamStats:
    store = engine.node.streams[stream]
    facts, settled = segment_facts(store), settled_index(store)
    doomed = set(plan_minor(facts, settled))
    groups = plan_major(facts, settled)
    chosen = doomed.union(number for group in groups for number in group.numbers)
    size = sum(fact.bytes for fact in facts)
    live = sum(fact.live_bytes for fact in facts)
    snapshot = store.snapshot
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
        snapshot_index=snapshot.index,
        trim_llsn_end=store.trim_llsn_end,
        pinned_files=store.pins.waiting,
        snapshot_entries=len(snapshot.live),
        unsettled_entries=max(store.ordered_end - 1 - settled, 0),
        delete_segments=tuple(sorted(doomed)),
        rewrite_groups=tuple(tuple(group.numbers) for group in groups),
        reclaimable_bytes=sum(
            fact.bytes - (0 if fact.number in doomed else fact.live_bytes)
            for fact in facts
            if fact.number in chosen
        ),
        delete_horizon=snapshot.deletes.glsn,
        dropped_deletes=snapshot.deletes.dropped,
        waiting_segments=waiting_segments(store, groups),
        gc_boundary=store.current_boundary(),
    )


def log_stats(engine: KeptLog, readers: Sequence[ReaderFacts] = ()) -> LogStats:
    """The figures of a log; ``readers``: who was heard of lately."""
    node, upkeep = engine.node, engine.maintenance
    counters = upkeep.counters
    highs = {topic.name: engine.high_watermark(topic.topic) for topic in node.topics.values()}
    return LogStats(
        path=engine.path,
        log_id=node.manifest.log_id.hex(),
        disk_bytes=_size_of(node.vfs, engine.path),
        topics=tuple(
            topic_stats(engine, topic)
            for topic in sorted(node.topics.values(), key=lambda topic: topic.name)
        ),
        wal_file=node.wal.number,
        wal_files=len(node.vfs.list_dir(f"{engine.path}/{WAL_DIRECTORY}")),
        wal_disk_bytes=_size_of(node.vfs, f"{engine.path}/{WAL_DIRECTORY}"),
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
        readers=lagging(readers, highs),
    )


def _size_of(vfs: Vfs, path: str) -> int:
    """Bytes of all files below a directory; files that go meanwhile do not count."""
    total = 0
    for name in vfs.list_dir(path):
        found = vfs.stat(f"{path}/{name}")
        if found is None:
            continue
        if found.kind is FileKind.DIRECTORY:
            total += _size_of(vfs, f"{path}/{name}")
        else:
            total += found.size
    return total
