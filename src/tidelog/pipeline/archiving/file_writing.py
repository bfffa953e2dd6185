"""Writes the entries of a range of GLSNs into Parquet files of an archive.

W1  rows ascend by GLSN, and each lies in the range of its file
W2  a file is durable, though not its name, before it is told of
W3  no name is used twice, so a task that runs twice spoils nothing: one result counts
W4  at most one row group is in memory
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from tidelog.formats.archive_manifest import ArchivedFile, archived_name
from tidelog.formats.checksum import crc32c
from tidelog.interface.arrow import arrow_schema
from tidelog.invariants import check
from tidelog.limits import MIB
from tidelog.spark.schema import COLUMNS
from tidelog.storage.vfs import Vfs

GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 32 * MIB
"""A row group is closed when it has so many rows, or so many bytes in memory."""
FILE_BYTES: Final = 256 * MIB
"""A file that has grown to this size is closed at the next GLSN, and another one begins there."""
_BUFFER_BYTES: Final = MIB
_UNKEYED: Final = "APPEND"
_SCHEMA: Final = arrow_schema(tuple(COLUMNS))
_FORMAT: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": ["stream", "kind", "storage_id"],
    "column_encoding": dict.fromkeys(("glsn", "llsn", "timestamp"), "DELTA_BINARY_PACKED"),
    "write_statistics": ["glsn", "llsn", "stream", "kind", "timestamp"],
    "sorting_columns": [parquet.SortingColumn(0)],
}
"""How columns are written; minima and maxima of keys and values would be as long as these are."""


def random_token() -> str:
    return uuid4().hex[:16]


def write_range(
    vfs: Vfs,
    directory: str,
    begin: int,
    end: int,
    batches: Iterable[Any],
    *,
    token: Callable[[], str] = random_token,
    file_bytes: int = FILE_BYTES,
) -> Iterator[ArchivedFile]:
    """Write the entries of ``[begin, end)``; ``batches`` have all columns and ascend by GLSN.

    Usually that is one file, and there is always one, so that a range without entries is known
    to have none.  The caller makes the names durable.
    """
    file = _FileWriter(vfs, directory, begin, end, token())
    try:
        for group in _row_groups(batches):
            if file.size >= file_bytes:
                first = int(group.column("glsn")[0].as_py())
                yield file.finish(first)
                file = _FileWriter(vfs, directory, first, end, token())
            file.write(group)
        yield file.finish(end)
    finally:
        file.close()


def _row_groups(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables that become row groups (W4)."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held, _SCHEMA)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, _SCHEMA)


class _FileWriter:
    """One file that is being written."""

    def __init__(self, vfs: Vfs, directory: str, begin: int, end: int, token: str) -> None:
        self._begin = begin
        self._end = end
        self._name = archived_name(begin, token)
        self._sink = FileOutput(vfs, f"{directory}/{self._name}")
        self._writer = parquet.ParquetWriter(self._sink, _SCHEMA, **_FORMAT)
        self._position = begin
        """One past the last GLSN that was written."""
        self._rows = 0
        self._data_bytes = 0
        self._streams: dict[int, None] = {}
        self._first_keyed = 0
        self._oldest_us: int | None = None

    @property
    def size(self) -> int:
        return self._sink.tell()

    def write(self, group: Any) -> None:
        """Add a row group."""
        glsns = group.column("glsn").to_numpy()
        check(glsns[0] >= self._position and glsns[-1] < self._end, "W1: rows are in their range")
        check(bool((glsns[1:] > glsns[:-1]).all()), "W1: rows ascend by GLSN")
        self._note(group, glsns)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._position = int(glsns[-1]) + 1
        self._rows += group.num_rows
        self._data_bytes += group.nbytes

    def _note(self, group: Any, glsns: Any) -> None:
        """What the manifest tells of the rows."""
        self._streams.update(dict.fromkeys(compute.unique(group.column("stream")).to_pylist()))
        oldest = compute.min(group.column("timestamp").cast(pa.int64())).as_py()
        self._oldest_us = oldest if self._oldest_us is None else min(self._oldest_us, oldest)
        if not self._first_keyed:
            keyed = compute.not_equal(group.column("kind"), _UNKEYED).to_numpy()
            found = np.flatnonzero(keyed)
            self._first_keyed = int(glsns[found[0]]) if len(found) else 0

    def finish(self, end: int) -> ArchivedFile:
        """Make the file durable (W2); it has all entries below ``end``."""
        check(self._position <= end, "W1: rows are in their range")
        self._writer.close()
        self._sink.sync()
        return ArchivedFile(
            name=self._name,
            glsn_begin=self._begin,
            glsn_end=end,
            rows=self._rows,
            size=self._sink.tell(),
            crc=self._sink.crc,
            data_bytes=self._data_bytes,
            streams=tuple(sorted(self._streams)),
            first_keyed=self._first_keyed,
            oldest_us=self._oldest_us or 0,
        )

    def close(self) -> None:
        """Let go of the file, finished or not."""
        self._sink.close()


class FileOutput(io.RawIOBase):
    """A new file of a ``Vfs`` as Arrow wants to have it; knows its checksum when it is synced."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        super().__init__()
        self._file = vfs.create(path)
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._written = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written + self._held_bytes

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= _BUFFER_BYTES:
            self._write_held()
        return len(piece)

    def sync(self) -> None:
        self._write_held()
        self._file.sync()

    def _write_held(self) -> None:
        joined = b"".join(self._held)
        self._file.write_at(self._written, (joined,))
        self.crc = crc32c(joined, self.crc)
        self._written += len(joined)
        self._held, self._held_bytes = [], 0

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
