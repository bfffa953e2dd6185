"""Key rows of large batches are made all at once; they are the rows that small ones give."""

from __future__ import annotations

import numpy as np
import pytest

from tidelog.formats.batch import Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_rows import U64, hash_key, rows_from_batches

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
