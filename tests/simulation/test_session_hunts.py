"""Every safeguard that chance can miss is needed: without it a checker fires within a few seeds."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.running import run, run_json
from tests.simulation.session_mutants import MUTANTS, SessionMutant, answered_at_once
from tidelog.core.session.control_channel import ControlChannel
from tidelog.testing.faults import draw_plan
from tidelog.testing.simulation import Failure, simulate
from tidelog.testing.sometimes import Kind


def hunt(mutant: SessionMutant) -> Failure | None:
    with mutant.change():
        for seed in range(mutant.first, mutant.first + mutant.seeds):
            failure = simulate(Kind.SESSION, seed).failure
            if failure is not None:
                return failure
    return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_within_its_seeds(mutant: SessionMutant) -> None:
    failure = hunt(mutant)
    assert failure is not None
    assert failure.checker in mutant.caught_by, failure.message


def test_a_planted_bug_is_shrunk_and_repeated_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 0
    before = len(draw_plan(Kind.SESSION, seed).faults)
    monkeypatch.setattr(ControlChannel, "_commit", answered_at_once)
    told = run_json("simulate", "--kind", "session", "--seed", seed, code=1)
    assert told["checker"] == "replica_promises"
    assert len(told["faults"]) < before
    again = run(*shlex.split(told["replay"])[1:], code=1)
    assert "replica_promises: " in again.stdout
    monkeypatch.undo()
    run(*shlex.split(told["replay"])[1:], code=0)
