"""Whatever happened to the replicas of a node, a start finds what the model of its disk has."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage_replica.history import History


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_start_finds_exactly_what_the_writes_left(seed: int) -> None:
    History(Random(seed)).run(60)
