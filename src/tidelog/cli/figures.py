"""Figures of topics and log streams as JSON fields and table rows.  No state."""

from __future__ import annotations

from typing import Any, Final

from tidelog.cli.output import Size
from tidelog.interface.figures import StreamStats, TopicStats

STREAM_HEADERS: Final = (
    "stream", "next LLSN", "segments", "entries", "live", "bytes", "dead", "in memory", "snapshot"
)  # fmt: skip
_COMPACTION_FIELDS: Final = (
    "stream", "segments", "entries", "live_entries", "segment_bytes", "live_bytes", "dead_bytes",
    "snapshot_index", "unsettled_entries", "delete_segments", "rewrite_groups",
    "waiting_segments", "reclaimable_bytes",
)  # fmt: skip
_STREAM_FIELDS: Final = (
    "stream", "end_llsn", "ordered_end_llsn", "segments", "segment_bytes", "live_bytes",
    "dead_bytes", "entries", "live_entries", "memtable_bytes", "snapshot_index", "trim_llsn_end",
    "pinned_files", "delete_horizon", "dropped_deletes",
)  # fmt: skip


def topic_fields(topic: TopicStats) -> dict[str, Any]:
    """A topic with its streams."""
    return {
        "topic": topic.topic,
        "versions": topic.versions,
        "high_watermark": topic.high_watermark,
        "first_available": topic.first_available,
        "delete_horizon": topic.delete_horizon,
        "dropped_deletes": topic.dropped_deletes,
        "delete_mark": topic.delete_mark,
        "streams": [
            {name: getattr(stream, name) for name in _STREAM_FIELDS} for stream in topic.streams
        ],
        "key_streams": topic.key_streams,
    }


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


def compaction_fields(stream: StreamStats) -> dict[str, Any]:
    """What compaction knows of a stream, and what `compact run` would do to it."""
    return {name: getattr(stream, name) for name in _COMPACTION_FIELDS}
