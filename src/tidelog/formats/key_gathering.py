"""Key rows from batches, collected while these pass by.

Small batches take no call of numpy, and large ones no loop: they are held until there is enough
of them for a few calls.

  G1  Rows are in the order of the batches and of the entries in them.
  G2  No more than a bounded number of bytes of the batches is held.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from tidelog.formats.batch import Batch, Column
from tidelog.formats.entry import WITH_KEY
from tidelog.formats.key_hashing import U8, hash_keys
from tidelog.formats.key_rows import U32, U64, KeyRows, concat_rows, constant, sort_rows
from tidelog.invariants import check
from tidelog.limits import MIB

_KEYED: Final = bytes(int(number in WITH_KEY) for number in range(256))
"""Translates kinds into 1 for PUT and DELETE and 0 for others."""
_MANY: Final = 64
"""From so many entries on a batch is worth being held with others for numpy."""
_HELD_BYTES_MAX: Final = 8 * MIB

_GlsnOf: TypeAlias = Callable[[U64], U64]


def rows_from_batches(batches: Iterable[Batch], glsn_of: _GlsnOf, seed: int) -> KeyRows:
    """A row for each PUT and DELETE, in the order of the batches."""
    gathered = RowColumns(seed)
    for batch in batches:
        gathered.add(batch)
    return gathered.rows(glsn_of)


class RowColumns:
    """Collects rows batch by batch."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._few = _FewRows(seed)
        self._many: list[Batch] = []
        self._held_bytes = 0
        self._parts: list[_Part] = []

    def add(self, batch: Batch) -> None:
        if not batch.is_keyed:
            return
        if batch.count < _MANY or batch.column(Column.KINDS) is not None:
            self._take_many()
            self._few.add(batch)
        else:
            self._take_few()
            if self._many and not _are_alike(self._many[-1], batch):
                self._take_many()
            self._many.append(batch)
            self._held_bytes += batch.length
            if self._held_bytes >= _HELD_BYTES_MAX:
                self._take_many()  # G2

    def rows(self, glsn_of: _GlsnOf) -> KeyRows:
        self._take_few()
        self._take_many()
        return concat_rows([_with_versions(part, glsn_of) for part in self._parts])

    def sorted_rows(self, glsn_of: _GlsnOf) -> KeyRows:
        """The same rows in the order of K1."""
        self._take_few()
        self._take_many()
        if not all(isinstance(part.implicit, slice) for part in self._parts):
            return sort_rows(self.rows(glsn_of))
        # GLSNs grow with LLSNs: they need not be moved about to be in order.
        rows = sort_rows(concat_rows([part.rows for part in self._parts]))
        return _with_versions(_Part(rows, slice(None)), glsn_of)

    def _take_few(self) -> None:
        if self._few.is_filled:
            self._parts.append(self._few.part())
            self._few = _FewRows(self._seed)

    def _take_many(self) -> None:
        if self._many:
            self._parts.append(_part_of(self._many, self._seed))
            self._many, self._held_bytes = [], 0


class _Part(NamedTuple):
    """Neighbouring rows, and where in them the GLSN is the version; None where it never is."""

    rows: KeyRows
    implicit: NDArray[np.bool_] | slice | None


def _with_versions(part: _Part, glsn_of: _GlsnOf) -> KeyRows:
    rows, implicit = part
    if implicit is None:
        return rows
    glsns = glsn_of(rows.llsn[implicit])
    check(bool(glsns.all()), "an entry of a segment has its GLSN")
    if len(glsns) == len(rows):
        return rows.with_versions(glsns)
    version_lo = rows.version_lo.copy()
    version_lo[implicit] = glsns
    return rows.with_versions(version_lo)


# ---- large batches


def _are_alike(a: Batch, b: Batch) -> bool:
    """Whether both leave out the same columns for the same values."""
    return (
        a.flags == b.flags
        and a.kind_at(0) == b.kind_at(0)
        and (a.column(Column.STORAGE_IDS) is not None or a.storage_id_at(0) == b.storage_id_at(0))
    )


def _part_of(batches: list[Batch], seed: int) -> _Part:
    """The rows of alike batches whose entries are all keyed."""
    lengths = _lengths(batches, Column.KEY_OFFSETS)
    count, first = len(lengths), batches[0]
    storage = (
        constant(first.storage_id_at(0), count, np.uint64)
        if first.column(Column.STORAGE_IDS) is None
        else _joined(batches, Column.STORAGE_IDS, np.uint64)
    )
    low, high = first.column(Column.VERSIONS_LOW), first.column(Column.VERSIONS_HIGH)
    implicit = low is None or high is None
    zeros = constant(0, count, np.uint64)
    hash_hi, hash_lo = _hashes(batches, lengths, storage, seed)
    rows = KeyRows(
        hash_hi=hash_hi,
        hash_lo=hash_lo,
        storage=storage,
        version_hi=zeros if implicit else _joined(batches, Column.VERSIONS_HIGH, np.uint64),
        version_lo=zeros if implicit else _joined(batches, Column.VERSIONS_LOW, np.uint64),
        llsn=_llsns(batches),
        kind=constant(first.kind_at(0), count, np.uint8),
        size=lengths + _lengths(batches, Column.VALUE_OFFSETS),
    )
    return _Part(rows, slice(None) if implicit else None)


def _joined(batches: list[Batch], column: Column, dtype: type[np.unsignedinteger]) -> NDArray[Any]:
    found = [batch.column(column) for batch in batches]
    return np.concatenate([np.frombuffer(one, dtype=dtype) for one in found if one is not None])


def _hashes(batches: list[Batch], lengths: U32, storage: U64, seed: int) -> tuple[U64, U64]:
    """The halves of the hashes; equally long keys, which are common, are taken all at once."""
    data: U8 = _joined(batches, Column.KEY_BYTES, np.uint8)
    length = int(lengths[0])
    if bool((lengths == length).all()):
        return hash_keys(data.reshape(-1, length), storage, seed)
    ends = np.cumsum(lengths, dtype=np.int64)
    begins = ends - lengths
    hash_hi, hash_lo = np.empty(len(lengths), np.uint64), np.empty(len(lengths), np.uint64)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        keys = data[begins[places][:, None] + np.arange(length)]
        hash_hi[places], hash_lo[places] = hash_keys(keys, storage[places], seed)
    return hash_hi, hash_lo


def _llsns(batches: list[Batch]) -> U64:
    first, end = batches[0].first_llsn, batches[-1].end_llsn
    if end - first == sum([batch.count for batch in batches]):
        return np.arange(first, end, dtype=np.uint64)  # None is missing between them.
    return np.concatenate([_llsns_of(batch) for batch in batches])


def _llsns_of(batch: Batch) -> U64:
    column = batch.column(Column.LLSNS)
    if column is None:
        return np.arange(batch.first_llsn, batch.end_llsn, dtype=np.uint64)
    return np.frombuffer(column, dtype=np.uint32) + np.uint64(batch.first_llsn)


def _lengths(batches: list[Batch], column: Column) -> U32:
    """The length of each key or value."""
    if batches[0].column(column) is None:
        return np.zeros(sum([batch.count for batch in batches]), dtype=np.uint32)
    places: U32 = _joined(batches, column, np.uint32)
    lengths: U32 = places[1:] - places[:-1]
    # From the last offset of a batch to the first of the next one there is no entry.
    ends = np.cumsum([batch.count + 1 for batch in batches])
    return np.delete(lengths, ends[:-1] - 1)


# ---- small batches, and those of several kinds


class _FewRows:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._digests = bytearray()
        self._storage = array("Q")
        self._version_lo = array("Q")
        self._version_hi = array("Q")
        self._implicit = bytearray()
        self._llsn = array("Q")
        self._kind = bytearray()
        self._size = array("I")

    @property
    def is_filled(self) -> bool:
        return bool(self._kind)

    def add(self, batch: Batch) -> None:
        kinds, keys = batch.kinds(), batch.keys()
        llsns: Iterable[int] = batch.llsns()
        sizes: Iterable[int] = map(batch.entry_bytes, range(batch.count))
        low, high = batch.column(Column.VERSIONS_LOW), batch.column(Column.VERSIONS_HIGH)
        storages = batch.column(Column.STORAGE_IDS)
        storage_ids = storages.tolist() if storages is not None else None
        lows: Iterable[int] | None = low
        highs: Iterable[int] | None = high
        if batch.column(Column.KINDS) is not None:
            keep = kinds.translate(_KEYED)
            kinds, keys = bytes(compress(kinds, keep)), list(compress(keys, keep))
            llsns, sizes = compress(llsns, keep), compress(sizes, keep)
            lows = compress(low, keep) if low is not None else None
            highs = compress(high, keep) if high is not None else None
            storage_ids = list(compress(storage_ids, keep)) if storage_ids is not None else None
        count = len(kinds)
        self._llsn.extend(llsns)
        self._size.extend(sizes)
        self._kind += kinds
        implicit = lows is None or highs is None
        self._implicit += (b"\1" if implicit else b"\0") * count
        self._version_lo.extend(array("Q", (0,)) * count if lows is None else lows)
        self._version_hi.extend(array("Q", (0,)) * count if highs is None else highs)
        self._add_keys(keys, batch.storage_id_at(0), storage_ids)

    def _add_keys(self, keys: list[bytes], storage_id: int, ids: list[int] | None) -> None:
        seed = self._seed
        if ids is None:
            prefix = storage_id.to_bytes(8, "little")
            self._storage.extend(array("Q", (storage_id,)) * len(keys))
            self._digests += b"".join([xxh3_128_digest(prefix + key, seed) for key in keys])
            return
        self._storage.extend(ids)
        self._digests += b"".join(
            [
                xxh3_128_digest(number.to_bytes(8, "little") + key, seed)
                for number, key in zip(ids, keys, strict=True)
            ]
        )

    def part(self) -> _Part:
        # A digest is the big-endian hash, so its two words are the high and the low half.
        words = np.frombuffer(self._digests, dtype=">u8").reshape(-1, 2)
        implicit = np.frombuffer(self._implicit, dtype=np.bool_)
        rows = KeyRows(
            hash_hi=words[:, 0].astype(np.uint64),
            hash_lo=words[:, 1].astype(np.uint64),
            storage=np.array(self._storage, dtype=np.uint64),
            version_hi=np.array(self._version_hi, dtype=np.uint64),
            version_lo=np.array(self._version_lo, dtype=np.uint64),
            llsn=np.array(self._llsn, dtype=np.uint64),
            kind=np.array(self._kind, dtype=np.uint8),
            size=np.array(self._size, dtype=np.uint32),
        )
        return _Part(rows, implicit if bool(implicit.any()) else None)
