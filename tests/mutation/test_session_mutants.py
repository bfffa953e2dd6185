"""Each safeguard of replication sessions is needed: without it, the story that it is for fails.

That the stories end well with all safeguards in place, their own tests show.
"""

from __future__ import annotations

import pytest

from tests.mutation.replica_mutants import StoryMutant
from tests.mutation.session_mutants import MUTANTS
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation

WRONG = (AssertionError, InvariantViolation, LogError, LookupError, pytest.fail.Exception)
"""How a story goes wrong; a mutant may also crash on what it did not refuse."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_story_goes_wrong_without_its_safeguard(mutant: StoryMutant) -> None:
    with (
        mutant.change(),
        pytest.raises(WRONG),
    ):
        mutant.story()
