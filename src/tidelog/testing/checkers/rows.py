"""A stream's metadata never goes back, and names a leader of its ensemble."""

from __future__ import annotations

from typing import Final

from tidelog.core.operator.plan import Change, Phase, Status, StreamPlan, decode_plan
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import ChangeKind
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.types import NO_NODE, StreamId

NAME: Final = "rows"
COMPLETED: Final = {
    ChangeKind.SWAP: Rare.SWAP_COMPLETED,
    ChangeKind.EXPAND: Rare.EXPANSION_COMPLETED,
    ChangeKind.CONTRACT: Rare.CONTRACTION_COMPLETED,
}
STALLED_IN_PREPARE: Final = {
    ChangeKind.SWAP: Rare.SWAP_STALLED_IN_PREPARE,
    ChangeKind.EXPAND: Rare.EXPANSION_STALLED_IN_PREPARE,
    ChangeKind.CONTRACT: Rare.CONTRACTION_STALLED_IN_PREPARE,
}
STALLED_IN_COMMIT: Final = {
    ChangeKind.SWAP: Rare.SWAP_STALLED_IN_COMMIT,
    ChangeKind.EXPAND: Rare.EXPANSION_STALLED_IN_COMMIT,
    ChangeKind.CONTRACT: Rare.CONTRACTION_STALLED_IN_COMMIT,
}
RESOLVED: Final = {
    ChangeKind.SWAP: Rare.SWAP_RESOLVED_BY_ELECTION,
    ChangeKind.EXPAND: Rare.EXPANSION_RESOLVED_BY_ELECTION,
    ChangeKind.CONTRACT: Rare.CONTRACTION_RESOLVED_BY_ELECTION,
}


class Rows:
    """The newest row of every stream."""

    __slots__ = ("_rows", "_sometimes")

    def __init__(self, sometimes: Sometimes) -> None:
        self._sometimes = sometimes
        self._rows: dict[StreamId, StreamOrder] = {}

    def on_row(self, order: StreamOrder) -> None:
        """Check a row when it is committed."""
        before = self._rows.get(order.stream)
        if before is not None and before.revision == order.revision:
            return
        self._rows[order.stream] = order
        if order.leader != NO_NODE and order.leader not in order.ensemble:
            raise Violation(NAME, f"the leader is not of the ensemble: {order}")
        if before is None:
            return
        if order.term < before.term or order.llsn_end < before.llsn_end:
            raise Violation(NAME, f"{order} comes after {before}")
        if order.term > before.term:
            self._sometimes.count(Rare.TERM_CHANGED)
        if order.ensemble != before.ensemble:
            self._sometimes.count(Rare.ENSEMBLE_CHANGED)
        self._count(before, decode_plan(before.plan), order, decode_plan(order.plan))

    def _count(
        self, before: StreamOrder, old: StreamPlan, order: StreamOrder, new: StreamPlan
    ) -> None:
        change = old.change
        if change is None or new.change == change:
            if change is not None and new.status is not old.status:
                self._sometimes.count(STALLED_IN_COMMIT[change.kind])
            return
        if new.change is not None:
            return  # From prepare to commit.
        if new.status is Status.ELECTION:
            self._sometimes.count(STALLED_IN_PREPARE[change.kind])
        elif new.status is Status.STEADY:
            self._sometimes.count(_end_of(change, old.status, before, order))


def _end_of(change: Change, status: Status, before: StreamOrder, order: StreamOrder) -> Rare:
    """Say how a reconfiguration ended, with a row that is steady again."""
    if status is Status.ELECTION:
        return RESOLVED[change.kind]
    if change.phase is Phase.PREPARE or order.ensemble == before.ensemble:
        return Rare.CHANGE_ABORTED
    return COMPLETED[change.kind]
