"""A disk whose syncs wait, or fail, when told so."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence

from tidelog.storage.vfs import File, FileStat, Lock, Vfs
from tidelog.testing.disk import SimDisk

WAIT_SECONDS = 30.0


class GatedVfs:
    """The disk of one side.  All is in memory, so that only what a test holds back takes time."""

    def __init__(self) -> None:
        self.inner: Vfs = SimDisk().vfs()
        self._open = threading.Event()
        self._open.set()
        self._arrived = threading.Event()
        self.fails = False
        """Whether the next syncs fail."""
        self.syncs = 0

    def hold(self) -> None:
        """Let the next syncs of the WAL wait."""
        self._arrived.clear()
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_until_held(self) -> None:
        """Until a sync waits."""
        assert self._arrived.wait(WAIT_SECONDS), "nobody syncs"

    def sync(self, file: File, path: str) -> None:
        if path.endswith(".wal"):
            self.syncs += 1
            self._arrived.set()
            assert self._open.wait(WAIT_SECONDS), "nobody released the disk"
        if self.fails:
            raise OSError(errno.EIO, "the disk is broken", path)
        file.sync()

    # -- as it is -----------------------------------------------------------------------------

    def create(self, path: str, *, once: bool = False) -> File:
        return GatedFile(self, self.inner.create(path, once=once), path)

    def open(self, path: str, *, write: bool = False) -> File:
        return GatedFile(self, self.inner.open(path, write=write), path)

    def stat(self, path: str) -> FileStat | None:
        return self.inner.stat(path)

    def list_dir(self, path: str) -> list[str]:
        return self.inner.list_dir(path)

    def make_dir(self, path: str) -> None:
        self.inner.make_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.inner.link(source, target)

    def symlink(self, target_name: str, path: str) -> None:
        self.inner.symlink(target_name, path)

    def unlink(self, path: str) -> None:
        self.inner.unlink(path)

    def sync_dir(self, path: str) -> None:
        self.inner.sync_dir(path)

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)

    def free_bytes(self, path: str) -> int:
        return self.inner.free_bytes(path)


class GatedFile:
    def __init__(self, vfs: GatedVfs, inner: File, path: str) -> None:
        self._vfs = vfs
        self._inner = inner
        self._path = path

    def read_at(self, offset: int, length: int) -> bytes:
        return self._inner.read_at(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        self._inner.write_at(offset, parts)

    def sync(self) -> None:
        self._vfs.sync(self._inner, self._path)

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()
