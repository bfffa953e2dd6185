"""Reads stored files again and checks every byte: slowly in the background, or all at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import CorruptData
from tidelog.storage.node_store import NodeStore
from tidelog.storage.segments import Segment
from tidelog.storage.stream_store import StreamStore


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome for one file; ``problem`` is empty when it is sound."""

    path: str
    entries: int = 0
    bytes: int = 0
    problem: str = ""


def scrub(node: NodeStore) -> Iterator[Finding]:
    """Check every segment of every stream, and that the live entries are all there."""
    for store in list(node.streams.values()):
        yield from scrub_stream(store)


def scrub_stream(store: StreamStore) -> Iterator[Finding]:
    with store.pins.pinned():
        for segment in store.view.segments:
            yield scrub_segment(store, segment)


def check_blocks(store: StreamStore, segment: Segment) -> Finding:
    """The cheap check: the footer and every batch against their checksums."""
    entries = size = 0
    try:
        with store.opened.opened_anew(segment.path) as reader:
            for batch in reader.read_blocks(segment.first_llsn, segment.file_end_llsn):
                entries += batch.count
                size += batch.length
    except CorruptData as error:
        return Finding(segment.path, problem=str(error))
    return Finding(segment.path, entries, size)


def scrub_segment(store: StreamStore, segment: Segment) -> Finding:
    """Verify one segment: checksums, key index, statistics, and completeness by live indexes."""
    try:
        with store.opened.opened_anew(segment.path) as reader:
            checked = reader.verify(store.place.hash_seed)
            begin = max(segment.first_llsn, store.trim_llsn_end)
            missing = store.snapshot.missing_from(reader.llsns(), begin, segment.end_llsn)
        if missing is not None:
            return Finding(segment.path, problem=f"the live entry {missing} is not there")
    except CorruptData as error:
        return Finding(segment.path, problem=str(error))
    return Finding(segment.path, checked.entries, checked.bytes)
