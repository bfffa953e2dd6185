"""Every safeguard of a datastore's store is needed: with one switched off, a test fails.

That the hunts pass on the code as it is, is shown where they come from: tests/datastore_store and
tests/storage/test_blob_store.py.
"""

from __future__ import annotations

import pytest

from tests.mutation.epoch_store_mutants import MUTANTS, Mutant
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    expected = (AssertionError, InvariantViolation, LogError, pytest.fail.Exception)
    with pytest.raises(expected) as caught:
        mutant.hunt(mutant.change)
    assert "made other calls" not in str(caught.value), "the hunt failed, not the mutant"
