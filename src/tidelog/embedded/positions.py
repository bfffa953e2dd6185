"""Finds places in a topic: its ends, where a bounded read should stop, and a moment in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, merge
from typing import TYPE_CHECKING

from tidelog.embedded.pages import check_available
from tidelog.errors import BadOption, OutOfRange
from tidelog.formats.batch import Batch, Column
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.positions import Position
from tidelog.storage.stream_store import StreamStore

if TYPE_CHECKING:
    from tidelog.embedded.readable import ReadableLog


def position(engine: ReadableLog, topic: TopicManifest) -> Position:
    """Where the topic ends now: the GLSN that comes next, with the first and the last one."""
    return _at(engine, topic, engine.high_watermark(topic.topic) + 1)


def find_end(
    engine: ReadableLog,
    topic: TopicManifest,
    begin: int,
    *,
    records_max: int = 0,
    bytes_max: int = 0,
    streams: Sequence[int] = (),
) -> Position:
    """Where to end a read from ``begin``: at the end of a cut, within the bounds (0: none).

    A cut that exceeds the bounds by itself is not split, so that a read always gets on.  Only of
    the latest cuts is it known where they ended: older history is split exactly at the bound.
    ``bytes_max`` is about ``streams`` alone, if these are given.
    """
    engine.check_open()
    if records_max < 0 or bytes_max < 0:
        raise BadOption("records_max and bytes_max must not be negative; 0 means no bound")
    check_available(engine, topic, begin)
    end = engine.high_watermark(topic.topic) + 1
    if begin > end:
        raise OutOfRange(f"topic {topic.name!r} has not reached GLSN {begin}: it ends at {end - 1}")
    bound = end
    if records_max:
        bound = min(bound, begin + records_max)
    if bytes_max and begin < bound:
        bound = _byte_bound(engine, streams or topic.streams, begin, bound, bytes_max)
    if begin < bound < end:
        end = min(end, engine.cut_ends(topic.topic).round_down(begin, bound))
    return _at(engine, topic, end)


def find_time(
    engine: ReadableLog,
    topic: TopicManifest,
    timestamp_us: int,
    *,
    streams: Sequence[int] = (),
) -> Position:
    """The first position from which on no entry is older than ``timestamp_us``.

    Of ``streams`` alone, if these are given.  Walks back from the end, a segment at a time, to
    the first entry that is older.
    """
    engine.check_open()
    after = engine.high_watermark(topic.topic) + 1
    begin = engine.first_available(topic)
    found = begin
    for stream in streams or topic.streams:
        last = _last_older(engine.node.streams[stream], found, after, timestamp_us)
        found = max(found, last + 1)
    return _at(engine, topic, min(found, after))


def _at(engine: ReadableLog, topic: TopicManifest, glsn: int) -> Position:
    high = engine.high_watermark(topic.topic)
    return Position(glsn, engine.first_available(topic), high)


def _byte_bound(
    engine: ReadableLog, streams: Sequence[int], begin: int, end: int, bytes_max: int
) -> int:
    """About where ``[begin, end)`` exceeds ``bytes_max``."""
    stores = [engine.node.streams[stream] for stream in streams]
    sweep = _ByteSweep(begin, bytes_max)
    for first, stop, size in merge(*(_sizes(store, begin, end) for store in stores)):
        if sweep.advance(first):
            return min(sweep.at, end)
        sweep.add(stop, size / max(stop - first, 1))
    return min(sweep.at, end) if sweep.advance(end) else end


class _ByteSweep:
    """Moves along the GLSNs and counts bytes, with those of a batch spread evenly over its range.

    Batches of different streams overlap, so several count at once.
    """

    def __init__(self, begin: int, bytes_max: int) -> None:
        self.at = begin
        self._left = float(bytes_max)
        self._density = 0.0
        self._ends: list[tuple[int, float]] = []

    def add(self, stop: int, density: float) -> None:
        """A batch begins here, ends at ``stop`` and has so many bytes for each GLSN."""
        heappush(self._ends, (stop, density))
        self._density += density

    def advance(self, glsn: int) -> bool:
        """Move on to ``glsn``, or to where the bytes are used up: then it is True."""
        while self.at < glsn:
            stop = min(glsn, self._ends[0][0]) if self._ends else glsn
            size = self._density * (stop - self.at)
            if self._ends and size >= self._left:
                self.at += max(int(self._left / self._density), 1)
                return True
            self._left -= size
            self.at = max(stop, self.at)
            while self._ends and self._ends[0][0] <= self.at:
                self._density -= heappop(self._ends)[1]
        return False


def _sizes(store: StreamStore, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(GLSN begin, GLSN end, bytes) of a stream's batches in ``[begin, end)``, from indexes."""
    first, last = store.llsn_at_or_after(begin), store.llsn_at_or_after(end)
    with store.pins.pinned():
        view = store.view
        for segment in view.segments:
            if segment.first_llsn >= last or segment.end_llsn <= first:
                continue
            with store.opened.lease(segment.path) as reader:
                footer = reader.footer
                blocks = footer.blocks
                for number in footer.blocks_between(first, min(last, segment.end_llsn)):
                    llsns = blocks.first_llsn[number], blocks.end_llsn[number]
                    yield _range(footer.runs, *llsns, blocks.length[number])
        for table in view.memtables:
            for stored in table.batches_between(first, last):
                yield _range(table.runs, stored.first_llsn, stored.end_llsn, stored.size)


def _range(runs: GlsnRuns, llsn_begin: int, llsn_end: int, size: int) -> tuple[int, int, int]:
    return runs.glsn_of(llsn_begin), runs.glsn_of(llsn_end - 1) + 1, size


def _last_older(store: StreamStore, begin: int, end: int, timestamp_us: int) -> int:
    """The last GLSN in ``[begin, end)`` of an entry older than ``timestamp_us``; 0 if none is."""
    first, last = store.llsn_at_or_after(begin), store.llsn_at_or_after(end)
    with store.pins.pinned():
        view = store.view
        sources = [(segment.first_llsn, segment.end_llsn) for segment in view.segments]
        sources += [(table.first_llsn, table.end_llsn) for table in view.memtables if table.batches]
        for source_begin, source_end in reversed(sources):
            found = 0
            for piece in store.read(max(first, source_begin), min(last, source_end)):
                found = _last_older_in(piece, timestamp_us) or found
            if found:
                return found
    return 0


def _last_older_in(piece: BatchSlice, timestamp_us: int) -> int:
    """Control entries do not count: they have no time of their own."""
    batch, index = piece.batch, piece.end - 1
    times = _timestamps(batch)
    if times is None and batch.timestamp_at(0) >= timestamp_us:
        return 0
    while index >= piece.begin and (
        (times is not None and times[index] >= timestamp_us) or batch.kind_at(index) == Kind.CONTROL
    ):
        index -= 1
    return piece.runs.glsn_of(batch.llsn_at(index)) if index >= piece.begin else 0


def _timestamps(batch: Batch) -> memoryview | None:
    return batch.column(Column.TIMESTAMPS)
