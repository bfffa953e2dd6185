"""Every safeguard of a Raft node's store is needed: with one switched off, a test fails.

That the crash hunts pass on the code as it is, the crash tests show; for the directed ones it is
shown here.
"""

from __future__ import annotations

import pytest

from tests.mutation.hunts import nothing
from tests.mutation.raft_store_mutants import DIRECTED, MUTANTS, SURVIVORS, Hunt, Mutant
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with pytest.raises((AssertionError, InvariantViolation, LogError)) as caught:
        mutant.hunt(mutant.change)
    assert "made other calls" not in str(caught.value), "the hunt failed, not the mutant"


@pytest.mark.parametrize("hunt", DIRECTED)
def test_a_directed_hunt_finds_nothing_in_the_code_as_it_is(hunt: Hunt) -> None:
    hunt(nothing)


@pytest.mark.parametrize("mutant", SURVIVORS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_made_up_for_by_something_else(mutant: Mutant) -> None:
    mutant.hunt(mutant.change)
