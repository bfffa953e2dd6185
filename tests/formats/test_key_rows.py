"""Key rows of large batches are made all at once; they are the rows that small ones give."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from tidelog.formats.batch import Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_gathering import RowColumns, rows_from_batches
from tidelog.formats.key_rows import U64, KeyRows, concat_rows, constant, hash_key, sort_rows

SEED = 77
FIRST = 1_000
COUNT = 300


def entries(*, key_bytes: int | None, versions: bool, storages: bool, deletes: bool) -> list[Entry]:
    """``key_bytes`` None: keys of different lengths."""
    return [
        Entry(
            Kind.DELETE if deletes and i % 3 == 0 else Kind.PUT,
            b"v" * (i % 50),
            str(i % 40).encode().ljust(key_bytes or 1 + i % 30, b"k"),
            i % 5 if storages else 7,
            (1 << 70) + i if versions else None,
        )
        for i in range(COUNT)
    ]


def one_batch(made: list[Entry], llsns: list[int]) -> Batch:
    dense = llsns[-1] - llsns[0] + 1 == len(llsns)
    body = encode_entries(made, llsns=None if dense else llsns)
    header = seal_batch(body, stream=1, term=1, first_llsn=llsns[0])
    return decode_batch(header + body.data)


def glsns(llsns: U64) -> U64:
    return llsns + np.uint64(5)


@pytest.mark.parametrize("key_bytes", [8, 16, None])
@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("storages", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("gap", [1, 3])
def test_one_large_batch_gives_the_rows_of_many_small_ones(
    key_bytes: int | None, versions: bool, storages: bool, deletes: bool, gap: int
) -> None:
    made = entries(key_bytes=key_bytes, versions=versions, storages=storages, deletes=deletes)
    llsns = list(range(FIRST, FIRST + gap * COUNT, gap))
    large = rows_from_batches([one_batch(made, llsns)], glsns, SEED)
    small = rows_from_batches(
        [one_batch([entry], [llsn]) for entry, llsn in zip(made, llsns, strict=True)], glsns, SEED
    )
    assert large.equals(small)
    for row, (entry, llsn) in enumerate(zip(made, llsns, strict=True)):
        hashed = (int(large.hash_hi[row]), int(large.hash_lo[row]))
        assert hashed == hash_key(entry.storage_id, entry.key, SEED)
        assert large.version_at(row) == (entry.write_version or llsn + 5)
        assert large.size[row] == len(entry.key) + len(entry.value)
        assert large.kind[row] == entry.kind


@pytest.mark.parametrize("gaps", [(1, 1, 1), (1, 3, 1), (3, 3, 3)])
@pytest.mark.parametrize("apart", [0, 10])
@pytest.mark.parametrize("value_bytes", [0, 40])
def test_batches_that_are_held_together_give_the_rows_of_each(
    gaps: tuple[int, ...], apart: int, value_bytes: int
) -> None:
    """Batches of different sizes, dense or not, next to one another or ``apart``."""
    batches, flat, llsns = [], [], []
    first = FIRST
    for gap, count in zip(gaps, (100, 64, 150), strict=True):
        made = [
            Entry(Kind.PUT, b"v" * (i % 7 * value_bytes), b"k" * (1 + i % 9)) for i in range(count)
        ]
        places = list(range(first, first + gap * count, gap))
        batches.append(one_batch(made, places))
        flat += made
        llsns += places
        first = places[-1] + 1 + apart
    rows = rows_from_batches(batches, glsns, SEED)
    assert rows.llsn.tolist() == llsns
    assert rows.size.tolist() == [len(entry.key) + len(entry.value) for entry in flat]
    hashes = list(zip(rows.hash_hi.tolist(), rows.hash_lo.tolist(), strict=True))
    assert hashes == [hash_key(0, entry.key, SEED) for entry in flat]


def test_batches_that_differ_in_what_they_leave_out_give_their_own_rows() -> None:
    """Large batches are held together only if they are alike (G1)."""
    kinds = [Kind.PUT, Kind.PUT, Kind.DELETE, Kind.PUT, Kind.PUT]
    storages = [7, 8, 8, 8, 8]
    versions = [None, None, None, 9, None]
    made = [
        [Entry(kind, b"", b"%03d" % i, storage, version) for i in range(100)]
        for kind, storage, version in zip(kinds, storages, versions, strict=True)
    ]
    batches = [
        one_batch(part, list(range(FIRST + 100 * number, FIRST + 100 * number + 100)))
        for number, part in enumerate(made)
    ]
    rows = rows_from_batches(batches, glsns, SEED)
    flat = [entry for part in made for entry in part]
    assert rows.llsn.tolist() == list(range(FIRST, FIRST + 500))
    assert rows.kind.tolist() == [entry.kind for entry in flat]
    assert rows.storage.tolist() == [entry.storage_id for entry in flat]
    assert rows.version_lo.tolist() == [
        entry.write_version or llsn + 5
        for llsn, entry in zip(range(FIRST, FIRST + 500), flat, strict=True)
    ]


def test_no_more_than_a_bound_of_batches_is_held() -> None:
    """G2: a compaction reads far more than fits into memory."""
    made = [Entry(Kind.PUT, bytes(40_000), b"%03d" % i) for i in range(64)]
    gathered = RowColumns(SEED)
    held: list[int] = []
    tracemalloc.start()
    try:
        for number in range(20):
            first = FIRST + 64 * number
            gathered.add(one_batch(made, list(range(first, first + 64))))
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(held) < 5 * 64 * 40_000
    assert len(gathered.rows(glsns)) == 1280


def many_rows(count: int, alike: int = 0) -> KeyRows:
    """Rows whose hashes are alike in the first bits."""
    chance = np.random.default_rng(1)
    hashes = chance.integers(0, 1 << (64 - alike), count, dtype=np.uint64)
    hashes[chance.integers(0, count, count // 4)] = hashes[0]  # Some keys are written often.
    return KeyRows(
        hash_hi=hashes,
        hash_lo=hashes >> np.uint64(1),
        storage=constant(3, count, np.uint64),
        version_hi=constant(0, count, np.uint64),
        version_lo=np.arange(1, count + 1, dtype=np.uint64),
        llsn=np.arange(1, count + 1, dtype=np.uint64),
        kind=constant(2, count, np.uint8),
        size=np.arange(count, dtype=np.uint32),
    )


@pytest.mark.parametrize("count", [1, 100, 4_096, 70_000])
@pytest.mark.parametrize("alike", [0, 40, 60])
def test_rows_are_sorted_by_hash_and_stay_in_order_where_that_is_equal(
    count: int, alike: int
) -> None:
    rows = many_rows(count, alike)
    expected = rows[np.lexsort((rows.llsn, rows.hash_hi))]
    assert sort_rows(rows).equals(expected)
    backwards = rows[np.arange(count)[::-1]]
    assert sort_rows(backwards).equals(expected)


def test_columns_of_one_value_stay_views_of_it() -> None:
    rows = many_rows(5_000)
    for picked in (
        rows[10:20],
        rows[rows.llsn > 4_000],
        sort_rows(rows),
        concat_rows([rows, rows]),
    ):
        assert picked.storage.strides == (0,)
        assert picked.storage.tolist() == [3] * len(picked)
    other = many_rows(10)
    mixed = concat_rows([rows, dataclasses.replace(other, storage=constant(4, 10, np.uint64))])
    assert mixed.storage.tolist() == [3] * 5_000 + [4] * 10
