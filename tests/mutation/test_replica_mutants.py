"""Each safeguard of the replicas is needed: with it switched off, the story that it is for fails.

That the stories end well with all safeguards in place, their own tests show.
"""

from __future__ import annotations

import pytest

from tests.mutation.replica_mutants import MUTANTS, StoryMutant
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_story_goes_wrong_without_its_safeguard(mutant: StoryMutant) -> None:
    with (
        mutant.change(),
        pytest.raises((AssertionError, InvariantViolation, LogError, pytest.fail.Exception)),
    ):
        mutant.story()
