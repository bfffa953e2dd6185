"""Keys that are hashed together get the hashes that each gets alone (X1)."""

from __future__ import annotations

import numpy as np
import pytest

from tidelog.formats.key_hashing import hash_keys
from tidelog.formats.key_rows import hash_key

SEEDS = (0, 77, 0x9ABC_DEF0_1234_5678, (1 << 64) - 1)


@pytest.mark.parametrize("count", [1, 63, 64, 100])
@pytest.mark.parametrize("length", [*range(1, 131), 500])
def test_many_keys_are_hashed_like_one(length: int, count: int) -> None:
    chance = np.random.default_rng(length)
    keys = chance.integers(0, 256, (count, length), dtype=np.uint8)
    storage = chance.integers(0, 1 << 64, count, dtype=np.uint64)
    for seed in SEEDS:
        high, low = hash_keys(keys, storage, seed)
        alone = [
            hash_key(number, key.tobytes(), seed)
            for number, key in zip(storage.tolist(), keys, strict=True)
        ]
        assert list(zip(high.tolist(), low.tolist(), strict=True)) == alone


def test_more_keys_than_are_hashed_at_once_are_all_hashed() -> None:
    count = 20_000
    keys = np.arange(2 * count, dtype=np.uint64).view(np.uint8).reshape(count, 16)
    high, low = hash_keys(keys, np.full(count, 3, dtype=np.uint64), 5)
    for row in (0, 8_191, 8_192, count - 1):
        assert (high[row], low[row]) == hash_key(3, keys[row].tobytes(), 5)
