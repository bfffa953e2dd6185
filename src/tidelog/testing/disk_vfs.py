"""The ``Vfs`` view of a simulated disk.  Its errors are those of Linux for the same calls."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from tidelog.storage.vfs import FileKind, FileStat
from tidelog.testing.disk_effects import Op, torn_length
from tidelog.testing.disk_faults import Fault, disk_error
from tidelog.testing.disk_file import FileNode, PendingWrite
from tidelog.testing.disk_tree import DirNode, LinkNode, Place, Setting, canonical

if TYPE_CHECKING:
    from tidelog.testing.disk import SimDisk


class _Call:
    """One call: alone on the disk, refused after a crash, cut by a crash on its way out."""

    __slots__ = ("_counted", "_disk", "_operation", "_paths", "cut", "fault")

    def __init__(self, disk: SimDisk, operation: Op, *paths: str, counted: bool = True) -> None:
        self._disk = disk
        self._operation = operation
        self._paths = paths
        self._counted = counted
        self.cut = False
        self.fault: Fault | None = None

    def __enter__(self) -> _Call:
        faults = self._disk.faults
        self._disk.mutex.acquire()
        try:
            faults.enter()
            if self._counted:
                self.cut = faults.count(self._operation, self._paths[0])
            self.fault = faults.due(self._operation, *self._paths)
        except BaseException:
            self._disk.mutex.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._disk.mutex.release()
        if self.cut:
            raise self._disk.faults.crash() from error

    def raise_fault(self) -> None:
        if self.fault is not None:
            raise disk_error(self.fault.error, self._paths[0])


class SimFile:
    """An open file; it knows its inode, not its name (V4)."""

    __slots__ = ("_disk", "_node", "_open", "_path", "_writable")

    def __init__(self, disk: SimDisk, node: FileNode, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._writable = writable
        self._open = True

    def read_at(self, offset: int, length: int) -> bytes:
        with _Call(self._disk, Op.READ, self._path, counted=False) as call:
            call.raise_fault()
            self._require(self._open, errno.EBADF)
            self._require(offset >= 0 and length >= 0, errno.EINVAL)
            return self._node.read(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        data = b"".join(parts)
        with _Call(self._disk, Op.WRITE, self._path) as call:
            self._require(self._open and self._writable, errno.EBADF)
            self._require(offset >= 0, errno.EINVAL)
            if call.fault is not None and call.fault.partial:
                self._write(offset, data[: torn_length(offset, len(data))])
            call.raise_fault()
            fitting = self._fitting(offset, data)
            self._write(offset, fitting)
            self._require(len(fitting) == len(data), errno.ENOSPC)

    def sync(self) -> None:
        with _Call(self._disk, Op.SYNC, self._path) as call:
            self._require(self._open, errno.EBADF)
            if call.fault is not None:
                self._node.drop_pending()
            call.raise_fault()
            if not call.cut and not self._disk.faults.ignores(Op.SYNC, self._path):
                self._node.sync()

    def size(self) -> int:
        with _Call(self._disk, Op.STAT, self._path, counted=False) as call:
            call.raise_fault()
            self._require(self._open, errno.EBADF)
            return self._node.size()

    def close(self) -> None:
        """Close the handle; a second call does nothing."""
        self._open = False

    def _require(self, condition: bool, code: int) -> None:
        if not condition:
            raise disk_error(code, self._path)

    def _fitting(self, offset: int, data: bytes) -> bytes:
        """As much of the data as the disk has room for, like a short write."""
        if self._disk.capacity_bytes is None:
            return data
        growth = max(0, offset + len(data) - max(offset, self._node.size()))
        missing = max(0, growth - self._disk.free_bytes())
        return data[: len(data) - missing]

    def _write(self, offset: int, data: bytes) -> None:
        if data:
            sequence = self._disk.tree.next_sequence()
            self._node.write(PendingWrite(sequence, self._path, offset, data))


class SimLock:
    """A held lock of a simulated disk."""

    __slots__ = ("_disk", "_number")

    def __init__(self, disk: SimDisk, number: int) -> None:
        self._disk = disk
        self._number: int | None = number

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        if self._number is not None:
            self._disk.locks.discard(self._number)
            self._number = None


class SimVfs:
    """``Vfs`` on a simulated disk."""

    __slots__ = ("disk",)

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk

    def create(self, path: str, *, once: bool = False) -> SimFile:
        path = canonical(path)
        with _Call(self.disk, Op.CREATE, path) as call:
            place = self._free_place(call, path)
            node = self.disk.tree.new_file()
            self._change(Op.CREATE, path, place, node.number)
            return SimFile(self.disk, node, path, writable=True)

    def open(self, path: str, *, write: bool = False) -> SimFile:
        path = canonical(path)
        with _Call(self.disk, Op.OPEN, path, counted=False) as call:
            call.raise_fault()
            node = self.disk.tree.walk(path).node
            if node is None:
                raise disk_error(errno.ENOENT, path)
            if not isinstance(node, FileNode):
                raise disk_error(errno.EISDIR, path)
            return SimFile(self.disk, node, path, writable=write)

    def stat(self, path: str) -> FileStat | None:
        with _Call(self.disk, Op.STAT, canonical(path), counted=False) as call:
            call.raise_fault()
            try:
                node = self.disk.tree.walk(path, follow=False).node
            except FileNotFoundError:
                return None
            match node:
                case None:
                    return None
                case FileNode():
                    return FileStat(FileKind.FILE, node.number, node.links, node.size())
                case DirNode():
                    return FileStat(FileKind.DIRECTORY, node.number, node.links, 0)
                case LinkNode():
                    size = len(node.target.encode())
                    return FileStat(FileKind.SYMLINK, node.number, node.links, size)

    def list_dir(self, path: str) -> list[str]:
        with _Call(self.disk, Op.LIST_DIR, canonical(path), counted=False) as call:
            call.raise_fault()
            return sorted(self._directory(path).entries)

    def make_dir(self, path: str) -> None:
        path = canonical(path)
        with _Call(self.disk, Op.MAKE_DIR, path) as call:
            call.raise_fault()
            if self._leads_to_directory(path):
                return
            place = self._free_place(call, path)
            self._change(Op.MAKE_DIR, path, place, self.disk.tree.new_directory().number)

    def rename(self, source: str, target: str) -> None:
        source, target = canonical(source), canonical(target)
        with _Call(self.disk, Op.RENAME, source, target) as call:
            call.raise_fault()
            old = self.disk.tree.walk(source, follow=False)
            new = self.disk.tree.walk(target, follow=False)
            if old.node is None:
                raise disk_error(errno.ENOENT, source)
            if new.node is old.node:
                return
            _check_replaceable(old, new, target)
            self.disk.tree.change(
                Op.RENAME,
                source,
                Setting(old.parent.number, old.name, 0),
                Setting(new.parent.number, new.name, old.node.number),
                target=target,
            )

    def link(self, source: str, target: str) -> None:
        source, target = canonical(source), canonical(target)
        with _Call(self.disk, Op.LINK, source, target) as call:
            call.raise_fault()
            node = self.disk.tree.walk(source, follow=False).node
            if node is None:
                raise disk_error(errno.ENOENT, source)
            place = self._free_place(call, target)
            if isinstance(node, DirNode):
                raise disk_error(errno.EPERM, source)
            setting = Setting(place.parent.number, place.name, node.number)
            self.disk.tree.change(Op.LINK, source, setting, target=target)

    def symlink(self, target_name: str, path: str) -> None:
        path = canonical(path)
        with _Call(self.disk, Op.SYMLINK, path) as call:
            if not target_name or target_name.startswith("/"):
                raise disk_error(errno.EINVAL, path)
            place = self._free_place(call, path)
            node = self.disk.tree.new_symlink(target_name)
            self._change(Op.SYMLINK, path, place, node.number)

    def unlink(self, path: str) -> None:
        path = canonical(path)
        with _Call(self.disk, Op.UNLINK, path) as call:
            call.raise_fault()
            place = self.disk.tree.walk(path, follow=False)
            if place.node is None:
                raise disk_error(errno.ENOENT, path)
            if isinstance(place.node, DirNode):
                raise disk_error(errno.EISDIR, path)
            self._change(Op.UNLINK, path, place, 0)

    def sync_dir(self, path: str) -> None:
        path = canonical(path)
        with _Call(self.disk, Op.SYNC_DIR, path) as call:
            directory = self._directory(path)
            if call.fault is not None:
                self.disk.tree.fail_sync(directory)
            call.raise_fault()
            if not call.cut and not self.disk.faults.ignores(Op.SYNC_DIR, path):
                self.disk.tree.sync_names(directory)

    def lock(self, path: str) -> SimLock:
        path = canonical(path)
        with _Call(self.disk, Op.LOCK, path, counted=False) as call:
            call.raise_fault()
            place = self.disk.tree.walk(path)
            node = place.node
            if node is None:
                node = self.disk.tree.add_durable_file(place.parent, place.name)
            elif not isinstance(node, FileNode):
                raise disk_error(errno.EISDIR, path)
            if node.number in self.disk.locks:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
            self.disk.locks.add(node.number)
            return SimLock(self.disk, node.number)

    def free_bytes(self, path: str) -> int:
        with _Call(self.disk, Op.STAT, canonical(path), counted=False) as call:
            call.raise_fault()
            if self.disk.tree.walk(path).node is None:
                raise disk_error(errno.ENOENT, path)
            return self.disk.free_bytes()

    def _free_place(self, call: _Call, path: str) -> Place:
        """Where a new name can be put: nothing may be there, and the disk must have room."""
        call.raise_fault()
        place = self.disk.tree.walk(path, follow=False)
        if place.node is not None:
            raise disk_error(errno.EEXIST, path)
        if self.disk.capacity_bytes is not None and self.disk.free_bytes() == 0:
            raise disk_error(errno.ENOSPC, path)
        return place

    def _directory(self, path: str) -> DirNode:
        node = self.disk.tree.walk(path).node
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if not isinstance(node, DirNode):
            raise disk_error(errno.ENOTDIR, path)
        return node

    def _leads_to_directory(self, path: str) -> bool:
        """Whether there is a directory, perhaps behind symbolic links."""
        if self.disk.tree.walk(path, follow=False).node is None:
            return False
        try:
            return isinstance(self.disk.tree.walk(path).node, DirNode)
        except OSError:
            return False  # A link that leads nowhere.

    def _change(self, operation: Op, path: str, place: Place, number: int) -> None:
        setting = Setting(place.parent.number, place.name, number)
        self.disk.tree.change(operation, path, setting)


def _check_replaceable(old: Place, new: Place, target: str) -> None:
    """Whether the target's name may be given to the source."""
    if isinstance(old.node, DirNode) and old.node in new.parents:
        raise disk_error(errno.EINVAL, target)
    if isinstance(new.node, DirNode):
        if new.node in old.parents:
            raise disk_error(errno.ENOTEMPTY, target)
        if not isinstance(old.node, DirNode):
            raise disk_error(errno.EISDIR, target)
        if new.node.entries:
            raise disk_error(errno.ENOTEMPTY, target)
    elif new.node is not None and isinstance(old.node, DirNode):
        raise disk_error(errno.ENOTDIR, target)
