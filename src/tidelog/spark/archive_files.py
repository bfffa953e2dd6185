"""Reads the Parquet files of an archive: entries of a range, in log order, in bounded memory.

R1  no row of a file is handed on before the whole file has matched its checksum in this process
R2  at most one row group is in memory; those outside of the range are not read
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

from tidelog.errors import CorruptData
from tidelog.formats.archive_manifest import ArchivedFile
from tidelog.formats.checksum import crc32c
from tidelog.interface.arrow import ROWS_MAX, arrow_schema
from tidelog.limits import MIB
from tidelog.storage.vfs import File, Vfs

CHECKED_FILES_MAX: Final = 100_000
"""How many files a process remembers to be sound."""
_CHUNK_BYTES: Final = 4 * MIB
_REMEDY: Final = "put the file back from a backup of the archive"

_CHECKED: Final[dict[tuple[str, int, int, int], None]] = {}
"""Files that matched their checksum: path, inode, size, checksum; the oldest first."""


def archived_batches(
    vfs: Vfs,
    directory: str,
    file: ArchivedFile,
    begin: int,
    end: int,
    columns: Sequence[str],
    streams: Sequence[int] = (),
) -> Iterator[Any]:
    """The entries of a file in ``[begin, end)`` as record batches: those of ``streams``, if given.

    They look exactly as if they came from the log (``interface.arrow``).
    """
    if not file.rows or (streams and not set(streams).intersection(file.streams)):
        return
    schema = arrow_schema(columns)
    needed = dict.fromkeys((*columns, "glsn", *(("stream",) if streams else ())))
    with OpenedFile(vfs, directory, file) as opened:
        for group in opened.groups_between(begin, end):
            table = _rows_between(opened.read(group, list(needed)), begin, end)
            if streams:
                wanted = pa.array(streams, pa.int64())
                table = table.filter(compute.is_in(table.column("stream"), value_set=wanted))
            yield from _as_batches(table.select(list(columns)), schema)


def last_older(vfs: Vfs, directory: str, file: ArchivedFile, timestamp_us: int) -> int:
    """The GLSN of a file's last entry that is older than a moment; 0 if none is."""
    if not file.rows or file.oldest_us >= timestamp_us:
        return 0
    with OpenedFile(vfs, directory, file) as opened:
        for group in reversed(opened.groups_between(file.glsn_begin, file.glsn_end)):
            table = opened.read(group, ["glsn", "timestamp"])
            times = table.column("timestamp").cast(pa.int64()).to_numpy()
            older = np.flatnonzero(times < timestamp_us)
            if len(older):
                return int(table.column("glsn")[int(older[-1])].as_py())
    return 0


def last_row(vfs: Vfs, directory: str, file: ArchivedFile, columns: Sequence[str]) -> Any:
    """Some columns of the last entry of a file that has entries: a table with one row."""
    with OpenedFile(vfs, directory, file) as opened:
        group = opened.groups_between(file.glsn_begin, file.glsn_end)[-1]
        table = opened.read(group, list(columns)).select(list(columns))
        return table.slice(table.num_rows - 1).cast(arrow_schema(columns))


def check_file(vfs: Vfs, directory: str, file: ArchivedFile) -> None:
    """CorruptData unless the file is there, matches its checksum now, and can be read."""
    with OpenedFile(vfs, directory, file, anew=True):
        pass


class OpenedFile:
    """A file of an archive that is known to be sound."""

    def __init__(self, vfs: Vfs, directory: str, file: ArchivedFile, *, anew: bool = False) -> None:
        """``anew``: check it even if this process has done so before."""
        self._path = f"{directory}/{file.name}"
        self._described = file
        try:
            self._file = vfs.open(self._path)
        except FileNotFoundError as error:
            raise CorruptData(
                f"{self._path} is missing, but the manifest of the archive names it: {_REMEDY}"
            ) from error
        try:
            found = vfs.stat(self._path)
            self._check(0 if found is None else found.inode, anew)
            self._parquet = self._open()
        except BaseException:
            self._file.close()
            raise

    def _check(self, inode: int, anew: bool) -> None:
        """R1, once for each file in each process."""
        described = self._described
        known = (self._path, inode, described.size, described.crc)
        size = self._file.size()
        if size == described.size and known in _CHECKED and not anew:
            return
        if size != described.size or _checksum(self._file, size) != described.crc:
            raise CorruptData(
                f"{self._path} has {size} bytes that do not match the manifest of the archive: "
                f"{_REMEDY}"
            )
        _CHECKED[known] = None
        if len(_CHECKED) > CHECKED_FILES_MAX:
            del _CHECKED[next(iter(_CHECKED))]

    def _open(self) -> Any:
        try:
            return parquet.ParquetFile(FileInput(self._file))
        except (pa.ArrowException, OSError) as error:
            raise CorruptData(f"{self._path} is no Parquet file: {error}") from error

    def groups_between(self, begin: int, end: int) -> list[int]:
        """The row groups that may have entries in ``[begin, end)``."""
        metadata = self._parquet.metadata
        place = metadata.schema.names.index("glsn")
        found = []
        for group in range(metadata.num_row_groups):
            bounds = metadata.row_group(group).column(place).statistics
            if begin < end and (bounds is None or (bounds.min < end and bounds.max >= begin)):
                found.append(group)
        return found

    def read(self, group: int, columns: list[str]) -> Any:
        try:
            return self._parquet.read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise CorruptData(f"{self._path}, row group {group}: {error}") from error

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close(force=True)
        self._file.close()


class FileInput(io.RawIOBase):
    """A file of a ``Vfs`` as Arrow wants to have it: with a cursor."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self._size = file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        data = self._file.read_at(self._position, self._size if size < 0 else size)
        self._position += len(data)
        return data


def _checksum(file: File, size: int) -> int:
    crc = 0
    for offset in range(0, size, _CHUNK_BYTES):
        crc = crc32c(file.read_at(offset, _CHUNK_BYTES), crc)
    return crc


def _rows_between(table: Any, begin: int, end: int) -> Any:
    """The rows of a table, which ascend by GLSN, in ``[begin, end)``; nothing is copied."""
    glsns = table.column("glsn").to_numpy()
    first, last = np.searchsorted(glsns, (begin, end))
    return table.slice(int(first), int(last - first))


def _as_batches(table: Any, schema: Any) -> Iterator[Any]:
    # Parquet names the items of lists otherwise than the log does.
    for batch in table.cast(schema).to_batches(max_chunksize=ROWS_MAX):
        if batch.num_rows:
            yield batch
