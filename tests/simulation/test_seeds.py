"""Whole clusters under faults: no checker may fire, and rare things must have happened."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.seeds import PINNED
from tidelog.testing.batch import Summary, run_seeds
from tidelog.testing.simulation import Outcome, simulate
from tidelog.testing.sometimes import RARELY, Kind, never

CHUNKS = [
    (Kind.RAFT, range(1_000, 1_050)),
    (Kind.CLUSTER, range(1_000, 1_045)),
    (Kind.SESSION, range(1_000, 1_080)),
]


def told(outcome: Outcome) -> str:
    failure = outcome.failure
    return "" if failure is None else f"seed {outcome.seed}: {failure.checker}: {failure.message}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seeds"), CHUNKS, ids=str)
def test_fresh_seeds_go_well_and_meet_what_is_rare(kind: Kind, seeds: range) -> None:
    summary = Summary(kind)
    for outcome in run_seeds(kind, seeds, processes=1):
        summary.add(outcome)
    assert not [told(outcome) for outcome in summary.failures]
    assert [rare for rare in never(summary.counts, kind) if rare not in RARELY] == []


@pytest.mark.parametrize(("kind", "seed", "found"), PINNED)
def test_a_seed_that_once_failed_goes_well(kind: Kind, seed: int, found: str) -> None:
    assert told(simulate(kind, seed)) == "", found


SCRIPT = """
import sys
from tidelog.testing.simulation import simulate
from tidelog.testing.sometimes import Kind
for seed in (3, 17, 29):
    print(simulate(Kind(sys.argv[1]), seed).digest)
"""


@pytest.mark.parametrize("kind", Kind)
def test_a_seed_has_the_same_history_whatever_the_hash_seed(kind: Kind) -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, kind.value],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4711")
    ]
    assert len(digests[0].split()) == 3
    assert digests[0] == digests[1]
