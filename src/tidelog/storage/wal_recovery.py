"""Reads the WAL back after a stop, and tells a torn tail from damage.

The rules, over all files that the manifest still needs:
  1  Files are numbered without gaps, and frame sequences run through them without gaps.
  2  Each file says with which sequence it begins, so only the last one may end in a torn frame
     that counts as never acknowledged; elsewhere a missing frame is damage.
  3  A last file whose header is unreadable never held a frame (``wal`` W2) and is dropped,
     unless a frame in it says otherwise: then the header was damaged later.
  4  Every frame that the manifest knows to be durable must be there.
Whatever breaks a rule is corruption and is never taken for the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.errors import CorruptData
from tidelog.formats.wal import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    Frame,
    Verdict,
    WalFileHeader,
    decode_file_header,
    decode_frame,
    frame_salt,
    scan_file,
)
from tidelog.storage.vfs import Vfs
from tidelog.storage.wal import wal_numbers, wal_path


@dataclass(frozen=True, slots=True)
class WalTail:
    """Where the next frame goes; ``number`` 0 when there is no file to go on with."""

    number: int
    salt: int
    frame_offset: int
    """Where the last frame begins; ``offset`` if there is none."""
    offset: int
    next_sequence: int
    torn: bool


def replay_wal(
    vfs: Vfs,
    directory: str,
    *,
    log_id: bytes,
    first_file: int,
    durable_sequence: int,
    replay: Callable[[int, Frame], None],
) -> WalTail:
    """Hand every frame from ``first_file`` on to ``replay``, in order, and return the tail."""
    numbers = [number for number in wal_numbers(vfs, directory) if number >= first_file]
    if numbers != list(range(first_file, first_file + len(numbers))):
        raise CorruptData(f"{directory}: WAL files {numbers} have a gap, {first_file} comes first")
    tail = WalTail(0, 0, 0, 0, 0, torn=False)
    for number in numbers:
        last = number == numbers[-1]
        found = _replay_file(vfs, directory, number, log_id, tail, last, replay)
        tail = found if found is not None else tail
    if tail.next_sequence < durable_sequence:
        raise CorruptData(
            f"{directory}: the WAL ends before frame {tail.next_sequence}, but frames below "
            f"{durable_sequence} were durable: a file was cut or replaced"
        )
    return tail


def _replay_file(
    vfs: Vfs,
    directory: str,
    number: int,
    log_id: bytes,
    before: WalTail,
    last: bool,
    replay: Callable[[int, Frame], None],
) -> WalTail | None:
    path = wal_path(directory, number)
    data = _read_whole(vfs, path)
    try:
        header = decode_file_header(data)
    except CorruptData as error:
        if last and before.number and not _holds_frame(data, before.next_sequence):
            vfs.unlink(path)
            return None
        raise CorruptData(f"{path}: {error}") from error
    _check_header(path, header, number, log_id)
    if before.number and header.first_sequence != before.next_sequence:
        raise CorruptData(
            f"{wal_path(directory, before.number)}: damaged at offset {before.offset}: it ends "
            f"before frame {before.next_sequence}, the next file begins at {header.first_sequence}"
        )
    scan = scan_file(data, header)
    if scan.verdict is Verdict.CORRUPT:
        raise CorruptData(f"{path}: {scan.detail}")
    for frame in scan.frames:
        replay(number, frame)
    following = header.first_sequence + len(scan.frames)
    torn = scan.verdict is Verdict.TORN
    begin = scan.frames[-1].offset if scan.frames else scan.end_offset
    return WalTail(number, header.salt, begin, scan.end_offset, following, torn)


def _check_header(path: str, header: WalFileHeader, number: int, log_id: bytes) -> None:
    if header.log_id != log_id:
        raise CorruptData(f"{path} belongs to another log ({header.log_id.hex()})")
    if header.number != number:
        raise CorruptData(f"{path} says that it is file {header.number}")


def _holds_frame(data: bytes, sequence: int) -> bool:
    """Whether the first frame of a file is whole and not older than ``sequence``."""
    if len(data) < FILE_HEADER_BYTES + FRAME_HEADER_BYTES:
        return False
    frame = decode_frame(data, FILE_HEADER_BYTES, frame_salt(data, FILE_HEADER_BYTES))
    return isinstance(frame, Frame) and frame.sequence >= sequence


def holds_any_frame(vfs: Vfs, path: str) -> bool:
    """Whether a WAL file begins with a whole frame, whatever its header says."""
    return _holds_frame(_read_whole(vfs, path), 0)


def _read_whole(vfs: Vfs, path: str) -> bytes:
    file = vfs.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()
