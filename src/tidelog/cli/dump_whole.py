"""Snapshots, live indexes and manifests: files that can be read as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.cli.dump_files import Dump, Item
from tidelog.cli.output import Id
from tidelog.errors import CorruptData
from tidelog.formats.live_index import decode_live_index
from tidelog.formats.manifest import StreamState, decode_manifest
from tidelog.formats.snapshot import decode_snapshot


def dump_snapshot(file: str, limit: int | None) -> Dump:
    data, dump = _read(file, "snapshot")
    try:
        snapshot = decode_snapshot(data)
    except CorruptData as error:
        return _broken(dump, error)
    dump.summary |= {
        "term": snapshot.term,
        "index": snapshot.index,
        "live_entries": snapshot.live_count,
        **_state_fields(snapshot.state),
    }
    producers = snapshot.state.producers
    dump.take(
        (
            {"producer": Id(p.producer), "sequence": p.sequence, "appends": len(p.appends)}
            for p in producers
        ),
        limit,
    )
    return dump


def dump_live(file: str, limit: int | None) -> Dump:
    data, dump = _read(file, "live")
    try:
        found = decode_live_index(data)
    except CorruptData as error:
        return _broken(dump, error)
    dump.summary |= {
        "term": found.term,
        "index": found.index,
        "live_entries": len(found.live),
        "dead_entries": found.index - len(found.live),
    }
    dump.take(_ranges(found.live), limit)
    return dump


def _ranges(live: Any) -> Any:
    """Live LLSNs as ranges ``[begin, end)``."""
    begin = end = 0
    for llsn in live:
        if llsn != end:
            if end:
                yield {"begin": begin, "end": end}
            begin = llsn
        end = llsn + 1
    if end:
        yield {"begin": begin, "end": end}


def dump_manifest(file: str, limit: int | None) -> Dump:
    data, dump = _read(file, "manifest")
    try:
        manifest = decode_manifest(data)
    except CorruptData as error:
        return _broken(dump, error)
    dump.summary |= {
        "log_id": manifest.log_id.hex(),
        "hash_seed": Id(manifest.hash_seed),
        "wal_file": manifest.wal_file,
        "wal_sequence": manifest.wal_sequence,
        "next_topic": manifest.next_topic,
        "next_stream": manifest.next_stream,
        "topics": len(manifest.topics),
        "streams": len(manifest.streams),
    }
    topics = {topic.topic: topic for topic in manifest.topics}
    items = []
    for stream in manifest.streams:
        topic = topics.get(stream.topic)
        items.append(
            {
                "topic": topic.name if topic else None,
                "versions": topic.versions if topic else None,
                "stream": stream.stream,
                "term": stream.term,
                "next_segment": stream.next_segment,
                "stored_end": stream.stored_end,
                "truncations": len(stream.limits),
                **_state_fields(stream.state),
            }
        )
    dump.take(items, limit)
    return dump


def _state_fields(state: StreamState) -> Item:
    context = state.context
    return {
        "version": context.version,
        "high_watermark": context.high_watermark,
        "glsn_end": context.glsn_end,
        "llsn_end": context.llsn_end,
        "trim_glsn_end": state.trim_glsn_end,
        "trim_llsn_end": state.trim_llsn_end,
        "gc_boundary": state.boundary,
        "producers": len(state.producers),
    }


def _read(file: str, kind: str) -> tuple[bytes, Dump]:
    data = Path(file).read_bytes()
    return data, Dump(file, kind, {"file_bytes": len(data)})


def _broken(dump: Dump, error: CorruptData) -> Dump:
    """Its checksum covers all of it, so nothing in it can be trusted."""
    dump.problem = f"{error}; nothing in it can be trusted"
    return dump
