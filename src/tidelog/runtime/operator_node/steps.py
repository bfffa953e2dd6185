"""Puts an operator's write of a stream's row into words, for logs and figures.  No state."""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.core.operator.plan import Phase, Status, decode_plan
from tidelog.core.order.commands import UpdateStream
from tidelog.errors import CorruptData
from tidelog.runtime.events import Field


class Step(Enum):
    """What a write does to a stream."""

    ELECTION_BEGUN = "election begun"
    CHANGE_PREPARED = "reconfiguration prepared"
    CHANGE_COMMITTED = "reconfiguration committed"
    CHANGE_ABORTING = "reconfiguration is undone"
    SETTLED = "stream settled"


class Stepped(msgspec.Struct, frozen=True):
    """A write that was applied."""

    step: Step
    fields: dict[str, Field]


def step_of(update: UpdateStream) -> Stepped | None:
    """What the write means; None if nobody needs to know."""
    try:
        plan = decode_plan(update.plan)
    except CorruptData:
        return None
    fields: dict[str, Field] = {"stream": update.stream, "term": update.term}
    match plan.status:
        case Status.ELECTION:
            return Stepped(Step.ELECTION_BEGUN, fields)
        case Status.STEADY:
            fields |= {"leader": update.leader, "ensemble": _nodes(update.ensemble)}
            return Stepped(Step.SETTLED, fields)
        case Status.RECONFIGURATION if plan.change is not None:
            change = plan.change
            fields |= {"kind": change.kind.name.lower(), "old": change.old, "new": change.new}
            return Stepped(_PHASES[change.phase], fields)
    return None


_PHASES = {
    Phase.PREPARE: Step.CHANGE_PREPARED,
    Phase.COMMIT: Step.CHANGE_COMMITTED,
    Phase.ABORT: Step.CHANGE_ABORTING,
}


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
