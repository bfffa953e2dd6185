"""How an operator looks after a stream that has its leader.  No state of its own.

A leader is asked now and then which followers it counts on.  A member that is missing is fenced
in the present term, and the leader is told of it: that repairs what an operator left undone when
it died, and what a node forgot when it restarted.  All of it may be repeated at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.core.operator.options import Ignored
from tidelog.core.operator.output import Outbox
from tidelog.core.operator.procedure import Suspects
from tidelog.core.operator.requests import add_follower, drop, fence
from tidelog.core.operator.row import Row
from tidelog.core.operator.watching import Watch, is_unled
from tidelog.core.replica.messages import (
    AddFollowerResponse,
    DropResponse,
    FenceResponse,
    FollowerHead,
    Refusal,
    StatusResponse,
    ToOperator,
)
from tidelog.types import NodeId


def take_answer(
    watch: Watch, message: ToOperator, now: int, suspects: Suspects, outbox: Outbox
) -> Ignored | None:
    """Take a message that belongs to no procedure; return why it had no effect, if so."""
    if isinstance(message, DropResponse):
        return None if watch.drops.pop(message.source, None) is not None else Ignored.REPEATED
    if message.term != watch.row.term:
        return Ignored.OTHER_TERM
    if isinstance(message, Refusal):
        watch.note_term(message.known_term, now)
        return None
    if not watch.row.is_steady:
        return Ignored.LATE
    match message:
        case StatusResponse():
            return _on_status(watch, message, now, suspects, outbox)
        case FenceResponse():
            return tell_leader(watch.row, message, outbox)
        case AddFollowerResponse():
            return None
    return Ignored.LATE


def _on_status(
    watch: Watch, status: StatusResponse, now: int, suspects: Suspects, outbox: Outbox
) -> Ignored | None:
    row = watch.row
    if status.source != row.leader:
        return Ignored.NOT_ASKED
    watch.note_term(status.own_term, now)
    if is_unled(row, status):
        watch.is_unled = True
    elif status.own_term == row.term:
        watch.attached, watch.attached_at = status.attached, now
        fence_missing(row, watch.missing, suspects, outbox)
    return None


def fence_missing(row: Row, missing: Iterable[NodeId], suspects: Suspects, outbox: Outbox) -> None:
    """Ask members that the leader does not count on for their heads, if they are alive."""
    for node in missing:
        if not suspects(node):
            outbox.send(fence(outbox.node, row, node))


def tell_leader(row: Row, answer: FenceResponse, outbox: Outbox) -> Ignored | None:
    """Let the leader know of a member that was fenced in its term."""
    if answer.source not in row.lasting or answer.source == row.leader:
        return Ignored.NOT_ASKED
    follower = FollowerHead(answer.source, answer.head, answer.is_complete)
    outbox.send(add_follower(outbox.node, row, row.leader, follower))
    return None


def drop_replicas(watch: Watch, now: int, outbox: Outbox) -> None:
    """Ask nodes that are of no ensemble any more to delete their replicas; give up in time."""
    watch.drops = {node: until for node, until in watch.drops.items() if now < until}
    for node in watch.drops:
        outbox.send(drop(outbox.node, watch.row, node))
