"""Reads a topic in GLSN order over all of its streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.embedded.pages import check_available
from tidelog.errors import OutOfRange
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.records import Record, records_of
from tidelog.storage.stream_store import StreamStore

if TYPE_CHECKING:
    from tidelog.embedded.readable import ReadableLog


def read_range(
    engine: ReadableLog, topic: TopicManifest, begin: int, end: int, stream: int | None = None
) -> Iterator[Record]:
    """The records in ``[begin, end)``; both must be positions that the topic has reached.

    Of one log stream alone if ``stream`` is given.
    """
    engine.check_open()
    check_available(engine, topic, begin)
    high = engine.high_watermark(topic.topic)
    if begin > high + 1 or end > high + 1:
        raise OutOfRange(
            f"topic {topic.name!r} has not reached GLSN {max(begin, end - 1)}: it ends at {high}"
        )
    wanted = topic.streams if stream is None else (stream,)
    stores = [engine.node.streams[number] for number in wanted]
    if len(stores) == 1:
        records = _scan(stores[0], begin, end)
    else:
        records = merge(*(_scan(store, begin, end) for store in stores), key=attrgetter("glsn"))
    return chain.from_iterable(_checked(engine, topic, begin, records))


def _checked(
    engine: ReadableLog, topic: TopicManifest, begin: int, records: Iterator[Record]
) -> Iterator[Iterable[Record]]:
    """The records, unless some were trimmed before the first of them was asked for."""
    first = next(records, None)
    # Only now files are held: what was trimmed since the call may be missing.
    check_available(engine, topic, begin)
    if first is not None:
        yield (first,)
        yield records


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
