"""Damage every bit of an encoded value: the decoder notices, or gives the value all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog.errors import CorruptData
from tidelog.formats.batch import HEADER_BYTES, BatchBody, seal_batch

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> bytes:
    """A file that some version of the format wrote; these are kept for ever."""
    return (GOLDEN / name).read_bytes()


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every single-bit flip, every truncation and some extensions, each with its name."""
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        yield f"bit {bit} flipped", bytes(flipped)
    for length in range(len(data)):
        yield f"cut to {length} bytes", data[:length]
    for tail in (b"\0", b"\xff", bytes(8), data[:8], data):
        yield f"{len(tail)} bytes more", data + tail


def check_damage(data: bytes, decode: Callable[[bytes], object]) -> int:
    """Decode all damaged forms of ``data``; how many of them were noticed."""
    value = decode(data)
    noticed = 0
    for name, bad in damaged(data):
        try:
            found = decode(bad)
        except CorruptData:
            noticed += 1
            continue
        assert found == value, f"{name}: the damage changed the value unnoticed"
    return noticed


def whole(body: BatchBody, first_llsn: int = 7, producer: int = 0, sequence: int = 0) -> bytes:
    """The bytes of a batch of stream 3 and term 2."""
    header = seal_batch(
        body, stream=3, term=2, first_llsn=first_llsn, producer=producer, sequence=sequence
    )
    assert len(header) == HEADER_BYTES
    return header + body.data
