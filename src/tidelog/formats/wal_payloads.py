"""What the records of the WAL say, apart from batches.  No state.

CUT       version u64, count u32, zero u32; for each stream six u64: stream, high watermark,
          GLSN begin, LLSN begin, length, topic
TRIM      topic, GLSN end, LLSN end (u64)
TRUNCATE  LLSN end, term (u64)
BOUNDARY  the low and the high half of a write version (u64)
STAGED    the number of a stage file, the offset of a batch's body in it (u64), the batch's header
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.errors import CorruptData
from tidelog.formats.batch_layout import HEADER, HEADER_BYTES, check_header, check_magic
from tidelog.formats.checksum import Buffer

_CUT = Struct("<QII")
_COMMIT = Struct("<6Q")
_TRIM = Struct("<3Q")
_PAIR = Struct("<2Q")
_LOW_64: Final = (1 << 64) - 1


class Trim(msgspec.Struct, frozen=True, gc=False):
    """Entries of the record's stream below these positions are gone."""

    topic: int
    glsn_end: int
    llsn_end: int


class Truncate(msgspec.Struct, frozen=True, gc=False):
    """Entries of the record's stream at or above ``llsn_end`` are gone; ``term`` began then."""

    llsn_end: int
    term: int


class BodyPlace(msgspec.Struct, frozen=True, gc=False):
    """Where the body of a batch lies: a stage file, and the offset in it."""

    file: int
    offset: int


class StagedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch at its place in the log, without its body, which lies elsewhere."""

    place: BodyPlace
    header: bytes
    body_bytes: int
    count: int


def encode_cut(cut: CutDecided) -> bytes:
    parts = [_CUT.pack(cut.version, len(cut.commits), 0)]
    for c in cut.commits:
        place = (c.stream, c.high_watermark, c.glsn_begin, c.llsn_begin, c.length, c.topic)
        parts.append(_COMMIT.pack(*place))
    return b"".join(parts)


def decode_cut(payload: Buffer) -> CutDecided:
    if len(payload) < _CUT.size:
        raise CorruptData(f"CUT record of {len(payload)} bytes")
    version, count, zero = _CUT.unpack_from(payload)
    if zero or len(payload) != _CUT.size + count * _COMMIT.size:
        raise CorruptData(f"CUT record of {len(payload)} bytes for {count} streams")
    rows = _COMMIT.iter_unpack(memoryview(payload)[_CUT.size :])
    commits = (StreamCommit(topic, *others) for *others, topic in rows)
    return CutDecided(version, tuple(commits))


def encode_trim(trim: Trim) -> bytes:
    return _TRIM.pack(trim.topic, trim.glsn_end, trim.llsn_end)


def decode_trim(payload: Buffer) -> Trim:
    if len(payload) != _TRIM.size:
        raise CorruptData(f"TRIM record of {len(payload)} bytes")
    return Trim(*_TRIM.unpack(payload))


def encode_truncate(truncate: Truncate) -> bytes:
    return _PAIR.pack(truncate.llsn_end, truncate.term)


def decode_truncate(payload: Buffer) -> Truncate:
    if len(payload) != _PAIR.size:
        raise CorruptData(f"TRUNCATE record of {len(payload)} bytes")
    return Truncate(*_PAIR.unpack(payload))


def encode_boundary(version: int) -> bytes:
    """A GC boundary: a write version of 128 bits."""
    return _PAIR.pack(version & _LOW_64, version >> 64)


def decode_boundary(payload: Buffer) -> int:
    if len(payload) != _PAIR.size:
        raise CorruptData(f"BOUNDARY record of {len(payload)} bytes")
    low, high = _PAIR.unpack(payload)
    return int(low) | int(high) << 64


def encode_staged_batch(place: BodyPlace, header: bytes) -> bytes:
    return _PAIR.pack(place.file, place.offset) + header


def decode_staged_batch(payload: Buffer) -> StagedBatch:
    """The header's own checksum is checked; that of the body has to be by who reads it."""
    if len(payload) != _PAIR.size + HEADER_BYTES:
        raise CorruptData(f"STAGED record of {len(payload)} bytes")
    view = memoryview(payload)
    header = HEADER.unpack_from(view, _PAIR.size)
    check_magic(header, view, _PAIR.size)
    check_header(header, _PAIR.size)
    place = BodyPlace(*_PAIR.unpack_from(view))
    return StagedBatch(place, bytes(view[_PAIR.size :]), header[3], header[4])
