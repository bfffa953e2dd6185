"""Which keyed entries are live, for whole hash ranges at once.  No state.

The rule is that of ``explain`` (L1 to L6); a property test holds the two together.  Input are
all rows of a range of key hashes, in any order: all rows of a key are in one call.  Cost is that
of sorting the rows once, and does not grow with (rows x storage deletes).

Invariants:
  L7  rows are PUT or DELETE, their columns are equally long, and no LLSN occurs twice
  L8  an LLSN once dead is never live again
  L9  a delete that is dead by L3 is silent, unless a greater row of its key is present, or a
      greater delete of its storage at or below the boundary; one that is dead by L6, unless a
      greater delete of its storage is live; ``horizon`` says what for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tidelog import limits
from tidelog.core.compaction.explain import KIND_DELETE, KIND_PUT, StorageDelete
from tidelog.invariants import check

__all__ = [
    "LiveRows",
    "RowColumns",
    "StorageDelete",
    "check_dead_stays_dead",
    "killed_by_storage",
    "live_rows",
    "live_storage_deletes",
    "row_order",
    "shadowing",
    "silent_storage_deletes",
    "version_above",
]

U64: TypeAlias = npt.NDArray[np.uint64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_LOW_BITS = (1 << 64) - 1


class RowColumns(Protocol):
    """Keyed rows as columns; a version is ``version_hi * 2**64 + version_lo``."""

    @property
    def hash_hi(self) -> U64: ...
    @property
    def hash_lo(self) -> U64: ...
    @property
    def storage(self) -> U64: ...
    @property
    def version_hi(self) -> U64: ...
    @property
    def version_lo(self) -> U64: ...
    @property
    def llsn(self) -> U64: ...
    @property
    def kind(self) -> npt.NDArray[np.uint8]: ...


@dataclass(frozen=True, slots=True)
class LiveRows:
    """What is live among the rows given.

    ``mask`` has one value per row.  ``shadowed`` tells per storage delete, in the order given,
    whether a smaller row of its storage is present.  ``witnesses`` are, per key, the oldest row
    and the newest at or below the boundary: with these and the live ones kept, all other rows
    may be left out before more rows of the same keys are looked at.  ``silent`` are the deletes
    that nothing tells of any more (L9).
    """

    mask: Bools
    shadowed: Bools
    witnesses: Bools
    silent: Bools


def live_rows(
    rows: RowColumns,
    boundary: int,
    storage_deletes: Sequence[StorageDelete],
    trim_llsn_end: int,
) -> LiveRows:
    """Tell for every row whether it is live, and for every storage delete whether it is needed.

    A row may be dead only because a greater one is present, and a trim may take that one first.
    So whoever computes again must take out what was dead before (L8).
    """
    count = len(rows.llsn)
    _check_columns(rows, count)
    check(0 <= boundary < limits.WRITE_VERSION_END, "L1: the boundary is not a version")
    check(trim_llsn_end >= 0, "L5: the trim ends at a negative LLSN")
    if count == 0:
        empty = np.zeros(0, dtype=np.bool_)
        return LiveRows(empty, np.zeros(len(storage_deletes), dtype=np.bool_), empty, empty)
    mask, witnesses, silent = _live_by_key(rows, boundary)
    untrimmed = rows.llsn >= np.uint64(min(trim_llsn_end, _LOW_BITS))
    mask &= untrimmed
    silent &= untrimmed
    shadowed = np.zeros(len(storage_deletes), dtype=np.bool_)
    if storage_deletes:
        outlived = ~killed_by_storage(rows, boundary, storage_deletes)
        mask &= outlived
        silent &= outlived
        shadowed = shadowing(rows, storage_deletes)
    return LiveRows(mask, shadowed, witnesses, silent)


def live_storage_deletes(
    storage_deletes: Sequence[StorageDelete],
    boundary: int,
    shadowed: Bools,
    trim_llsn_end: int,
) -> Bools:
    """Tell which storage deletes are live, from ``shadowed`` combined (or) over all ranges."""
    check(len(shadowed) == len(storage_deletes), "L6: one answer per storage delete")
    above = np.array([delete.version > boundary for delete in storage_deletes], dtype=np.bool_)
    kept = np.array([delete.llsn >= trim_llsn_end for delete in storage_deletes], dtype=np.bool_)
    live: Bools = (above | shadowed) & kept
    return live


def silent_storage_deletes(storage_deletes: Sequence[StorageDelete], live: Bools) -> Bools:
    """Tell which storage deletes are dead with no greater one of their storage live (L9)."""
    check(len(live) == len(storage_deletes), "L9: one answer per storage delete")
    greatest = _greatest_places(
        [delete for delete, alive in zip(storage_deletes, live, strict=True) if alive]
    )
    return np.array(
        [
            not alive and (delete.version, delete.llsn) > greatest.get(delete.storage, (-1, -1))
            for delete, alive in zip(storage_deletes, live, strict=True)
        ],
        dtype=np.bool_,
    )


def check_dead_stays_dead(previous_live: BitMap64, previous_index: int, new_live: BitMap64) -> None:
    """Stop if an entry at or below the previous snapshot index came back to life."""
    revived = new_live - previous_live
    first = revived.min() if revived else previous_index + 1
    check(
        first > previous_index,
        f"L8: LLSN {first} was dead at snapshot index {previous_index} and is live again",
    )


def _check_columns(rows: RowColumns, count: int) -> None:
    columns = (rows.hash_hi, rows.hash_lo, rows.storage, rows.version_hi, rows.version_lo)
    check(all(len(column) == count for column in columns), "L7: columns differ in length")
    check(len(rows.kind) == count, "L7: columns differ in length")
    keyed = (rows.kind == KIND_PUT) | (rows.kind == KIND_DELETE)
    check(bool(keyed.all()), "L7: a row is neither PUT nor DELETE")


def _live_by_key(rows: RowColumns, boundary: int) -> tuple[Bools, Bools, Bools]:
    """Apply L1 to L3, what the rows of a key do to one another: live, witnesses, silent (L9)."""
    count = len(rows.llsn)
    order = row_order((rows.hash_hi, rows.hash_lo, rows.storage), rows)
    key_begins = np.ones(count + 1, dtype=np.bool_)
    key_begins[1:-1] = False
    for column in (rows.hash_hi, rows.hash_lo, rows.storage):
        ordered = column.take(order)
        key_begins[1:-1] |= ordered[1:] != ordered[:-1]

    # Within a key the rows at or below the boundary come first; the last of them is the newest.
    above = np.ones(count + 1, dtype=np.bool_)
    above[:-1] = version_above(rows, boundary)[order]
    newest = ~above[:-1] & (key_begins[1:] | above[1:])
    has_older = ~key_begins[:-1]
    is_put = rows.kind[order] == KIND_PUT

    mask = np.empty(count, dtype=np.bool_)
    mask[order] = above[:-1] | (newest & (is_put | has_older))
    witnesses = np.empty(count, dtype=np.bool_)
    witnesses[order] = newest | ~has_older
    # Without an older row it is dead, and without a greater one nothing tells of it.
    silent = np.empty(count, dtype=np.bool_)
    silent[order] = newest & ~is_put & ~has_older & key_begins[1:]
    return mask, witnesses, silent


def row_order(first: Sequence[U64], rows: RowColumns) -> npt.NDArray[np.intp]:
    """Sort by ``first``, then by (version, LLSN); columns that do not vary cost nothing."""
    columns = (*first, rows.version_hi, rows.version_lo, rows.llsn)
    varying = [column for column in columns if column.min() != column.max()]
    if not varying:
        return np.arange(len(rows.llsn))
    # Rows come in runs that are sorted already, older runs first: then one stable pass will do.
    order = np.argsort(varying[0], kind="stable")
    if _ascend(varying, order):
        return order
    return np.lexsort(tuple(reversed(varying)))


def _ascend(columns: Sequence[U64], order: npt.NDArray[np.intp]) -> bool:
    """Whether rows in this ``order`` ascend by all columns, the first one being known to."""
    tied = np.ones(len(order) - 1, dtype=np.bool_)
    for column in columns:
        # Ties are many where keys are often overwritten, and picking them costs more than this.
        ordered = column.take(order)
        before, after = ordered[:-1], ordered[1:]
        if bool((tied & (before > after)).any()):
            return False
        tied &= before == after
        if not bool(tied.any()):
            return True
    return True


def version_above(rows: RowColumns, boundary: int) -> Bools:
    """Which rows have versions above the boundary (L1)."""
    hi, lo = np.uint64(boundary >> 64), np.uint64(boundary & _LOW_BITS)
    above: Bools = (rows.version_hi > hi) | ((rows.version_hi == hi) & (rows.version_lo > lo))
    return above


def killed_by_storage(
    rows: RowColumns, boundary: int, storage_deletes: Sequence[StorageDelete]
) -> Bools:
    """Apply L4.  Of the deletes in force the greatest of each storage decides alone."""
    greatest = _greatest_places(
        [delete for delete in storage_deletes if delete.version <= boundary]
    )
    if not greatest:
        return np.zeros(len(rows.llsn), dtype=np.bool_)
    storages = np.array(sorted(greatest), dtype=np.uint64)
    places = [greatest[storage] for storage in sorted(greatest)]
    hi = np.array([version >> 64 for version, _ in places], dtype=np.uint64)
    lo = np.array([version & _LOW_BITS for version, _ in places], dtype=np.uint64)
    llsn = np.array([llsn for _, llsn in places], dtype=np.uint64)

    at = np.minimum(np.searchsorted(storages, rows.storage), len(storages) - 1)
    same_version = (rows.version_hi == hi[at]) & (rows.version_lo == lo[at])
    smaller = (
        (rows.version_hi < hi[at])
        | ((rows.version_hi == hi[at]) & (rows.version_lo < lo[at]))
        | (same_version & (rows.llsn < llsn[at]))
    )
    killed: Bools = (storages[at] == rows.storage) & smaller
    return killed


def _greatest_places(storage_deletes: Sequence[StorageDelete]) -> dict[int, tuple[int, int]]:
    """The (version, LLSN) of the greatest delete of each storage."""
    greatest: dict[int, tuple[int, int]] = {}
    for delete in storage_deletes:
        place = (delete.version, delete.llsn)
        greatest[delete.storage] = max(place, greatest.get(delete.storage, place))
    return greatest


def shadowing(rows: RowColumns, storage_deletes: Sequence[StorageDelete]) -> Bools:
    """Whether a smaller row of its storage is present, for each storage delete (L6)."""
    if not len(rows.llsn):
        return np.zeros(len(storage_deletes), dtype=np.bool_)
    order = row_order((rows.storage,), rows)
    storages = rows.storage[order]
    wanted = np.array([delete.storage for delete in storage_deletes], dtype=np.uint64)
    at = np.minimum(np.searchsorted(storages, wanted), len(storages) - 1)
    present = storages[at] == wanted
    smallest = order[at]
    shadowed = np.zeros(len(storage_deletes), dtype=np.bool_)
    for i, delete in enumerate(storage_deletes):
        if present[i]:
            row = int(smallest[i])
            version = (int(rows.version_hi[row]) << 64) | int(rows.version_lo[row])
            shadowed[i] = (version, int(rows.llsn[row])) < (delete.version, delete.llsn)
    return shadowed
