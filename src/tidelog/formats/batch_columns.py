"""Columns to the bytes of a columnar batch, without a loop over the entries.  No state.

``batch_encode`` takes entries one by one; this takes what Arrow and NumPy hold already: one array
for each field, and offsets into joined bytes for keys and values.  Both write the same layout.

  B2  a column that is the same for all entries is left out; the header holds its value
  B3  every section starts at a multiple of 8 and is padded to one with zeros
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.errors import BadEntry
from tidelog.formats.batch_encode import BatchBody, check_body_size, check_count
from tidelog.formats.batch_layout import (
    HAS_BLOBS,
    HAS_KEYS,
    HAS_KINDS,
    HAS_STORAGE_IDS,
    HAS_TIMESTAMPS,
    HAS_VALUES,
    HAS_VERSIONS,
    PADDING,
    Part,
)
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import (
    KINDS,
    WITH_KEY,
    WITHOUT_KEY,
    Kind,
    key_too_large,
    value_too_large,
)
from tidelog.invariants import check
from tidelog.limits import ENTRY_BLOBS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX

U8: TypeAlias = npt.NDArray[np.uint8]
U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]

_WITH_KEY: Final = np.array(sorted(WITH_KEY), np.uint8)
_WITHOUT_KEY: Final = np.array(sorted(WITHOUT_KEY), np.uint8)
_KINDS: Final = np.array(sorted(KINDS), np.uint8)


@dataclass(frozen=True, slots=True)
class Items:
    """Items of entry ``i`` are ``data[offsets[i]:offsets[i + 1]]``; offsets may begin above 0."""

    offsets: npt.NDArray[Any]
    data: npt.NDArray[Any]

    def lengths(self) -> npt.NDArray[Any]:
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """The fields of entries; a number stands for a column that is the same for all of them."""

    count: int
    kinds: U8 | int
    timestamps: I64 | int
    storage_ids: U64 | int = 0
    versions: tuple[U64, U64] | None = None
    """Lower and upper halves."""
    keys: Items | None = None
    values: Items | None = None
    blobs: Items | None = None

    def version_min(self) -> int | None:
        """The smallest write version; None when there are none."""
        if self.versions is None:
            return None
        low, high = self.versions
        top = high.min()
        return int(top) << 64 | int(low[high == top].min())


def encode_columns(columns: EntryColumns) -> BatchBody:
    """The body of the entries in ``columns``: what ``encode_entries`` makes of them."""
    check_count(columns.count)
    _check_kinds(columns)
    sections = _Sections()
    kind = sections.add_field(HAS_KINDS, columns.kinds, np.uint8)
    timestamp = sections.add_field(HAS_TIMESTAMPS, columns.timestamps, np.int64)
    storage_id = sections.add_field(HAS_STORAGE_IDS, columns.storage_ids, np.uint64)
    if columns.versions is not None:
        for half in columns.versions:
            check(len(half) == columns.count, "every entry has its write version")
            sections.add(HAS_VERSIONS, np.ascontiguousarray(half, np.uint64))
    sections.add_items(HAS_KEYS, columns.keys, KEY_BYTES_MAX, key_too_large)
    sections.add_items(HAS_VALUES, columns.values, VALUE_BYTES_MAX, value_too_large)
    sections.add_items(HAS_BLOBS, columns.blobs, ENTRY_BLOBS_MAX, _too_many_blobs)
    check_body_size(sections.size)
    data = b"".join(sections.parts)
    return BatchBody(data, columns.count, sections.flags, kind, storage_id, timestamp, crc32c(data))


class _Sections:
    """The sections of a body as it grows, and the flags that name them."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.size = 0
        self.flags = 0

    def add(self, flag: int, column: npt.NDArray[Any]) -> None:
        length = column.nbytes
        self.flags |= flag
        self.parts += (column.data.cast("B"), PADDING[-length & 7])
        self.size += length + (-length & 7)

    def add_field(self, flag: int, column: npt.NDArray[Any] | int, item: type) -> int:
        """Add the column of a field; returns what the header holds in place of one (B2)."""
        if isinstance(column, int):
            return column
        first = column[0]
        if (column == first).all():
            return int(first)
        self.add(flag, np.ascontiguousarray(column, item))
        return 0

    def add_items(
        self, flag: int, items: Items | None, limit: int, too_large: Callable[[int], BadEntry]
    ) -> None:
        """Add offsets and items; nothing when all entries have none."""
        if items is None:
            return
        begin, end = int(items.offsets[0]), int(items.offsets[-1])
        if begin == end:
            return
        if end - begin > limit and (longest := int(items.lengths().max())) > limit:
            raise too_large(longest)
        check_body_size(self.size + (end - begin) * items.data.itemsize)
        offsets = items.offsets - items.offsets[0] if begin else items.offsets
        self.add(flag, np.ascontiguousarray(offsets, np.uint32))
        self.add(flag, np.ascontiguousarray(items.data[begin:end]))


def _check_kinds(columns: EntryColumns) -> None:
    """E1: a kind exists, and goes with its key."""
    kinds = columns.kinds
    if isinstance(kinds, int):
        kinds = np.full(columns.count, kinds, np.uint8)
    has_key = _has_key(columns)
    unknown = ~np.isin(kinds, _KINDS)
    if unknown.any():
        raise BadEntry(f"kind {int(kinds[unknown][0])} does not exist")
    if (bad := np.isin(kinds, _WITH_KEY) & ~has_key).any():
        raise BadEntry(f"a {_name(kinds, bad)} entry needs a key of at least one byte")
    if (bad := np.isin(kinds, _WITHOUT_KEY) & has_key).any():
        raise BadEntry(f"a {_name(kinds, bad)} entry has no key: leave the key empty")


def _has_key(columns: EntryColumns) -> npt.NDArray[np.bool_]:
    if columns.keys is None:
        return np.zeros(columns.count, np.bool_)
    return columns.keys.lengths() > 0


def _name(kinds: U8, bad: npt.NDArray[np.bool_]) -> str:
    return Kind(int(kinds[bad][0])).name


def _too_many_blobs(count: int) -> BadEntry:
    return BadEntry(
        f"the entry refers to {count} BLOBs, the limit is {ENTRY_BLOBS_MAX}: "
        "spread them over several entries"
    )
