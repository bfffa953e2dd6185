"""The live indexes of a snapshot: which LLSNs up to its index still count.  No state.

I1  every live LLSN is at least 1 and at most the snapshot's index
I2  the file ends where its bitmap ends
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.invariants import check
from tidelog.limits import LIVE_INDEX_BYTES_MAX

_MAGIC: Final = b"TLLI"
_VERSION: Final = 1
_NUMBERS: Final = Struct("<QQQ")
_SCATTER_SPAN: Final = 16
"""LLSNs are sorted by their places if these are not so many times as many as there are."""
_BLOCK: Final = 1024
"""So many neighbours that are all there are worth being told as a range."""


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """The LLSNs that are live at snapshot ``index`` of ``term``."""

    term: int
    index: int
    live: BitMap64


def encode_live_index(live_index: LiveIndex) -> bytes:
    """The whole file."""
    fault = _fault(live_index)
    check(fault is None, fault or "")
    # Runs save space; the copy keeps the caller's bitmap as it is.
    live = live_index.live.copy()
    live.run_optimize()
    bitmap = live.serialize()
    numbers = _NUMBERS.pack(live_index.term, live_index.index, len(live))
    check(
        _NUMBERS.size + len(bitmap) <= LIVE_INDEX_BYTES_MAX,
        "live indexes are small enough to be read back",
    )
    return seal(_MAGIC, _VERSION, numbers + bitmap)


def decode_live_index(data: bytes | memoryview) -> LiveIndex:
    """The live indexes in exactly these bytes."""
    what = "live indexes"
    body = unseal(_MAGIC, _VERSION, data, what=what, max_length=LIVE_INDEX_BYTES_MAX)
    if len(body) < _NUMBERS.size:
        raise CorruptData(f"{what}: {len(body)} bytes are too few")
    term, index, count = _NUMBERS.unpack_from(body)
    bitmap = body[_NUMBERS.size :]
    try:
        live = BitMap64.deserialize(bitmap)
    except (ValueError, IndexError) as error:  # Bad structure; IndexError stands for no bytes.
        raise CorruptData(f"{what}: {error}") from error
    # The bitmap's reader passes over bytes behind its end.
    if live.serialize() != bitmap:
        raise CorruptData(f"{what}: I2: the bitmap is not what it would be written as")
    if len(live) != count:
        raise CorruptData(f"{what}: {len(live)} live entries instead of {count}")
    live_index = LiveIndex(term, index, live)
    if fault := _fault(live_index):
        raise CorruptData(f"{what}: {fault}")
    return live_index


def bitmap_of(llsns: npt.NDArray[np.uint64]) -> BitMap64:
    """A bitmap of an array."""
    if not len(llsns):
        return BitMap64()
    first, span = int(llsns.min()), int(np.ptp(llsns)) + 1
    if span > _SCATTER_SPAN * len(llsns):
        return _bitmap_of_sorted(np.sort(llsns))
    # They lie close together: marking their places costs less than comparing them.
    marked = np.zeros(-(-span // _BLOCK) * _BLOCK, dtype=np.bool_)
    marked[llsns - np.uint64(first)] = True
    blocks = marked.reshape(-1, _BLOCK)
    full = blocks.all(axis=1)
    bitmap = BitMap64()
    # Single ones take pyroaring long, and no other thread runs meanwhile; ranges take nothing.
    borders = np.flatnonzero(np.diff(full, prepend=False, append=False))
    for begin, end in borders.reshape(-1, 2).tolist():
        bitmap.add_range(first + begin * _BLOCK, first + end * _BLOCK)
    blocks[full] = False
    bitmap |= _bitmap_of_sorted(np.flatnonzero(marked).astype(np.uint64) + np.uint64(first))
    return bitmap


def _bitmap_of_sorted(llsns: npt.NDArray[np.uint64]) -> BitMap64:
    column = array("Q")
    column.frombytes(llsns.tobytes())
    return BitMap64(column)


def _fault(live_index: LiveIndex) -> str | None:
    live = live_index.live
    if live and (live.min() < 1 or live.max() > live_index.index):
        return f"I1: live from {live.min()} to {live.max()} with index {live_index.index}"
    return None
