"""A failure as text: the line that repeats it, the faults it needs, and what happened last."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.testing.faults import Plan, present_classes
from tidelog.testing.simulation import Failure


def replay_line(plan: Plan) -> str:
    """Return the command that repeats a plan."""
    parts = [f"tidelog simulate --kind {plan.kind.value} --seed {plan.seed}"]
    reduction = plan.reduction
    if reduction.without:
        parts.append("--without " + ",".join(what.value for what in reduction.without))
    if reduction.only is not None:
        parts.append("--only " + (",".join(reduction.only) or "none"))
    if reduction.stop_at is not None:
        parts.append(f"--stop-at {reduction.stop_at}")
    return " ".join(parts)


def tell(plan: Plan, failure: Failure) -> Iterator[str]:
    """Return the lines that a person needs to understand a failure."""
    yield f"{failure.checker}: {failure.message}"
    yield f"repeat with: {replay_line(plan)}"
    classes = ", ".join(what.value for what in present_classes(plan)) or "none"
    yield f"classes of faults: {classes}"
    yield f"faults: {len(plan.faults)}"
    for fault in sorted(plan.faults, key=lambda fault: fault.at):
        yield f"  {fault}"
    yield f"the last {len(failure.events)} events:"
    for event in failure.events:
        yield f"  {event}"
