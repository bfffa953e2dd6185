"""Writes past the page cache, for large files that are written once.

The page cache makes of every write a copy into pages that the kernel has to find, to keep account
of and to write back, and lets go of what others read for it.  Without it a segment takes a quarter
of the processor time, and memory does not fill with bytes that came from memory a moment before.

  D1  What is written is where it belongs when the call returns; a sync makes it durable, as ever.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from typing import Final

from tidelog.limits import KIB

PIECE_BYTES: Final = 512 * KIB
"""Places and lengths of writes are multiples of it; no disk asks for as much.  A sync of the WAL
waits for the piece that is on its way to the disk, and small pieces make slow segments."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Linux has it; without it there are no direct writes."""


class DirectFile:
    """A second descriptor of a file that is being written."""

    __slots__ = ("_descriptor", "_piece")

    def __init__(self, path: str) -> None:
        """OSError with EINVAL where the file system has no such thing."""
        if not _DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT)
        # The disk fetches the bytes by itself, so they have to lie at the beginning of a page.
        self._piece = memoryview(mmap.mmap(-1, PIECE_BYTES))

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write all parts, whole pieces together, at the place of a piece."""
        used = 0
        for part in parts:
            rest = memoryview(part)
            while rest:
                taken = rest[: PIECE_BYTES - used]
                self._piece[used : used + len(taken)] = taken
                used += len(taken)
                rest = rest[len(taken) :]
                if used == PIECE_BYTES:
                    self._write(offset)
                    offset, used = offset + PIECE_BYTES, 0

    def _write(self, offset: int) -> None:
        done = 0
        while done < PIECE_BYTES:
            written = os.pwrite(self._descriptor, self._piece[done:], offset + done)
            if not written:
                raise OSError(errno.EIO, "the disk took no bytes")
            done += written

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor < 0:
            return
        # The memory goes with the last view of it, which a traceback may have.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def is_whole(offset: int, length: int) -> bool:
    """Whether so many bytes at this place can be written directly."""
    return length > 0 and not (offset % PIECE_BYTES or length % PIECE_BYTES)
