"""The 48 bytes of a commit context; what must hold for it is in ``core``.  No state."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.core.replica.commit_context import NONE, CommitContext, flaw_in_context
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import crc32c
from tidelog.invariants import check

__all__ = [
    "COMMIT_CONTEXT_BYTES",
    "NONE",
    "CommitContext",
    "context_fault",
    "decode_commit_context",
    "encode_commit_context",
]

COMMIT_CONTEXT_BYTES: Final = 48

_MAGIC: Final = b"TLC\x01"
_START: Final = Struct("<4sI")
_NUMBERS: Final = Struct("<5Q")
_U64_END: Final = 1 << 64

check(_START.size + _NUMBERS.size == COMMIT_CONTEXT_BYTES, "a commit context has 48 bytes")


def context_fault(context: CommitContext) -> str | None:
    """What is wrong with a commit context; None when it can be stored."""
    if max(context.version, context.high_watermark, context.llsn_end) >= _U64_END:
        return "a number has more than 64 bits"
    return flaw_in_context(context)


def encode_commit_context(context: CommitContext) -> bytes:
    """The 48 bytes of a commit context."""
    fault = context_fault(context)
    check(fault is None, fault or "")
    numbers = _NUMBERS.pack(
        context.version,
        context.high_watermark,
        context.glsn_begin,
        context.llsn_begin,
        context.length,
    )
    return _START.pack(_MAGIC, crc32c(numbers)) + numbers


def decode_commit_context(data: bytes | memoryview) -> CommitContext:
    """The commit context in exactly these bytes."""
    if len(data) != COMMIT_CONTEXT_BYTES:
        raise CorruptData(f"commit context: {len(data)} bytes instead of {COMMIT_CONTEXT_BYTES}")
    magic, crc = _START.unpack_from(data)
    if magic != _MAGIC:
        if magic[:3] == _MAGIC[:3]:
            raise UnsupportedVersion(f"commit context: format version {magic[3]}")
        raise CorruptData(f"commit context: it begins with {magic!r} instead of {_MAGIC!r}")
    if crc32c(data[_START.size :]) != crc:
        raise CorruptData("commit context: it does not match its checksum")
    context = CommitContext(*_NUMBERS.unpack_from(data, _START.size))
    if fault := context_fault(context):
        raise CorruptData(f"commit context: {fault}")
    return context
