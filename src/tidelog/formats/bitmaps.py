"""Sets of LLSNs from arrays of them.  No state.

pyroaring takes numbers one by one, and no other thread runs meanwhile.  Where they lie close
together numpy makes the bytes of the bitmap instead, in a fifth of the time, and pyroaring reads
those: the format that all implementations of Roaring share (RoaringFormatSpec, 64 bits).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

_SCATTER_SPAN: Final = 16
"""LLSNs are sorted by their places if these are not so many times as many as there are."""
_CONTAINER: Final = 1 << 16
"""The numbers of a container have all but their last 16 bits in common."""
_SINGLES_MAX: Final = 4096
"""Up to so many numbers are in a container one by one, more as a bit each."""
_NO_RUNS: Final = 12346
"""How a bitmap of 32 bits begins that has neither kind of container for runs."""
_GROUPS = Struct("<Q")
_HEAD = Struct("<III")
_CONTAINER_HEAD = Struct("<HH")


class _Container(NamedTuple):
    number: int
    length: int
    content: bytes


def bitmap_of(llsns: npt.NDArray[np.uint64]) -> BitMap64:
    """A bitmap of an array, in which the LLSNs may lie in any order."""
    if not len(llsns):
        return BitMap64()
    first, last = int(llsns.min()), int(llsns.max())
    if last - first >= _SCATTER_SPAN * len(llsns):
        column = array("Q")
        column.frombytes(np.sort(llsns).tobytes())
        return BitMap64(column)
    # They lie close together: marking their places costs less than comparing them.
    first_container, end_container = first // _CONTAINER, last // _CONTAINER + 1
    marked = np.zeros((end_container - first_container, _CONTAINER), dtype=np.bool_)
    marked.reshape(-1)[llsns - np.uint64(first_container * _CONTAINER)] = True
    return BitMap64.deserialize(_serialized(_containers(marked, first_container)))


def _containers(marked: npt.NDArray[np.bool_], first: int) -> list[_Container]:
    bits = np.packbits(marked, axis=1, bitorder="little")
    counts: list[int] = np.count_nonzero(marked, axis=1).tolist()
    return [
        _Container(
            first + place,
            count,
            bits[place].tobytes()
            if count > _SINGLES_MAX
            else np.flatnonzero(marked[place]).astype("<u2").tobytes(),
        )
        for place, count in enumerate(counts)
        if count
    ]


def _serialized(containers: Sequence[_Container]) -> bytes:
    """Bitmaps of 32 bits, one for each value that the upper halves have."""
    groups: dict[int, list[_Container]] = {}
    for one in containers:
        groups.setdefault(one.number >> 16, []).append(one)
    parts = [_GROUPS.pack(len(groups))]
    for upper, group in groups.items():
        parts.append(_HEAD.pack(upper, _NO_RUNS, len(group)))
        parts += [_CONTAINER_HEAD.pack(one.number & 0xFFFF, one.length - 1) for one in group]
        # Counted from the bitmap's own beginning, which is behind the upper half.
        sizes = np.array([8 * len(group) + 8, *(len(one.content) for one in group)])
        parts.append((np.cumsum(sizes[:-1])).astype("<u4").tobytes())
        parts += [one.content for one in group]
    return b"".join(parts)
