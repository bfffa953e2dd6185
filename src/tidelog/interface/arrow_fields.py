"""What entries hold, taken from Arrow columns of any fitting type and checked.  No state.

Every column ends up as numbers or bytes without nulls; an error names the column, and the type or
the first value that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import time_ns
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.errors import BadEntry
from tidelog.formats.batch_columns import EntryColumns, Items
from tidelog.formats.entry import Kind

WRITTEN: Final = ("value", "key", "kind", "storage_id", "write_version", "timestamp", "blobs")
"""The columns that make an entry."""
LEFT_OUT: Final = ("glsn", "llsn", "stream", "rewritten")
"""What only a log can give: accepted, so that rows of one log can be written to another."""

_KINDS: Final = (Kind.APPEND, Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE)
_KIND_NAMES: Final = pa.array([kind.name for kind in _KINDS], pa.string())
_KIND_NUMBERS: Final = np.array([0, *_KINDS], np.uint8)
_ROW_BYTES: Final = 9
"""What every entry takes: a kind, and where its key and its value end."""

Array: TypeAlias = Any
"""A pyarrow array: its classes are not generic, so naming them says little more."""


@dataclass(frozen=True, slots=True)
class EntryRows:
    """The entries in some rows, column by column; nothing is null any more."""

    kinds: NDArray[np.uint8]
    keys: Array | None
    values: Array
    storage_ids: NDArray[np.uint64] | None
    versions: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None
    timestamps: NDArray[np.int64] | int
    blobs: Array | None

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, versions: bool) -> Self:
        """The rows of ``batch``; ``versions``: its write versions count, and are needed."""
        check_columns(batch)
        keys = _bytes(batch, "key")
        if keys is not None:
            keys = pc.fill_null(keys, b"")
        kinds = _kinds(batch, keys)
        return cls(
            kinds=kinds,
            keys=keys,
            values=_values(batch, kinds),
            storage_ids=_storage_ids(batch),
            versions=_versions(batch, kinds) if versions else None,
            timestamps=_timestamps(batch),
            blobs=_blobs(batch),
        )

    @property
    def count(self) -> int:
        return len(self.kinds)

    def keyed(self) -> NDArray[np.bool_]:
        """Which rows have a key."""
        if self.keys is None:
            return np.zeros(self.count, np.bool_)
        return np.diff(_items(self.keys, np.uint8).offsets) > 0

    def sizes(self) -> NDArray[np.int64]:
        """About how many bytes each row takes in a batch."""
        fixed = _ROW_BYTES
        fixed += 8 if self.storage_ids is not None else 0
        fixed += 16 if self.versions is not None else 0
        fixed += 8 if not isinstance(self.timestamps, int) else 0
        sizes = np.diff(_items(self.values, np.uint8).offsets).astype(np.int64) + fixed
        if self.keys is not None:
            sizes += np.diff(_items(self.keys, np.uint8).offsets)
        if self.blobs is not None:
            sizes += 8 * np.diff(_items(self.blobs, np.uint64).offsets)
        return sizes

    def between(self, begin: int, end: int) -> EntryRows:
        """Rows ``[begin, end)``."""
        if begin == 0 and end == self.count:
            return self
        return self._select(lambda array: array.slice(begin, end - begin), slice(begin, end))

    def take(self, rows: NDArray[np.int64]) -> EntryRows:
        """The rows at these places."""
        indices = pa.array(rows)
        return self._select(lambda array: array.take(indices), rows)

    def _select(self, arrow: Any, place: slice | NDArray[np.int64]) -> EntryRows:
        versions = self.versions
        return EntryRows(
            kinds=self.kinds[place],
            keys=None if self.keys is None else arrow(self.keys),
            values=arrow(self.values),
            storage_ids=None if self.storage_ids is None else self.storage_ids[place],
            versions=None if versions is None else (versions[0][place], versions[1][place]),
            timestamps=self.timestamps
            if isinstance(self.timestamps, int)
            else self.timestamps[place],
            blobs=None if self.blobs is None else arrow(self.blobs),
        )

    def without_versions(self) -> EntryRows:
        """The same rows, as they are in a topic that gives the versions."""
        return replace(self, versions=None)

    def columns(self) -> EntryColumns:
        """The columns of a batch with all of these rows."""
        return EntryColumns(
            count=self.count,
            kinds=self.kinds,
            timestamps=self.timestamps,
            storage_ids=0 if self.storage_ids is None else self.storage_ids,
            versions=self.versions,
            keys=None if self.keys is None else _items(self.keys, np.uint8),
            values=_items(self.values, np.uint8),
            blobs=None if self.blobs is None else _items(self.blobs, np.uint64),
        )


def check_columns(batch: pa.RecordBatch) -> None:
    """Raise unless the names of the columns are known, each of them once."""
    names = batch.schema.names
    unknown = sorted(set(names).difference(WRITTEN, LEFT_OUT))
    if unknown:
        raise BadEntry(
            f"a log has no column {', '.join(unknown)}: it takes {', '.join(WRITTEN)}; "
            "put other columns into value, for example with to_json(struct(*))"
        )
    if len(set(names)) != len(names):
        raise BadEntry(f"a column is there twice: {', '.join(names)}")


# -- one function for each column ----------------------------------------------------------------


def _kinds(batch: pa.RecordBatch, keys: Array | None) -> NDArray[np.uint8]:
    default = np.full(batch.num_rows, int(Kind.APPEND), np.uint8)
    if keys is not None:
        default[np.diff(_items(keys, np.uint8).offsets) > 0] = int(Kind.PUT)
    column = _column(batch, "kind")
    if column is None:
        return default
    if not _is_text(column.type):
        raise _wrong_type("kind", column, "a string")
    places = pc.index_in(column.cast(pa.string()), value_set=_KIND_NAMES)
    unknown = pc.and_(pc.is_null(places), pc.is_valid(column))
    if pc.any(unknown).as_py():
        raise BadEntry(
            f"the kind {column.filter(unknown)[0].as_py()!r} does not exist: "
            f"use one of {', '.join(_KIND_NAMES.to_pylist())}, or null"
        )
    numbers = _KIND_NUMBERS[pc.fill_null(places, -1).to_numpy(zero_copy_only=False) + 1]
    return np.where(numbers > 0, numbers, default)


def _values(batch: pa.RecordBatch, kinds: NDArray[np.uint8]) -> Array:
    needed = kinds <= int(Kind.PUT)
    values = _bytes(batch, "value")
    if values is None:
        if needed.any():
            raise BadEntry("the rows have no column value: only deletes do without one")
        return pa.array([b""] * batch.num_rows, pa.binary())
    if values.null_count and (pc.is_null(values).to_numpy(zero_copy_only=False) & needed).any():
        raise BadEntry(
            "an APPEND or PUT row has no value: give it one (it may be empty), or the kind DELETE"
        )
    if not needed.all():  # What was deleted is nobody's value.
        values = pc.if_else(pa.array(needed), values, pa.scalar(None, values.type))
    return pc.fill_null(values, b"")


def _storage_ids(batch: pa.RecordBatch) -> NDArray[np.uint64] | None:
    """The 64 bits of each, as signed numbers in and as unsigned ones out."""
    column = _column(batch, "storage_id")
    if column is None:
        return None
    if not pa.types.is_integer(column.type):
        raise _wrong_type("storage_id", column, "a long")
    numbers = pc.fill_null(column, 0)
    if not pa.types.is_uint64(column.type):
        numbers = numbers.cast(pa.int64())
    found: NDArray[np.uint64] = numbers.to_numpy(zero_copy_only=False).view(np.uint64)
    return found


def _timestamps(batch: pa.RecordBatch) -> NDArray[np.int64] | int:
    """Microseconds; a row without a time gets that of now."""
    now = time_ns() // 1000
    column = _column(batch, "timestamp")
    if column is None or column.null_count == len(column):
        return now
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise _wrong_type("timestamp", column, "a timestamp with a time zone")
    numbers = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    found: NDArray[np.int64] = pc.fill_null(numbers, now).to_numpy(zero_copy_only=False)
    return found


def _versions(
    batch: pa.RecordBatch, kinds: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """Lower and upper halves; None when there are only APPEND rows, which have no version."""
    keyed = kinds != int(Kind.APPEND)
    if not keyed.any():
        return None
    column = _column(batch, "write_version")
    if column is None or (pc.is_null(column).to_numpy(zero_copy_only=False) & keyed).any():
        raise BadEntry(
            "the topic has explicit versions, but a row that is no APPEND has no write_version"
        )
    kind = column.type
    if pa.types.is_decimal128(kind) and kind.scale == 0:
        filled = pc.fill_null(column, pa.scalar(0, pa.decimal128(kind.precision, 0)).cast(kind))
        words = np.frombuffer(filled.buffers()[1], np.uint64).reshape(-1, 2)
        words = words[filled.offset : filled.offset + len(filled)]
        if (words[:, 1] >> np.uint64(63)).any():
            raise BadEntry("a write_version is negative")
        return words[:, 0], words[:, 1]
    if pa.types.is_integer(kind):
        numbers = pc.fill_null(column, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        if (numbers < 0).any():
            raise BadEntry("a write_version is negative")
        return numbers.view(np.uint64), np.zeros(len(numbers), np.uint64)
    if not _is_binary(kind):
        raise _wrong_type("write_version", column, "16 bytes, a decimal(n, 0) or a long")
    items = _items(pc.fill_null(column.cast(pa.binary()), bytes(16)), np.uint8)
    if (items.lengths() != 16).any():
        raise BadEntry("a write_version has 16 bytes, the most significant one first")
    raw = items.data[items.offsets[0] : items.offsets[-1]]
    pairs = np.frombuffer(raw.tobytes(), ">u8").reshape(-1, 2).astype(np.uint64)
    return pairs[:, 1], pairs[:, 0]


def _blobs(batch: pa.RecordBatch) -> Array | None:
    column = _column(batch, "blobs")
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if not pa.types.is_list(kind) or not pa.types.is_integer(kind.value_type):
        raise _wrong_type("blobs", column, "a list of longs")
    lists = pc.fill_null(column.cast(pa.list_(pa.int64())), pa.scalar([], pa.list_(pa.int64())))
    if lists.values.null_count:
        raise BadEntry("blobs holds a null: every BLOB has an id")
    return lists


# -- Arrow, closer to the bytes ------------------------------------------------------------------


def _column(batch: pa.RecordBatch, name: str) -> Array | None:
    place = batch.schema.get_field_index(name)
    if place < 0 or pa.types.is_null(batch.schema.field(place).type):
        return None
    return batch.column(place)


def _bytes(batch: pa.RecordBatch, name: str) -> Array | None:
    """A column of bytes or text as bytes."""
    column = _column(batch, name)
    if column is None:
        return None
    if not (_is_text(column.type) or _is_binary(column.type)):
        raise _wrong_type(name, column, "binary or a string")
    return column.cast(pa.binary())


def _items(array: Array, item: type) -> Items:
    """The buffers of a binary or list array without nulls."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    if pa.types.is_list(array.type):
        data = array.values.to_numpy(zero_copy_only=False).view(item)
    else:
        buffer = array.buffers()[2]
        data = np.frombuffer(buffer, item) if buffer else np.zeros(0, item)
    return Items(offsets[array.offset : array.offset + len(array) + 1], data)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _wrong_type(name: str, column: Array, wanted: str) -> BadEntry:
    return BadEntry(f"the column {name} is {column.type}: it must be {wanted}")
