"""The key index of a segment: sorted key rows in pages, and the numbers in the footer.

  K2  A page's checksum covers its number and the segment's first LLSN, so that no page passes
      for another one.
  K3  A page without versions belongs to a segment in which the GLSN of every row is its version.

Page (little-endian): header 32 B: magic, crc of bytes [8:], rows u32, flags u16, zero u16,
number u64, first LLSN u64; then the columns hash high, hash low (u64), LLSN (u64, if WIDE), storage
(u64, if STORAGE), version low, version high (u64, if VERSIONS), distance of the LLSN from the
first one (u32, unless WIDE), size (u32), kind (u8); zeros up to a multiple of 8.

Everything about rows (``key_rows``, ``key_gathering``) can be imported from here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise
from struct import Struct
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.batch import Batch, Column
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.entry import WITH_KEY, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_gathering import RowColumns, rows_from_batches
from tidelog.formats.key_rows import (
    U64,
    KeyRows,
    concat_rows,
    constant,
    hash_key,
    is_sorted,
    no_rows,
    sort_rows,
)
from tidelog.formats.segment import SegmentStats, SpecialEntry
from tidelog.invariants import check
from tidelog.limits import KEY_PAGE_ROWS

__all__ = [
    "U64",
    "KeyHit",
    "KeyPage",
    "KeyRows",
    "PageBytes",
    "RowColumns",
    "SegmentSummary",
    "build_rows",
    "concat_rows",
    "encode_key_pages",
    "hash_key",
    "is_sorted",
    "no_rows",
    "rows_from_batches",
    "rows_of_pages",
    "sort_rows",
]

PAGE_MAGIC: Final = b"TLK\x01"
PAGE_HEADER_BYTES: Final = 32
WIDE: Final = 1
STORAGE: Final = 2
VERSIONS: Final = 4
_KNOWN_FLAGS: Final = WIDE | STORAGE | VERSIONS

_PAGE = Struct("<4sIIHHQQ")
_PAGE_TAIL = Struct("<IHHQQ")
_START = Struct("<4sI")
_KIND_OF: Final = {int(kind): kind for kind in (Kind.PUT, Kind.DELETE)}
_KEYED: Final = bytes(sorted(WITH_KEY))
_Item: TypeAlias = Literal["Q", "I", "B"]


class KeyHit(NamedTuple):
    """Where a key was written; ``version`` is 0 in a page whose versions are implicit."""

    llsn: int
    version: int
    kind: Kind


class PageBytes(NamedTuple):
    """An encoded page and what the footer says about it."""

    data: bytes
    fence: int
    rows: int


# ---- pages


def encode_key_pages(
    rows: KeyRows, first_llsn: int, runs: GlsnRuns | None = None
) -> Iterator[PageBytes]:
    """The pages of sorted rows.  Versions are left out when ``runs`` tell all of them (K3)."""
    check(is_sorted(rows), "K1: rows of a key index are sorted")
    if not len(rows):
        return
    check(int(rows.llsn.min()) >= first_llsn >= 1, "no row lies before its segment")
    distances = rows.llsn - np.uint64(first_llsn)
    flags = WIDE if int(distances.max()) >= 1 << 32 else 0
    if bool(rows.storage.any()):
        flags |= STORAGE
    implicit = (
        runs is not None
        and not bool(rows.version_hi.any())
        and np.array_equal(runs.glsns(rows.llsn), rows.version_lo)
    )
    if not implicit:
        flags |= VERSIONS
    columns: list[NDArray[np.unsignedinteger]] = [rows.hash_hi, rows.hash_lo]
    columns += [rows.llsn] if flags & WIDE else []
    columns += [rows.storage] if flags & STORAGE else []
    columns += [rows.version_lo, rows.version_hi] if flags & VERSIONS else []
    columns += [distances.astype(np.uint32)] if not flags & WIDE else []
    columns += [rows.size, rows.kind]
    views = [np.ascontiguousarray(column).data for column in columns]
    width = sum(view.itemsize for view in views)
    for number, begin in enumerate(range(0, len(rows), KEY_PAGE_ROWS)):
        sections = [view[begin : begin + KEY_PAGE_ROWS] for view in views]
        count = len(sections[-1])
        head = _PAGE_TAIL.pack(count, flags, 0, number, first_llsn)
        tail = b"".join([head, *sections, bytes(-count * width & 7)])
        yield PageBytes(
            _START.pack(PAGE_MAGIC, crc32c(tail)) + tail, int(rows.hash_hi[begin]), count
        )


class KeyPage:
    """A page as an immutable view of its bytes; ``find`` works without numpy."""

    __slots__ = ("_columns", "count", "first_llsn", "flags", "hash_hi", "hash_lo")

    def __init__(self, count: int, flags: int, first_llsn: int, columns: list[memoryview]) -> None:
        self.count: Final = count
        self.flags: Final = flags
        self.first_llsn: Final = first_llsn
        self.hash_hi: Final = columns[0]
        self.hash_lo: Final = columns[1]
        self._columns: Final = columns

    @classmethod
    def decode(cls, data: Buffer, *, number: int, first_llsn: int) -> KeyPage:
        """The page of this number of the segment that begins at ``first_llsn``."""
        view = memoryview(data).toreadonly()
        count, flags = _check_page(view, number, first_llsn)
        columns: list[memoryview] = []
        offset = PAGE_HEADER_BYTES
        for item, width in _layout(flags):
            end = offset + count * width
            columns.append(view[offset:end].cast(item))
            offset = end
        _check_kinds(columns[-1].tobytes(), number)
        return cls(count, flags, first_llsn, columns)

    @property
    def implicit(self) -> bool:
        """Whether the GLSN of every row is its version (K3)."""
        return not self.flags & VERSIONS

    def find(self, hash_hi: int, hash_lo: int) -> list[KeyHit]:
        """The rows of a key that are in this page, oldest first; see ``implicit``."""
        begin = bisect_left(self.hash_hi, hash_hi)
        end = bisect_right(self.hash_hi, hash_hi, lo=begin)
        return [self._hit(i) for i in range(begin, end) if self.hash_lo[i] == hash_lo]

    def _hit(self, i: int) -> KeyHit:
        columns, flags = self._columns, self.flags
        llsn = columns[2][i] if flags & WIDE else self.first_llsn + columns[-3][i]
        version = 0
        if flags & VERSIONS:
            low = 2 + bool(flags & WIDE) + bool(flags & STORAGE)
            version = columns[low][i] | columns[low + 1][i] << 64
        return KeyHit(llsn, version, _KIND_OF[columns[-1][i]])


def rows_of_pages(
    data: Buffer, lengths: Sequence[int], *, number: int, first_llsn: int
) -> tuple[KeyRows, bool]:
    """The rows of neighbouring pages, the first of which has this number.

    ``lengths`` are those of the pages in ``data``.  Versions are 0 if they are implicit, which is
    told with the rows (K3).
    """
    view = memoryview(data).toreadonly()
    bounds = list(accumulate(lengths, initial=0))
    shapes = [
        _check_page(view[begin:end], number + i, first_llsn)
        for i, (begin, end) in enumerate(pairwise(bounds))
    ]
    if len({flags for _, flags in shapes}) > 1:
        raise CorruptData(f"key page {number} and those behind it have different columns")
    parts: list[KeyRows] = []
    begin = 0
    for shape, alike in groupby(shapes):
        end = begin + len(list(alike))
        pages = view[bounds[begin] : bounds[end]]
        parts.append(_rows_of_alike(pages, end - begin, *shape, first_llsn))
        begin = end
    rows = concat_rows(parts)
    _check_kinds(rows.kind.tobytes(), number)
    return rows, not shapes[0][1] & VERSIONS


def _rows_of_alike(pages: memoryview, number: int, count: int, flags: int, first: int) -> KeyRows:
    """The rows of so many pages of ``count`` rows each; all but the last one of a segment are."""
    stride, offset = len(pages) // number, PAGE_HEADER_BYTES
    columns: list[NDArray[Any]] = []
    for item, width in _layout(flags):
        # Column by column over all pages, without a look at each of them.
        across = np.ndarray((number, count), item, pages, offset, (stride, width))
        columns.append(across.reshape(-1))
        offset += count * width
    hash_hi, hash_lo, *longs, size, kind = columns
    llsn = longs.pop(0) if flags & WIDE else longs.pop().astype(np.uint64) + np.uint64(first)
    zeros = constant(0, len(llsn), np.uint64)
    storage = longs.pop(0) if flags & STORAGE else zeros
    version_lo, version_hi = longs if flags & VERSIONS else (zeros, zeros)
    return KeyRows(hash_hi, hash_lo, storage, version_hi, version_lo, llsn, kind, size)


def _check_page(page: memoryview, number: int, first_llsn: int) -> tuple[int, int]:
    """Check all of a page but its kinds (K2): how many rows it has, and its flags."""
    if len(page) < PAGE_HEADER_BYTES:
        raise CorruptData(f"key page {number}: {len(page)} bytes")
    magic, crc, count, flags, zero, found_number, found_first = _PAGE.unpack_from(page)
    if magic[:3] != PAGE_MAGIC[:3]:
        raise CorruptData(f"key page {number}: magic {magic!r}")
    if crc32c(page[8:]) != crc:
        raise CorruptData(f"key page {number}: checksum does not match")
    if magic != PAGE_MAGIC or flags & ~_KNOWN_FLAGS or zero:
        raise UnsupportedVersion(f"key page {number}: unknown version or flags {flags:#x}")
    if (found_number, found_first) != (number, first_llsn):
        raise CorruptData(f"key page {number}: this is page {found_number} of {found_first}")
    if not 1 <= count <= KEY_PAGE_ROWS:
        raise CorruptData(f"key page {number}: {count} rows")
    end = PAGE_HEADER_BYTES + count * sum([width for _, width in _layout(flags)])
    if len(page) != end + (-end & 7):
        raise CorruptData(f"key page {number}: {len(page)} bytes are not those of {count} rows")
    return count, flags


def _check_kinds(kinds: bytes, number: int) -> None:
    if kinds.translate(None, _KEYED):
        raise CorruptData(f"key page {number} or one behind it: a kind that has no key")


@cache
def _layout(flags: int) -> list[tuple[_Item, int]]:
    """Item type and size of each column."""
    longs = 2 + bool(flags & WIDE) + bool(flags & STORAGE) + 2 * bool(flags & VERSIONS)
    layout: list[tuple[_Item, int]] = [("Q", 8)] * longs
    if not flags & WIDE:
        layout.append(("I", 4))
    return [*layout, ("I", 4), ("B", 1)]


# ---- statistics


class SegmentSummary:
    """Collects what the footer of a segment says about its entries."""

    def __init__(self) -> None:
        self._entries = 0
        self._keyed = 0
        self._bytes = 0
        self._timestamps: tuple[int, int] | None = None
        self._explicit_version = 0
        self._implicit_llsn = 0
        self._special: list[tuple[int, Kind, int, int | None]] = []

    def add(self, batch: Batch) -> None:
        """Take in a batch; batches come in ascending LLSN order."""
        self._entries += batch.count
        for column in (Column.KEY_OFFSETS, Column.VALUE_OFFSETS):
            offsets = batch.column(column)
            if offsets is not None:
                self._bytes += offsets[-1]
        times = batch.column(Column.TIMESTAMPS)
        first = batch.timestamp_at(0)
        low, high = (first, first) if times is None else (min(times), max(times))
        if self._timestamps is not None:
            low, high = min(low, self._timestamps[0]), max(high, self._timestamps[1])
        self._timestamps = low, high
        if batch.column(Column.KINDS) is None and batch.kind_at(0) == Kind.APPEND:
            return
        kinds = batch.kinds()
        self._keyed += kinds.count(Kind.PUT) + kinds.count(Kind.DELETE)
        self._add_versions(batch, kinds)
        if kinds.count(Kind.DELETE_STORAGE) or kinds.count(Kind.CONTROL):
            self._special += [
                (batch.llsn_at(i), batch.kind_at(i), batch.storage_id_at(i), batch.version_at(i))
                for i, kind in enumerate(kinds)
                if kind in (Kind.DELETE_STORAGE, Kind.CONTROL)
            ]

    def _add_versions(self, batch: Batch, kinds: bytes) -> None:
        last = max(kinds.rfind(kind) for kind in (Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE))
        if last < 0:
            return
        lows, highs = batch.column(Column.VERSIONS_LOW), batch.column(Column.VERSIONS_HIGH)
        if lows is None or highs is None:
            self._implicit_llsn = batch.llsn_at(last)
            return
        high, low = max(
            (high, low)
            for high, low, kind in zip(highs, lows, kinds, strict=True)
            if kind in WITH_KEY or kind == Kind.DELETE_STORAGE
        )
        self._explicit_version = max(self._explicit_version, low | high << 64)

    def finish(self, runs: GlsnRuns) -> tuple[list[SpecialEntry], SegmentStats]:
        """The special entries and the statistics, with implicit versions as GLSNs."""
        special = [
            SpecialEntry(llsn, kind, storage, runs.glsn_of(llsn), True)
            if version is None
            else SpecialEntry(llsn, kind, storage, version, False)
            for llsn, kind, storage, version in self._special
        ]
        low, high = self._timestamps or (0, 0)
        implicit = runs.glsn_of(self._implicit_llsn) if self._implicit_llsn else 0
        stats = SegmentStats(
            entries=self._entries,
            keyed=self._keyed,
            data_bytes=self._bytes,
            min_timestamp_us=low,
            max_timestamp_us=high,
            max_version=max(self._explicit_version, implicit),
        )
        return special, stats


def build_rows(
    batches: Iterable[Batch], runs: GlsnRuns, seed: int
) -> tuple[KeyRows | None, list[SpecialEntry], SegmentStats]:
    """Sorted key rows (None if there is no keyed entry), special entries and statistics."""
    gathered = RowColumns(seed)
    summary = SegmentSummary()
    for batch in batches:
        gathered.add(batch)
        summary.add(batch)
    special, stats = summary.finish(runs)
    return gathered.sorted_rows(runs.glsns) if stats.keyed else None, special, stats
