"""The next file of a Raft node's log, filled with zeros before it is needed.

To make a file of some megabytes while a write waits for it took 20 to 40 ms where three nodes share
a disk, and all nodes of a group come to the end of a file at about the same time.  So a store is
given time now and then to fill the next one piece by piece.

  S1  It has the name of a temporary file until it is the log: after a crash it is a leftover.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tidelog.errors import LogError
from tidelog.limits import KIB
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX, put_in_place
from tidelog.storage.fail_stop import FailStopVfs

PIECE_BYTES: Final = 256 * KIB
"""What is filled and synced at once: a write to the log waits no longer than for that."""


class SpareLogFile:
    """A file that is to be ``name``, of ``length`` bytes once it is whole."""

    def __init__(self, vfs: FailStopVfs, directory: str, name: str, length: int) -> None:
        self.length = length
        self._vfs = vfs
        self._directory = directory
        self._name = name
        self._filled = 0
        if vfs.stat(self._path) is not None:
            vfs.unlink(self._path)
        self._file = vfs.create(self._path)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{self._name}{TEMPORARY_SUFFIX}"

    @property
    def is_whole(self) -> bool:
        return self._filled == self.length

    def fill(self) -> None:
        """One more piece; after an error the file is of no use."""
        size = min(PIECE_BYTES, self.length - self._filled)
        self._file.write_at(self._filled, (bytes(size),))
        self._file.sync()
        self._filled += size

    def begin_with(self, data: bytes) -> None:
        """Put ``data`` at its beginning, and make it durable under its name."""
        put_in_place(self._vfs, self._directory, self._name, self._file, data)

    def drop(self) -> None:
        """Delete it; what cannot be deleted is a leftover."""
        self._file.close()
        with suppress(LogError):
            self._vfs.unlink(self._path)
