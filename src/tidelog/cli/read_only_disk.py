"""A disk on which nothing can be written: changes stay in memory.

Opening a log finishes what a crash interrupted, which takes writes.  Over this disk a log opens
without a lock and without leaving a trace, so it can be read while another process writes to it,
or where the directory cannot be written to.

Invariants:
  D1  Nothing below is changed, created or locked.
  D2  A name stands for one file: where another process has put a new one since the first look,
      opening it fails, and the caller has to start again with a new disk.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidelog.storage.vfs import File, FileKind, FileStat, Vfs


@dataclass(slots=True)
class MemoryFile:
    """A file that exists in memory alone."""

    data: bytearray = field(default_factory=bytearray)

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        data = b"".join(parts)
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def sync(self) -> None:
        """Nothing to do: it is not meant to last."""

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        """Nothing to do: it may be opened again."""


@dataclass(slots=True)
class ReadOnlyFile:
    """A file of the disk below."""

    inner: File
    path: str

    def read_at(self, offset: int, length: int) -> bytes:
        return self.inner.read_at(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Recovery writes the last frame once more; what is there already changes nothing."""
        data = b"".join(parts)
        if self.inner.read_at(offset, len(data)) != data:
            raise OSError(errno.EROFS, "the log was opened for reading", self.path)

    def sync(self) -> None:
        """Nothing to do: nothing was written."""

    def size(self) -> int:
        return self.inner.size()

    def close(self) -> None:
        self.inner.close()


@dataclass(frozen=True, slots=True)
class _Real:
    """A file below, perhaps under another name."""

    path: str
    stat: FileStat


@dataclass(frozen=True, slots=True)
class _Made:
    """A file or link that exists here alone."""

    stat: FileStat
    file: MemoryFile | None = None
    target: str = ""


@dataclass(frozen=True, slots=True)
class NoLock:
    """Readers take no lock."""

    def release(self) -> None:
        """Nothing is held."""


class ReadOnlyDisk:
    """A ``Vfs`` over another one; for one opening of one log."""

    def __init__(self, below: Vfs) -> None:
        self._below = below
        self._changed: dict[str, _Real | _Made | None] = {}
        """What differs from the disk below; None for a name that is gone."""
        self._inodes: dict[str, int] = {}
        """D2: which file each name stood for when it was first opened."""
        self._made = 0

    def _find(self, path: str) -> _Real | _Made | None:
        if path in self._changed:
            return self._changed[path]
        found = self._below.stat(path)
        return None if found is None else _Real(path, found)

    def _expect(self, path: str) -> _Real | _Made:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def _add(self, path: str, node: _Real | _Made) -> None:
        if self._find(path) is not None:
            raise FileExistsError(errno.EEXIST, "the name is taken", path)
        self._changed[path] = node

    def _new_stat(self, kind: FileKind) -> FileStat:
        self._made += 1
        return FileStat(kind, inode=-self._made, links=1, size=0)

    # -- files --------------------------------------------------------------------------------

    def create(self, path: str, *, once: bool = False) -> File:
        file = MemoryFile()
        self._add(path, _Made(self._new_stat(FileKind.FILE), file))
        return file

    def open(self, path: str, *, write: bool = False) -> File:
        node = self._expect(path)
        if isinstance(node, _Real):
            return self._open_below(node)
        if node.file is None:
            return self.open(f"{path.rsplit('/', 1)[0]}/{node.target}")
        return node.file

    def _open_below(self, node: _Real) -> File:
        file = self._below.open(node.path)
        after = self._below.stat(node.path)
        inode = self._inodes.setdefault(node.path, node.stat.inode)
        if after is None or not inode == node.stat.inode == after.inode:
            file.close()
            raise OSError(errno.ESTALE, "another process replaced it", node.path)
        return ReadOnlyFile(file, node.path)

    # -- names --------------------------------------------------------------------------------

    def stat(self, path: str) -> FileStat | None:
        node = self._find(path)
        if isinstance(node, _Made) and node.file is not None:
            return replace(node.stat, size=node.file.size())
        return None if node is None else node.stat

    def list_dir(self, path: str) -> list[str]:
        names = set(self._below.list_dir(path))
        for other, node in self._changed.items():
            parent, name = other.rsplit("/", 1)
            if parent == path:
                (names.discard if node is None else names.add)(name)
        return sorted(names)

    def make_dir(self, path: str) -> None:
        if self._find(path) is None:
            raise OSError(errno.EROFS, "the log was opened for reading", path)

    def rename(self, source: str, target: str) -> None:
        self._changed[target] = self._expect(source)
        self._changed[source] = None

    def link(self, source: str, target: str) -> None:
        self._add(target, self._expect(source))

    def symlink(self, target_name: str, path: str) -> None:
        self._add(path, _Made(self._new_stat(FileKind.SYMLINK), target=target_name))

    def unlink(self, path: str) -> None:
        """Another process may have been faster; the name is gone in any case."""
        self._changed[path] = None

    def sync_dir(self, path: str) -> None:
        """Nothing to do: changes are not meant to last."""

    def lock(self, path: str) -> NoLock:
        return NoLock()

    def free_bytes(self, path: str) -> int:
        return self._below.free_bytes(path)
