"""The shared write-ahead log of a node: numbered files of frames, written by one thread.

One ``append`` is one group commit: one frame, one write, one fdatasync.  Files are
filled with zeros before use and recycled after it, because a sync that changes no
block allocation costs about half.

Invariants:
  W1  ``append`` returns only when the frame is durable; a failed write or sync is final.
  W2  A file's header and name are durable before its first frame is written.
  W3  A file is retired only after the manifest stopped needing it.
  W4  Frame sequences are consecutive over all files, so a lost frame shows as a gap.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Final

from tidelog.errors import DiskFull, LogError, StorageFailed
from tidelog.formats.wal import (
    FILE_HEADER_BYTES,
    Record,
    encode_file_header,
    encode_frame_parts,
)
from tidelog.invariants import check
from tidelog.limits import KIB, MIB, WAL_SPARE_FILES_MAX
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.vfs import File, Vfs

_ZEROS: Final = bytes(MIB)
_FOREGROUND_FILL_BYTES: Final = 8 * MIB
"""How much of a file is filled when it is made while an append waits for it."""
_EXTENT_BYTES: Final = 256 * KIB
"""How much is filled at least when a file has to grow."""


def wal_path(directory: str, number: int) -> str:
    return f"{directory}/{number:016d}.wal"


def wal_numbers(vfs: Vfs, directory: str) -> list[int]:
    """Numbers of the WAL files in ``directory``, ascending."""
    names = vfs.list_dir(directory)
    return sorted(
        int(name[:-4]) for name in names if name.endswith(".wal") and name[:-4].isdecimal()
    )


class Wal:
    """Writes frames.  Reading them back is ``wal_recovery``'s work."""

    def __init__(self, vfs: FailStopVfs, directory: str, *, log_id: bytes, file_bytes: int) -> None:
        self._vfs = vfs
        self._directory = directory
        self._log_id = log_id
        self._file_bytes = file_bytes
        self._file: File | None = None
        self._salt = 0
        self._offset = 0
        self._filled = 0
        """Length of the current file."""
        self.number = 0
        self.sequence = 1
        """Sequence of the next frame: all frames below it are durable."""
        self.frames = 0
        self.bytes_written = 0
        self.write_ns = 0
        """What the write and, below, the sync of the last frame took."""
        self.sync_ns = 0

    # -- opening ---------------------------------------------------------------

    def resume(
        self, *, number: int, salt: int, frame_offset: int, offset: int, sequence: int
    ) -> None:
        """Go on at the end of an existing file, as recovery found it.

        The last process may have died before it synced the last frame or the file's name, or
        its sync failed.  Then they are in the page cache alone, so they are written once more
        before anything builds on them.
        """
        self._file = file = self._vfs.open(wal_path(self._directory, number), write=True)
        for begin, end in ((0, FILE_HEADER_BYTES), (frame_offset, offset)):
            file.write_at(begin, (file.read_at(begin, end - begin),))
        file.sync()
        self._vfs.sync_dir(self._directory)
        self.number, self._salt, self._offset, self.sequence = number, salt, offset, sequence
        self._filled = self._file.size()

    def start(self) -> None:
        """Begin the first file of a new log."""
        self.number, self.sequence = 0, 1
        self.roll()

    # -- writing ---------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether a frame of about ``size`` bytes fits into the current file.

        The first frame of a file always fits: an oversized one makes the file grow.
        """
        return self._offset + size <= self._file_bytes or self._offset == FILE_HEADER_BYTES

    def is_filled(self, size: int) -> bool:
        """Whether the current file is long enough for a frame of about ``size`` bytes."""
        return self._offset + size <= min(self._filled, self._file_bytes)

    def extend(self, size: int) -> None:
        """Make the file long enough for a frame of ``size`` bytes.

        So a disk that fills up refuses a frame before any of it is written (DiskFull).
        """
        end = self._offset + size
        if self._file is None or end <= self._filled:
            return
        end = max(end, min(self._filled + _EXTENT_BYTES, self._file_bytes))
        for offset in range(self._filled, end, len(_ZEROS)):
            self._file.write_at(offset, (_ZEROS[: min(len(_ZEROS), end - offset)],))
        self._filled = end

    def append(self, records: Sequence[Record]) -> None:
        """Write one frame and make it durable (W1)."""
        file = self._file
        if file is None:
            raise StorageFailed("the write-ahead log is closed")
        frame = encode_frame_parts(records, self.sequence, self._salt)
        begin = perf_counter_ns()
        try:
            file.write_at(self._offset, frame)
        except DiskFull as error:
            # Half a frame may be there, and it cannot be told what a later one would overwrite.
            raise self._vfs.stop(f"the disk filled up inside a WAL frame: {error}") from error
        written = perf_counter_ns()
        file.sync()
        self.write_ns, self.sync_ns = written - begin, perf_counter_ns() - written
        size = sum(map(len, frame))
        self._offset += size
        self.sequence += 1
        self.frames += 1
        self.bytes_written += size

    def roll(self) -> None:
        """Switch to the next file.  On a full disk nothing changes and DiskFull is raised."""
        number = self.number + 1
        path = wal_path(self._directory, number)
        salt = secrets.randbits(64)
        spare = self._take_spare()
        file: File | None = None
        try:
            file = self._vfs.open(spare, write=True) if spare else self._create_filled(path)
            header = encode_file_header(number, salt, self._log_id, self.sequence)
            file.write_at(0, (header,))
            file.sync()
            if spare:
                self._vfs.rename(spare, path)
            self._vfs.sync_dir(self._directory)
        except BaseException:
            if file is not None:
                file.close()
            self._forget(path)
            raise
        if self._file is not None:
            self._file.close()
        self._file, self._salt, self._offset, self.number = file, salt, FILE_HEADER_BYTES, number
        self._filled = file.size()

    def _forget(self, path: str) -> None:
        """Delete a file that was not switched to, for good: the current one may still go on."""
        with suppress(LogError):
            if self._vfs.stat(path) is not None:
                self._vfs.unlink(path)
                self._vfs.sync_dir(self._directory)

    def _create_filled(self, path: str) -> File:
        fill = min(self._file_bytes, _FOREGROUND_FILL_BYTES)
        return create_filled(self._vfs, path, fill)

    # -- recycling -------------------------------------------------------------

    def retire_below(self, number: int) -> None:
        """Files below ``number`` are done with: keep a few as spares, delete the rest (W3)."""
        spares = len(self._spares())
        retired = [old for old in wal_numbers(self._vfs, self._directory) if old < number]
        for old in retired:
            check(old != self.number, "W3: the current WAL file cannot be retired")
            path = wal_path(self._directory, old)
            if spares < WAL_SPARE_FILES_MAX:
                self._vfs.rename(path, f"{self._directory}/{old:016d}.spare")
                spares += 1
            else:
                self._vfs.unlink(path)
        if retired:
            # A spare must have lost its old name for good before it is written to again: else
            # a crash could bring that name back for a file that holds new frames.
            self._vfs.sync_dir(self._directory)

    def prepare_spare(self) -> bool:
        """Make one full-size spare when there is none, so that a roll need not wait for zeros."""
        if self._spares():
            return False
        # A retired file becomes <number>.spare and must not replace one that a roll has open.
        path = f"{self._directory}/{self.number:016d}-new.spare"
        temporary = f"{path}.tmp"
        if self._vfs.stat(temporary) is not None:
            self._vfs.unlink(temporary)
        create_filled(self._vfs, temporary, self._file_bytes).close()
        self._vfs.rename(temporary, path)
        return True

    def _spares(self) -> list[str]:
        names = self._vfs.list_dir(self._directory)
        return [f"{self._directory}/{name}" for name in names if name.endswith(".spare")]

    def _take_spare(self) -> str | None:
        spares = self._spares()
        return spares[0] if spares else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def create_filled(vfs: Vfs, path: str, length: int) -> File:
    """A new file of ``length`` zero bytes, synced; nothing is left behind on an error."""
    file = vfs.create(path)
    try:
        for offset in range(0, length, len(_ZEROS)):
            file.write_at(offset, (_ZEROS[: min(len(_ZEROS), length - offset)],))
        file.sync()
    except LogError:
        file.close()
        with suppress(LogError):
            vfs.unlink(path)
        raise
    return file
