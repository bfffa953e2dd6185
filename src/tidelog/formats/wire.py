"""Frames: how messages travel between a client and a node.  No state but the decoder's.

A frame is a header of 32 bytes, a message in MessagePack, and an attachment: batches as they lie
on disk, so that nothing on their way has to look at single entries.

  W1  the CRC covers all of the header behind it and the message; an attachment is made of batches,
      which bring their own, and whoever takes one in decodes it
  W2  lengths are bounded before anything is allocated: by a small limit until both sides have
      said hello, by the real ones after that
  W3  bytes that are not a frame end the connection: there is no way to find the next one
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from tidelog.errors import BadFrame, UnsupportedVersion
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.invariants import check

PROTOCOL_VERSION: Final = 1

_HEADER: Final = Struct("<4sIIIQIHH")
_START: Final = 8
HEADER_BYTES: Final = _HEADER.size
_MAGIC: Final = b"TLWF"

check(HEADER_BYTES == 32, "a frame's header has 32 bytes")


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """What stands before every message."""

    crc: int
    message_bytes: int
    attachment_bytes: int
    request: int
    """Number that the client gave to its request; the answer bears the same."""
    timeout_ms: int
    """How long the client waits; 0 in answers."""

    @property
    def body_bytes(self) -> int:
        return self.message_bytes + self.attachment_bytes


def encode_frame(
    message: bytes, *, request: int, timeout_ms: int = 0, attachment_bytes: int = 0
) -> bytes:
    """Header and message; an attachment of this many bytes must be sent right behind them."""
    rest = _HEADER.pack(
        _MAGIC, 0, len(message), attachment_bytes, request, timeout_ms, PROTOCOL_VERSION, 0
    )[_START:]
    crc = crc32c(message, crc32c(rest))
    return b"".join((_MAGIC, crc.to_bytes(4, "little"), rest, message))


def check_start(data: Buffer) -> None:
    """Raise unless a frame may begin with these bytes, which are too few for a header."""
    start = bytes(data[: len(_MAGIC)])
    if not _MAGIC.startswith(start):
        raise BadFrame(f"a frame begins with {start!r} instead of {_MAGIC!r}")


def decode_header(data: Buffer, *, message_max: int, attachment_max: int) -> FrameHeader:
    """The header at the start of ``data``, with W2 checked; its CRC needs the message."""
    magic, crc, message_bytes, attachment_bytes, request, timeout_ms, version, reserved = (
        _HEADER.unpack_from(data)
    )
    if magic != _MAGIC:
        raise BadFrame(f"a frame begins with {magic!r} instead of {_MAGIC!r}")
    if version != PROTOCOL_VERSION or reserved:
        raise UnsupportedVersion(
            f"the peer speaks version {version} of the protocol, this program {PROTOCOL_VERSION}: "
            "use the same release on both sides"
        )
    if message_bytes > message_max or attachment_bytes > attachment_max:
        raise BadFrame(
            f"a frame with {message_bytes} + {attachment_bytes} bytes, the limits are "
            f"{message_max} + {attachment_max}"
        )
    return FrameHeader(crc, message_bytes, attachment_bytes, request, timeout_ms)


def check_message(header: FrameHeader, header_bytes: Buffer, message: Buffer) -> None:
    """Raise unless header and message are what was sent."""
    if crc32c(message, crc32c(memoryview(header_bytes)[_START:HEADER_BYTES])) != header.crc:
        raise BadFrame("a frame does not match its checksum")
