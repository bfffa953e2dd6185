"""The tables that pass between the steps of an audit.  No state.

``ENTRIES``: one row for each entry of each replica.  They are compared a bucket at a time, and the
first one of a bucket is in the bucket before it as well, so that nothing is hidden by the edge.
``RUNS``: one row for each run of entries of a log stream in which LLSNs and GLSNs count up
together.  In both, rows with ``told`` are no entries: they carry a finding or a tally to whoever
puts the summary together.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.pipeline.auditing.findings import Cell, Finding

ENTRIES: Final = pa.schema(
    [
        ("stream", pa.int64()),
        ("bucket", pa.int64()),
        ("node", pa.int64()),
        ("llsn", pa.int64()),
        ("glsn", pa.int64()),
        ("term", pa.int64()),
        ("digest_high", pa.int64()),
        ("digest_low", pa.int64()),
        ("told", pa.binary()),
    ]
)
ENTRIES_DDL: Final = (
    "stream BIGINT, bucket BIGINT, node BIGINT, llsn BIGINT, glsn BIGINT, term BIGINT, "
    "digest_high BIGINT, digest_low BIGINT, told BINARY"
)
RUNS: Final = pa.schema(
    [
        ("stream", pa.int64()),
        ("llsn", pa.int64()),
        ("glsn", pa.int64()),
        ("length", pa.int64()),
        ("told", pa.binary()),
    ]
)
RUNS_DDL: Final = "stream BIGINT, llsn BIGINT, glsn BIGINT, length BIGINT, told BINARY"
TOLD: Final = pa.schema([("told", pa.binary())])
TOLD_DDL: Final = "told BINARY"
BUCKET_BITS: Final = 15
"""Entries whose LLSNs differ only in the lowest bits are compared together: bounds the memory."""
GLSN_BUCKET_BITS: Final = 20
"""The same for the total order, where runs are compared."""


class Tally(msgspec.Struct, frozen=True, tag="tally"):
    """What a task has read of one replica."""

    stream: int
    node: int
    entries: int = 0
    bytes: int = 0
    files: int = 0


class Found(msgspec.Struct, frozen=True, tag="found"):
    """A finding, and how many more like it there were."""

    finding: Finding
    more: int = 0


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """A node does not answer any more: this replica, or its write-ahead log, was not all read."""

    stream: int
    node: int
    why: str


class Covered(msgspec.Struct, frozen=True, tag="covered"):
    """What a part of a topic's GLSNs looks like."""

    topic: str
    present: int
    glsn_begin: int
    glsn_end: int
    cells: tuple[Cell, ...]


Told = Tally | Found | Lost | Covered
_DECODER: Final[msgspec.msgpack.Decoder[Told]] = msgspec.msgpack.Decoder(Told)


def encode_told(told: Told) -> bytes:
    return msgspec.msgpack.encode(told)


def decode_told(data: bytes) -> Told:
    return _DECODER.decode(data)


def bucket_of(llsns: NDArray[np.int64]) -> NDArray[np.int64]:
    """In which bucket entries are compared."""
    return llsns >> BUCKET_BITS


def entry_rows(
    stream: int,
    node: int,
    places: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    digests: NDArray[np.int64],
) -> Any:
    """Entries of one replica; ``places`` are their LLSNs, GLSNs and terms."""
    buckets = bucket_of(places[0])
    first = np.flatnonzero(bucket_of(places[0] - 1) != buckets)
    rows = np.concatenate((np.arange(len(buckets)), first))
    columns = [
        np.full(len(rows), stream),
        np.concatenate((buckets, buckets[first] - 1)),
        np.full(len(rows), node),
        *(column[rows] for column in (*places, *digests.T)),
    ]
    arrays = [pa.array(column, pa.int64()) for column in columns]
    arrays.append(pa.nulls(len(rows), pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, schema=ENTRIES)


def told_rows(told: list[Told], schema: Any, stream: int = 0) -> Any:
    """Rows that carry words; all of their numbers are 0 but the log stream."""
    count = len(told)
    arrays = [
        pa.array([encode_told(one) for one in told], pa.binary())
        if field.name == "told"
        else pa.array(np.full(count, stream if field.name == "stream" else 0), pa.int64())
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
