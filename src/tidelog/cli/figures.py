"""Figures of topics and log streams as JSON fields and table rows.  No state."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tidelog.cli.output import Size
from tidelog.core.compaction.plan import plan_major, plan_minor
from tidelog.embedded.engine import Engine
from tidelog.embedded.stats import topic_stats
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.compaction import segment_facts, settled_index

STREAM_HEADERS: Final = (
    "stream", "next LLSN", "segments", "entries", "live", "bytes", "dead", "in memory", "snapshot"
)  # fmt: skip


def topic_fields(engine: Engine, topic: TopicManifest) -> dict[str, Any]:
    """A topic with its streams."""
    fields: dict[str, Any] = msgspec.to_builtins(topic_stats(engine, topic))
    fields["key_streams"] = topic.key_streams
    return fields


def stream_row(stream: dict[str, Any]) -> tuple[object, ...]:
    return (
        stream["stream"],
        stream["end_llsn"],
        stream["segments"],
        stream["entries"],
        stream["live_entries"],
        Size(stream["segment_bytes"]),
        Size(stream["dead_bytes"]),
        Size(stream["memtable_bytes"]),
        stream["snapshot_index"],
    )


def compaction_fields(engine: Engine, stream: int) -> dict[str, Any]:
    """What compaction knows of a stream, and what `compact run` would do to it."""
    store = engine.node.streams[stream]
    facts, settled = segment_facts(store), settled_index(store)
    doomed = set(plan_minor(facts, settled))
    groups = plan_major(facts, settled)
    chosen = {number for group in groups for number in group.numbers}
    size = sum(fact.bytes for fact in facts)
    live = sum(fact.live_bytes for fact in facts)
    return {
        "stream": stream,
        "segments": len(facts),
        "entries": sum(fact.entries for fact in facts),
        "live_entries": sum(fact.live_entries for fact in facts),
        "segment_bytes": size,
        "live_bytes": live,
        "dead_bytes": size - live,
        "snapshot_index": store.snapshot.index,
        "unsettled_entries": max(store.ordered_end - 1 - settled, 0),
        "delete_segments": sorted(doomed),
        "rewrite_groups": [list(group.numbers) for group in groups],
        "reclaimable_bytes": sum(
            fact.bytes - (0 if fact.number in doomed else fact.live_bytes)
            for fact in facts
            if fact.number in doomed | chosen
        ),
    }
