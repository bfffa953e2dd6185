"""Whether entries that somebody else found dead may go: a plan is checked, never believed.

A plan claims that some keyed entries of a log stream are dead.  What it was made from may have been
another replica, compacted otherwise, or an older log, or it may just be wrong.  So every claim is
held against the rows that are physically here: it is looked up among the *kept* ones, those that no
claim is about, and only these are sorted.

  P1  a claim is founded if a kept row of its key stands above it, at or below the GC boundary
      (L2), or a storage delete in force does (L4)
  P2  a DELETE at or below the boundary that is not founded by that is founded if no older row of
      its key is here, claimed or not (L3); if there is one it is in doubt, and stays
  P3  a storage delete at or below the boundary is founded if no smaller row of its storage is
      here, claimed or not (L6); if there is one it is in doubt, and stays
  P4  a plan with any other claim is refused as a whole
  P5  a DELETE that P2 founds is silent (L9), unless a kept row of its key is greater

Whatever is founded is dead by the rules of ``explain`` for the rows that are here.  No state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidelog.core.compaction.explain import KIND_DELETE, StorageDelete
from tidelog.core.compaction.live import (
    RowColumns,
    killed_by_storage,
    row_order,
    version_above,
)

Bools: TypeAlias = npt.NDArray[np.bool_]
Keys: TypeAlias = npt.NDArray[np.bytes_] | npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of claims, one value for each: P1 founds it, P2 has to decide, or neither."""

    founded: Bools
    open: Bools
    outlived: Bools
    """A kept row of the same key is greater (P5)."""

    @property
    def unfounded(self) -> Bools:
        return ~(self.founded | self.open)


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Rows in any order, found by their keys; of each key the positions that matter.

    ``ruling`` is its greatest row at or below the GC boundary, if ``has_ruling``.
    """

    rows: RowColumns
    boundary: int
    keys: Keys
    is_wide: bool
    """Whether ``keys`` are whole keys: the upper words of their hashes tell most of them apart."""
    greatest: Positions
    ruling: Positions
    has_ruling: Bools

    @classmethod
    def of(cls, rows: RowColumns, boundary: int) -> SortedKeys:
        """Sort by key and then by (version, LLSN)."""
        count = len(rows.llsn)
        order = np.arange(0)
        if count:
            order = row_order((rows.hash_hi, rows.hash_lo, rows.storage), rows)
        begins = np.zeros(count, dtype=np.bool_)
        begins[:1] = True
        for column in (rows.hash_hi, rows.hash_lo, rows.storage):
            ordered = column[order]
            begins[1:] |= ordered[1:] != ordered[:-1]
        first = np.flatnonzero(begins)
        end = np.append(first[1:], count)[: len(first)]
        high = rows.hash_hi[order[first]]
        is_wide = bool((high[1:] == high[:-1]).any())
        # Within a key the rows at or below the boundary come first.
        below = np.concatenate(([0], np.cumsum(~version_above(rows, boundary)[order])))
        ruled = below[end] - below[first]
        return cls(
            rows=rows,
            boundary=boundary,
            keys=_whole_keys(rows)[order[first]] if is_wide else high,
            is_wide=is_wide,
            greatest=order[end - 1],
            ruling=order[first + np.maximum(ruled, 1) - 1],
            has_ruling=ruled > 0,
        )

    def judge(self, claims: RowColumns, storage_deletes: Sequence[StorageDelete]) -> Verdict:
        """Hold claims against these rows, which are all that is kept of their keys."""
        at, known = self.find(claims)
        ruled = outlived = known
        if len(self.keys):
            ruled = known & self.has_ruling[at] & _are_below(claims, self.rows, self.ruling[at])
            outlived = known & _are_below(claims, self.rows, self.greatest[at])
        founded = ruled | killed_by_storage(claims, self.boundary, storage_deletes)
        is_delete = (claims.kind == KIND_DELETE) & ~version_above(claims, self.boundary)
        return Verdict(founded=founded, open=is_delete & ~founded, outlived=outlived)

    def find(self, rows: RowColumns) -> tuple[Positions, Bools]:
        """For each of the rows the place of its key here, and whether it has one."""
        if not len(self.keys):
            return np.zeros(len(rows.llsn), dtype=np.intp), np.zeros(len(rows.llsn), dtype=np.bool_)
        keys = _whole_keys(rows) if self.is_wide else rows.hash_hi
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        mine = self.rows
        known = self.keys[at] == keys
        known &= mine.hash_lo[self.greatest[at]] == rows.hash_lo
        known &= mine.storage[self.greatest[at]] == rows.storage
        return at, known


def hiding(deletes: SortedKeys, rows: RowColumns) -> Bools:
    """For each key of ``deletes``, whether its greatest one has an older row among these (P2)."""
    hides = np.zeros(len(deletes.keys), dtype=np.bool_)
    at, known = deletes.find(rows)
    if len(deletes.keys):
        hides[at[known & _are_below(rows, deletes.rows, deletes.greatest[at])]] = True
    return hides


def _whole_keys(rows: RowColumns) -> npt.NDArray[np.bytes_]:
    """Hash and storage as one value that sorts and compares."""
    joined = np.stack((rows.hash_hi, rows.hash_lo, rows.storage), axis=1).astype(">u8")
    return joined.reshape(-1).view("S24")


def _are_below(rows: RowColumns, others: RowColumns, at: Positions) -> Bools:
    """Whether each row is smaller than the other one by (version, LLSN)."""
    hi, lo, llsn = others.version_hi[at], others.version_lo[at], others.llsn[at]
    lower = (rows.version_lo < lo) | ((rows.version_lo == lo) & (rows.llsn < llsn))
    below: Bools = (rows.version_hi < hi) | ((rows.version_hi == hi) & lower)
    return below
