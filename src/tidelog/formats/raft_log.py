"""The log of a Raft node on disk: files of frames, and the snapshots that they build on.

The first frame of a file, its base, is all that the node had stored when the file was made; the
base names the snapshot under it.  Each frame behind it is one ``Write``.

  L1  A frame counts only with its checksum, the salt of its file and the next sequence number.
  L2  Each frame counts the frames that were durable when it was written.  Where a frame is bad,
      a whole one behind it that counts it as durable makes this damage.  If there is none, nobody
      was told that the bad one was stored, as far as the file shows: the log ends before it.
  L3  The base is durable before the file gets its name, so a bad base is always damage.
  L4  A file has its full length before it gets its name, so one that was cut is damaged.
  L5  A frame whose checksum holds but whose content makes no sense is damage, never an end.

Layout (little-endian, all offsets multiples of 8):
  file      header 64 B: magic, crc of all other bytes of the header, number u64, salt u64,
            group 16 B, node u64, length of the file u64, zero u64; then frames, then zeros
  frame     header 40 B: magic, crc of bytes [8:], payload length u32, kind u32, sequence u64
            from 0, durable frames u64, salt u64; then the payload, zero-padded to 8
  payload   a MessagePack array: ``Base`` or ``Change``; nothing in the frame that closes a file
  snapshot  an envelope around a MessagePack array: ``Snapshot``

Bytes in, values out; no state.
"""

from __future__ import annotations

import re
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tidelog.core.raft.entries import Entry, HardState, Snapshot, SnapshotHead
from tidelog.core.replica.commit_context import Natural
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.envelope import HEADER_BYTES, seal, unseal
from tidelog.invariants import check
from tidelog.limits import KIB, RAFT_SNAPSHOT_BYTES_MAX
from tidelog.types import NodeId

FILE_MAGIC: Final = b"TLR\x01"
FRAME_MAGIC: Final = b"TLE\x01"
FILE_HEADER_BYTES: Final = 64
FRAME_HEADER_BYTES: Final = 40
GROUP_BYTES: Final = 16

_FILE: Final = Struct("<4sIQQ16sQQQ")
_FRAME: Final = Struct("<4sIIIQQQ")
_FRAME_TAIL: Final = Struct("<IIQQQ")
_START: Final = Struct("<4sI")
_PADDING: Final = tuple(bytes(n) for n in range(8))
_U32_END: Final = 1 << 32
_SNAPSHOT_MAGIC: Final = b"TLRS"
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_BODY_BYTES_MAX: Final = RAFT_SNAPSHOT_BYTES_MAX + 4 * KIB
"""The state, and where it stands in the log: a term, an index and the members of the group."""
SNAPSHOT_FILE_BYTES_MAX: Final = HEADER_BYTES + _SNAPSHOT_BODY_BYTES_MAX


class FileHeader(msgspec.Struct, frozen=True):
    """Whose file it is; ``salt`` is a random number that no other file has."""

    number: int
    salt: int
    group: bytes
    node: NodeId
    length: int


class SnapshotReference(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The snapshot under a log; ``crc`` is that of its whole file, so no other can stand in."""

    head: SnapshotHead
    crc: Natural


class Base(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that a node has stored; the entries continue the snapshot without gap."""

    hard_state: HardState
    snapshot: SnapshotReference
    entries: tuple[Entry, ...]


class Change(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A ``Write`` without a snapshot: entries cut off whatever was at their indexes or above."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]


class Closed(msgspec.Struct, frozen=True):
    """The node stopped in good order: all frames before this one are durable."""


Body: TypeAlias = Base | Change | Closed


class _Kind(IntEnum):
    BASE = 1
    CHANGE = 2
    CLOSED = 3


class Frame(NamedTuple):
    body: Body
    sequence: int
    durable_end: int
    """Frames below were durable when this one was written."""
    end_offset: int


class NoFrame(NamedTuple):
    """No whole frame of this file is here."""

    reason: str


class LogContent(NamedTuple):
    """What a file holds."""

    base: Base
    changes: list[Change]
    end_offset: int
    """Where the frames end."""
    torn: bool
    """Whether something follows that is no frame: a write was under way."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_BASE_DECODER: Final = msgspec.msgpack.Decoder(Base)
_CHANGE_DECODER: Final = msgspec.msgpack.Decoder(Change)
_SNAPSHOT_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


# -- file header -------------------------------------------------------------------------------


def encode_file_header(header: FileHeader) -> bytes:
    check(len(header.group) == GROUP_BYTES, "the id of a group has 16 bytes")
    fields = (header.number, header.salt, header.group, header.node, header.length, 0)
    tail = _FILE.pack(FILE_MAGIC, 0, *fields)[_START.size :]
    return _START.pack(FILE_MAGIC, crc32c(tail, crc32c(FILE_MAGIC))) + tail


def decode_file_header(data: Buffer) -> FileHeader:
    """The header at the start of ``data``, which may be longer."""
    what = "Raft log file header"
    if len(data) < FILE_HEADER_BYTES:
        raise CorruptData(f"{what}: {len(data)} bytes where {FILE_HEADER_BYTES} are needed")
    magic, crc, number, salt, group, node, length, zero = _FILE.unpack_from(data)
    if magic[:3] != FILE_MAGIC[:3]:
        raise CorruptData(f"{what}: magic {magic!r}")
    if crc != crc32c(memoryview(data)[_START.size : FILE_HEADER_BYTES], crc32c(magic)):
        raise CorruptData(f"{what}: checksum does not match")
    if magic != FILE_MAGIC or zero:
        raise UnsupportedVersion(f"{what}: unknown version {magic[3]}")
    return FileHeader(number, salt, group, NodeId(node), length)


# -- frames ------------------------------------------------------------------------------------


def encode_frame(body: Body, *, sequence: int, durable_end: int, salt: int) -> bytes:
    """One frame; there is no bound on the size of its body but that of a file."""
    check(0 <= durable_end <= sequence, "L2: only frames that were written before are durable")
    kind, payload = _encode_body(body)
    length = len(payload)
    check(length < _U32_END, "the length of a frame fits into 32 bits")
    tail = _FRAME_TAIL.pack(length, kind, sequence, durable_end, salt)
    rest = b"".join((tail, payload, _PADDING[-length & 7]))
    return _START.pack(FRAME_MAGIC, crc32c(rest)) + rest


def _encode_body(body: Body) -> tuple[_Kind, bytes]:
    match body:
        case Base():
            return _Kind.BASE, _ENCODER.encode(body)
        case Change():
            return _Kind.CHANGE, _ENCODER.encode(body)
        case Closed():
            return _Kind.CLOSED, b""


def _decode_body(kind: int, payload: memoryview) -> Body | None:
    """None when it makes no sense (L5)."""
    try:
        match kind:
            case _Kind.BASE:
                return _BASE_DECODER.decode(payload)
            case _Kind.CHANGE:
                return _CHANGE_DECODER.decode(payload)
            case _Kind.CLOSED if not payload:
                return Closed()
    except ValueError:
        return None
    return None


def decode_frame(data: Buffer, offset: int, salt: int) -> Frame | NoFrame:
    """The frame at ``offset``; CorruptData when it is whole and makes no sense (L5)."""
    begin = offset + FRAME_HEADER_BYTES
    if begin > len(data):
        return NoFrame("end of the file")
    magic, crc, length, kind, sequence, durable_end, found_salt = _FRAME.unpack_from(data, offset)
    if magic != FRAME_MAGIC or found_salt != salt:
        return NoFrame("no frame header")
    end = begin + length + (-length & 7)
    if end > len(data):
        return NoFrame("frame reaches past the end of the file")
    view = memoryview(data)
    if not _checksum_holds(crc, view[offset + _START.size : end]):
        return NoFrame("checksum does not match")
    body = _decode_body(kind, view[begin : begin + length])
    if body is None or durable_end > sequence or isinstance(body, Base) != (sequence == 0):
        raise CorruptData(f"offset {offset}: a valid checksum around unknown content")
    return Frame(body, sequence, durable_end, end)


def _checksum_holds(crc: int, covered: memoryview) -> bool:
    return crc32c(covered) == crc


# -- whole files -------------------------------------------------------------------------------


def decode_file(data: Buffer, header: FileHeader) -> LogContent:
    """All of a file that begins with ``header``, up to a torn tail; else CorruptData."""
    check_length(data, header)
    base: Base | None = None
    changes: list[Change] = []
    offset, sequence = FILE_HEADER_BYTES, 0
    while isinstance(found := decode_frame(data, offset, header.salt), Frame):
        if found.sequence != sequence:
            raise CorruptData(f"offset {offset}: frame {found.sequence} where {sequence} was due")
        match found.body:
            case Base():
                base = found.body
            case Change():
                changes.append(found.body)
        offset, sequence = found.end_offset, sequence + 1
    if base is None:
        raise CorruptData(f"offset {offset}: L3: {found.reason}")
    check_tail(data, header.salt, offset, sequence, found.reason)
    torn = bytes(memoryview(data)[offset:]).count(0) != len(data) - offset
    return LogContent(base, changes, offset, torn)


def check_length(data: Buffer, header: FileHeader) -> None:
    """Raise if the file was cut, or grew (L4)."""
    if len(data) != header.length:
        raise CorruptData(f"L4: {len(data)} bytes of a file of {header.length}")


def check_tail(data: Buffer, salt: int, offset: int, sequence: int, reason: str) -> None:
    """Raise if frame ``sequence``, which is not to be had at ``offset``, had been durable (L2)."""
    # One pattern of magic and salt lets the search run at C speed, whatever the entries hold.
    header = re.compile(
        re.escape(FRAME_MAGIC) + b".{28}" + re.escape(salt.to_bytes(8, "little")), re.DOTALL
    )
    for match in header.finditer(data, offset):
        later = decode_frame(data, match.start(), salt)
        if isinstance(later, Frame) and later.durable_end > sequence:
            raise CorruptData(
                f"offset {offset}: {reason}, but frame {later.sequence} at offset "
                f"{match.start()} says that this one, {sequence}, was durable"
            )


# -- snapshots ---------------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The whole file of a snapshot."""
    body = _ENCODER.encode(snapshot)
    check(len(body) <= _SNAPSHOT_BODY_BYTES_MAX, "a snapshot is small enough to be read back")
    return seal(_SNAPSHOT_MAGIC, _SNAPSHOT_VERSION, body)


def refer_to(head: SnapshotHead, file: bytes) -> SnapshotReference:
    """How a base names the snapshot in ``file``."""
    return SnapshotReference(head, crc32c(file))


def decode_snapshot(file: bytes, reference: SnapshotReference) -> Snapshot:
    """The snapshot in exactly these bytes, if it is the one that is meant."""
    what = f"Raft snapshot {reference.head.index}"
    body = unseal(
        _SNAPSHOT_MAGIC, _SNAPSHOT_VERSION, file, what=what, max_length=_SNAPSHOT_BODY_BYTES_MAX
    )
    try:
        snapshot = _SNAPSHOT_DECODER.decode(body)
    except ValueError as error:
        raise CorruptData(f"{what}: {error}") from error
    check_meant(refer_to(snapshot.head, file), reference)
    return snapshot


def check_meant(found: SnapshotReference, meant: SnapshotReference) -> None:
    """Raise if a snapshot, however sound, is not the one that the log builds on."""
    if found != meant:
        raise CorruptData(f"a snapshot at {found.head.index} that the log does not build on")
