"""Why what a person asks for is refused.  No state."""

from __future__ import annotations

from tidelog import limits
from tidelog.core.operator.detection import Detection
from tidelog.core.operator.output import Refused
from tidelog.core.operator.plan import Change, Phase
from tidelog.core.operator.row import Row
from tidelog.core.replica.messages import ChangeKind
from tidelog.types import NO_NODE


def refuse_change(row: Row, change: Change, detection: Detection) -> Refused | None:
    """Return why this change of the ensemble may not begin, if so."""
    if not row.is_steady:
        return Refused.NOT_STEADY
    return _refuse_form(change) or _refuse_old(row, change) or _refuse_new(row, change, detection)


def _refuse_form(change: Change) -> Refused | None:
    names_old = change.old != NO_NODE
    names_new = change.new != NO_NODE
    takes_old = change.kind is not ChangeKind.EXPAND
    takes_new = change.kind is not ChangeKind.CONTRACT
    return None if (names_old, names_new) == (takes_old, takes_new) else Refused.MALFORMED


def _refuse_old(row: Row, change: Change) -> Refused | None:
    """The leader is of the ensemble, so one node is always left."""
    if change.old == NO_NODE:
        return None
    if change.old == row.leader:
        return Refused.LEADER
    return None if change.old in row.ensemble else Refused.NOT_MEMBER


def _refuse_new(row: Row, change: Change, detection: Detection) -> Refused | None:
    if change.new == NO_NODE:
        return None
    if change.new in row.ensemble:
        return Refused.MEMBER_ALREADY
    if change.new not in detection.nodes or detection.is_suspected(change.new):
        return Refused.NO_SUCH_NODE
    # A swap has both nodes in its fencing ensemble for a while, but never in the row's.
    is_full = len(row.ensemble) >= limits.ENSEMBLE_NODES_MAX
    return Refused.TOO_LARGE if is_full and change.kind is ChangeKind.EXPAND else None


def refuse_abort(row: Row) -> Refused | None:
    """Return why there is nothing to undo, if so."""
    change = row.plan.change
    if change is None:
        return Refused.NOTHING_TO_ABORT
    return Refused.COMMITTED if change.phase is Phase.COMMIT else None
