"""Each safeguard of a session between nodes is needed: without it, its story goes wrong.

That the stories end well with all safeguards in place, their own tests show.
"""

from __future__ import annotations

import pytest

from tests.core.session_nodes.mutants import MUTANTS, NodeMutant
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_story_goes_wrong_without_its_safeguard(mutant: NodeMutant) -> None:
    with (
        mutant.change(),
        pytest.raises((AssertionError, InvariantViolation, LogError, pytest.fail.Exception)),
    ):
        mutant.story()
