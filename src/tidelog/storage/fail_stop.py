"""Turns errors of the disk into the errors of Tidelog, and makes the fatal ones final.

F1  A full disk is an answer (DiskFull): what was being written is thrown away and the log
    goes on with what it has.
F2  Any other failed write, and every failed sync, rename, link or unlink, stops the log
    (StorageFailed).  From then on nothing is written any more: after a failed sync the kernel
    may have dropped the data, and a second sync would report success.
F3  What cannot be read is damaged (CorruptData), never absent.
F4  A process that was forked from the one that opened the log writes nothing (LogClosed): it
    does not learn what the other one does, and its threads are gone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidelog.errors import CorruptData, DiskFull, LogClosed, LogError, ReadOnly, StorageFailed
from tidelog.storage.vfs import File, FileStat, Lock, Vfs

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(slots=True)
class FailStopVfs:
    """A Vfs over another one; ``failed`` tells why the log stopped, if it did."""

    inner: Vfs
    failed: str | None = None
    owner: int = field(default_factory=os.getpid)
    """The process that opened the log."""

    def create(self, path: str, *, once: bool = False) -> File:
        with self._writing(f"create {path}"):
            return FailStopFile(self.inner.create(path, once=once), self, path)

    def open(self, path: str, *, write: bool = False) -> File:
        with self._reading(path):
            return FailStopFile(self.inner.open(path, write=write), self, path)

    def stat(self, path: str) -> FileStat | None:
        with self._reading(path):
            return self.inner.stat(path)

    def list_dir(self, path: str) -> list[str]:
        with self._reading(path):
            return self.inner.list_dir(path)

    def make_dir(self, path: str) -> None:
        with self._writing(f"make the directory {path}"):
            self.inner.make_dir(path)

    def rename(self, source: str, target: str) -> None:
        with self._writing(f"rename {source} to {target}"):
            self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        with self._writing(f"link {source} to {target}"):
            self.inner.link(source, target)

    def symlink(self, target_name: str, path: str) -> None:
        with self._writing(f"make the symbolic link {path}"):
            self.inner.symlink(target_name, path)

    def unlink(self, path: str) -> None:
        with self._writing(f"delete {path}"):
            self.inner.unlink(path)

    def sync_dir(self, path: str) -> None:
        with self._syncing(path):
            self.inner.sync_dir(path)

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)

    def free_bytes(self, path: str) -> int:
        with self._reading(path):
            return self.inner.free_bytes(path)

    # -- classification ------------------------------------------------------------------

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise CorruptData(f"{path} is missing: was it deleted by someone else?") from error
        except OSError as error:
            raise CorruptData(f"{path} cannot be read: {error}") from error

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        self.check_running()
        try:
            yield
        except OSError as error:
            raise self.write_error(what, error) from error

    @contextmanager
    def _syncing(self, path: str) -> Iterator[None]:
        self.check_running()
        try:
            yield
        except OSError as error:
            raise self.sync_error(path, error) from error

    def write_error(self, what: str, error: OSError) -> LogError:
        """What a failed write means (F1, F2)."""
        if error.errno in _FULL:
            return DiskFull(f"no room to {what}: free some space and try again")
        if error.errno in _READ_ONLY:
            return ReadOnly(f"not allowed to {what}: {error.strerror}")
        return self.stop(f"could not {what}: {error}")

    def sync_error(self, path: str, error: OSError) -> LogError:
        """What a failed sync means (F2)."""
        return self.stop(f"fsync of {path} failed: {error}")

    @property
    def is_forked(self) -> bool:
        """Whether this is another process than the one that opened the log (F4)."""
        return os.getpid() != self.owner

    def check_owner(self) -> None:
        """Raise in a forked process, where locks may be held for ever: so before any is taken."""
        if self.is_forked:
            raise LogClosed(
                f"the log was opened by process {self.owner}, which this one was forked from: "
                "close it there, then open it here"
            )

    def check_running(self) -> None:
        self.check_owner()
        if self.failed is not None:
            raise StorageFailed(f"the log has stopped: {self.failed}; open it again")

    def stop(self, reason: str) -> StorageFailed:
        """Refuse all writes from now on (F2)."""
        self.failed = reason
        return StorageFailed(f"{reason}; the log has stopped, open it again to see what survived")


@dataclass(slots=True)
class FailStopFile:
    inner: File
    vfs: FailStopVfs
    path: str

    def read_at(self, offset: int, length: int) -> bytes:
        with self.vfs._reading(self.path):
            return self.inner.read_at(offset, length)

    # Every append comes through these two, so they do without a context manager.

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        self.vfs.check_running()
        try:
            self.inner.write_at(offset, parts)
        except OSError as error:
            raise self.vfs.write_error(f"write to {self.path}", error) from error

    def sync(self) -> None:
        self.vfs.check_running()
        try:
            self.inner.sync()
        except OSError as error:
            raise self.vfs.sync_error(self.path, error) from error

    def size(self) -> int:
        with self.vfs._reading(self.path):
            return self.inner.size()

    def close(self) -> None:
        self.inner.close()
