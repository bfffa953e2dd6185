"""The long version: fifty kills, every other fault again and again, a million records.

``pytest -m soak tests/cluster -s`` tells how far it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cluster.arena import Arena
from tests.cluster.load import HASTY, SINGLES, Habit
from tests.cluster.test_kills import KINDS, restart_in_turn
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

KILL_ROUNDS = 50
RECORDS_MIN = 1_000_000
LARGE = Habit(batch=500)
HABITS = (SINGLES, Habit(in_flight=16, stream=1), LARGE, LARGE, HASTY)


def tell(text: str) -> None:
    sys.stderr.write(text + "\n")


def play(arena: Arena, rounds: int, stories: Sequence[tuple[str, Callable[[Arena], None]]]) -> None:
    """Rounds of stories that chance chooses."""
    for number in range(1, rounds + 1):
        name, story = arena.random.choice(stories)
        tell(f"round {number} of {rounds}: {name}; {arena.load.acknowledged:,} records")
        arena.wait_until_whole()
        story(arena)


def test_fifty_kills_and_a_million_records(tmp_path: Path) -> None:
    """All roles in each of three processes; every kill of a node kills all of its roles."""
    with (
        LocalCluster(3, directory=tmp_path, streams=2) as cluster,
        Arena(cluster, habits=HABITS, seed=11) as arena,
    ):
        play(arena, KILL_ROUNDS, list(KINDS.items()))
        restart_in_turn(arena)
        while arena.load.acknowledged < RECORDS_MIN:
            arena.load.wait_for_more(50_000, 120)
            tell(f"{arena.load.acknowledged:,} records")
        arena.check()
        assert arena.rounds >= KILL_ROUNDS
