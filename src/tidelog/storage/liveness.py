"""Computes which entries of a stream are live, with a bounded amount of memory.

Every source (segment or memtable) gives its key rows sorted by hash.  The hash space is walked
in ranges, so that all rows of one key meet in one call of the pure rule
(``core.compaction.live``) and only a bounded number of rows is in memory at a time.

A key that was written very often still has all its rows in one range.  Therefore rows are
folded while they are gathered: what stays of the rows so far are the live ones and the
witnesses, dead rows that can still decide about others (``LiveRows.witnesses``).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from pyroaring import BitMap64

from tidelog.core.compaction.explain import StorageDelete
from tidelog.core.compaction.live import (
    LiveRows,
    live_rows,
    live_storage_deletes,
    silent_storage_deletes,
)
from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.entry import Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import build_rows
from tidelog.formats.key_rows import KeyRows, concat_rows, no_rows, sort_rows
from tidelog.formats.segment import SpecialEntry
from tidelog.limits import LIVENESS_ROWS_MAX
from tidelog.storage.memtable import Memtable
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.segments import Segment

_HASH_END = 1 << 64


@dataclass(frozen=True, slots=True)
class MemorySource:
    """The key rows of what is not in segments yet, sorted, and the LLSNs it holds."""

    rows: KeyRows
    present: BitMap64
    specials: tuple[SpecialEntry, ...]

    @classmethod
    def of(cls, memtables: Sequence[Memtable], index: int, hash_seed: int) -> MemorySource:
        """What memtables hold up to ``index``; all of that must be ordered."""
        parts: list[KeyRows] = []
        present = BitMap64()
        specials: list[SpecialEntry] = []
        for table in memtables:
            batches = [stored.view() for stored in table.batches if stored.first_llsn <= index]
            if not batches:
                continue
            # Sealed anew: the active memtable may grow while this one is looked at.
            runs = GlsnRuns(table.runs.slices(0, index + 1))
            batches = [cut for batch in batches if (cut := _up_to(batch, index)) is not None]
            rows, found, _ = build_rows(batches, runs, hash_seed)
            if rows is not None:
                parts.append(rows)
            specials.extend(found)
            for batch in batches:
                if batch.dense:
                    present.add_range(batch.first_llsn, batch.end_llsn)
                else:
                    present.update(batch.llsns())
        return cls(sort_rows(concat_rows(parts)) if parts else no_rows(), present, tuple(specials))


@dataclass(frozen=True, slots=True)
class Liveness:
    """The outcome: the live LLSNs, and per segment the bytes that its dead keyed entries take.

    ``silent`` are the dead deletes of which nothing tells any more (L9).
    """

    live: BitMap64
    dead_bytes: dict[int, int]
    silent: BitMap64


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
) -> Liveness:
    """Which of the entries up to ``index`` are live under the GC ``boundary``."""
    present, specials = _present(segments, opened, memory, index, trim_llsn_end)
    deletes = [
        StorageDelete(storage=special.storage_id, version=special.version, llsn=special.llsn)
        for special in specials
        if special.kind is Kind.DELETE_STORAGE
    ]
    found = _Found(
        np.zeros(len(deletes), dtype=bool),
        dict.fromkeys((segment.number for segment in segments), 0),
    )
    walk = _Walk(segments, opened, memory, index, boundary, deletes, trim_llsn_end, rows_max)
    for begin, end in _hash_ranges(sum(s.keyed for s in segments) + len(memory.rows), rows_max):
        walk.visit(begin, end, found)
    alive = present - found.keyed
    alive -= BitMap64([special.llsn for special in specials])
    alive |= found.live & present
    kept = live_storage_deletes(deletes, boundary, found.shadowing, trim_llsn_end)
    alive |= BitMap64([deletes[position].llsn for position in np.flatnonzero(kept)])
    unheard = np.flatnonzero(silent_storage_deletes(deletes, kept))
    silent = (found.silent & present) | BitMap64([deletes[place].llsn for place in unheard])
    return Liveness(alive, found.dead_bytes, silent)


def _present(
    segments: Sequence[Segment],
    opened: OpenSegments,
    memory: MemorySource,
    index: int,
    trim_llsn_end: int,
) -> tuple[BitMap64, list[SpecialEntry]]:
    """The LLSNs that are physically there, and the special entries among them."""
    present = memory.present.copy()
    specials = list(memory.specials)
    for segment in segments:
        with opened.lease(segment.path) as reader:
            llsns = reader.llsns()
        llsns &= BitMap64(range(segment.first_llsn, segment.end_llsn))
        present |= llsns
        specials.extend(s for s in segment.specials if s.llsn < segment.end_llsn)
    present &= BitMap64(range(trim_llsn_end, index + 1))
    return present, [special for special in specials if special.llsn in present]


@dataclass(slots=True)
class _Found:
    """What the hash ranges so far came to."""

    shadowing: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Which storage deletes shadow something."""
    dead_bytes: dict[int, int]
    keyed: BitMap64 = field(default_factory=BitMap64)
    live: BitMap64 = field(default_factory=BitMap64)
    silent: BitMap64 = field(default_factory=BitMap64)


@dataclass(slots=True)
class _Walk:
    segments: Sequence[Segment]
    opened: OpenSegments
    memory: MemorySource
    index: int
    boundary: int
    deletes: list[StorageDelete]
    trim_llsn_end: int
    rows_max: int

    def visit(self, begin: int, end: int, found: _Found) -> None:
        """Add the outcome for one hash range."""
        gathered: _Gathered | None = None
        for number, rows in self._sources(begin, end):
            gathered = _extend(gathered, rows, number)
            found.keyed |= _bitmap(rows.llsn)
            if len(gathered.rows) > self.rows_max:
                gathered = self._fold(gathered, found)
        if gathered is not None:
            outcome = self._judge(gathered)
            found.live |= _bitmap(gathered.rows.llsn[outcome.mask])
            found.silent |= _bitmap(gathered.rows.llsn[outcome.silent])
            found.shadowing |= outcome.shadowed
            _count_dead(gathered, outcome.mask, found.dead_bytes)

    def _sources(self, begin: int, end: int) -> Iterator[tuple[int, KeyRows]]:
        """Rows of one source after the other in the hash range; memory goes by the number 0.

        Older sources come first, which makes sorting cheap.
        """
        limit = np.uint64(self.index)
        for segment in self.segments:
            if not segment.keyed:
                continue
            with self.opened.lease(segment.path) as reader:
                rows = reader.key_rows(begin, end)
            valid = (rows.llsn < np.uint64(segment.end_llsn)) & (rows.llsn <= limit)
            yield segment.number, rows if bool(valid.all()) else rows.filter(valid)
        rows = self.memory.rows.between(begin, end)
        yield 0, rows.filter(rows.llsn <= limit)

    def _judge(self, gathered: _Gathered) -> LiveRows:
        return live_rows(gathered.rows, self.boundary, self.deletes, self.trim_llsn_end)

    def _fold(self, gathered: _Gathered, found: _Found) -> _Gathered:
        """Leave out the rows that decide nothing; a silent delete is its own witness, and stays."""
        outcome = self._judge(gathered)
        kept = outcome.mask | outcome.witnesses
        _count_dead(gathered, kept, found.dead_bytes)
        found.shadowing |= outcome.shadowed
        return _Gathered(gathered.rows.filter(kept), gathered.sources[kept])


def _extend(gathered: _Gathered | None, rows: KeyRows, number: int) -> _Gathered:
    sources = np.full(len(rows), number, dtype=np.int64)
    if gathered is None:
        return _Gathered(rows, sources)
    joined = concat_rows([gathered.rows, rows])
    return _Gathered(joined, np.concatenate([gathered.sources, sources]))


def _count_dead(
    gathered: _Gathered,
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]],
    dead_bytes: dict[int, int],
) -> None:
    dead = ~kept
    sources, sizes = gathered.sources[dead], gathered.rows.size[dead]
    for number in np.unique(sources).tolist():
        if number in dead_bytes:
            dead_bytes[number] += int(sizes[sources == number].sum(dtype=np.uint64))


def _up_to(batch: Batch, index: int) -> Batch | None:
    """The part of a batch up to ``index``."""
    end = batch.position(index + 1)
    if end == batch.count:
        return batch
    return decode_batch(batch.select(range(end)), verify=False) if end else None


def _hash_ranges(rows: int, rows_max: int) -> list[tuple[int, int]]:
    """Equal parts of the hash space, so many that each should stay below ``rows_max`` rows."""
    parts = rows * 2 // rows_max + 1
    borders = [_HASH_END * part // parts for part in range(parts + 1)]
    return list(pairwise(borders))


def _bitmap(llsns: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> BitMap64:
    """A bitmap of an array; pyroaring takes a sorted ``array`` fastest."""
    column = array("Q")
    column.frombytes(np.sort(llsns).tobytes())
    return BitMap64(column)
