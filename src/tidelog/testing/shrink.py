"""Makes a failing seed smaller: fewer classes of faults, fewer faults, a shorter run.

What is left still fails with the same checker.  Every step repeats the whole simulation, so the
number of steps is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tidelog.testing.faults import Plan, Reduction, draw_plan, present_classes
from tidelog.testing.simulation import Outcome, run_plan
from tidelog.testing.sometimes import Kind

STEPS_MAX: Final = 120

Run: TypeAlias = Callable[[Plan], Outcome]


class Shrunk(msgspec.Struct, frozen=True):
    """The smallest failure that was found."""

    plan: Plan
    outcome: Outcome
    steps: int


class _Shrinking:
    """The smallest failure so far, and the steps that are left."""

    def __init__(self, plan: Plan, outcome: Outcome, run: Run, steps_max: int) -> None:
        self.plan = plan
        self.outcome = outcome
        self.steps = 0
        self._run = run
        self._steps_max = steps_max
        self._checker = outcome.failure.checker if outcome.failure is not None else ""

    @property
    def reduction(self) -> Reduction:
        return self.plan.reduction

    def try_out(self, reduction: Reduction) -> bool:
        """Keep a reduction if the failure is still there."""
        if self.steps >= self._steps_max:
            return False
        self.steps += 1
        plan = draw_plan(self.plan.kind, self.plan.seed, reduction)
        outcome = self._run(plan)
        if outcome.failure is None or outcome.failure.checker != self._checker:
            return False
        self.plan, self.outcome = plan, outcome
        return True


def shrink(
    kind: Kind,
    seed: int,
    reduction: Reduction | None = None,
    *,
    run: Run = run_plan,
    steps_max: int = STEPS_MAX,
) -> Shrunk | None:
    """Find a small failure of a seed; None if it does not fail."""
    plan = draw_plan(kind, seed, reduction)
    outcome = run(plan)
    if outcome.failure is None:
        return None
    work = _Shrinking(plan, outcome, run, steps_max)
    _shorten(work)
    _drop_classes(work)
    _drop_faults(work)
    _shorten(work)
    return Shrunk(work.plan, work.outcome, work.steps)


def _shorten(work: _Shrinking) -> None:
    """Let the faults end soon after the failure: nothing that is planned later matters."""
    end = min(work.outcome.ended_at + 1, work.plan.duration)
    while end > 0 and end < work.plan.duration:
        if not work.try_out(msgspec.structs.replace(work.reduction, stop_at=end)):
            return
        end = min(work.outcome.ended_at + 1, end * 3 // 4)


def _drop_classes(work: _Shrinking) -> None:
    for what in present_classes(work.plan):
        without = (*work.reduction.without, what)
        work.try_out(msgspec.structs.replace(work.reduction, without=without))


def _drop_faults(work: _Shrinking) -> None:
    """Leave out faults: halves first, then smaller parts, then single ones."""
    size = len(work.plan.faults)
    while size >= 1:
        begin = 0
        while begin < len(work.plan.faults):
            names = [fault.name for fault in work.plan.faults]
            only = (*names[:begin], *names[begin + size :])
            if not work.try_out(msgspec.structs.replace(work.reduction, only=only)):
                begin += size
        size //= 2
