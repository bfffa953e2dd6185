"""Hostile masters against the core of a replica: no exception, one answer each, rules kept."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.replica_script import Replica, Script
from tidelog.core.session.messages import ErrorCode

SEEDS = 300
STEPS = 400


@given(st.binary(max_size=600))
@settings(max_examples=200)
def test_any_script_is_answered_and_leaves_the_store_sound(data: bytes) -> None:
    Replica(Script(data)).run()


def test_long_random_scripts_meet_every_state_and_leave_the_store_sound() -> None:
    """Most errors of the protocol are met on the way, so the scripts do not stay at the gate."""
    met: set[ErrorCode] = set()
    commits = entries = broken = 0
    for seed in range(SEEDS):
        replica = Replica(Script(Random(seed).randbytes(4 * STEPS)))
        replica.run()
        counters = replica.core.counters
        met |= counters.errors.keys()
        commits += counters.group_commits
        entries += counters.entries
        broken += counters.broken
    assert commits > 10
    assert entries > 10
    assert broken > 10
    assert not set(ErrorCode) - met, f"never met: {sorted(set(ErrorCode) - met)}"


@pytest.mark.parametrize("seed", range(3))
def test_a_script_ends_the_same_way_each_time(seed: int) -> None:
    data = Random(seed).randbytes(2_000)
    runs = [Replica(Script(data)) for _ in range(2)]
    for replica in runs:
        replica.run()
    first, second = runs
    assert first.core.counters == second.core.counters
    assert (first.answers, first.store.epoch) == (second.answers, second.store.epoch)
