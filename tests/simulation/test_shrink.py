"""A failure is made small and can be repeated: with a made-up failure, and with a planted bug."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.running import run, run_json
from tidelog.core.raft import election, roles
from tidelog.testing.faults import FaultClass, Plan, Reduction, draw_plan
from tidelog.testing.shrink import shrink
from tidelog.testing.simulation import Failure, Outcome, simulate
from tidelog.testing.sometimes import Kind
from tidelog.testing.story import replay_line


def outcome_of(plan: Plan, failure: Failure | None) -> Outcome:
    return Outcome(plan.kind, plan.seed, "", 1, 900_000, {}, failure)


def seed_with(*classes: FaultClass) -> int:
    return next(
        seed
        for seed in range(1000)
        if all(draw_plan(Kind.RAFT, seed).has(what) for what in classes)
        and sum(f.what in classes for f in draw_plan(Kind.RAFT, seed).faults) > len(classes)
    )


def test_only_the_faults_that_a_failure_needs_are_left() -> None:
    seed = seed_with(FaultClass.CRASH, FaultClass.PAUSE)
    needed = {
        next(fault.name for fault in draw_plan(Kind.RAFT, seed).faults if fault.what is what)
        for what in (FaultClass.CRASH, FaultClass.PAUSE)
    }

    def run_plan(plan: Plan) -> Outcome:
        has_all = needed <= {fault.name for fault in plan.faults}
        return outcome_of(plan, Failure("made up", "", ()) if has_all else None)

    shrunk = shrink(Kind.RAFT, seed, run=run_plan)
    assert shrunk is not None
    assert {fault.name for fault in shrunk.plan.faults} == needed
    assert shrunk.plan.weather.loss == shrunk.plan.weather.duplication == 0


def test_a_failure_of_another_kind_is_not_taken_for_the_same() -> None:
    seed = seed_with(FaultClass.CRASH)

    def run_plan(plan: Plan) -> Outcome:
        name = "one" if plan.has(FaultClass.CRASH) else "another"
        return outcome_of(plan, Failure(name, "", ()))

    shrunk = shrink(Kind.RAFT, seed, run=run_plan)
    assert shrunk is not None
    assert [fault.what for fault in shrunk.plan.faults] == [FaultClass.CRASH]


def test_the_number_of_steps_is_bounded() -> None:
    steps = 0

    def run_plan(plan: Plan) -> Outcome:
        nonlocal steps
        steps += 1
        return outcome_of(plan, Failure("made up", "", ()))

    shrunk = shrink(Kind.RAFT, 1, run=run_plan, steps_max=5)
    assert shrunk is not None
    assert (shrunk.steps, steps) == (5, 6)


def test_a_seed_that_goes_well_is_not_shrunk() -> None:
    assert shrink(Kind.RAFT, 1, run=lambda plan: outcome_of(plan, None)) is None


def test_the_replay_line_says_all_that_was_left_out() -> None:
    reduction = Reduction((FaultClass.LOSS, FaultClass.CLOG), ("crash:1", "kill:2"), 500)
    assert replay_line(draw_plan(Kind.RAFT, 7, reduction)) == (
        "tidelog simulate --kind raft --seed 7 --without loss,clog --only crash:1,kill:2"
        " --stop-at 500"
    )
    none = replay_line(draw_plan(Kind.CLUSTER, 8, Reduction(only=())))
    assert none == "tidelog simulate --kind cluster --seed 8 --only none"


@pytest.fixture
def votes_for_any_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a vote is given to a log that lacks committed entries."""
    for module in (election, roles):
        monkeypatch.setattr(module, "is_up_to_date", lambda state, request: True)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("votes_for_any_log")
def test_a_planted_bug_is_found_shrunk_and_repeated_by_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = next(seed for seed in range(100) if simulate(Kind.RAFT, seed).failure is not None)
    before = len(draw_plan(Kind.RAFT, seed).faults)
    told = run_json("simulate", "--kind", "raft", "--seed", seed, code=1)
    assert told["checker"] == "raft_safety"
    assert len(told["faults"]) < before
    assert told["events"]
    again = run(*shlex.split(told["replay"])[1:], code=1)
    assert "raft_safety: " in again.stdout
    assert "repeat with: tidelog simulate --kind raft" in again.stdout
    monkeypatch.undo()
    run(*shlex.split(told["replay"])[1:], code=0)
