"""BLOBs of a datastore: one file each, whole under its final name or not there at all.

A BLOB with the number ``n`` lies in ``blobs/<last two hex digits of n>/<n in 16 hex digits>.blob``.
It is written to a temporary file, in order, and gets its name when all of it is durable.  Behind
its bytes stand its size and its checksum (``formats.blob``).

Invariants:
  O1  A file with a final name holds all bytes of its BLOB; ``finish`` returns once bytes and name
      are durable.
  O2  Temporary files are of writers that live; those of earlier processes go at the start.
  O3  A BLOB that somebody holds is not deleted as garbage: one that was finished and that no entry
      refers to yet, and one that is pinned.
  O4  A file becomes a BLOB without a copy only if it has no other name; if it cannot, it stays
      where it was, unless the disk fails when it is nearly done.
  O5  Once it is closed no name comes or goes: somebody else may have the directory, and have given
      the same number.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Self

from tidelog.errors import (
    BadOption,
    CorruptData,
    DiskFull,
    LogClosed,
    LogError,
    StorageFailed,
    WrongState,
)
from tidelog.formats.blob import TRAILER_BYTES, encode_trailer
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import BLOB_ID_END
from tidelog.limits import BLOB_BYTES_END, BLOB_COPY_BYTES, BLOB_SYNC_BYTES
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX, remove_temporaries
from tidelog.storage.blob_reader import BlobReader
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.vfs import File, FileKind, FileStat

BLOBS_DIRECTORY: Final = "blobs"
BLOB_SUFFIX: Final = ".blob"


class BlobWriter:
    """A BLOB in the making; used by one thread."""

    def __init__(self, store: BlobStore, blob: int, size: int, path: str) -> None:
        self._store = store
        self.blob: Final = blob
        self.size: Final = size
        self.written = 0
        self._synced = 0
        self._crc = 0
        self._path = path
        self._file: File | None = store.vfs.create(path)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """The next bytes; ``offset`` is where the last ones ended."""
        file = self._open()
        if offset != self.written:
            raise WrongState(
                f"BLOB {self.blob}: bytes at {offset} were given, but those at {self.written} "
                "come next"
            )
        if offset + len(data) > self.size:
            raise WrongState(
                f"BLOB {self.blob}: {offset + len(data)} bytes are more than the {self.size} "
                "that were announced"
            )
        if len(data):
            file.write_at(offset, (data,))
            self._crc = crc32c(data, self._crc)
            self.written += len(data)
        if self.written - self._synced >= BLOB_SYNC_BYTES:
            file.sync()
            self._synced = self.written

    def finish(self) -> None:
        """Make the BLOB durable under its final name (O1)."""
        file = self._open()
        if self.written != self.size:
            raise WrongState(f"BLOB {self.blob}: {self.written} of {self.size} bytes are there")
        try:
            file.write_at(self.size, (encode_trailer(self.size, self._crc),))
            file.sync()
        except LogError:
            self.discard()
            raise
        self._close()
        self._store.give_name(self._path, self.blob)

    def discard(self) -> None:
        """Forget what was written; nothing happens if it is finished."""
        if self._file is not None:
            self._close()
            with suppress(LogError):
                self._store.vfs.unlink(self._path)

    def _open(self) -> File:
        if self._file is None:
            raise WrongState(f"BLOB {self.blob} is finished or discarded")
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class BlobStore:
    """All BLOBs of one directory.  Thread-safe, but for one writer or reader by itself."""

    def __init__(self, vfs: FailStopVfs, path: str) -> None:
        self.vfs: Final = vfs
        self._path = path
        self._directory = f"{path}/{BLOBS_DIRECTORY}"
        self._lock = threading.RLock()
        self._durable: set[str] = set()
        """Directories whose names are known to be durable."""
        self._fresh: set[int] = set()
        """Finished, and no entry refers to them yet (O3)."""
        self._pins: dict[int, int] = {}
        self._temporaries = 0
        self._closed = False
        self._remove_temporaries()
        self._next = max(self.ids(), default=0) + 1

    def close(self) -> None:
        """Whoever still writes or deletes a BLOB is told LogClosed (O5)."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the datastore is closed")

    # -- numbers ---------------------------------------------------------------------------------

    def next_id(self) -> int:
        """A number that no BLOB has."""
        with self._lock:
            blob = self._next
            if blob >= BLOB_ID_END:
                raise StorageFailed("there are no further numbers for BLOBs")
            self._next += 1
            return blob

    def ids(self) -> list[int]:
        """The numbers of all finished BLOBs, ascending."""
        names = (name for part in self._parts() for name in self.vfs.list_dir(part))
        return sorted(int(name[:16], 16) for name in names if _is_final(name))

    # -- writing ---------------------------------------------------------------------------------

    def begin(self, blob: int, size: int) -> BlobWriter:
        """Begin to write a BLOB of ``size`` bytes; a finished one of this number is replaced."""
        _check_id(blob)
        if not 0 <= size < BLOB_BYTES_END:
            raise BadOption(f"a BLOB of {size} bytes: it may have 0 to {BLOB_BYTES_END - 1}")
        free = self.vfs.free_bytes(self._path)
        if size > free:
            raise DiskFull(f"BLOB {blob} has {size} bytes, {free} are free")
        return BlobWriter(self, blob, size, self._temporary(blob))

    def copy(self, blob: int, path: str) -> None:
        """Make a copy of the file at ``path`` this BLOB, in parts: it may be larger than memory."""
        source = self.vfs.open(path)
        try:
            with self.begin(blob, source.size()) as writer:
                while writer.written < writer.size:
                    data = source.read_at(writer.written, BLOB_COPY_BYTES)
                    if not data:
                        raise BadOption(f"{path} became shorter while it was copied: try again")
                    writer.write(writer.written, data)
                writer.finish()
        finally:
            source.close()

    def adopt(self, blob: int, path: str) -> None:
        """Make the file at ``path`` this BLOB; the file is gone from there afterwards (O4)."""
        _check_id(blob)
        temporary, found = self._temporary(blob), self.vfs.stat(path)
        if found is None or not _is_alone(found) or not self._try_rename(path, temporary):
            self.copy(blob, path)
            try:
                self.vfs.unlink(path)
            except LogError:
                self.delete(blob)
                raise
            return
        try:
            self._add_trailer(temporary, found.size)
        except LogError:
            self._put_back(temporary, path, found.size)
            raise
        self.give_name(temporary, blob)

    def _add_trailer(self, path: str, size: int) -> None:
        file = self.vfs.open(path, write=True)
        try:
            file.write_at(size, (encode_trailer(size, _checksum(file, size)),))
            file.sync()
        finally:
            file.close()

    def _put_back(self, temporary: str, path: str, size: int) -> None:
        """The caller gets the file back as it was; not if something of ours is in it by now."""
        with suppress(OSError):
            found = self.vfs.inner.stat(temporary)
            if found is not None and found.size == size:
                self.vfs.inner.rename(temporary, path)

    def link(self, blob: int, source: int) -> None:
        """Give a finished BLOB a second number."""
        _check_id(blob)
        if self.size(source) is None:
            raise _missing(source)
        temporary = self._temporary(blob)
        self.vfs.link(self._file_path(source), temporary)
        self.give_name(temporary, blob)
        with suppress(LogError):  # A rename between two names of one file leaves both.
            if self.vfs.stat(temporary) is not None:
                self.vfs.unlink(temporary)

    def give_name(self, temporary: str, blob: int) -> None:
        """Rename a file whose bytes are durable, and make the name durable as well (O1)."""
        with self._lock:
            self._check_open()
            self.vfs.rename(temporary, self._file_path(blob))
            self._fresh.add(blob)
            self._next = max(self._next, blob + 1)
        self.vfs.sync_dir(self._part(blob))  # Nobody has to wait for this but the caller.

    def _try_rename(self, path: str, temporary: str) -> bool:
        """False when ``path`` lies on another disk."""
        self.vfs.check_running()
        try:
            self.vfs.inner.rename(path, temporary)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise self.vfs.write_error(f"rename {path}", error) from error
        return True

    # -- reading ---------------------------------------------------------------------------------

    def size(self, blob: int) -> int | None:
        """How many bytes a finished BLOB has; None if there is none of this number."""
        _check_id(blob)
        found = self.vfs.stat(self._file_path(blob)) if self._has_part(blob) else None
        return max(found.size - TRAILER_BYTES, 0) if found is not None else None

    def open(self, blob: int) -> BlobReader:
        if self.size(blob) is None:
            raise _missing(blob)
        file = self.vfs.open(self._file_path(blob))
        try:
            return BlobReader(file, blob)
        except CorruptData as error:
            file.close()
            raise CorruptData(f"BLOB {blob}: {error}") from None

    # -- deleting --------------------------------------------------------------------------------

    def pin(self, blobs: Iterable[int]) -> None:
        """Keep BLOBs whatever entries say, until they are unpinned as often (O3)."""
        with self._lock:
            for blob in blobs:
                self._pins[blob] = self._pins.get(blob, 0) + 1

    def unpin(self, blobs: Iterable[int]) -> None:
        with self._lock:
            for blob in blobs:
                count = self._pins.pop(blob, 0) - 1
                if count > 0:
                    self._pins[blob] = count

    def referred(self, blobs: Iterable[int]) -> None:
        """Entries refer to these now: whether they are needed is for the entries to tell."""
        with self._lock:
            self._fresh.difference_update(blobs)

    def forget_fresh(self) -> None:
        """No entry will refer to what was finished so far."""
        with self._lock:
            self._fresh.clear()

    def held(self, blob: int) -> bool:
        """Whether it may not be deleted as garbage (O3)."""
        with self._lock:
            return blob in self._fresh or blob in self._pins

    def delete(self, blob: int) -> None:
        """Delete a BLOB if it is there."""
        with self._lock:
            self._check_open()
            self._fresh.discard(blob)
            if self.size(blob) is not None:
                self.vfs.unlink(self._file_path(blob))

    def delete_unheld(self, blob: int) -> bool:
        """Delete a BLOB that no entry refers to, unless somebody holds it; whether it went."""
        with self._lock:
            if self.held(blob):
                return False
            self.delete(blob)
            return True

    # -- places ----------------------------------------------------------------------------------

    def _parts(self) -> list[str]:
        """The directories that hold BLOBs."""
        if self.vfs.stat(self._directory) is None:
            return []
        names = self.vfs.list_dir(self._directory)
        return [f"{self._directory}/{name}" for name in names if _is_hex(name, 2)]

    def _part(self, blob: int) -> str:
        return f"{self._directory}/{blob & 0xFF:02x}"

    def _file_path(self, blob: int) -> str:
        return f"{self._part(blob)}/{blob:016x}{BLOB_SUFFIX}"

    def _has_part(self, blob: int) -> bool:
        return (
            self.vfs.stat(self._directory) is not None
            and self.vfs.stat(self._part(blob)) is not None
        )

    def _temporary(self, blob: int) -> str:
        with self._lock:
            self._check_open()
            self._make_directory(blob)
            self._temporaries += 1
            return f"{self._file_path(blob)}.{self._temporaries}{TEMPORARY_SUFFIX}"

    def _make_directory(self, blob: int) -> None:
        with self._lock:
            for parent, path in (
                (self._path, self._directory),
                (self._directory, self._part(blob)),
            ):
                if path not in self._durable:
                    self.vfs.make_dir(path)
                    # Also if it was there: the last process may have died before this.
                    self.vfs.sync_dir(parent)
                    self._durable.add(path)

    def _remove_temporaries(self) -> None:
        for part in self._parts():
            remove_temporaries(self.vfs, part)


def _is_alone(found: FileStat) -> bool:
    """Whether a file has one name only, so that nobody sees what is added to it (O4)."""
    return found.kind is FileKind.FILE and found.links == 1


def _checksum(file: File, size: int) -> int:
    crc = 0
    for offset in range(0, size, BLOB_COPY_BYTES):
        crc = crc32c(file.read_at(offset, min(BLOB_COPY_BYTES, size - offset)), crc)
    return crc


def _is_final(name: str) -> bool:
    return name.endswith(BLOB_SUFFIX) and _is_hex(name.removesuffix(BLOB_SUFFIX), 16)


def _is_hex(name: str, digits: int) -> bool:
    return len(name) == digits and all(letter in "0123456789abcdef" for letter in name)


def _check_id(blob: int) -> None:
    if not 0 <= blob < BLOB_ID_END:
        raise BadOption(f"{blob} is no number of a BLOB: it has 64 bits")


def _missing(blob: int) -> CorruptData:
    return CorruptData(f"BLOB {blob} is missing: was it deleted by someone else?")
