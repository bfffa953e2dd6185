"""What stands behind the bytes of a BLOB in its file.  No state.

TRAILER  magic 4 bytes, CRC-32C of the BLOB and its size (u32), size (u64)

G1  a file that was cut, or to which something was added, does not end in its own trailer
G2  every single-bit flip of the BLOB, or of its trailer, shows when all of it is read
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.errors import CorruptData
from tidelog.formats.checksum import Buffer, crc32c

_TRAILER: Final = Struct("<4sIQ")
_SIZE: Final = Struct("<Q")
_MAGIC: Final = b"TLBB"
TRAILER_BYTES: Final = _TRAILER.size


def encode_trailer(size: int, crc: int) -> bytes:
    """For a BLOB of ``size`` bytes with this CRC."""
    return _TRAILER.pack(_MAGIC, crc32c(_SIZE.pack(size), crc), size)


def decode_trailer(data: Buffer, file_bytes: int) -> tuple[int, int]:
    """The size of a BLOB and the CRC that its trailer holds; CorruptData unless they fit (G1)."""
    if len(data) != TRAILER_BYTES:
        raise CorruptData(f"a file of {file_bytes} bytes is too short for a BLOB")
    magic, crc, size = _TRAILER.unpack(data)
    if magic != _MAGIC or size != file_bytes - TRAILER_BYTES:
        raise CorruptData(f"a file of {file_bytes} bytes does not end like a BLOB of {size}")
    return size, crc


def check_blob(size: int, crc: int, known: int) -> None:
    """CorruptData unless bytes with this CRC are those that a trailer is ``known`` for (G2)."""
    if crc32c(_SIZE.pack(size), crc) != known:
        raise CorruptData(f"the {size} bytes of a BLOB do not match their checksum")
