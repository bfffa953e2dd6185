"""Every safeguard is needed: with one of them switched off, a checker fires within a few seeds.

That no checker fires on the code as it is, the seeds of the simulation tests show.
"""

from __future__ import annotations

import pytest

from tests.mutation.raft_mutants import MUTANTS, SeedMutant
from tidelog.testing.simulation import Failure, simulate


def hunt(mutant: SeedMutant) -> Failure | None:
    with mutant.change():
        for seed in range(mutant.seeds):
            failure = simulate(mutant.kind, seed).failure
            if failure is not None:
                return failure
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_within_its_seeds(mutant: SeedMutant) -> None:
    failure = hunt(mutant)
    assert failure is not None
    assert failure.checker in mutant.caught_by, failure.message
