"""Computes which entries of a stream are live, with a bounded amount of memory.

Streams of a topic may share their keys; then they are looked at together.

Every source (segment or memtable) gives its key rows sorted by hash.  The hash space is walked
in ranges, so that all rows of one key meet in one call of the pure rule
(``core.compaction.live``) and only a bounded number of rows is in memory at a time.

A key that was written very often still has all its rows in one range.  Therefore rows are
folded while they are gathered: what stays of the rows so far are the live ones and the
witnesses, dead rows that can still decide about others (``LiveRows.witnesses``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap64

from tidelog.core.compaction.explain import KIND_DELETE, StorageDelete
from tidelog.core.compaction.live import (
    LiveRows,
    live_rows,
    live_storage_deletes,
    silent_storage_deletes,
)
from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.bitmaps import bitmap_of
from tidelog.formats.entry import Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import build_rows
from tidelog.formats.key_rows import KeyRows, concat_rows, constant, no_rows
from tidelog.formats.segment import SpecialEntry
from tidelog.invariants import check
from tidelog.limits import LIVENESS_ROWS_MAX
from tidelog.storage.memtable import Memtable, TableContent
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.segments import Segment

Llsns: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint64]]

_HASH_END = 1 << 64


@dataclass(frozen=True, slots=True)
class MemorySource:
    """The key rows of what is not in segments yet, and the LLSNs it holds."""

    rows: tuple[KeyRows, ...]
    """Those of each memtable, older ones first, sorted."""
    present: BitMap64
    specials: tuple[SpecialEntry, ...]

    @classmethod
    def of(cls, memtables: Sequence[Memtable], index: int, hash_seed: int) -> MemorySource:
        """What memtables hold up to ``index``; all of that must be ordered."""
        parts: list[KeyRows] = []
        present = BitMap64()
        specials: list[SpecialEntry] = []
        for table in memtables:
            # Views of now: the active memtable may grow while this one is looked at.
            batches = [stored.view() for stored in table.batches if stored.first_llsn <= index]
            if not batches:
                continue
            is_whole = batches[-1].end_llsn <= index + 1
            content = table.content_of(len(batches)) if is_whole else None
            if content is None:
                content = _content(batches, GlsnRuns(table.runs.slices(0, index + 1)), hash_seed)
                if is_whole:
                    table.note_content(len(batches), content)
            parts.append(content.rows)
            specials.extend(content.specials)
            present |= content.present
        return cls(tuple(parts), present, tuple(specials))

    @property
    def keyed(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.rows))

    def between(self, begin: int, end: int) -> Iterator[KeyRows]:
        """The rows of each memtable with hashes in ``[begin, end)``."""
        for rows in self.rows:
            yield rows.between(begin, end)


@dataclass(frozen=True, slots=True)
class Liveness:
    """The outcome: the live LLSNs, and per segment the bytes that its dead keyed entries take.

    ``silent`` are the dead deletes of which nothing tells any more (L9).
    """

    live: BitMap64
    dead_bytes: dict[int, int]
    silent: BitMap64


@dataclass(frozen=True, slots=True)
class StreamSources:
    """What is looked at of one stream: its entries up to ``index``."""

    segments: Sequence[Segment]
    memory: MemorySource
    index: int
    trim_llsn_end: int = 1


@dataclass(slots=True)
class _Gathered:
    """Rows of one hash range with the number of the source of each."""

    rows: KeyRows
    sources: np.ndarray[tuple[int], np.dtype[np.int64]]


def compute_liveness(
    segments: Sequence[Segment],
    opened: OpenSegments,
    memory: MemorySource,
    *,
    index: int,
    boundary: int,
    trim_llsn_end: int,
    rows_max: int = LIVENESS_ROWS_MAX,
    keep_deletes: bool = False,
) -> Liveness:
    """Which of the entries of a stream up to ``index`` are live under the GC ``boundary``.

    ``keep_deletes``: its keys are written in other streams too, and deletes may be needed there.
    """
    stream = StreamSources(segments, memory, index, trim_llsn_end)
    (found,) = _compute([stream], opened, boundary, rows_max, keep_deletes=keep_deletes)
    return found


def compute_shared_liveness(
    streams: Sequence[StreamSources],
    opened: OpenSegments,
    *,
    boundary: int,
    rows_max: int = LIVENESS_ROWS_MAX,
) -> list[Liveness]:
    """The same for streams that share their keys: all of them are judged together.

    Writes of one version are ordered by LLSN, then by stream, in the order given.
    """
    check(all(each.trim_llsn_end == 1 for each in streams), "L5: shared keys are never trimmed")
    return _compute(streams, opened, boundary, rows_max, keep_deletes=False)


def _compute(
    streams: Sequence[StreamSources],
    opened: OpenSegments,
    boundary: int,
    rows_max: int,
    *,
    keep_deletes: bool,
) -> list[Liveness]:
    places = _Places(len(streams))
    looked_at = [present_entries(each, opened) for each in streams]
    deletes = [
        StorageDelete(
            storage=special.storage_id,
            version=special.version,
            llsn=places.join(special.llsn, number),
        )
        for number, (_, specials) in enumerate(looked_at)
        for special in specials
        if special.kind is Kind.DELETE_STORAGE
    ]
    found = _Found(np.zeros(len(deletes), dtype=bool), [_Outcome() for _ in streams])
    for outcome, each in zip(found.outcomes, streams, strict=True):
        outcome.dead_bytes = dict.fromkeys((segment.number for segment in each.segments), 0)
    trim = streams[0].trim_llsn_end if len(streams) == 1 else 1
    walk = _Walk(streams, opened, boundary, deletes, trim, rows_max, places, keep_deletes)
    rows = sum(sum(s.keyed for s in each.segments) + each.memory.keyed for each in streams)
    for begin, end in hash_ranges(rows, rows_max):
        walk.visit(begin, end, found)
    kept = live_storage_deletes(deletes, boundary, found.shadowing, trim)
    if keep_deletes:
        kept |= np.array([delete.llsn >= trim for delete in deletes], dtype=np.bool_)
    unheard = np.flatnonzero(silent_storage_deletes(deletes, kept))
    for position in np.flatnonzero(kept):
        llsn, number = places.split(deletes[position].llsn)
        found.outcomes[number].kept.add(llsn)
    for position in unheard:
        llsn, number = places.split(deletes[position].llsn)
        found.outcomes[number].unheard.add(llsn)
    return [
        outcome.liveness(present, specials)
        for outcome, (present, specials) in zip(found.outcomes, looked_at, strict=True)
    ]


def present_entries(
    stream: StreamSources, opened: OpenSegments
) -> tuple[BitMap64, list[SpecialEntry]]:
    """The LLSNs that are physically there, and the special entries among them."""
    present = stream.memory.present.copy()
    specials = list(stream.memory.specials)
    for segment in stream.segments:
        with opened.lease(segment.path) as reader:
            llsns = reader.llsns()
        llsns &= BitMap64(range(segment.first_llsn, segment.end_llsn))
        present |= llsns
        specials.extend(s for s in segment.specials if s.llsn < segment.end_llsn)
    present &= BitMap64(range(stream.trim_llsn_end, stream.index + 1))
    return present, [special for special in specials if special.llsn in present]


@dataclass(slots=True)
class _Outcome:
    """What the hash ranges so far came to, for one stream."""

    dead_bytes: dict[int, int] = field(default_factory=dict)
    dead: BitMap64 = field(default_factory=BitMap64)
    """Keyed entries only: most are live, and few rows make a bitmap soon."""
    silent: BitMap64 = field(default_factory=BitMap64)
    kept: BitMap64 = field(default_factory=BitMap64)
    """Live storage deletes and, below, dead ones of which nothing tells."""
    unheard: BitMap64 = field(default_factory=BitMap64)

    def liveness(self, present: BitMap64, specials: Sequence[SpecialEntry]) -> Liveness:
        alive = present - self.dead
        alive -= BitMap64([special.llsn for special in specials])
        alive |= self.kept
        return Liveness(alive, self.dead_bytes, (self.silent & present) | self.unheard)


@dataclass(slots=True)
class _Found:
    shadowing: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which storage deletes shadow something."""
    outcomes: list[_Outcome]


class _Places:
    """LLSNs of several streams as one number each, in the order of (LLSN, stream).

    Of a single stream it is the LLSN itself.
    """

    def __init__(self, streams: int) -> None:
        self._bits = (streams - 1).bit_length()
        self._mask = (1 << self._bits) - 1

    def join(self, llsn: int, number: int) -> int:
        return llsn << self._bits | number

    def split(self, place: int) -> tuple[int, int]:
        return place >> self._bits, place & self._mask

    def join_rows(self, rows: KeyRows, number: int) -> KeyRows:
        if not self._bits:
            return rows
        return replace(rows, llsn=rows.llsn << np.uint64(self._bits) | np.uint64(number))

    def bitmaps(self, places: Llsns) -> Iterator[tuple[int, BitMap64]]:
        """The LLSNs among ``places``, for each stream that has any."""
        if not self._bits:
            yield 0, bitmap_of(places)
            return
        numbers = places & np.uint64(self._mask)
        llsns = places >> np.uint64(self._bits)
        for number in np.unique(numbers).tolist():
            yield number, bitmap_of(llsns[numbers == np.uint64(number)])


@dataclass(slots=True)
class _Walk:
    streams: Sequence[StreamSources]
    opened: OpenSegments
    boundary: int
    deletes: list[StorageDelete]
    trim_llsn_end: int
    rows_max: int
    places: _Places
    keep_deletes: bool
    _segments: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Stream and segment by the number of a source; memory goes by the number 0."""

    def visit(self, begin: int, end: int, found: _Found) -> None:
        """Add the outcome for one hash range."""
        parts: list[_Gathered] = []
        count = 0
        del self._segments[1:]
        for number, rows in self._sources(begin, end):
            parts.append(_Gathered(rows, constant(number, len(rows), np.int64)))
            count += len(rows)
            if count > self.rows_max:
                parts = [self._fold(_joined(parts), found)]
                count = len(parts[0].rows)
        if count:
            gathered = _joined(parts)
            outcome = self._judge(gathered)
            for number, silent in self.places.bitmaps(gathered.rows.llsn[outcome.silent]):
                found.outcomes[number].silent |= silent
            found.shadowing |= outcome.shadowed
            self._note_dead(gathered, ~outcome.mask, found)

    def _sources(self, begin: int, end: int) -> Iterator[tuple[int, KeyRows]]:
        """Rows of one source after the other in the hash range.

        Older sources of a stream come first, which makes sorting cheap.
        """
        for number, stream in enumerate(self.streams):
            for segment in stream.segments:
                if not segment.keyed:
                    continue
                rows = segment_rows(segment, self.opened, begin, end, stream.index)
                self._segments.append((number, segment.number))
                yield len(self._segments) - 1, self.places.join_rows(rows, number)
            for rows in stream.memory.between(begin, end):
                yield 0, self.places.join_rows(rows, number)

    def _judge(self, gathered: _Gathered) -> LiveRows:
        return live_rows(gathered.rows, self.boundary, self.deletes, self.trim_llsn_end)

    def _fold(self, gathered: _Gathered, found: _Found) -> _Gathered:
        """Leave out the rows that decide nothing; a silent delete is its own witness, and stays."""
        outcome = self._judge(gathered)
        kept = outcome.mask | outcome.witnesses
        self._note_dead(gathered, ~kept, found)
        found.shadowing |= outcome.shadowed
        return _Gathered(gathered.rows.filter(kept), gathered.sources[kept])

    def _note_dead(
        self, gathered: _Gathered, dead: np.ndarray[tuple[int], np.dtype[np.bool_]], found: _Found
    ) -> None:
        """Take down the rows that are dead for good, and the bytes that they take."""
        if not bool(dead.any()):
            return
        # Doubles add up exactly: no range has bytes for 2**53.
        sizes = np.bincount(gathered.sources[dead], weights=gathered.rows.size[dead])
        for source in np.flatnonzero(sizes).tolist():
            if source:
                stream, segment = self._segments[source]
                found.outcomes[stream].dead_bytes[segment] += int(sizes[source])
        if self.keep_deletes:
            dead = dead & (gathered.rows.kind != KIND_DELETE)
        for number, llsns in self.places.bitmaps(gathered.rows.llsn[dead]):
            found.outcomes[number].dead |= llsns


def segment_rows(
    segment: Segment, opened: OpenSegments, begin: int, end: int, index: int
) -> KeyRows:
    """The rows up to ``index`` that count of a segment, with hashes in ``[begin, end)``."""
    with opened.lease(segment.path) as reader:
        rows = reader.key_rows(begin, end)
    return _only(rows, rows.llsn < np.uint64(min(segment.end_llsn, index + 1)))


def _only(rows: KeyRows, valid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> KeyRows:
    """The valid rows, which mostly are all of them."""
    return rows if bool(valid.all()) else rows.filter(valid)


def _joined(parts: Sequence[_Gathered]) -> _Gathered:
    if len(parts) == 1:
        return parts[0]
    rows = concat_rows(part.rows for part in parts)
    return _Gathered(rows, np.concatenate([part.sources for part in parts]))


def _content(batches: Sequence[Batch], runs: GlsnRuns, hash_seed: int) -> TableContent:
    """What batches hold of the entries that ``runs`` cover."""
    cut = [each for batch in batches if (each := _up_to(batch, runs.llsn_end)) is not None]
    rows, specials, _ = build_rows(cut, runs, hash_seed)
    present = BitMap64()
    for batch in cut:
        if batch.dense:
            present.add_range(batch.first_llsn, batch.end_llsn)
        else:
            present.update(batch.llsns())
    return TableContent(no_rows() if rows is None else rows, tuple(specials), present)


def _up_to(batch: Batch, end_llsn: int) -> Batch | None:
    """The part of a batch below ``end_llsn``."""
    end = batch.position(end_llsn)
    if end == batch.count:
        return batch
    return decode_batch(batch.select(range(end)), verify=False) if end else None


def hash_ranges(rows: int, rows_max: int) -> list[tuple[int, int]]:
    """Equal parts of the hash space, so many that each should stay below ``rows_max`` rows."""
    # Hashes are spread evenly: a quarter of room is plenty.
    parts = rows * 5 // 4 // rows_max + 1
    borders = [_HASH_END * part // parts for part in range(parts + 1)]
    return list(pairwise(borders))
