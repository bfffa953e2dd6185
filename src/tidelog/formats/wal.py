"""The write-ahead log: file header, frames of records, and the verdict on a file's tail.

A frame is what one group commit wrote: it is there as a whole or not at all.

  W1  A frame counts only with its checksum, the salt of its file and the next sequence number,
      so frames left over in a recycled file are never taken.
  W2  A bad frame with no valid frame behind it was never acknowledged: the log ends before it.
  W3  A bad frame with a valid frame behind it, or a gap in the sequence, is corruption.
  W4  A frame whose checksum holds but whose content makes no sense is corruption, never an end.

Layout (little-endian, all offsets multiples of 8):
  file    header 64 B: magic, crc of bytes [8:64], number u64, salt u64, log id 16 B,
          sequence of the first frame u64, zeros
  frame   header 40 B: magic, crc of bytes [8:], payload length u32, record count u32,
          sequence u64, salt u64, zero u64; then the records
  record  header 24 B: type u8, zero u8, zero u16, length u32, stream u64, previous LLSN u64;
          then the payload, zero-padded to 8

Bytes in, values out; no state.  ``wal_payloads`` and ``replica_records`` have
what the records say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.wal_payloads import (
    Trim,
    Truncate,
    decode_boundary,
    decode_cut,
    decode_trim,
    decode_truncate,
    encode_boundary,
    encode_cut,
    encode_trim,
    encode_truncate,
)
from tidelog.invariants import check

__all__ = [
    "FILE_HEADER_BYTES",
    "FRAME_HEADER_BYTES",
    "RECORD_HEADER_BYTES",
    "DecodedRecord",
    "Frame",
    "NoFrame",
    "NoFrameReason",
    "Record",
    "RecordType",
    "Trim",
    "Truncate",
    "Verdict",
    "WalFileHeader",
    "WalScan",
    "decode_boundary",
    "decode_cut",
    "decode_file_header",
    "decode_frame",
    "decode_trim",
    "decode_truncate",
    "encode_boundary",
    "encode_cut",
    "encode_file_header",
    "encode_frame",
    "encode_frame_parts",
    "encode_trim",
    "encode_truncate",
    "frame_salt",
    "scan_file",
]

FILE_MAGIC: Final = b"TLW\x01"
FRAME_MAGIC: Final = b"TLF\x01"
FILE_HEADER_BYTES: Final = 64
FRAME_HEADER_BYTES: Final = 40
RECORD_HEADER_BYTES: Final = 24
LOG_ID_BYTES: Final = 16

_FILE = Struct("<4sIQQ16sQ16s")
_FRAME_TAIL = Struct("<IIQQQ")
_FRAME = Struct("<4sIIIQQQ")
_RECORD = Struct("<BBHIQQ")
_FRAME_START = Struct("<4sI")
_PADDING: Final = tuple(bytes(n) for n in range(8))
_ZEROS: Final = bytes(1 << 20)
_JOINED_BYTES_END: Final = 16 << 10
"""Below this, one copy costs less than many pieces."""
_PARTS_END: Final = 1000
"""So many pieces fit into one call of the system."""
_U32_END: Final = 1 << 32
_U64_END: Final = 1 << 64


class RecordType(IntEnum):
    BATCH = 1
    CUT = 2
    TRIM = 3
    TRUNCATE = 4
    BOUNDARY = 5
    HARD_STATE = 6
    RESET = 7
    ORDER = 8
    FILLED = 9
    CARRY = 10
    STAGED = 11


_RECORD_TYPES: Final = {int(member): member for member in RecordType}


@dataclass(frozen=True, slots=True)
class WalFileHeader:
    number: int
    salt: int
    log_id: bytes
    first_sequence: int
    """The sequence number of the file's first frame, so that losing that one shows too."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record to write; ``parts`` together are its payload."""

    type: RecordType
    stream: int
    previous_llsn: int
    parts: tuple[bytes, ...]


class DecodedRecord(NamedTuple):
    """A record read back; ``payload`` is a view into the buffer it was read from."""

    type: RecordType
    stream: int
    previous_llsn: int
    payload: memoryview


class Frame(NamedTuple):
    sequence: int
    records: list[DecodedRecord]
    offset: int
    end_offset: int


class NoFrameReason(Enum):
    EMPTY = "empty"
    """Nothing was written here: the end of the buffer, or zeros."""
    STALE = "stale"
    """A whole frame of an earlier use of the file."""
    BAD = "bad"
    """Something is here, but it is not a whole frame."""
    MALFORMED = "malformed"
    """The checksum holds and yet the content makes no sense."""


class NoFrame(NamedTuple):
    reason: NoFrameReason
    offset: int
    detail: str


class Verdict(Enum):
    CLEAN = "clean"
    """The log ends here and nothing was being written."""
    TORN = "torn"
    """A write was cut short, or old bytes follow; nothing acknowledged is missing."""
    CORRUPT = "corrupt"
    """Something that was acknowledged may be damaged."""


@dataclass(frozen=True, slots=True)
class WalScan:
    frames: list[Frame]
    end_offset: int
    """Where the valid frames end, and the next one would begin."""
    verdict: Verdict
    detail: str
    next_sequence: int
    """The sequence number expected at ``end_offset``."""


# ---- file header


def encode_file_header(number: int, salt: int, log_id: bytes, first_sequence: int) -> bytes:
    """The first 64 bytes of a WAL file.  ``salt`` must be fresh for every use of the file."""
    check(len(log_id) == LOG_ID_BYTES, "a log id has 16 bytes")
    tail = _FILE.pack(FILE_MAGIC, 0, number, salt, log_id, first_sequence, b"")[8:]
    return _FRAME_START.pack(FILE_MAGIC, crc32c(tail)) + tail


def decode_file_header(data: Buffer) -> WalFileHeader:
    """The header at the start of ``data``, which may be longer."""
    if len(data) < FILE_HEADER_BYTES:
        raise CorruptData(f"WAL file header: {len(data)} bytes where 64 are needed")
    magic, crc, number, salt, log_id, first_sequence, zeros = _FILE.unpack_from(data)
    if magic[:3] != FILE_MAGIC[:3]:
        raise CorruptData(f"WAL file header: magic {magic!r}")
    if crc != crc32c(memoryview(data)[8:FILE_HEADER_BYTES]):
        raise CorruptData("WAL file header: checksum does not match")
    if magic != FILE_MAGIC or zeros.count(0) != len(zeros):
        raise UnsupportedVersion(f"WAL file header: unknown version {magic[3]}")
    return WalFileHeader(number, salt, log_id, first_sequence)


# ---- frames


def encode_frame(records: Sequence[Record], sequence: int, salt: int) -> bytes:
    """One frame of ``records``, in order."""
    return b"".join(encode_frame_parts(records, sequence, salt))


def encode_frame_parts(records: Sequence[Record], sequence: int, salt: int) -> tuple[bytes, ...]:
    """One frame in pieces to be written one after the other; a large one is never copied."""
    check(0 < sequence < _U64_END, "W1: frames are numbered from 1")
    parts: list[bytes] = [b""]
    length = 0
    for record in records:
        size = 0
        for part in record.parts:
            size += len(part)
        padding = -size & 7
        head = (record.type, 0, 0, size + padding, record.stream, record.previous_llsn)
        parts.append(_RECORD.pack(*head))
        parts += record.parts
        if padding:
            parts.append(_PADDING[padding])
        length += RECORD_HEADER_BYTES + size + padding
    check(length < _U32_END, "the length of a frame fits into 32 bits")
    parts[0] = _FRAME_TAIL.pack(length, len(records), sequence, salt, 0)
    if length < _JOINED_BYTES_END or len(parts) >= _PARTS_END:
        parts = [b"".join(parts)]
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return _FRAME_START.pack(FRAME_MAGIC, crc), *parts


def frame_salt(buffer: Buffer, offset: int) -> int:
    """The salt that the frame at ``offset`` claims, unchecked; 0 if there is no frame header."""
    if len(buffer) - offset < FRAME_HEADER_BYTES:
        return 0
    magic, *_, salt, _ = _FRAME.unpack_from(buffer, offset)
    return int(salt) if magic == FRAME_MAGIC else 0


def decode_frame(buffer: Buffer, offset: int, salt: int) -> Frame | NoFrame:
    """The frame at ``offset``, or why there is none.  Its payloads are views into ``buffer``."""
    if len(buffer) - offset < FRAME_HEADER_BYTES:
        rest = bytes(memoryview(buffer)[offset:])
        if rest == bytes(len(rest)):
            return NoFrame(NoFrameReason.EMPTY, offset, "end of the file")
        return NoFrame(NoFrameReason.BAD, offset, "file ends inside a frame header")
    magic, crc, length, count, sequence, found_salt, zero = _FRAME.unpack_from(buffer, offset)
    if magic != FRAME_MAGIC:
        head = bytes(memoryview(buffer)[offset : offset + FRAME_HEADER_BYTES])
        if head == bytes(FRAME_HEADER_BYTES):
            return NoFrame(NoFrameReason.EMPTY, offset, "zeros")
        return NoFrame(NoFrameReason.BAD, offset, "no frame header")
    end = offset + FRAME_HEADER_BYTES + length
    if end > len(buffer):
        return NoFrame(NoFrameReason.BAD, offset, "frame reaches past the end of the file")
    if crc32c(memoryview(buffer)[offset + 8 : end]) != crc:
        return NoFrame(NoFrameReason.BAD, offset, "checksum does not match")
    if found_salt != salt:
        return NoFrame(NoFrameReason.STALE, offset, "frame of an earlier use of the file")
    sound = sequence > 0 and not zero
    begin = offset + FRAME_HEADER_BYTES
    records = _decode_records(buffer, begin, end, count) if sound else None
    if records is None:
        return NoFrame(NoFrameReason.MALFORMED, offset, "valid checksum around unknown content")
    return Frame(sequence, records, offset, end)


def _decode_records(buffer: Buffer, begin: int, end: int, count: int) -> list[DecodedRecord] | None:
    """The records that fill ``[begin, end)`` exactly, or None."""
    if count * RECORD_HEADER_BYTES > end - begin or (end - begin) & 7:
        return None
    view = memoryview(buffer).toreadonly()
    records: list[DecodedRecord] = []
    unpack = _RECORD.unpack_from
    offset = begin
    for _ in range(count):
        if end - offset < RECORD_HEADER_BYTES:
            return None
        number, zero8, zero16, length, stream, previous_llsn = unpack(view, offset)
        offset += RECORD_HEADER_BYTES
        type_ = _RECORD_TYPES.get(number)
        if type_ is None or zero8 or zero16 or length & 7 or length > end - offset:
            return None
        payload = view[offset : offset + length]
        records.append(DecodedRecord(type_, stream, previous_llsn, payload))
        offset += length
    return records if offset == end else None


def scan_file(buffer: Buffer, header: WalFileHeader, first_sequence: int | None = None) -> WalScan:
    """All frames of one whole file (``buffer`` begins with its header) and how they end.

    ``first_sequence`` is the header's unless given.  TORN and CLEAN end the log here, which is
    right only for the last file: a caller that has a later one must see to it that its
    sequence continues at ``next_sequence``.
    """
    frames: list[Frame] = []
    offset = FILE_HEADER_BYTES
    expected = header.first_sequence if first_sequence is None else first_sequence
    while True:
        found = decode_frame(buffer, offset, header.salt)
        if isinstance(found, NoFrame):
            verdict, detail = _judge_tail(buffer, header.salt, found, expected)
            return WalScan(frames, offset, verdict, detail, expected)
        if found.sequence != expected:
            detail = f"frame {found.sequence} at offset {offset} where {expected} was due"
            return WalScan(frames, offset, Verdict.CORRUPT, detail, expected)
        frames.append(found)
        offset = found.end_offset
        expected = found.sequence + 1


def _judge_tail(buffer: Buffer, salt: int, found: NoFrame, expected: int) -> tuple[Verdict, str]:
    """What the bytes from the first non-frame on mean (W2, W3, W4)."""
    where = f"{found.detail} at offset {found.offset}"
    if found.reason is NoFrameReason.MALFORMED:
        return Verdict.CORRUPT, where
    begin = _first_non_zero_chunk(buffer, found.offset)
    if begin is None:
        return Verdict.CLEAN, where
    later = _later_frame(buffer, salt, max(begin, found.offset + 1), expected)
    if later is not None:
        return Verdict.CORRUPT, f"{where}, but {later}"
    return (Verdict.CLEAN if found.reason is NoFrameReason.STALE else Verdict.TORN), where


def _later_frame(buffer: Buffer, salt: int, begin: int, sequence: int) -> str | None:
    """Describes a valid frame at or after ``begin`` that is not older than ``sequence``."""
    # One pattern of magic and salt lets the search run at C speed whatever the entries hold.
    header = re.compile(
        re.escape(FRAME_MAGIC) + b".{20}" + re.escape(salt.to_bytes(8, "little")), re.DOTALL
    )
    # Frames do not overlap, so checking them takes about one pass.  More than a few passes
    # means that the bytes were made to look like frames, and the search must end.
    budget = 8 * len(buffer)
    while (match := header.search(buffer, begin)) is not None:
        offset = match.start()
        begin = offset + 1
        if offset & 7 or len(buffer) - offset < FRAME_HEADER_BYTES:
            continue
        budget -= min(_FRAME.unpack_from(buffer, offset)[2], len(buffer))
        if budget < 0:
            return f"too many frame headers before offset {offset}"
        found = decode_frame(buffer, offset, salt)
        if isinstance(found, Frame):
            if found.sequence >= sequence:
                return f"frame {found.sequence} at offset {offset} is whole"
        elif found.reason is NoFrameReason.MALFORMED:
            return f"{found.detail} at offset {offset}"
    return None


def _first_non_zero_chunk(buffer: Buffer, offset: int) -> int | None:
    """Begin of the first piece of the tail that holds a byte other than 0; None if none does."""
    view = memoryview(buffer)
    for begin in range(offset, len(buffer), len(_ZEROS)):
        piece = bytes(view[begin : begin + len(_ZEROS)])
        if piece != (_ZEROS if len(piece) == len(_ZEROS) else bytes(len(piece))):
            return begin
    return None
