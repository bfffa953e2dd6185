"""A disk that tells about every call before it is made: to count calls, or to act in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.storage.vfs import File, FileStat, Lock, Vfs
from tidelog.testing.disk import Op

Watcher: TypeAlias = Callable[[Op, str], None]


@dataclass(slots=True)
class Calls:
    """Counts calls by kind; pass it as a watcher."""

    counts: Counter[Op] = field(default_factory=Counter)
    paths: list[tuple[Op, str]] = field(default_factory=list)

    def __call__(self, operation: Op, path: str) -> None:
        self.counts[operation] += 1
        self.paths.append((operation, path))

    @property
    def total(self) -> int:
        return self.counts.total()


@dataclass(slots=True)
class Once:
    """Acts before the first call of a kind on a path that ends so, as another thread would."""

    operation: Op
    suffix: str
    action: Callable[[], object]
    done: bool = False

    def __call__(self, operation: Op, path: str) -> None:
        if not self.done and operation is self.operation and path.endswith(self.suffix):
            self.done = True
            self.action()


@dataclass(slots=True)
class WatchedVfs:
    inner: Vfs
    watcher: Watcher

    def create(self, path: str, *, once: bool = False) -> File:
        self.watcher(Op.CREATE, path)
        return WatchedFile(self.inner.create(path, once=once), self, path)

    def open(self, path: str, *, write: bool = False) -> File:
        self.watcher(Op.OPEN, path)
        return WatchedFile(self.inner.open(path, write=write), self, path)

    def stat(self, path: str) -> FileStat | None:
        self.watcher(Op.STAT, path)
        return self.inner.stat(path)

    def list_dir(self, path: str) -> list[str]:
        self.watcher(Op.LIST_DIR, path)
        return self.inner.list_dir(path)

    def make_dir(self, path: str) -> None:
        self.watcher(Op.MAKE_DIR, path)
        self.inner.make_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.watcher(Op.RENAME, target)
        self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.watcher(Op.LINK, target)
        self.inner.link(source, target)

    def symlink(self, target_name: str, path: str) -> None:
        self.watcher(Op.SYMLINK, path)
        self.inner.symlink(target_name, path)

    def unlink(self, path: str) -> None:
        self.watcher(Op.UNLINK, path)
        self.inner.unlink(path)

    def sync_dir(self, path: str) -> None:
        self.watcher(Op.SYNC_DIR, path)
        self.inner.sync_dir(path)

    def lock(self, path: str) -> Lock:
        self.watcher(Op.LOCK, path)
        return self.inner.lock(path)

    def free_bytes(self, path: str) -> int:
        return self.inner.free_bytes(path)


@dataclass(slots=True)
class WatchedFile:
    inner: File
    vfs: WatchedVfs
    path: str

    def read_at(self, offset: int, length: int) -> bytes:
        self.vfs.watcher(Op.READ, self.path)
        return self.inner.read_at(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        self.vfs.watcher(Op.WRITE, self.path)
        self.inner.write_at(offset, parts)

    def sync(self) -> None:
        self.vfs.watcher(Op.SYNC, self.path)
        self.inner.sync()

    def size(self) -> int:
        return self.inner.size()

    def close(self) -> None:
        self.inner.close()
