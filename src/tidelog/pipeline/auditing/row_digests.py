"""A digest of each entry, whatever batch it lies in.  No state.

Segments and batches may be cut differently on each node; what counts are the entries.  Where an
entry lies (LLSN, GLSN, term) is not part of its digest, so that it can be told what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from tidelog.formats.batch import Column
from tidelog.formats.batch_layout import HAS_VERSIONS
from tidelog.interface.arrow_columns import JoinedSlices, StreamSlice

_BLOB_BYTES: Final = 8
_FIXED: Final = np.dtype(
    [
        ("kind", "u1"),
        ("rewritten", "u1"),
        ("has_version", "u1"),
        ("storage_id", "<i8"),
        ("timestamp", "<i8"),
        ("version_high", "<u8"),
        ("version_low", "<u8"),
        ("key_bytes", "<u4"),
        ("value_bytes", "<u4"),
        ("blobs", "<u4"),
    ]
)
"""What each entry has, before its key, its value and its BLOBs."""


def row_digests(slices: Sequence[StreamSlice]) -> NDArray[np.int64]:
    """Two numbers for each entry of the slices, in their order."""
    joined = JoinedSlices(slices)
    columns = [
        _items(joined, column, size)
        for column, size in (
            (Column.KEY_OFFSETS, 1),
            (Column.VALUE_OFFSETS, 1),
            (Column.BLOB_OFFSETS, _BLOB_BYTES),
        )
    ]
    fixed = _fixed(joined, slices, columns).tobytes()
    width = _FIXED.itemsize
    heads = [fixed[i : i + width] for i in range(0, len(fixed), width)]
    parts = [[data[begin:end] for begin, end in pairwise(places)] for places, data in columns]
    digests = [
        xxh3_128_digest(head + key + value + blobs)
        for head, key, value, blobs in zip(heads, *parts, strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.int64).reshape(-1, 2)


def _items(joined: JoinedSlices, column: Column, size: int) -> tuple[list[int], bytes]:
    """Where the bytes of each row begin, with the end of the last one, and all bytes."""
    offsets, data = joined.variable(column)
    places: list[int] = (offsets.astype(np.int64) * size).tolist()
    return places, bytes(data)


def _fixed(
    joined: JoinedSlices, slices: Sequence[StreamSlice], columns: Sequence[tuple[list[int], bytes]]
) -> NDArray[Any]:
    keys, values, blobs = [np.diff(np.array(places)) for places, _ in columns]
    counts = [piece.end - piece.begin for _, piece in slices]
    flags = [bool(piece.batch.flags & HAS_VERSIONS) for _, piece in slices]
    versioned = np.repeat(flags, counts)
    versions = joined.versions()
    fixed = np.zeros(joined.rows, _FIXED)
    fixed["kind"] = joined.kinds
    fixed["rewritten"] = joined.rewritten()
    fixed["has_version"] = versioned
    fixed["storage_id"] = joined.storage_ids()
    fixed["timestamp"] = joined.timestamps()
    # Of other entries the version is the GLSN, which is not part of the digest.
    fixed["version_high"] = np.where(versioned, versions[:, 0], 0)
    fixed["version_low"] = np.where(versioned, versions[:, 1], 0)
    fixed["key_bytes"] = keys
    fixed["value_bytes"] = values
    fixed["blobs"] = blobs // _BLOB_BYTES
    return fixed
