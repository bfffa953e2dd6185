"""The live indexes of a snapshot: which LLSNs up to its index still count.  No state.

I1  every live LLSN is at least 1 and at most the snapshot's index
I2  the file ends where its bitmap ends
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.invariants import check
from tidelog.limits import LIVE_INDEX_BYTES_MAX

_MAGIC: Final = b"TLLI"
_VERSION: Final = 1
_NUMBERS: Final = Struct("<QQQ")


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


def _fault(live_index: LiveIndex) -> str | None:
    live = live_index.live
    if live and (live.min() < 1 or live.max() > live_index.index):
        return f"I1: live from {live.min()} to {live.max()} with index {live_index.index}"
    return None
