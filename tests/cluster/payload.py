"""Payloads that tell whose they are and whether they are whole.  No state.

An *ident* is a number that names one record of the load: writer (16 bits), number of the append
(32 bits), place in its batch (16 bits).  It is the begin of the payload; a checksum is its end.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

IDENT_BYTES: Final = 8
CHECKSUM_BYTES: Final = 4
WRITERS_END: Final = 1 << 16
NUMBERS_END: Final = 1 << 32
PLACES_END: Final = 1 << 16
_FILLERS: Final = tuple(bytes(range(length)) for length in (4, 20, 52, 88, 128, 4))


def ident_of(writer: int, number: int, place: int = 0) -> int:
    """The name of a record."""
    assert 0 <= writer < WRITERS_END
    assert 0 <= number < NUMBERS_END
    assert 0 <= place < PLACES_END
    return writer << 48 | number << 16 | place


def parts_of(ident: int) -> tuple[int, int, int]:
    """Writer, number and place of an ident."""
    return ident >> 48, ident >> 16 & 0xFFFFFFFF, ident & 0xFFFF


def payload_of(ident: int) -> bytes:
    """What is appended; its length depends on the ident alone."""
    body = ident.to_bytes(IDENT_BYTES, "big") + _FILLERS[ident % len(_FILLERS)]
    return body + crc32(body).to_bytes(CHECKSUM_BYTES, "big")


def read_payload(value: bytes) -> int:
    """The ident of a payload; fails if it is not what was appended under this name."""
    ident = int.from_bytes(value[:IDENT_BYTES], "big")
    assert value == payload_of(ident), f"a payload is not what was appended: {value!r}"
    return ident
