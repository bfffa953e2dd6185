"""Slices of batches, one behind the other, as numpy columns.

A batch is columns already, so numpy and Arrow can wrap them.  Everything here costs a few
operations for each slice and none for each row.

  J1  the rows of a column are the entries of the slices, one slice behind the other
  J2  bytes of a single slice are wrapped where they lie; those of several are joined
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.formats.batch import HEADER_BYTES, REWRITTEN, Batch, Column
from tidelog.formats.batch_layout import (
    HAS_KEYS,
    HAS_KINDS,
    HAS_LLSNS,
    HAS_STORAGE_IDS,
    HAS_TIMESTAMPS,
    HAS_VERSIONS,
)
from tidelog.formats.batch_slice import BatchSlice
from tidelog.invariants import check

StreamSlice: TypeAlias = tuple[int, BatchSlice]
"""The number of a log stream and a slice of it."""
I64: TypeAlias = NDArray[np.int64]
I32: TypeAlias = NDArray[np.int32]
U8: TypeAlias = NDArray[np.uint8]
Bytes: TypeAlias = bytes | memoryview

HEADER_DTYPE: Final = np.dtype(
    [
        ("magic", "S4"),
        ("header_crc", "<u4"),
        ("body_crc", "<u4"),
        ("body_length", "<u4"),
        ("count", "<u4"),
        ("flags", "<u2"),
        ("kind", "u1"),
        ("reserved", "u1"),
        ("stream", "<u8"),
        ("term", "<u8"),
        ("first_llsn", "<i8"),
        ("end_llsn", "<i8"),
        ("timestamp_us", "<i8"),
        ("storage_id", "<i8"),
        ("producer", "<u8"),
        ("sequence", "<u8"),
    ]
)
"""``batch_layout.HEADER`` for numpy; what Arrow shows as int64 is read as that."""
check(HEADER_DTYPE.itemsize == HEADER_BYTES, "numpy reads the header that is written")

_EMPTY: Final = memoryview(b"")
_ROWS_LONG: Final = 256


class JoinedSlices:
    """Slices one behind the other; every method gives one column of all of their rows."""

    def __init__(self, slices: Sequence[StreamSlice]) -> None:
        self._slices = slices
        self._batches: list[Batch] = [piece.batch for _, piece in slices]
        self._begins = [piece.begin for _, piece in slices]
        self._ends = [piece.end for _, piece in slices]
        heads = b"".join([batch.data[:HEADER_BYTES] for batch in self._batches])
        self._headers = np.frombuffer(heads, dtype=HEADER_DTYPE)
        self._flags = int(np.bitwise_or.reduce(self._headers["flags"]))
        begins = np.array(self._begins, dtype=np.int64)
        self._first_llsns: I64 = self._headers["first_llsn"] + begins
        self._counts: I64 = np.array(self._ends, dtype=np.int64) - begins
        self._row_ends: I64 = np.cumsum(self._counts)
        self._row_begins: I64 = self._row_ends - self._counts
        self._whole = not begins.any() and bool((self._counts == self._headers["count"]).all())
        self.rows = int(self._row_ends[-1])

    # -- one number for each row ---------------------------------------------------------------

    def streams(self) -> I64:
        return self._spread(np.array([stream for stream, _ in self._slices], dtype=np.int64))

    @cached_property
    def llsns(self) -> I64:
        llsns: I64 = self._spread(self._first_llsns - self._row_begins)
        llsns += np.arange(self.rows)
        for i in self._with(HAS_LLSNS):
            distances = np.frombuffer(_section(self._batches[i], Column.LLSNS), np.uint32)
            mine = distances[self._begins[i] : self._ends[i]]
            llsns[self._rows_of(i)] = self._headers["first_llsn"][i] + mine
        return llsns

    @cached_property
    def glsns(self) -> I64:
        runs = [piece.runs for _, piece in self._slices]
        # Nearly always a slice lies in one cut, and so in one run.
        distances = [one.glsn_begin - one.llsn_begin if len(one) == 1 else None for one in runs]
        if None not in distances:
            known: I64 = self._spread(np.array(distances, dtype=np.int64))
            return self.llsns + known
        glsns = np.empty(self.rows, dtype=np.int64)
        i = 0
        while i < len(runs):
            begin = i
            while i < len(runs) and runs[i] is runs[begin]:  # Neighbours often share theirs.
                i += 1
            rows = slice(int(self._row_begins[begin]), int(self._row_ends[i - 1]))
            llsns = self.llsns[rows]
            mine = runs[begin].restrict(int(llsns[0]), int(llsns[-1]) + 1)
            glsns[rows] = mine.glsns(llsns.view(np.uint64)).view(np.int64)
        return glsns

    @cached_property
    def kinds(self) -> U8:
        return self._fixed(Column.KINDS, HAS_KINDS, "kind")

    @cached_property
    def one_kind(self) -> int:
        """The kind of all rows; 0 if they differ."""
        kinds = self._headers["kind"]
        same = not self._flags & HAS_KINDS and bool((kinds == kinds[0]).all())
        return int(kinds[0]) if same else 0

    @property
    def has_keys(self) -> bool:
        return self._flags & HAS_KEYS != 0

    def timestamps(self) -> I64:
        return self._fixed(Column.TIMESTAMPS, HAS_TIMESTAMPS, "timestamp_us")

    def storage_ids(self) -> I64:
        """The 64 bits of each, as signed numbers."""
        return self._fixed(Column.STORAGE_IDS, HAS_STORAGE_IDS, "storage_id")

    def rewritten(self) -> NDArray[np.bool_]:
        return self._spread(self._headers["flags"] & REWRITTEN != 0)

    def versions(self) -> NDArray[np.uint64]:
        """Two big-endian halves for each row; the GLSN of an entry without a version."""
        halves = np.zeros((self.rows, 2), dtype=">u8")
        halves[:, 1] = self.glsns
        for i in self._with(HAS_VERSIONS):
            for half, column in enumerate((Column.VERSIONS_HIGH, Column.VERSIONS_LOW)):
                words = np.frombuffer(_section(self._batches[i], column), np.uint64)
                halves[self._rows_of(i), half] = words[self._begins[i] : self._ends[i]]
        return halves

    def _with(self, flag: int) -> list[int]:
        """The slices whose batches have a column."""
        if not self._flags & flag:
            return []
        found: list[int] = np.flatnonzero(self._headers["flags"] & flag).tolist()
        return found

    def _rows_of(self, i: int) -> slice:
        return slice(int(self._row_begins[i]), int(self._row_ends[i]))

    def _spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value of each slice, repeated for each of its rows."""
        if (values == values[0]).all():
            return np.full(self.rows, values[0])
        if self.rows < _ROWS_LONG * len(values):
            return np.repeat(values, self._counts)
        # Long slices are filled several times faster one by one.
        spread = np.empty(self.rows, values.dtype)
        for i, value in enumerate(values):
            spread[self._rows_of(i)] = value
        return spread

    def _fixed(self, column: Column, flag: int, field: str) -> NDArray[Any]:
        """A column that a batch may leave out; then its header holds the value."""
        values = self._headers[field]
        if not self._flags & flag:
            return self._spread(values)
        views = [batch.column(column) for batch in self._batches]
        parts: list[Bytes] = [
            values[i].tobytes() * (end - begin) if view is None else view[begin:end]
            for i, (view, begin, end) in enumerate(
                zip(views, self._begins, self._ends, strict=True)
            )
        ]
        return np.frombuffer(_join(parts), values.dtype)

    # -- many items for each row ---------------------------------------------------------------

    def variable(self, column: Column) -> tuple[I32, Bytes]:
        """Where the items of each row begin, with the end of the last one, and all items.

        ``column`` is the one with the offsets; that of the items comes next.  Offsets count
        items, as Arrow's do.
        """
        next_column = Column(column + 1)
        offsets = [batch.column(column) for batch in self._batches]
        items = [_section(batch, next_column) for batch in self._batches]
        if len(offsets) == 1 and offsets[0] is not None:
            places = offsets[0][self._begins[0] : self._ends[0] + 1]
            return np.frombuffer(places, np.int32), items[0]
        parts: list[Bytes] = [part for part in offsets if part is not None]
        if self._whole and len(parts) == len(offsets):
            shifts = [0, *accumulate(map(len, items))]
        else:
            parts, items, shifts = self._cut(offsets, items)
        total = shifts.pop()
        check(total < 1 << 31, "what is joined fits into offsets of 32 bits")
        # Each part has one offset more than rows: the end of its last one.
        flat = np.frombuffer(b"".join(parts), np.int32)
        starts = np.ones(len(flat), dtype=np.bool_)
        starts[self._row_ends + np.arange(len(parts))] = False
        joined = np.empty(self.rows + 1, dtype=np.int32)
        np.add(flat[starts], self._spread(np.array(shifts, np.int32)), out=joined[:-1])
        joined[-1] = total
        return joined, b"".join(items)

    def _cut(
        self, offsets: Sequence[memoryview | None], items: Sequence[memoryview]
    ) -> tuple[list[Bytes], list[memoryview], list[int]]:
        """Offsets and items of each slice, and how far its offsets have to be moved."""
        parts: list[Bytes] = []
        cut: list[memoryview] = []
        shifts: list[int] = []
        total = 0
        for i, places in enumerate(offsets):
            begin, end = self._begins[i], self._ends[i]
            if places is None:
                parts.append(bytes(4 * (end - begin + 1)))
                shifts.append(total)
                continue
            first, last = places[begin], places[end]
            parts.append(places[begin : end + 1])
            cut.append(items[i][first:last])
            shifts.append(total - first)
            total += last - first
        return parts, cut, [*shifts, total]


def _section(batch: Batch, column: Column) -> memoryview:
    """A column of a batch; nothing when it was left out."""
    view = batch.column(column)
    return _EMPTY if view is None else view


def _join(parts: Sequence[Bytes]) -> Bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
