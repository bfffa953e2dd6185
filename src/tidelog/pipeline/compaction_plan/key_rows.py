"""Entries of a log as what decides about them: rows of a fixed size.  Runs in Spark's tasks.

A key goes by its hash, with a seed of the run's own, so what Spark moves and sorts does not depend
on how large keys and values are.  Entries without keys decide nothing; of them a bitmap is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from operator import add
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from tidelog.formats.bitmaps import bitmap_of
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import U64, KeyRows
from tidelog.pipeline.arrow_tables import usual

ENTRY_COLUMNS: Final = (
    "stream BIGINT, llsn BIGINT, kind STRING, storage_id BIGINT, key BINARY, write_version BINARY"
)
"""What is read of the log."""
ROW_COLUMNS: Final = (
    "stream BIGINT, kind INT, llsn BIGINT, storage BIGINT, hash_hi BIGINT, hash_lo BIGINT, "
    "version_hi BIGINT, version_lo BIGINT, others BINARY"
)
"""Words of 64 bits as Spark's longs; ``others`` is a bitmap of LLSNs, in rows of their own."""
_KINDS: Final = pa.array([kind.name for kind in Kind])
_NUMBERS: Final = np.array([kind.value for kind in Kind], dtype=np.uint8)
_SCHEMA: Final = pa.schema(
    [("stream", pa.int64()), ("kind", pa.int32())]
    + [
        (name, pa.int64())
        for name in ("llsn", "storage", "hash_hi", "hash_lo", "version_hi", "version_lo")
    ]
    + [("others", pa.binary())]
)


def rows_of_entries(batches: Iterator[Any], seed: int) -> Iterator[Any]:
    """The rows of record batches with ``ENTRY_COLUMNS``."""
    for batch in map(usual, batches):
        places = pc.index_in(batch["kind"], value_set=_KINDS).to_numpy(zero_copy_only=False)
        kinds = _NUMBERS[places]
        decides = (kinds != Kind.APPEND) & (kinds != Kind.CONTROL)
        if decides.any():
            yield _deciding(batch.filter(pa.array(decides)), kinds[decides], seed)
        if not decides.all():
            yield _others(batch.filter(pa.array(~decides)))


def key_rows(batch: Any) -> tuple[NDArray[np.int64], KeyRows]:
    """The streams of a record batch with ``ROW_COLUMNS``, and its rows."""
    count = batch.num_rows
    rows = KeyRows(
        hash_hi=words(batch, "hash_hi"),
        hash_lo=words(batch, "hash_lo"),
        storage=words(batch, "storage"),
        version_hi=words(batch, "version_hi"),
        version_lo=words(batch, "version_lo"),
        llsn=words(batch, "llsn"),
        kind=batch["kind"].to_numpy(zero_copy_only=False).astype(np.uint8),
        size=np.zeros(count, dtype=np.uint32),
    )
    return batch["stream"].to_numpy(zero_copy_only=False), rows


def words(batch: Any, name: str) -> U64:
    """A column of longs as the words of 64 bits that they stand for."""
    column: U64 = batch[name].to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return column


def _deciding(batch: Any, kinds: NDArray[np.uint8], seed: int) -> Any:
    versions = _versions(batch["write_version"])
    digests = _digests(batch, seed)
    columns = [
        batch["stream"],
        pa.array(kinds.astype(np.int32)),
        batch["llsn"],
        batch["storage_id"],
        *(_longs(digests, half) for half in (0, 1)),
        *(_longs(versions, half) for half in (0, 1)),
        pa.nulls(batch.num_rows, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _digests(batch: Any, seed: int) -> bytes:
    """16 bytes for each row: a key is known by the hash of its storage id and its bytes."""
    storages = batch["storage_id"].to_numpy(zero_copy_only=False).astype("<i8")
    keys = pc.fill_null(batch["key"], b"").to_pylist()
    hashed = map(add, storages.view("V8").tolist(), keys)
    return b"".join(map(xxh3_128_digest, hashed, repeat(seed)))


def _versions(column: Any) -> bytes:
    """16 bytes for each row, most significant first."""
    joined = column.cast(pa.binary(16))
    begin = joined.offset * 16
    return bytes(joined.buffers()[1])[begin : begin + len(joined) * 16]


def _longs(pairs: bytes, half: int) -> Any:
    """The first or the second big-endian word of every pair."""
    found = np.frombuffer(pairs, dtype=">u8").reshape(-1, 2)[:, half]
    return pa.array(found.astype(np.uint64).view(np.int64))


def _others(batch: Any) -> Any:
    """One row for each stream, with the LLSNs of entries that decide nothing."""
    streams, llsns = batch["stream"].to_numpy(), words(batch, "llsn")
    rows = [
        {
            "stream": stream,
            "kind": int(Kind.APPEND),
            "others": bitmap_of(llsns[streams == stream]).serialize(),
        }
        for stream in np.unique(streams).tolist()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
