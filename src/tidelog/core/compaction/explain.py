"""Which keyed entries are live, and why, told one by one.  No state.

This is the rule itself in plain words; ``live`` computes the same for millions of rows.  Writes
of a key are ordered by (version, LLSN).  ``boundary`` is the GC boundary: no reader asks for a
version below it any more.

  L1  rows above the boundary are live
  L2  of the rows at or below it the greatest is live if it is a PUT
  L3  if it is a DELETE, it is live while an older row of the key is physically present, for
      without it that row would come back
  L4  a storage delete at or below the boundary kills all smaller rows of its storage
  L5  a trimmed row is dead; while it is present it still kills what is smaller
  L6  a storage delete is live while it lies above the boundary, or a smaller row of its storage
      is physically present; a trimmed one is dead
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from tidelog.invariants import check

KIND_PUT: Final = 2
KIND_DELETE: Final = 3


@dataclass(frozen=True, slots=True)
class StorageDelete:
    """A DELETE_STORAGE entry: all smaller (version, LLSN) of ``storage`` are to go."""

    storage: int
    version: int
    llsn: int


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One write of the key that is asked about; ``kind`` is KIND_PUT or KIND_DELETE."""

    llsn: int
    version: int
    kind: int
    storage: int = 0


class Reason(Enum):
    """Why a row is live or dead."""

    TRIMMED = "trimmed"
    STORAGE_DELETED = "its storage was deleted after it"
    ABOVE_BOUNDARY = "above the GC boundary"
    NEWEST = "the newest write at or below the GC boundary"
    SUPERSEDED = "a newer write lies at or below the GC boundary"
    SHADOWS = "a delete that older writes still need"
    SHADOWS_NOTHING = "a delete with nothing older left"


class Explanation(NamedTuple):
    """The verdict on one row."""

    llsn: int
    live: bool
    reason: Reason
    text: str


def explain_rows(
    rows: Sequence[KeyRow],
    boundary: int,
    storage_deletes: Sequence[StorageDelete],
    trim_llsn_end: int,
) -> list[Explanation]:
    """Explain every row of one key, in the order given; all its rows must be among them."""
    return [_explain(row, rows, boundary, storage_deletes, trim_llsn_end) for row in rows]


def _explain(
    row: KeyRow,
    rows: Sequence[KeyRow],
    boundary: int,
    storage_deletes: Sequence[StorageDelete],
    trim_llsn_end: int,
) -> Explanation:
    check(row.kind in (KIND_PUT, KIND_DELETE), f"L1: kind {row.kind} has no key")
    what = f"{'PUT' if row.kind == KIND_PUT else 'DELETE'} at LLSN {row.llsn}"
    place = (row.version, row.llsn)

    def verdict(live: bool, reason: Reason, because: str) -> Explanation:
        text = f"{what} (version {row.version}) is {'live' if live else 'dead'}: {because}"
        return Explanation(row.llsn, live, reason, text)

    if row.llsn < trim_llsn_end:
        return verdict(False, Reason.TRIMMED, f"everything below LLSN {trim_llsn_end} was trimmed")
    for delete in storage_deletes:
        in_force = delete.storage == row.storage and delete.version <= boundary
        if in_force and place < (delete.version, delete.llsn):
            because = f"storage {row.storage} was deleted at LLSN {delete.llsn}"
            return verdict(False, Reason.STORAGE_DELETED, because)
    if row.version > boundary:
        because = f"its version is above the GC boundary {boundary}"
        return verdict(True, Reason.ABOVE_BOUNDARY, because)
    newest = max(
        (other for other in rows if other.version <= boundary),
        key=lambda other: (other.version, other.llsn),
    )
    if newest.llsn != row.llsn:
        because = f"LLSN {newest.llsn} (version {newest.version}) replaced it"
        return verdict(False, Reason.SUPERSEDED, because)
    if row.kind == KIND_PUT:
        because = f"it is the newest write at or below the GC boundary {boundary}"
        return verdict(True, Reason.NEWEST, because)
    older = [other.llsn for other in rows if (other.version, other.llsn) < place]
    if older:
        because = f"it hides {len(older)} older write(s), LLSN {min(older)} among them"
        return verdict(True, Reason.SHADOWS, because)
    return verdict(False, Reason.SHADOWS_NOTHING, "no older write of the key is left")
