"""A few random walks for every change; the soak has many."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.walks import Walk


@pytest.mark.parametrize("seed", range(12))
def test_a_random_walk_keeps_all_promises_and_ends_well(seed: int) -> None:
    Walk(seed).go(800)
