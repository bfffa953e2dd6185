"""Keyed entries as rows in columns: made from batches, joined and sorted.

A key is known by the 128-bit hash of its storage id and its bytes, with the log's own seed.

  K1  Sorted rows are in the order of (hash, version, LLSN): those of one key are neighbours,
      oldest first.

No state.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import compress, repeat
from operator import add
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest, xxh3_128_intdigest

from tidelog.formats.batch import Batch, Column
from tidelog.formats.entry import WITH_KEY
from tidelog.invariants import check

U64: TypeAlias = NDArray[np.uint64]
U32: TypeAlias = NDArray[np.uint32]
U8: TypeAlias = NDArray[np.uint8]

_LOW_64: Final = (1 << 64) - 1
_KEYED: Final = bytes(int(number in WITH_KEY) for number in range(256))
"""Translates kinds into 1 for PUT and DELETE and 0 for others."""
_MANY: Final = 64
"""From so many entries on a batch is worth a dozen calls of numpy."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyRows:
    """PUT and DELETE entries as columns; ``size`` is the bytes of key and value."""

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
        return KeyRows(*(column[rows] for column in self.columns()))

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
    columns = [part.columns() for part in parts]
    if not columns:
        return no_rows()
    return KeyRows(*map(np.concatenate, zip(*columns, strict=True)))


def sort_rows(rows: KeyRows) -> KeyRows:
    """The rows in the order of K1."""
    result = rows[np.argsort(rows.hash_hi, kind="stable")]
    if is_sorted(result):
        # The common case: versions grow with the log, and rows came in its order.
        return result
    order = np.lexsort((rows.llsn, rows.version_lo, rows.version_hi, rows.hash_lo, rows.hash_hi))
    return rows[order]


def is_sorted(rows: KeyRows) -> bool:
    """Whether K1 holds."""
    equal = np.ones(max(len(rows) - 1, 0), dtype=np.bool_)
    for column in (rows.hash_hi, rows.hash_lo, rows.version_hi, rows.version_lo, rows.llsn):
        before, after = column[:-1], column[1:]
        if bool(np.any(equal & (before > after))):
            return False
        equal &= before == after
    return True


# ---- rows from batches


def rows_from_batches(
    batches: Iterable[Batch], glsn_of: Callable[[U64], U64], seed: int
) -> KeyRows:
    """A row for each PUT and DELETE, in the order of the batches."""
    gathered = RowColumns(seed)
    for batch in batches:
        gathered.add(batch)
    return gathered.rows(glsn_of)


class RowColumns:
    """Collects rows batch by batch.  Small batches take no numpy call, large ones no loop."""

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

    def add(self, batch: Batch) -> None:
        if not batch.is_keyed:
            return
        if batch.count < _MANY or batch.column(Column.KINDS) is not None:
            self._add_few(batch)
        else:
            self._add_many(batch)

    def _add_many(self, batch: Batch) -> None:
        """The rows of a batch whose entries are all keyed."""
        count = batch.count
        self._llsn.frombytes(_llsns(batch).tobytes())
        sizes = _lengths(batch, Column.KEY_OFFSETS) + _lengths(batch, Column.VALUE_OFFSETS)
        self._size.frombytes(sizes.tobytes())
        self._kind += batch.kinds()
        low, high = batch.column(Column.VERSIONS_LOW), batch.column(Column.VERSIONS_HIGH)
        self._implicit += (b"\1" if low is None or high is None else b"\0") * count
        self._version_lo.frombytes(bytes(8 * count) if low is None else low.tobytes())
        self._version_hi.frombytes(bytes(8 * count) if high is None else high.tobytes())
        column = batch.column(Column.STORAGE_IDS)
        storage = batch.storage_id_at(0).to_bytes(8, "little") * count
        storage = storage if column is None else column.tobytes()
        self._storage.frombytes(storage)
        hashed = _prefixed_keys(batch, storage)
        self._digests += b"".join(map(xxh3_128_digest, hashed, repeat(self._seed)))

    def _add_few(self, batch: Batch) -> None:
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

    def rows(self, glsn_of: Callable[[U64], U64]) -> KeyRows:
        # A digest is the big-endian hash, so its two words are the high and the low half.
        words = np.frombuffer(self._digests, dtype=">u8").reshape(-1, 2)
        llsn = np.array(self._llsn, dtype=np.uint64)
        version_lo = np.array(self._version_lo, dtype=np.uint64)
        implicit = np.frombuffer(self._implicit, dtype=np.bool_)
        if len(llsn) and bool(implicit.any()):
            glsns = glsn_of(llsn[implicit])
            check(bool(glsns.all()), "an entry of a segment has its GLSN")
            version_lo[implicit] = glsns
        return KeyRows(
            hash_hi=words[:, 0].astype(np.uint64),
            hash_lo=words[:, 1].astype(np.uint64),
            storage=np.array(self._storage, dtype=np.uint64),
            version_hi=np.array(self._version_hi, dtype=np.uint64),
            version_lo=version_lo,
            llsn=llsn,
            kind=np.array(self._kind, dtype=np.uint8),
            size=np.array(self._size, dtype=np.uint32),
        )


def _llsns(batch: Batch) -> U64:
    column = batch.column(Column.LLSNS)
    if column is None:
        return np.arange(batch.first_llsn, batch.end_llsn, dtype=np.uint64)
    return np.frombuffer(column, dtype=np.uint32) + np.uint64(batch.first_llsn)


def _lengths(batch: Batch, column: Column) -> U32:
    """The length of each key or value."""
    offsets = batch.column(column)
    if offsets is None:
        return np.zeros(batch.count, dtype=np.uint32)
    places: U32 = np.frombuffer(offsets, dtype=np.uint32)
    return places[1:] - places[:-1]


def _prefixed_keys(batch: Batch, storage: bytes) -> Iterable[bytes]:
    """What is hashed of each entry: the eight bytes of its storage id, then its key."""
    prefixes = np.frombuffer(storage, dtype=np.uint8).reshape(-1, 8)
    lengths = _lengths(batch, Column.KEY_OFFSETS)
    length, keys = int(lengths[0]), batch.column(Column.KEY_BYTES)
    if keys is not None and bool((lengths == length).all()):
        # Keys of one length are common, and their bytes can be put together all at once.
        table = np.empty((batch.count, 8 + length), dtype=np.uint8)
        table[:, :8] = prefixes
        table[:, 8:] = np.frombuffer(keys, dtype=np.uint8).reshape(-1, length)
        hashed: list[bytes] = table.view(f"V{8 + length}").ravel().tolist()
        return hashed
    return map(add, prefixes.view("V8").ravel().tolist(), batch.keys())
