"""Reads a topic a page at a time: whole batches of its streams, and where the page ends.

Invariants:
  P1  A page holds all entries of the streams asked for with GLSNs in ``[glsn_begin, glsn_end)``
      that compaction has left, and no others.
  P2  A page that is not at the end of its range gets on by at least one GLSN.
  P3  A page is bounded in bytes, pieces and runs; ``page_filling`` says how.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.embedded.page_filling import PageFilling, StreamPiece
from tidelog.errors import BadEntry, OutOfRange, Trimmed, UnknownStream
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.routing import stream_of_key
from tidelog.limits import PAGE_BYTES
from tidelog.storage.stream_store import StreamStore

if TYPE_CHECKING:
    from tidelog.embedded.readable import ReadableLog

_FIND_SECONDS: Final = 10.0
"""How long a key is looked for again that compaction takes away between two looks."""
_Walk: TypeAlias = Generator[tuple[int, int, BatchSlice], None, None]
"""(first GLSN, log stream, piece), ascending."""


@dataclass(frozen=True, slots=True)
class EnginePage:
    """All entries with GLSNs in ``[glsn_begin, glsn_end)``; pieces ascend by their first GLSN."""

    pieces: list[StreamPiece]
    glsn_begin: int
    glsn_end: int
    first_available: int
    high_watermark: int


def read_page(
    engine: ReadableLog,
    topic: TopicManifest,
    begin: int,
    end: int = 0,
    streams: Sequence[int] = (),
    bytes_max: int = 0,
) -> EnginePage:
    """The entries from ``begin`` on, up to ``end`` at most (0: as far as the topic goes).

    ``bytes_max`` (0: ``PAGE_BYTES``) bounds what the pieces have together, unless a batch has more.
    """
    engine.check_open()
    stores = [engine.node.streams[stream] for stream in chosen_streams(topic, streams)]
    high = engine.high_watermark(topic.topic)
    check_available(engine, topic, begin)
    if begin > high + 1:
        raise OutOfRange(f"topic {topic.name!r} has not reached GLSN {begin}: it ends at {high}")
    end = min(end, high + 1) if end else high + 1
    pieces: list[StreamPiece] = []
    if begin < end:
        pieces, end = take_pieces(stores, begin, end, bytes_max or PAGE_BYTES)
    # Looked at again: what was trimmed meanwhile may be missing from the pieces (P1).
    available = check_available(engine, topic, begin)
    return EnginePage(pieces, begin, max(begin, end), available, high)


def read_pages(
    engine: ReadableLog,
    topic: TopicManifest,
    begin: int,
    end: int,
    streams: Sequence[int] = (),
    bytes_max: int = 0,
) -> Iterator[list[StreamPiece]]:
    """All of ``[begin, end)``, page by page; both must be positions that the topic has reached."""
    high = engine.high_watermark(topic.topic)
    if end > high + 1:
        raise OutOfRange(f"topic {topic.name!r} has not reached GLSN {end - 1}: it ends at {high}")
    while begin < end:
        page = read_page(engine, topic, begin, end, streams, bytes_max)
        if page.pieces:
            yield page.pieces
        begin = page.glsn_end


def find_piece(
    engine: ReadableLog, topic: TopicManifest, key: bytes, storage_id: int
) -> StreamPiece | None:
    """The newest entry of a key, as a slice of its batch; None if there is none or it is gone."""
    if not key:
        raise BadEntry("a key has at least one byte")
    engine.check_open()
    store = engine.node.streams[stream_of_key(topic, key)]
    hashed = hash_key(storage_id, key, engine.node.manifest.hash_seed)
    deadline = monotonic() + _FIND_SECONDS
    while True:
        found = store.find_key(storage_id, key, hashed)
        if found is None or found.kind is not Kind.PUT:
            return None
        for piece in store.read(found.llsn, found.llsn + 1):
            if piece.begin < piece.end:
                return store.stream, piece
        # Compaction may have moved on between the two looks; then there is a newer write.
        if monotonic() > deadline:
            return None


def check_available(engine: ReadableLog, topic: TopicManifest, begin: int) -> int:
    """The first available GLSN; raises if ``begin`` lies before it."""
    if begin < 1:
        raise OutOfRange(f"GLSNs start at 1, not {begin}")
    available = engine.first_available(topic)
    if begin < available:
        raise Trimmed(
            f"GLSN {begin} of topic {topic.name!r} was trimmed; the first available is {available}",
            first_available=available,
        )
    return available


def chosen_streams(topic: TopicManifest, streams: Sequence[int]) -> Sequence[int]:
    if not streams:
        return topic.streams
    unknown = sorted(set(streams).difference(topic.streams))
    if unknown:
        raise UnknownStream(
            f"topic {topic.name!r} has no log stream {unknown[0]}, only {list(topic.streams)}"
        )
    return sorted(set(streams))


def take_pieces(
    stores: Sequence[StreamStore],
    begin: int,
    end: int,
    bytes_max: int,
    fetched: Sequence[Sequence[StreamPiece]] = (),
) -> tuple[list[StreamPiece], int]:
    """The first pieces of ``[begin, end)`` that fill a page, and where the page ends.

    ``fetched``: what other stores have of that range, each ascending and complete.
    """
    filling = PageFilling(bytes_max)
    walks = [_walk(store, begin, end) for store in stores]
    walks += [_walk_fetched(pieces, end) for pieces in fetched]
    try:
        for glsn, stream, piece in walks[0] if len(walks) == 1 else _merged(walks):
            if filling.is_full or not filling.may_end_at(glsn):
                end = glsn
                break
            filling.add(glsn, stream, piece)
    finally:
        for walk in walks:
            walk.close()  # So that no file stays pinned.
    end = filling.last_end(end)
    return filling.cut(end), end


def _merged(walks: Sequence[_Walk]) -> Iterator[tuple[int, int, BatchSlice]]:
    return merge(*walks, key=itemgetter(0))


def _walk_fetched(pieces: Sequence[StreamPiece], end: int) -> _Walk:
    for stream, piece in pieces:
        first = piece.runs.glsn_of(piece.batch.llsn_at(piece.begin))
        if first >= end:
            return
        yield first, stream, piece


def _walk(store: StreamStore, begin: int, end: int) -> _Walk:
    """(first GLSN, stream, piece) of one stream's entries in ``[begin, end)``, ascending."""
    llsn_end = store.llsn_at_or_after(end)
    store.pins.note_reader()
    for piece in store.read(store.llsn_at_or_after(begin), llsn_end):
        if piece.begin < piece.end:
            first = piece.batch.llsn_at(piece.begin)
            yield piece.runs.glsn_of(first), store.stream, piece
