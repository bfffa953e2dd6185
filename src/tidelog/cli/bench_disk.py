"""The bare disk, as a bound for engines that are measured beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

from tidelog.limits import MIB, WAL_FILE_BYTES_DEFAULT
from tidelog.storage.direct_file import PIECE_BYTES
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import File
from tidelog.storage.wal import create_filled

_BYTES: Final = bytes(range(256)) * (MIB // 256)


class _DiskWriter:
    """Writes to a file that has its blocks, from its beginning to its end and again."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._offset = 0

    def append(self, values: Sequence[bytes]) -> None:
        self._write(sum(map(len, values)))

    def put(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        self._write(sum(len(key) + len(value) for key, value in items))

    def _write(self, size: int) -> None:
        if self._offset + size > WAL_FILE_BYTES_DEFAULT:
            self._offset = 0
            self._disk.on_filled()
        self._disk.file.write_at(self._offset, (_BYTES[:size],))
        self._disk.file.sync()
        self._offset += size

    def close(self) -> None:
        """There is nothing to wait for."""


class Disk:
    """Writes the same number of bytes to a file that has its blocks, and syncs it: the bound."""

    name = "disk"

    def __init__(self, directory: Path) -> None:
        self.file: Final[File] = create_filled(
            OsVfs(), str(directory / self.name), WAL_FILE_BYTES_DEFAULT
        )

    def writer(self) -> _DiskWriter:
        return _DiskWriter(self)

    def on_filled(self) -> None:
        """The file was written to its end."""

    def settle(self) -> None:
        """Nothing is put off."""

    def rest(self) -> None:
        """It has no background."""

    def close(self) -> None:
        self.file.close()


class DiskTwice(Disk):
    """The same, and whenever the file is full, as much goes into a new one meanwhile.

    So it is with whoever has a log to recycle and files to keep, and does nothing besides.
    """

    name = "disk-twice"
    _BEHIND_MAX: Final = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._directory = directory
        self._numbers = count(1)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench-disk")
        self._under_way: list[Future[None]] = []

    def on_filled(self) -> None:
        if len(self._under_way) == self._BEHIND_MAX:
            self._under_way.pop(0).result()
        self._under_way.append(self._thread.submit(self._write_segment))

    def _write_segment(self) -> None:
        path = str(self._directory / f"{self.name}-{next(self._numbers)}")
        file = OsVfs().create(path, once=True)
        try:
            for offset in range(0, WAL_FILE_BYTES_DEFAULT, PIECE_BYTES):
                file.write_at(offset, (_BYTES[:PIECE_BYTES],))
            file.sync()
        finally:
            file.close()

    def settle(self) -> None:
        while self._under_way:
            self._under_way.pop(0).result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        super().close()
