"""Safeguards against wrong compaction plans are needed: without one, live entries go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from tests.mutation.left_out import replaced
from tests.mutation.mutant import Mutant
from tests.storage import test_plan_check as plans
from tidelog.core.compaction.claims import SortedKeys, Verdict
from tidelog.errors import PlanRefused
from tidelog.invariants import InvariantViolation
from tidelog.storage import plan_check
from tidelog.storage.plan_check import _Check
from tidelog.storage.snapshot_store import SnapshotState

CAUGHT: Final = (AssertionError, InvariantViolation, PlanRefused, pytest.fail.Exception)


def nothing(*_: Any, **__: Any) -> None:
    """Leaves a check out."""


def believing(judge: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Every claim is founded."""

    def change(*args: Any) -> Verdict:
        verdict = judge(*args)
        everything = np.ones_like(verdict.founded)
        return replace(verdict, founded=everything, open=~everything)

    return change


def above_any_boundary(judge: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """A newer write kills an older one, whatever the boundary is."""

    def change(self: SortedKeys, *args: Any) -> Verdict:
        verdict = judge(self, *args)
        return replace(verdict, founded=verdict.founded | verdict.outlived)

    return change


def never_hiding(_: Any) -> Callable[..., Any]:
    return lambda deletes, rows: np.zeros(len(deletes.keys), dtype=np.bool_)


def never_shadowing(_: Any) -> Callable[..., Any]:
    return lambda rows, deletes: np.zeros(len(deletes), dtype=np.bool_)


def without_keys_too(outcome: Callable[[_Check], Any]) -> Callable[[_Check], Any]:
    def change(self: _Check) -> Any:
        self.dead |= self.claims
        return outcome(self)

    return change


MUTANTS: Final = (
    Mutant(
        "claims are believed",
        replaced(SortedKeys, "judge", believing),
        plans.test_a_plan_that_drops_the_newest_write_is_refused,
    ),
    Mutant(
        "a write above the GC boundary kills",
        replaced(SortedKeys, "judge", above_any_boundary),
        plans.test_a_plan_under_a_higher_boundary_is_refused,
    ),
    Mutant(
        "nobody looks whether a delete hides something here",
        replaced(plan_check, "hiding", never_hiding),
        plans.test_a_delete_stays_where_something_older_is_left_that_the_plan_did_not_see,
    ),
    Mutant(
        "nobody looks whether a storage delete hides something here",
        replaced(plan_check, "shadowing", never_shadowing),
        plans.test_a_storage_delete_stays_while_it_hides_something,
    ),
    Mutant(
        "entries without keys may be claimed",
        replaced(_Check, "outcome", without_keys_too),
        plans.test_a_plan_that_drops_an_entry_without_a_key_is_refused,
    ),
    Mutant(
        "nobody looks for which log a plan is",
        replaced(plan_check, "check_fits", lambda _: nothing),
        plans.test_a_plan_of_another_log_is_refused,
    ),
    Mutant(
        "nobody looks how far a plan has looked",
        replaced(plan_check, "check_fits", lambda _: nothing),
        plans.test_a_plan_that_looked_further_than_this_replica_is_refused,
    ),
    Mutant(
        "what a snapshot found dead comes back",
        replaced(SnapshotState, "dead", lambda _: lambda self: self.live - self.live),
        plans.test_what_a_snapshot_found_dead_stays_dead_by_a_plan_that_does_not_know,
    ),
)


def by_name(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with mutant.change(), pytest.raises(CAUGHT):
        mutant.test()
