"""The one seam between Tidelog and the disk.

Everything that touches files goes through a ``Vfs``: the real one
(``os_vfs``), or the simulated disk of the tests, which can crash between any
two calls and lose whatever was not synced.

Contract:
  V1  ``File.sync`` makes the file's bytes and length durable, not its name.
  V2  ``Vfs.sync_dir`` makes the names in that directory durable.
  V3  ``rename``, ``link``, ``symlink`` and ``unlink`` are atomic, each by itself.
  V4  A file that is open stays readable after it was renamed over or unlinked.
  V5  Errors are OSError; an error of ``sync`` or ``sync_dir`` means that the data may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class FileKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class FileStat:
    """What ``stat`` tells; never follows a symbolic link."""

    kind: FileKind
    inode: int
    links: int
    size: int


class File(Protocol):
    """An open file.  Positions are explicit: there is no cursor to share by mistake."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write all parts, one after the other, from ``offset``."""
        ...

    def sync(self) -> None:
        """Make all bytes written so far durable (fdatasync)."""
        ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock of a directory; released by ``release`` or by the death of the process."""

    def release(self) -> None: ...


class Vfs(Protocol):
    """Files and directories, by path.  Paths are strings with ``/``."""

    def create(self, path: str, *, once: bool = False) -> File:
        """Create a new file for reading and writing; FileExistsError if the name is taken.

        ``once``: it is written from its beginning to its end, and nobody is expected to read it
        soon.  Then large writes may go past the page cache.
        """
        ...

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing file; follows symbolic links."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """None when there is nothing of that name; a symbolic link is described itself."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_dir(self, path: str) -> None:
        """Create one directory; no error if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replace ``target``; no effect when both names are one inode."""
        ...

    def link(self, source: str, target: str) -> None:
        """Hard link; FileExistsError if ``target`` exists."""
        ...

    def symlink(self, target_name: str, path: str) -> None:
        """Symbolic link at ``path`` to the relative ``target_name``."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at ``path``; BlockingIOError when someone has it."""
        ...

    def free_bytes(self, path: str) -> int:
        """Room left on the disk that holds ``path``."""
        ...
