"""Reads a topic in GLSN order over all of its streams."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.errors import OutOfRange, Trimmed
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.records import Record, records_of
from tidelog.storage.stream_store import StreamStore

if TYPE_CHECKING:
    from tidelog.embedded.readable import ReadableLog


def read_range(engine: ReadableLog, topic: TopicManifest, begin: int, end: int) -> Iterator[Record]:
    """The records in ``[begin, end)``; both must be positions that the topic has reached."""
    engine.check_open()
    available = engine.first_available(topic)
    if begin < available:
        raise Trimmed(
            f"GLSN {begin} of topic {topic.name!r} was trimmed; the first available is {available}",
            first_available=available,
        )
    high = engine.high_watermark(topic.topic)
    if begin > high + 1 or end > high + 1:
        raise OutOfRange(
            f"topic {topic.name!r} has not reached GLSN {max(begin, end - 1)}: it ends at {high}"
        )
    stores = [engine.node.streams[stream] for stream in topic.streams]
    if len(stores) == 1:
        return _scan(stores[0], begin, end)
    return merge(*(_scan(store, begin, end) for store in stores), key=attrgetter("glsn"))


def read_some(
    engine: ReadableLog, topic: TopicManifest, begin: int, end: int, stream: int | None
) -> Iterator[Record]:
    """The same of one log stream alone; None: of all."""
    records = read_range(engine, topic, begin, end)
    if stream is None or len(topic.streams) == 1:
        return records
    return _scan(engine.node.streams[stream], begin, end)


def _scan(store: StreamStore, begin: int, end: int) -> Iterator[Record]:
    """One stream's records with GLSNs in ``[begin, end)``, a batch in memory at a time."""
    llsn_begin = store.llsn_at_or_after(begin)
    llsn_end = store.llsn_at_or_after(end)
    store.pins.note_reader()
    pieces = store.read(llsn_begin, llsn_end)
    return chain.from_iterable(records_of(store.stream, piece) for piece in pieces)


def read_one(store: StreamStore, llsn: int) -> Record | None:
    """The record at an LLSN; None if it is not there any more."""
    for piece in store.read(llsn, llsn + 1):
        for record in records_of(store.stream, piece):
            return record
    return None
