"""The sealed envelope around files that are read as a whole: magic, version, length, CRC.

No state.

  V1  the CRC covers the header before it and the body; the rest of the header is zero
  V2  the envelope is as long as its header says, so a cut or grown file is noticed
  V3  the version is believed only after the CRC, so a flipped bit is not taken for a new format
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import crc32c
from tidelog.invariants import check

_START: Final = Struct("<4sHHQ")
_END: Final = Struct("<II")
HEADER_BYTES: Final = _START.size + _END.size

check(HEADER_BYTES == 24, "V1: the header has 24 bytes")


def seal(magic: bytes, version: int, body: bytes) -> bytes:
    """The envelope of ``body``."""
    check(len(magic) == 4, "V1: a magic has 4 bytes")
    start = _START.pack(magic, version, 0, len(body))
    return b"".join((start, _END.pack(crc32c(body, crc32c(start)), 0), body))


def unseal(
    magic: bytes, version: int, data: bytes | memoryview, *, what: str, max_length: int
) -> bytes:
    """The body that was sealed; ``what`` names it in errors, ``max_length`` bounds it."""
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise CorruptData(f"{what}: {len(view)} bytes are too few for a header")
    found, found_version, reserved, length = _START.unpack_from(view)
    crc, reserved_end = _END.unpack_from(view, _START.size)
    if found != magic:
        raise CorruptData(f"{what}: it begins with {found!r} instead of {magic!r}")
    if length > max_length:
        raise CorruptData(f"{what}: a body of {length} bytes, the limit is {max_length}")
    if length != len(view) - HEADER_BYTES:
        raise CorruptData(f"{what}: {len(view) - HEADER_BYTES} bytes of a body of {length}")
    body = view[HEADER_BYTES:]
    if crc32c(body, crc32c(view[: _START.size])) != crc:
        raise CorruptData(f"{what}: it does not match its checksum")
    if found_version != version or reserved or reserved_end:
        raise UnsupportedVersion(
            f"{what}: format version {found_version}, this program reads version {version}"
        )
    return body.tobytes()
