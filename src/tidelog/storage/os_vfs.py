"""The real disk: ``Vfs`` on the file system of the operating system.

Every error of the system goes up as the OSError it is.  Files are readable by their owner
alone, no descriptor outlives an exec, and there is no cursor: reads and writes name their place.

New files are written from their beginning to their end and synced then.  What comes to some
megabytes is handed to the disk on the way (``start_writeback``): if it all went at once, every
other sync, such as that of the WAL for an append, would wait until the last byte of it is there.
Those that are written ``once`` go past the page cache, as far as the file system lets them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Any, Final

from tidelog.storage.direct_file import DirectFile, is_whole
from tidelog.storage.vfs import FileKind, FileStat

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
WRITE_BUFFERS_MAX: Final = 1024
"""How many buffers one pwritev takes (IOV_MAX of Linux)."""
LOCK_TEXT_BYTES_MAX: Final = 64
WRITEBACK_BYTES: Final = 1 << 20
"""How much of a new file is handed to the disk at once."""
_START_WRITING: Final = 2
"""SYNC_FILE_RANGE_WRITE of Linux: begins to write, and waits for nothing."""


def _sync_file_range() -> Any:
    """The call of the system, which Python does not have; None where there is none."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


_system_call: Final = _sync_file_range()


def start_writeback(descriptor: int, offset: int, length: int) -> bool:
    """Have the disk begin with these bytes; False where the system cannot be told to.

    Nothing is durable by it, and it takes no error away from the sync that follows: Linux reports
    a failed write to those who wait for it, and this does not.
    """
    return _system_call is not None and not _system_call(descriptor, offset, length, _START_WRITING)


class OsFile:
    """An open file descriptor."""

    __slots__ = ("_descriptor", "_direct", "_handed_over", "_is_once", "_path")

    def __init__(
        self, descriptor: int, path: str, *, is_new: bool = False, is_once: bool = False
    ) -> None:
        self._descriptor = descriptor
        self._path = path
        self._is_once = is_once
        """Whether large writes are to go past the page cache."""
        self._direct: DirectFile | None = None
        self._handed_over: int | None = 0 if is_new else None
        """Up to where a new file was handed to the disk; None from its first sync on."""

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        if len(data) == length or not data:
            return data
        # A short read is not yet the end of the file: only an empty one is.
        parts = [data]
        done = len(data)
        while done < length:
            data = os.pread(self._descriptor, length - done, offset + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        if offset < 0:  # The system takes -1 for the cursor, which this interface does not have.
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        if self._is_once and self._write_directly(offset, parts):
            return
        if len(parts) <= WRITE_BUFFERS_MAX:
            size = sum(map(len, parts))
            if os.pwritev(self._descriptor, parts, offset) == size:
                if self._handed_over is not None:
                    self._hand_over(offset + size)
                return
            # Rare, and writing the same once more does no harm.
        buffers: list[bytes | memoryview] = [part for part in parts if len(part)]
        index = 0
        while index < len(buffers):
            batch = buffers[index : index + WRITE_BUFFERS_MAX]
            written = os.pwritev(self._descriptor, batch, offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes", self._path)
            offset += written
            while index < len(buffers) and written >= len(buffers[index]):
                written -= len(buffers[index])
                index += 1
            if written:
                buffers[index] = memoryview(buffers[index])[written:]

    def _write_directly(self, offset: int, parts: Sequence[bytes | memoryview]) -> bool:
        """Write past the page cache; False, with nothing lost, if that cannot be."""
        if not is_whole(offset, sum(map(len, parts))):
            return False
        try:
            if self._direct is None:
                self._direct = DirectFile(self._path)
            self._direct.write_at(offset, parts)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_once = False  # The file system wants it otherwise.
            return False
        return True

    def _hand_over(self, end: int) -> None:
        begin = self._handed_over or 0
        if end - begin >= WRITEBACK_BYTES:
            start_writeback(self._descriptor, begin, end - begin)
            self._handed_over = end

    def sync(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        os.fdatasync(self._descriptor)
        self._handed_over = None

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor < 0:
            return
        # The number is forgotten first: it may belong to another file as soon as it is closed.
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if self._direct is not None:
                self._direct.close()
        finally:
            os.close(descriptor)


class OsLock:
    """A held flock."""

    __slots__ = ("_descriptor", "_owner")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._owner = os.getpid()

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            # A forked child shares the lock with its parent and must not take it from it;
            # the parent's release, though, holds even while children keep the descriptor.
            if os.getpid() == self._owner:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


class OsVfs:
    """``Vfs`` on real files.  No state: any number of them may be used side by side."""

    __slots__ = ()

    def create(self, path: str, *, once: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return OsFile(os.open(path, flags, FILE_MODE), path, is_new=True, is_once=once)

    def open(self, path: str, *, write: bool = False) -> OsFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except BaseException:
            os.close(descriptor)
            raise
        return OsFile(descriptor, path)

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return FileStat(
            kind=_kind(found.st_mode, path),
            inode=found.st_ino,
            links=found.st_nlink,
            size=found.st_size,
        )

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            # A link to a directory is as good as one; anything else of that name is an error.
            if not os.path.isdir(path):
                raise

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def symlink(self, target_name: str, path: str) -> None:
        # A relative target stays right when the whole directory is moved.
        if not target_name or target_name.startswith("/"):
            raise OSError(errno.EINVAL, "the target of a symbolic link must be relative", path)
        os.symlink(target_name, path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            _take_lock(descriptor, path)
            _write_owner(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return OsLock(descriptor)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


def _kind(mode: int, path: str) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    if stat.S_ISLNK(mode):
        return FileKind.SYMLINK
    raise OSError(errno.EINVAL, "neither file, directory nor symbolic link", path)


def _take_lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        text = os.pread(descriptor, LOCK_TEXT_BYTES_MAX, 0).decode("ascii", "replace").strip()
        owner = f"process {text}" if text else "another process"
        raise BlockingIOError(errno.EWOULDBLOCK, f"locked by {owner}", path) from error


def _write_owner(descriptor: int) -> None:
    """Note our process id in the lock file, for the message that others get."""
    text = f"{os.getpid()}\n".encode("ascii")
    # Write first, shorten then: overwriting in place needs no room on a full disk.
    if os.pwrite(descriptor, text, 0) != len(text):
        raise OSError(errno.ENOSPC, "the disk had no room for the lock file")
    os.ftruncate(descriptor, len(text))
