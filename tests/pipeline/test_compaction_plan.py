"""The part of compact-plan that runs in Spark's tasks: rows, buckets and bitmaps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tidelog.core.compaction.explain import KIND_DELETE, KIND_PUT, StorageDelete
from tidelog.core.compaction.live import live_rows
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import KeyRows, concat_rows, hash_key
from tidelog.pipeline.compaction_plan.judging import (
    SHADOWING,
    WINDOW_BITS,
    Basis,
    Bucket,
    join_verdicts,
    judge,
    judge_others,
)
from tidelog.pipeline.compaction_plan.key_rows import key_rows, rows_of_entries

SEED = 5
BASE = (1 << WINDOW_BITS) - 30
"""LLSNs from here on lie in two windows."""


def entry_batch(entries: Sequence[tuple[int, int, Kind, int, bytes | None, int]]) -> Any:
    """A record batch as the source makes it: (stream, LLSN, kind, storage id, key, version)."""
    streams, llsns, kinds, storages, keys, versions = zip(*entries, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "stream": pa.array(streams, pa.int64()),
            "llsn": pa.array(llsns, pa.int64()),
            "kind": pa.array([kind.name for kind in kinds]),
            "storage_id": pa.array(np.array(storages, np.uint64).view(np.int64)),
            "key": pa.array(keys, pa.binary()),
            "write_version": pa.array([version.to_bytes(16) for version in versions], pa.binary()),
        }
    )


def random_rows(random: Random, count: int) -> KeyRows:
    """Rows of few keys, with versions in any order."""
    hashes = np.array([random.randrange(9) for _ in range(count)], np.uint64)
    return KeyRows(
        hash_hi=hashes,
        hash_lo=hashes,
        storage=hashes % np.uint64(2),
        version_hi=np.zeros(count, np.uint64),
        version_lo=np.array([random.randrange(60) for _ in range(count)], np.uint64),
        llsn=np.array(random.sample(range(BASE, BASE + 1000), count), np.uint64),
        kind=np.array([random.choice((KIND_PUT, KIND_DELETE)) for _ in range(count)], np.uint8),
        size=np.zeros(count, np.uint32),
    )


def sum_up(verdicts: Iterator[Any]) -> tuple[BitMap64, BitMap64, BitMap64]:
    """Live, dead, and the numbers of storage deletes that hide something."""
    table = pa.Table.from_batches(list(verdicts))
    live, dead, hiding = BitMap64(), BitMap64(), BitMap64()
    for row in table.to_pylist():
        if row["window"] == SHADOWING:
            hiding |= BitMap64.deserialize(row["live"])
        else:
            live |= BitMap64.deserialize(row["live"])
            dead |= BitMap64.deserialize(row["dead"])
    return live, dead, hiding


def test_a_row_tells_of_an_entry_what_decides_about_it() -> None:
    largest = (1 << 64) - 1
    entries = [
        (3, 10, Kind.PUT, largest, b"key", (7 << 64) + largest),
        (3, 11, Kind.APPEND, 0, b"key", 11),
        (4, 2, Kind.DELETE, 0, b"", 12),
        (3, 12, Kind.DELETE_STORAGE, 5, None, 13),
        (4, 3, Kind.APPEND, 0, None, 14),
    ]
    keyed, others = rows_of_entries(iter([entry_batch(entries)]), SEED)
    streams, rows = key_rows(keyed)
    assert streams.tolist() == [3, 4, 3]
    assert rows.llsn.tolist() == [10, 2, 12]
    assert rows.kind.tolist() == [Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE]
    assert rows.storage.tolist() == [largest, 0, 5]
    assert [rows.version_at(row) for row in range(3)] == [(7 << 64) + largest, 12, 13]
    assert (int(rows.hash_hi[0]), int(rows.hash_lo[0])) == hash_key(largest, b"key", SEED)
    live, dead, _ = sum_up(judge_others(iter([others.slice(0, 1)])))
    assert (list(live), list(dead)) == ([11], [])


@pytest.mark.parametrize("seed", range(8))
def test_a_bucket_judges_alike_however_often_it_folds(seed: int) -> None:
    random = Random(seed)
    parts = [random_rows(random, random.randrange(1, 40)) for _ in range(10)]
    llsns = iter(random.sample(range(BASE, BASE + 1000), 1000))
    for part in parts:
        part.llsn[:] = [next(llsns) for _ in range(len(part))]
    deletes = (StorageDelete(0, 20, BASE), StorageDelete(1, 55, BASE + 7), StorageDelete(2, 1, 1))
    rows = concat_rows(parts)
    expected = live_rows(rows, 40, deletes, 1)
    for rows_max in (1, 7, 50, 10_000):
        bucket = Bucket(Basis(40, {1: deletes}, rows_max))
        for part in parts:
            bucket.add(1, part)
        live, dead, hiding = sum_up(bucket.verdicts())
        assert live == BitMap64(rows.llsn[expected.mask].tolist())
        assert live | dead == BitMap64(rows.llsn.tolist())
        assert not live & dead
        assert list(hiding) == np.flatnonzero(expected.shadowed).tolist()


def test_a_key_that_is_written_again_and_again_takes_no_memory() -> None:
    bucket = Bucket(Basis(1 << 40, {}, rows_max=1000))
    llsn = 0
    for _ in range(50):
        rows = random_rows(Random(1), 900)
        rows.llsn[:] = range(llsn + 1, llsn + 901)
        rows.version_lo[:] = rows.llsn
        llsn += 900
        bucket.add(1, rows)
        assert len(bucket) <= 2000
    live, dead, _ = sum_up(bucket.verdicts())
    assert len(live) + len(dead) == llsn
    assert len(live) <= 9


def test_what_is_live_is_not_folded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    folds = 0
    fold = Bucket._fold

    def counted(bucket: Bucket, stream: int) -> None:
        nonlocal folds
        folds += 1
        fold(bucket, stream)

    monkeypatch.setattr(Bucket, "_fold", counted)
    bucket = Bucket(Basis(0, {}, rows_max=100))  # All versions lie above the boundary.
    for number in range(100):
        rows = random_rows(Random(number), 100)
        rows.version_lo[:] += np.uint64(1)
        bucket.add(1, rows)
    assert len(bucket) == 10_000
    assert folds < 10


def test_streams_of_a_bucket_are_judged_apart() -> None:
    entries = [(stream, llsn, Kind.PUT, 0, b"key", llsn) for stream in (1, 2) for llsn in (1, 2, 3)]
    (rows,) = rows_of_entries(iter([entry_batch(entries)]), SEED)
    found = {
        row["stream"]: (BitMap64.deserialize(row["live"]), BitMap64.deserialize(row["dead"]))
        for batch in judge(iter([rows]), Basis(9, {}, 100))
        for row in batch.to_pylist()
    }
    assert found == {stream: (BitMap64([3]), BitMap64([1, 2])) for stream in (1, 2)}


def test_the_verdicts_of_all_buckets_on_a_window_are_joined() -> None:
    verdicts = []
    for key, llsns in ((b"a", (1, 3)), (b"b", (2, 4))):
        entries = [(1, llsn, Kind.PUT, 0, key, llsn) for llsn in llsns]
        rows = rows_of_entries(iter([entry_batch(entries)]), SEED)
        verdicts += list(judge(rows, Basis(9, {}, 100)))
    (joined,) = join_verdicts(pa.Table.from_batches(verdicts)).to_pylist()
    assert (joined["stream"], joined["window"]) == (1, 0)
    assert list(BitMap64.deserialize(joined["live"])) == [3, 4]
    assert list(BitMap64.deserialize(joined["dead"])) == [1, 2]


@pytest.mark.parametrize(("rows_max", "fits"), [(1 << 18, True), (1 << 40, False)])
def test_a_bucket_larger_than_memory_is_judged(rows_max: int, fits: bool) -> None:
    """Five million rows take 265 MB, and the process may have 160 MiB: folding makes it fit."""
    command = [sys.executable, "-m", "tests.pipeline.bucket_memory", "5000000", str(rows_max)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode == 0) == fits, done.stderr
    assert fits or "MemoryError" in done.stderr
