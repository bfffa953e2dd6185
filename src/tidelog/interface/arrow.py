"""Entries as Arrow record batches: columns stay columns, nothing is done row by row.

Readers get pages: each holds all entries of a range of GLSNs, as slices of columnar batches.  A
large slice is wrapped where it lies, small ones are joined (``arrow_columns``).

  A1  rows are in GLSN order, over all streams
  A2  control entries are not shown
  A3  a record batch has 1 to ``ROWS_MAX`` rows, and exactly the schema of ``arrow_schema``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import BadOption, Unavailable
from tidelog.formats.batch import Column
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Kind
from tidelog.interface.arrow_columns import I32, Bytes, JoinedSlices, StreamSlice

try:
    import pyarrow as pa
except ImportError as error:  # pragma: no cover
    raise Unavailable("Arrow batches need pyarrow: pip install 'tidelog[arrow]'") from error

ROWS: Final = 16_384
"""Slices are joined until they have this many rows."""
ROWS_MAX: Final = 50_000
BYTES: Final = 16 << 20
"""Slices are joined until their batches have this many bytes, however few their rows are."""

DEFAULT_COLUMNS: Final = (
    "glsn",
    "llsn",
    "stream",
    "kind",
    "storage_id",
    "key",
    "value",
    "write_version",
    "timestamp",
)
"""What is read when nothing else is asked for."""

_KIND_NAMES: Final = pa.array(["", *(kind.name for kind in Kind)], pa.string())
_REPEATED_KINDS: Final[dict[int, Any]] = {}
_DELETES: Final = (Kind.DELETE, Kind.DELETE_STORAGE)
_WITH_VALUE: Final = np.array([True, *(kind not in _DELETES for kind in Kind)])
"""By kind: deletes have no value, not even an empty one."""
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def arrow_schema(columns: Sequence[str] | None = None) -> Any:
    """The schema of these columns, in this order; of the default ones if not given."""
    return pa.schema([pa.field(name, _column(name)[0]) for name in columns or DEFAULT_COLUMNS])


def record_batches(
    pages: Iterable[Sequence[StreamSlice]], columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """The entries of pages as record batches.

    Each page has all entries of its range of GLSNs, and ranges ascend from page to page.
    """
    return _record_batches(pages, arrow_schema(columns))


def _record_batches(pages: Iterable[Sequence[StreamSlice]], schema: Any) -> Iterator[Any]:
    for slices in _groups(pages):
        joined = JoinedSlices(slices)
        arrays = [_column(name)[1](joined) for name in schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        shown = _shown(joined)
        if shown is not None:
            batch = batch.take(pa.array(shown))
        for begin in range(0, batch.num_rows, ROWS_MAX):
            yield batch.slice(begin, ROWS_MAX)


# -- which slices become one record batch ------------------------------------------------------


def _groups(pages: Iterable[Sequence[StreamSlice]]) -> Iterator[list[StreamSlice]]:
    """Slices to be joined.  One that is large enough by itself stays alone: nothing is copied.

    Slices of several streams may overlap in their GLSNs, but never with those of another page.
    So such a page stays together, to be put in order (A1).
    """
    group: list[StreamSlice] = []
    rows = size = 0
    for page in pages:
        together = len({stream for stream, _ in page}) > 1
        for part in page if together else _cut(page):
            piece = part[1]
            count = piece.end - piece.begin
            if not count:
                continue
            if rows + count > ROWS_MAX and group and not together:
                yield group
                group, rows, size = [], 0, 0
            group.append(part)
            rows += count
            size += piece.batch.length
            if (rows >= ROWS or size >= BYTES) and not together:
                yield group
                group, rows, size = [], 0, 0
        if rows >= ROWS or size >= BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _cut(page: Iterable[StreamSlice]) -> Iterator[StreamSlice]:
    """The slices of a page, those with too many rows in parts."""
    for part in page:
        stream, piece = part
        if piece.end - piece.begin <= ROWS_MAX:
            yield part
            continue
        for begin in range(piece.begin, piece.end, ROWS_MAX):
            end = min(begin + ROWS_MAX, piece.end)
            yield stream, BatchSlice(piece.batch, begin, end, piece.runs)


def _shown(joined: JoinedSlices) -> NDArray[np.int64] | None:
    """The rows to show, in their order; None: all of them, as they are."""
    rows: NDArray[np.int64] | None = None
    if joined.one_kind in (0, Kind.CONTROL):
        data = joined.kinds != Kind.CONTROL
        rows = None if data.all() else np.flatnonzero(data)
    glsns = joined.glsns if rows is None else joined.glsns[rows]
    if (glsns[1:] > glsns[:-1]).all():
        return rows
    order = np.argsort(glsns)
    return order if rows is None else rows[order]


# -- columns -----------------------------------------------------------------------------------


def _numbers(values: NDArray[Any], arrow_type: Any = None) -> Any:
    """An array without nulls around 64-bit numbers."""
    buffers = [None, pa.py_buffer(values)]
    return pa.Array.from_buffers(arrow_type or pa.int64(), len(values), buffers)


def _binary(offsets: I32, data: Bytes, valid: NDArray[np.bool_] | None) -> Any:
    """Byte strings; null where they are not valid."""
    bits = None if valid is None or valid.all() else np.packbits(valid, bitorder="little")
    buffers = [
        None if bits is None else pa.py_buffer(bits),
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _kinds(joined: JoinedSlices) -> Any:
    kind = joined.one_kind
    if kind == 0:
        return _KIND_NAMES.take(pa.array(joined.kinds))
    repeated = _REPEATED_KINDS.get(kind)
    if repeated is None or len(repeated) < joined.rows:
        repeated = pa.repeat(_KIND_NAMES[kind], max(joined.rows, ROWS_MAX))
        _REPEATED_KINDS[kind] = repeated
    return repeated.slice(0, joined.rows)


def _keys(joined: JoinedSlices) -> Any:
    if not joined.has_keys:
        return pa.nulls(joined.rows, pa.binary())
    offsets, data = joined.variable(Column.KEY_OFFSETS)
    return _binary(offsets, data, offsets[1:] > offsets[:-1])


def _values(joined: JoinedSlices) -> Any:
    kind = joined.one_kind
    if kind and not _WITH_VALUE[kind]:
        return pa.nulls(joined.rows, pa.binary())
    offsets, data = joined.variable(Column.VALUE_OFFSETS)
    return _binary(offsets, data, None if kind else _WITH_VALUE[joined.kinds])


def _versions(joined: JoinedSlices) -> Any:
    offsets = np.arange(0, 16 * joined.rows + 1, 16, dtype=np.int32)
    return _binary(offsets, joined.versions().data.cast("B"), None)


def _blobs(joined: JoinedSlices) -> Any:
    offsets, ids = joined.variable(Column.BLOB_OFFSETS)
    items = np.frombuffer(ids, np.int64)
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(_BLOBS, joined.rows, buffers, children=[_numbers(items)])


def _rewritten(joined: JoinedSlices) -> Any:
    return pa.array(joined.rewritten())


_BLOBS: Final = pa.list_(pa.int64())
_COLUMNS: Final[dict[str, tuple[Any, Callable[[JoinedSlices], Any]]]] = {
    "glsn": (pa.int64(), lambda joined: _numbers(joined.glsns)),
    "llsn": (pa.int64(), lambda joined: _numbers(joined.llsns)),
    "stream": (pa.int64(), lambda joined: _numbers(joined.streams())),
    "kind": (pa.string(), _kinds),
    "storage_id": (pa.int64(), lambda joined: _numbers(joined.storage_ids())),
    "key": (pa.binary(), _keys),
    "value": (pa.binary(), _values),
    "write_version": (pa.binary(), _versions),
    "timestamp": (_TIMESTAMP, lambda joined: _numbers(joined.timestamps(), _TIMESTAMP)),
    "blobs": (_BLOBS, _blobs),
    "rewritten": (pa.bool_(), _rewritten),
}
"""Type and maker of each column."""


def _column(name: str) -> tuple[Any, Callable[[JoinedSlices], Any]]:
    try:
        return _COLUMNS[name]
    except KeyError:
        near = get_close_matches(name, _COLUMNS, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadOption(
            f"there is no column {name!r}: {hint}the columns are {', '.join(_COLUMNS)}"
        ) from None
