"""Which entries are live, bucket by bucket, by the engine's own rule.  Runs in Spark's tasks.

All rows of a key are in one bucket.  They come in any order and are folded while they are gathered,
as the engine does: what is dead, and can decide about nothing else, is noted and let go.  So memory
is bounded by what is live in a bucket, however often its keys were written.

A verdict is about a *window* of LLSNs, so that bitmaps of all buckets can be joined piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tidelog.core.compaction.explain import StorageDelete
from tidelog.core.compaction.live import LiveRows, live_rows
from tidelog.formats.bitmaps import bitmap_of
from tidelog.formats.key_rows import KeyRows, concat_rows
from tidelog.pipeline.compaction_plan.key_rows import key_rows

VERDICT_COLUMNS: Final = "stream BIGINT, window BIGINT, live BINARY, dead BINARY"
WINDOW_BITS: Final = 26
"""LLSNs of a window, as a power of two: its bitmaps have 8 MiB at most."""
SHADOWING: Final = -1
"""Instead of a window: ``live`` has the numbers of storage deletes that hide something."""
_NOTHING: Final = BitMap64().serialize()
_SCHEMA: Final = pa.schema(
    [("stream", pa.int64()), ("window", pa.int64()), ("live", pa.binary()), ("dead", pa.binary())]
)


@dataclass(frozen=True, slots=True)
class Basis:
    """What every bucket is judged under; the storage deletes are those of each log stream."""

    boundary: int
    storage_deletes: Mapping[int, tuple[StorageDelete, ...]]
    rows_max: int


def judge(batches: Iterator[Any], basis: Basis) -> Iterator[Any]:
    """The verdicts on one bucket of rows with keys."""
    bucket = Bucket(basis)
    for batch in batches:
        streams, rows = key_rows(batch)
        for stream in np.unique(streams).tolist():
            bucket.add(stream, rows.filter(streams == stream))
    yield from bucket.verdicts()


def judge_others(batches: Iterator[Any]) -> Iterator[Any]:
    """The verdicts on entries without keys: they are live."""
    for batch in batches:
        for stream, others in zip(
            batch["stream"].to_pylist(), batch["others"].to_pylist(), strict=True
        ):
            yield from _windows(stream, BitMap64.deserialize(others), BitMap64())


def join_verdicts(table: Any) -> Any:
    """All verdicts about one window of a stream as one."""
    live, dead = BitMap64(), BitMap64()
    for bits in table["live"].to_pylist():
        live |= BitMap64.deserialize(bits)
    for bits in table["dead"].to_pylist():
        dead |= BitMap64.deserialize(bits)
    stream, window = table["stream"][0].as_py(), table["window"][0].as_py()
    return pa.Table.from_batches([_verdict(stream, window, live, dead)])


@dataclass(slots=True)
class Bucket:
    """The rows of some keys, of one log stream or several, as far as they still count."""

    basis: Basis
    _gathered: dict[int, list[KeyRows]] = field(default_factory=dict)
    _dead: dict[int, BitMap64] = field(default_factory=dict)
    _shadowing: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = field(default_factory=dict)
    _rows: int = 0
    _fold_at: int = field(init=False)

    def __post_init__(self) -> None:
        self._fold_at = self.basis.rows_max

    def __len__(self) -> int:
        """How many rows are in memory."""
        return self._rows

    def add(self, stream: int, rows: KeyRows) -> None:
        self._gathered.setdefault(stream, []).append(rows)
        self._rows += len(rows)
        if self._rows > self._fold_at:
            for each in self._gathered:
                self._fold(each)
            # If most of it is live, folding again soon would gain nothing.
            self._fold_at = max(self.basis.rows_max, 2 * self._rows)

    def verdicts(self) -> Iterator[Any]:
        for stream, parts in self._gathered.items():
            rows, found = self._judge(stream, concat_rows(parts))
            live = bitmap_of(rows.llsn[found.mask])
            dead = self._dead.get(stream, BitMap64()) | bitmap_of(rows.llsn[~found.mask])
            yield from _windows(stream, live, dead)
            hiding = np.flatnonzero(self._shadowing[stream]).tolist()
            if hiding:
                yield _verdict(stream, SHADOWING, BitMap64(hiding), BitMap64())

    def _fold(self, stream: int) -> None:
        """Let go of the rows that decide nothing any more."""
        rows, found = self._judge(stream, concat_rows(self._gathered[stream]))
        kept = found.mask | found.witnesses
        self._dead[stream] = self._dead.get(stream, BitMap64()) | bitmap_of(rows.llsn[~kept])
        self._gathered[stream] = [rows.filter(kept)]
        self._rows -= int(np.count_nonzero(~kept))

    def _judge(self, stream: int, rows: KeyRows) -> tuple[KeyRows, LiveRows]:
        deletes = self.basis.storage_deletes.get(stream, ())
        # What was trimmed is not among the rows that can be read.
        found = live_rows(rows, self.basis.boundary, deletes, trim_llsn_end=1)
        known = self._shadowing.get(stream)
        self._shadowing[stream] = found.shadowed if known is None else known | found.shadowed
        return rows, found


def _windows(stream: int, live: BitMap64, dead: BitMap64) -> Iterator[Any]:
    left = live | dead
    while left:
        window = left.min() >> WINDOW_BITS
        span = BitMap64(range(window << WINDOW_BITS, window + 1 << WINDOW_BITS))
        left -= span
        yield _verdict(stream, window, live & span, dead & span)


def _verdict(stream: int, window: int, live: BitMap64, dead: BitMap64) -> Any:
    row = {
        "stream": stream,
        "window": window,
        "live": live.serialize() if live else _NOTHING,
        "dead": dead.serialize() if dead else _NOTHING,
    }
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)
