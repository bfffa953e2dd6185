"""Fills the page cache, as it is on a machine that has run for a while.

A virtual machine has much of its memory on paper only: the host adds a page when it is first
touched, and takes back what stays free.  That costs about ten microseconds a page, several times as
much as to write it, and hits whoever happens to be measured while files grow.  Once the page cache
is full, pages of old files are used again instead.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

RESERVED_BYTES: Final = 3 << 30
"""Memory that is left to processes."""
DISK_SHARE_MAX: Final = 0.5
"""Of the room on the disk, so much may be taken."""
_PIECE_BYTES: Final = 8 << 20


class PageCache:
    """A file that is about as large as the memory; it is deleted with its directory."""

    def __init__(self, directory: Path, length: int | None = None) -> None:
        self._path = directory / "page-cache"
        self._length = _length_for(directory) if length is None else length

    def fill(self) -> None:
        """Read the whole file; the first time, write it."""
        if not self._path.exists():
            self._write()
        piece = bytearray(_PIECE_BYTES)
        with self._path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass

    def _write(self) -> None:
        piece = os.urandom(_PIECE_BYTES)
        with self._path.open("xb", buffering=0) as file:
            for _ in range(self._length // _PIECE_BYTES):
                file.write(piece)
            os.fsync(file.fileno())


def _length_for(directory: Path) -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    room = int(shutil.disk_usage(directory).free * DISK_SHARE_MAX)
    return max(min(memory - RESERVED_BYTES, room), 0)
