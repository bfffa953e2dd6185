"""Keyed entries as rows in columns: joined, picked and sorted.  ``key_gathering`` makes them.

A key is known by the 128-bit hash of its storage id and its bytes, with the log's own seed.

  K1  Sorted rows are in the order of (hash, version, LLSN): those of one key are neighbours,
      oldest first.

No state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from xxhash import xxh3_128_intdigest

U64: TypeAlias = NDArray[np.uint64]
U32: TypeAlias = NDArray[np.uint32]
U8: TypeAlias = NDArray[np.uint8]

_LOW_64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """PUT and DELETE entries as columns; ``size`` is the bytes of key and value.

    A column with one value for all rows may be a view of that one value (``constant``).
    """

    hash_hi: U64
    hash_lo: U64
    storage: U64
    version_hi: U64
    version_lo: U64
    llsn: U64
    kind: U8
    size: U32

    def __len__(self) -> int:
        return len(self.llsn)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> KeyRows:
        """The rows of a slice, of a boolean mask, or at these positions."""
        count = len(self.llsn[rows]) if isinstance(rows, slice) else _count(rows)
        return KeyRows(*(_pick(column, rows, count) for column in self.columns()))

    def filter(self, mask: NDArray[np.bool_]) -> KeyRows:
        """The rows for which ``mask`` holds."""
        return self[mask]

    def between(self, hash_hi_begin: int, hash_hi_end: int) -> KeyRows:
        """Of sorted rows those with hashes in ``[hash_hi_begin, hash_hi_end)``."""
        return self[self._search(hash_hi_begin) : self._search(hash_hi_end)]

    def _search(self, hash_hi: int) -> int:
        """The first row with this hash or a higher one; the end of all hashes is 2**64."""
        if hash_hi > _LOW_64:
            return len(self)
        return int(np.searchsorted(self.hash_hi, np.uint64(hash_hi), side="left"))

    def columns(self) -> tuple[NDArray[np.unsignedinteger], ...]:
        """All columns, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def equals(self, other: KeyRows) -> bool:
        return all(map(np.array_equal, self.columns(), other.columns()))

    def with_versions(self, version_lo: U64) -> KeyRows:
        """The same rows with other lower halves of their versions."""
        return replace(self, version_lo=version_lo)

    def version_at(self, row: int) -> int:
        return int(self.version_lo[row]) | int(self.version_hi[row]) << 64


def hash_key(storage_id: int, key: bytes, seed: int) -> tuple[int, int]:
    """The high and low halves of the hash by which a key is known."""
    digest = xxh3_128_intdigest(storage_id.to_bytes(8, "little") + key, seed)
    return digest >> 64, digest & _LOW_64


def no_rows() -> KeyRows:
    u64 = np.zeros(0, dtype=np.uint64)
    return KeyRows(
        u64, u64, u64, u64, u64, u64, np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=np.uint32)
    )


def concat_rows(parts: Iterable[KeyRows]) -> KeyRows:
    """The rows of all parts, one part after the other."""
    found = [part.columns() for part in parts if len(part)]
    if len(found) < 2:
        return KeyRows(*found[0]) if found else no_rows()
    return KeyRows(*map(_concat, zip(*found, strict=True)))


def _concat(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    value = columns[0][0]
    if all(column.strides == (0,) and column[0] == value for column in columns):
        return constant(value, sum(map(len, columns)), columns[0].dtype)
    return np.concatenate(columns)


def constant(value: int, count: int, dtype: npt.DTypeLike) -> NDArray[Any]:
    """A column that has one value in all rows and takes no memory for them."""
    return np.broadcast_to(np.array([value], dtype=dtype), count)


def _count(rows: NDArray[np.bool_] | NDArray[np.intp]) -> int:
    return int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)


def _pick(
    column: NDArray[Any], rows: slice | NDArray[np.bool_] | NDArray[np.intp], count: int
) -> NDArray[Any]:
    if len(column) and column.strides == (0,):
        return np.broadcast_to(column[:1], count)
    if isinstance(rows, np.ndarray) and rows.dtype != np.bool_:
        # They come from sorting and are never out of range: "clip" only looks at them less.
        return column.take(rows, mode="clip")
    return column[rows]


def sort_rows(rows: KeyRows) -> KeyRows:
    """The rows in the order of K1."""
    order, hash_hi = _hash_order(rows.hash_hi)
    # The column by which they were sorted is in order already.
    result = replace(
        replace(rows, hash_hi=constant(0, len(rows), np.uint64))[order], hash_hi=hash_hi
    )
    if is_sorted(result):
        # The common case: versions grow with the log, and rows came in its order.
        return result
    order = np.lexsort((rows.llsn, rows.version_lo, rows.version_hi, rows.hash_lo, rows.hash_hi))
    return rows[order]


def _hash_order(hashes: U64) -> tuple[NDArray[np.intp], U64]:
    """The order of the hashes, and they in it; equal ones stay in the order in which they are."""
    # Numbers are sorted many times as fast as places by numbers.  So each hash gets its place in
    # exchange for its last bits, by which hardly any two of them are told apart.
    place_bits = np.uint64((1 << len(hashes).bit_length()) - 1)
    packed = hashes & ~place_bits
    packed |= np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    packed &= place_bits
    order = packed.view(np.intp)
    ordered = hashes.take(order, mode="clip")
    if bool((ordered[:-1] > ordered[1:]).any()):
        fine = np.argsort(ordered, kind="stable")
        return order.take(fine, mode="clip"), ordered.take(fine, mode="clip")
    return order, ordered


def is_sorted(rows: KeyRows) -> bool:
    """Whether K1 holds."""
    tied: NDArray[np.bool_] | None = None  # Rows that equal the next one in all columns so far.
    for column in (rows.hash_hi, rows.hash_lo, rows.version_hi, rows.version_lo, rows.llsn):
        if column.strides == (0,):
            continue
        # Keys that are often overwritten have many ties: to look at all rows costs less than to
        # pick those.
        before, after = column[:-1], column[1:]
        falls = before > after
        if bool((falls if tied is None else falls & tied).any()):
            return False
        equal = before == after
        tied = equal if tied is None else tied & equal
        if not bool(tied.any()):
            return True
    return True
