"""Where the columns of a batch lie, and the checks that make them safe to use.  No state.

A batch is a header of 88 bytes and a body of columns; ``batch_encode`` writes it, ``batch`` reads
it.  What both need is here: numbers, the way from a body to its columns, and padded sections.

  B1  the header's CRC covers all of the header behind it, the body's CRC among it
  B2  a column that is the same for all entries is left out; the header holds its value
  B3  every section starts at a multiple of 8 and is padded to one with zeros
  B4  offsets start at 0, ascend and end where their bytes end; the sections fill the body
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from enum import IntEnum
from operator import sub
from struct import Struct
from typing import Final, Literal, TypeAlias

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.entry import KINDS, WITH_KEY, WITHOUT_KEY, Kind
from tidelog.invariants import check
from tidelog.limits import (
    BATCH_BODY_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENTRY_BLOBS_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
)

check(sys.byteorder == "little", "columns are little-endian and used in place")
check((array("I").itemsize, array("Q").itemsize) == (4, 8), "columns have 32 and 64 bit items")

MAGIC: Final = b"TLB\x01"
HEADER: Final = Struct("<4sIIIIHBBQQQQqQQQ")
"""Magic, header CRC, body CRC, body length, count, flags, kind, reserved, stream, term,
first LLSN, end LLSN, timestamp, storage id, producer, sequence."""
HEADER_BYTES: Final = 88
_FLAGS_OFFSET: Final = 20
_KIND_OFFSET: Final = 22
CRC_BEGIN: Final = 8
"""The header's own CRC covers the header from here."""
SPARSE_SPAN_END: Final = 1 << 31
"""A sparse batch spans fewer LLSNs than this."""

HAS_LLSNS: Final = 1
HAS_KINDS: Final = 2
HAS_TIMESTAMPS: Final = 4
HAS_STORAGE_IDS: Final = 8
HAS_VERSIONS: Final = 16
HAS_KEYS: Final = 32
HAS_VALUES: Final = 64
HAS_BLOBS: Final = 128
REWRITTEN: Final = 256
KNOWN_FLAGS: Final = 511

PADDING: Final = tuple(bytes(size) for size in range(8))
"""``PADDING[-size & 7]`` fills a section of ``size`` bytes up."""

Header: TypeAlias = tuple[
    bytes, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int
]


class Column(IntEnum):
    """The sections of a body, in their order; each is a memoryview of the given item type."""

    LLSNS = 0
    """u32: distance from the batch's first LLSN; only in sparse batches."""
    KINDS = 1
    """u8"""
    TIMESTAMPS = 2
    """i64: microseconds"""
    STORAGE_IDS = 3
    """u64"""
    VERSIONS_LOW = 4
    """u64: the lower half of the write versions"""
    VERSIONS_HIGH = 5
    """u64"""
    KEY_OFFSETS = 6
    """u32, one more than entries: where keys begin and end in KEY_BYTES"""
    KEY_BYTES = 7
    """u8"""
    VALUE_OFFSETS = 8
    VALUE_BYTES = 9
    BLOB_OFFSETS = 10
    BLOB_IDS = 11
    """u64"""


ItemType: TypeAlias = Literal["B", "I", "q", "Q"]
Part: TypeAlias = "bytes | memoryview | array[int]"
Columns: TypeAlias = list[memoryview | None]

KIND_OF: Final[tuple[Kind, ...]] = (Kind.APPEND, *Kind)
"""The kind of each number; there is no kind 0."""

_HAS_FIXED: Final = HAS_LLSNS | HAS_KINDS | HAS_TIMESTAMPS | HAS_STORAGE_IDS | HAS_VERSIONS
FIXED: Final[tuple[tuple[int, Column, ItemType, int], ...]] = (
    (HAS_LLSNS, Column.LLSNS, "I", 4),
    (HAS_KINDS, Column.KINDS, "B", 1),
    (HAS_TIMESTAMPS, Column.TIMESTAMPS, "q", 8),
    (HAS_STORAGE_IDS, Column.STORAGE_IDS, "Q", 8),
    (HAS_VERSIONS, Column.VERSIONS_LOW, "Q", 8),
    (HAS_VERSIONS, Column.VERSIONS_HIGH, "Q", 8),
)
"""Flag, column, item type and item size of the columns with one item for each entry."""

VARIABLE: Final[tuple[tuple[int, Column, ItemType, int, int], ...]] = (
    (HAS_KEYS, Column.KEY_OFFSETS, "B", 1, KEY_BYTES_MAX),
    (HAS_VALUES, Column.VALUE_OFFSETS, "B", 1, VALUE_BYTES_MAX),
    (HAS_BLOBS, Column.BLOB_OFFSETS, "Q", 8, ENTRY_BLOBS_MAX),
)
"""Flag, column of the offsets, item type, item size, items that one entry may have."""

_RUNS_FEW: Final = 16
_LONG: Final = 256
"""Longer columns are left to numpy.  Who reads and writes little never has to import it."""
_HIGH_BITS: Final = int.from_bytes(b"\0\0\0\x80" * _LONG, "little")


class BadColumn(Exception):
    """The structure of a body is damaged; callers turn this into ``CorruptData``."""


def check_magic(header: Header, view: memoryview, offset: int) -> None:
    """Check that a batch of a known version begins here and that its header is intact (B1)."""
    magic, header_crc = header[0], header[1]
    if magic != MAGIC:
        if magic[:3] == MAGIC[:3]:
            raise UnsupportedVersion(f"batch at {offset}: format version {magic[3]}")
        raise CorruptData(f"batch at {offset}: {magic!r} does not begin a batch")
    if crc32c(view[offset + CRC_BEGIN : offset + HEADER_BYTES]) != header_crc:
        raise CorruptData(f"batch at {offset}: the header does not match its checksum")


def check_header(header: Header, offset: int) -> None:
    """Check the header's numbers against each other and against the limits."""
    _, _, _, body_length, count, flags, kind, _, _, _, first_llsn, *_ = header
    if not 1 <= count <= BATCH_ENTRIES_MAX:
        raise CorruptData(f"batch at {offset}: {count} entries")
    # Leaving out entries may add the LLSNS column to a batch that was as large as allowed.
    limit = BATCH_BODY_BYTES_MAX + (4 * count + 4 if flags & HAS_LLSNS else 0)
    if body_length > limit or body_length & 7:
        raise CorruptData(f"batch at {offset}: a body of {body_length} bytes")
    if flags & HAS_KINDS:
        good = kind == 0
    elif kind in WITH_KEY:
        good = flags & HAS_KEYS != 0
    else:
        good = kind in KINDS and not (kind in WITHOUT_KEY and flags & HAS_KEYS)
    if not good:
        raise CorruptData(f"batch at {offset}: kind {kind} with flags {flags:#x}")
    if (flags & HAS_TIMESTAMPS and header[12]) or (flags & HAS_STORAGE_IDS and header[13]):
        raise CorruptData(f"batch at {offset}: the header repeats a column")
    if first_llsn < 1:
        raise CorruptData(f"batch at {offset}: the first LLSN is 0")


def check_end(header: Header, llsns: memoryview | None) -> None:
    """Check that the header's LLSN range is the one that the entries have."""
    count, first_llsn, end_llsn = header[4], header[10], header[11]
    span = count if llsns is None else llsns[count - 1] + 1
    if first_llsn + span != end_llsn:
        raise BadColumn(f"{count} entries from LLSN {first_llsn} do not end at {end_llsn}")


def read_columns(body: memoryview, flags: int, count: int, verify: bool) -> Columns:
    """The sections of ``body`` by ``Column``; B3 and, as far as sizes go, B4 are checked."""
    columns: Columns = [None] * 12
    length = len(body)
    at = 0
    if flags & _HAS_FIXED:
        for flag, column, item, width in FIXED:
            if flags & flag:
                end = at + width * count
                at = _section_end(body, end, verify)
                columns[column] = body[end - width * count : end].cast(item)
    for flag, column, item, width, _ in VARIABLE:
        if flags & flag:
            begin, end = at, at + 4 * (count + 1)
            at = _section_end(body, end, verify)
            offsets = body[begin:end].cast("I")
            begin, end = at, at + width * offsets[count]
            at = _section_end(body, end, verify)
            columns[column] = offsets
            columns[column + 1] = body[begin:end].cast(item)
    if at != length:
        raise BadColumn(f"B4: the sections have {at} bytes, the body has {length}")
    return columns


def check_columns(flags: int, kind: int, columns: Columns) -> None:
    """Check what needs a look at every item; linear, and without a Python loop."""
    llsns, kinds = columns[0], columns[1]
    if llsns is not None and (llsns[0] or not _ascending(llsns, 1)):
        raise BadColumn("the LLSNs do not ascend")
    if kinds is not None and not KINDS.issuperset(kinds.tobytes()):
        raise BadColumn("a kind does not exist")
    # Entries that need a key have one of at least a byte (E1).
    step = 1 if kind in WITH_KEY else 0
    for flag, column, _, _, limit in VARIABLE:
        offsets = columns[column]
        if flags & flag and offsets is not None:
            if offsets[0] or not _ascending(offsets, step):
                raise BadColumn(f"B4: {column.name} does not ascend from 0")
            if offsets[-1] > limit and _longest(offsets) > limit:
                raise BadColumn(f"{column.name} has an item larger than {limit}")
        step = 0


def add_section(parts: list[Part], column: array[int], size: int) -> int:
    """Append a padded column to ``parts``, which has ``size`` bytes; the new size."""
    length = len(column) * column.itemsize
    parts += (column, PADDING[-length & 7])
    return size + length + (-length & 7)


def add_slices(parts: list[Part], slices: Sequence[bytes | memoryview], size: int) -> int:
    """Append pieces of bytes as one padded section to ``parts``; the new size."""
    length = sum(map(len, slices))
    parts += slices
    parts.append(PADDING[-length & 7])
    return size + length + (-length & 7)


def add_moved(
    parts: list[Part],
    offsets: memoryview,
    items: memoryview,
    runs: Sequence[tuple[int, int]],
    size: int,
) -> int:
    """Append the offsets and the items of the entries in ``runs`` to ``parts``; the new size."""
    places = offsets.tolist()
    width = items.itemsize
    # One copy first if there are many slices: those of bytes cost half of a memoryview's.
    raw = items.tobytes() if len(runs) > _RUNS_FEW else items.cast("B")
    moved = [0]
    slices: list[bytes | memoryview] = []
    for begin, end in runs:
        first, last = places[begin], places[end]
        shift = moved[-1] - first
        if end - begin > 1:
            moved += [place + shift for place in places[begin + 1 : end]]
        moved.append(last + shift)
        slices.append(raw[first * width : last * width])
    return add_slices(parts, slices, add_section(parts, array("I", moved), size))


def runs_of(positions: Sequence[int], count: int) -> list[tuple[int, int]]:
    """The ranges ``[begin, end)`` of neighbours in ascending positions."""
    check(len(positions) > 0, "a selection is not empty")
    check(positions[0] >= 0 and positions[-1] < count, "a selection lies inside its batch")
    runs: list[tuple[int, int]] = []
    begin = end = positions[0]
    for position in positions:
        if position != end:
            check(position > end, "a selection ascends")
            runs.append((begin, end))
            begin = position
        end = position + 1
    runs.append((begin, end))
    return runs


def _section_end(body: memoryview, end: int, verify: bool) -> int:
    """Where the next section begins after one that ends at ``end``."""
    padded = end + (-end & 7)
    if padded > len(body):
        raise BadColumn(f"B4: a section ends at {padded} of a body of {len(body)} bytes")
    if verify and padded > end and any(body[end:padded]):
        raise BadColumn("B3: the padding is not zero")
    return padded


def _ascending(column: memoryview, step: int) -> bool:
    """Whether each u32 is below 2**31 and at least ``step`` (0 or 1) above the one before it.

    The column is read as one large number of 32 bit lanes.  With the high bit of every lane set,
    ``next - previous`` clears exactly the bits of the lanes in which it is negative, and never
    borrows from another lane.  This takes half of the time that a comparison of items takes.
    """
    count = len(column)
    if count > _LONG:
        return _long_ascending(column, step)
    high = _HIGH_BITS >> 32 * (_LONG - count)
    lanes = int.from_bytes(column, "little")
    if lanes & high:
        return False
    differences = ((lanes >> 32) | high) - lanes
    if step:
        differences -= high >> 31
    high >>= 32
    return differences & high == high


def _long_ascending(column: memoryview, step: int) -> bool:
    import numpy as np  # noqa: PLC0415

    # What is 2**31 or more is negative here, and so cannot follow an item that is not.
    items = np.frombuffer(column, np.int32)
    before, after = items[:-1], items[1:]
    return bool(items[0] >= 0) and bool((after > before if step else after >= before).all())


def _longest(offsets: memoryview) -> int:
    """The most that lies between two neighbours of ascending offsets."""
    if len(offsets) > _LONG:
        import numpy as np  # noqa: PLC0415

        return int(np.diff(np.frombuffer(offsets, np.uint32)).max())
    longest: int = max(map(sub, offsets[1:], offsets))
    return longest


_WITHOUT_KEYS: Final = (Kind.APPEND, Kind.CONTROL)


def may_concern_keys(header: bytes) -> bool:
    """Whether a batch with this header may hold anything but APPEND or CONTROL entries."""
    return header[_KIND_OFFSET] not in _WITHOUT_KEYS


def may_have_keys(header: Buffer) -> bool:
    """Whether entries of a batch with this header may have keys, be it for compaction or not."""
    return bool(header[_FLAGS_OFFSET] & HAS_KEYS)
