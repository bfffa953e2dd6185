"""One file of a Raft node's log: made as a whole, then written to until it is full.

It is filled with zeros before it gets its name, because a sync that changes no block allocation
costs about half, and because a frame then needs no room that the disk may not have.

Invariants:
  N1  A file has its name only once its header, its base and its full length are durable.
  N2  Nothing is ever written over: a process writes only behind what it wrote itself, in a file
      that it made itself.
  N3  A frame counts as durable only what a ``sync`` that returned has made durable.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tidelog.errors import Busy, DiskFull
from tidelog.formats.raft_log import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    Base,
    Body,
    Change,
    Closed,
    FileHeader,
    encode_file_header,
    encode_frame,
)
from tidelog.limits import RAFT_LOG_FILE_BYTES_MAX
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.raft_spare import SpareLogFile

_CLOSED_BYTES: Final = FRAME_HEADER_BYTES
"""Kept free at the end of a file for the frame that closes it."""


def log_name(number: int) -> str:
    return f"{number:016d}.log"


def begin_spare(vfs: FailStopVfs, directory: str, number: int, *, room_bytes: int) -> SpareLogFile:
    """A file that ``make_log_file`` can take once it is whole."""
    length = _whole(FILE_HEADER_BYTES + room_bytes + _CLOSED_BYTES)
    return SpareLogFile(vfs, directory, log_name(number), length)


def make_log_file(
    vfs: FailStopVfs,
    directory: str,
    base: Base,
    blank: FileHeader,
    *,
    room_bytes: int,
    spare: SpareLogFile | None,
) -> tuple[FileHeader, int]:
    """A new file with ``base`` and room behind it, durable under its name (N1).

    ``blank`` lacks only the length.  Returns the header, and where the base ends.  If the disk is
    full (DiskFull) or the base too large (Busy), nothing has changed but that ``spare`` is gone.
    """
    frame = encode_frame(base, sequence=0, durable_end=0, salt=blank.salt)
    begin = FILE_HEADER_BYTES + len(frame)
    if spare is not None:
        # At least as much room as the base takes: so less is copied than is written.
        if spare.is_whole and spare.length - begin - _CLOSED_BYTES >= len(frame):
            header = replace(blank, length=spare.length)
            spare.begin_with(encode_file_header(header) + frame)
            return header, begin
        spare.drop()
    length = _whole(begin + max(room_bytes, len(frame)) + _CLOSED_BYTES)
    if length > RAFT_LOG_FILE_BYTES_MAX:
        raise Busy(f"a Raft log of {len(frame)} bytes: a snapshot must be taken first")
    header = replace(blank, length=length)
    data = b"".join((encode_file_header(header), frame, bytes(length - begin)))
    replace_file(vfs, directory, log_name(header.number), data)
    return header, begin


def _whole(length: int) -> int:
    """A length that files may have."""
    return length + (-length & 7)


class RaftLogFile:
    """Writes frames behind the base of a file that this process made."""

    def __init__(self, vfs: FailStopVfs, directory: str, header: FileHeader, offset: int) -> None:
        self.header = header
        self._vfs = vfs
        self._file = vfs.open(f"{directory}/{log_name(header.number)}", write=True)
        self._begin = self._offset = offset
        self._sequence = 1
        """Of the next frame; the base is frame 0."""
        self._durable_end = 1

    @property
    def used_bytes(self) -> int:
        """What the frames behind the base take."""
        return self._offset - self._begin

    def has_room(self, size: int) -> bool:
        """Whether frames of so many bytes fit."""
        return self._offset + size <= self.header.length - _CLOSED_BYTES

    def append(self, change: Change) -> bool:
        """Write one frame, not durable yet; False, and nothing written, if the file is full."""
        frame = self._encoded(change)
        if not self.has_room(len(frame)):
            return False
        self._write(frame)
        return True

    def sync(self) -> None:
        """Make all frames durable; an error is final."""
        if self._durable_end < self._sequence:
            self._file.sync()
            self._durable_end = self._sequence

    def end(self) -> None:
        """Make all frames durable and say so in a last one: damage to them shows from now on."""
        self.sync()
        self._write(self._encoded(Closed()))
        self.sync()

    def close(self) -> None:
        self._file.close()

    def _encoded(self, body: Body) -> bytes:
        return encode_frame(
            body,
            sequence=self._sequence,
            durable_end=self._durable_end,
            salt=self.header.salt,
        )

    def _write(self, frame: bytes) -> None:
        try:
            self._file.write_at(self._offset, (frame,))
        except DiskFull as error:
            # Half a frame may be there, and nothing may be written over it (N2).
            raise self._vfs.stop(f"the disk filled up inside a Raft frame: {error}") from error
        self._offset += len(frame)
        self._sequence += 1
