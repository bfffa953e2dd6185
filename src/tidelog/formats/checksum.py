"""The one checksum of all formats: CRC-32C.  Every single-bit flip changes it.  No state."""

from __future__ import annotations

from typing import TypeAlias

from fastcrc.crc32 import iscsi

Buffer: TypeAlias = bytes | bytearray | memoryview


def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC-32C of ``data``; ``seed`` is the CRC of the bytes before it."""
    return iscsi(data, seed)
