"""Whether a report counts, what it changes, and when it is void.  No state.

Invariants:
  R1  only a replica of the current ensemble counts, and only in the stream's current term
  R2  a counted report begins exactly where its version ended the ordered part of the stream
  R3  within a term, what a replica has durable never shrinks, nor what is committed by its
      leader's word; the cuts that a replica knows never do
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from tidelog import limits
from tidelog.core.order.commands import Report, UpdateStream
from tidelog.core.order.history import History
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.types import FIRST_LLSN, NO_LLSN, NO_VERSION, Llsn, NodeId, Revision, Version


class Ignored(Enum):
    """Why a report was left without effect."""

    INVALID = "the report has no valid position"
    UNKNOWN_STREAM = "no stream has that number"
    OLD_TERM = "the term has passed"
    UNKNOWN_TERM = "the term has not begun"
    NOT_IN_ENSEMBLE = "the node holds no replica of the stream"
    UNKNOWN_VERSION = "the replica knows a version that was never decided"
    GAP = "the reported entries begin beyond what is ordered"
    BEHIND_HISTORY = "the cuts that the replica misses are no longer kept"
    CONTRADICTION = "what the replica has ordered is not what its version ordered"
    SMALLER_END = "the replica said in this term that it has more"
    REPEATED = "the replica said so before"


def weigh(
    report: Report, order: StreamOrder, latest: Version, history: History
) -> ReplicaOrder | Ignored:
    """Return the replica as it is after a report on ``order``, or why the report does not count."""
    if not is_well_formed(report):
        return Ignored.INVALID
    if not is_of_term(report, order):
        return Ignored.OLD_TERM if report.term < order.term else Ignored.UNKNOWN_TERM
    replica = find_replica(order, report.node)
    if replica is None:
        return Ignored.NOT_IN_ENSEMBLE
    return (
        reason_by_position(report, order, latest, history)
        or reason_by_end(report, replica, order)
        or _updated(report, replica)
    )


def is_well_formed(report: Report) -> bool:
    return (
        report.llsn_begin >= FIRST_LLSN
        and 0 <= report.length <= limits.REPORT_ENTRIES_MAX
        and NO_LLSN <= report.committed_end <= report.llsn_begin + limits.REPORT_ENTRIES_MAX
        and report.version >= NO_VERSION
    )


def is_of_term(report: Report, order: StreamOrder) -> bool:
    return report.term == order.term


def find_replica(order: StreamOrder, node: NodeId) -> ReplicaOrder | None:
    for replica in order.replicas:
        if replica.node == node:
            return replica
    return None


def reason_by_position(
    report: Report, order: StreamOrder, latest: Version, history: History
) -> Ignored | None:
    """Compare a report with what the cuts up to the report's version have ordered (R2)."""
    if report.version > latest:
        return Ignored.UNKNOWN_VERSION
    if report.llsn_begin > order.llsn_end:
        return Ignored.GAP
    begin = history.ordered_end(order, report.version)
    if begin is None:
        return Ignored.BEHIND_HISTORY
    return None if report.llsn_begin == begin else Ignored.CONTRADICTION


def reason_by_end(report: Report, replica: ReplicaOrder, order: StreamOrder) -> Ignored | None:
    """Compare a report with what the replica said before in this term (R3)."""
    if report.llsn_end < replica.end:
        return Ignored.SMALLER_END
    return None if says_more(report, replica, order) else Ignored.REPEATED


def says_more(report: Report, replica: ReplicaOrder, order: StreamOrder) -> bool:
    """Whether a report of the current term tells of more than is known."""
    return (
        report.llsn_end > replica.end
        or report.version > replica.version
        or report.committed_end > order.committed_end
    )


def committed_after(report: Report, order: StreamOrder) -> Llsn:
    """How far a stream is committed by its leader's word, once a report counts (R3)."""
    return max(order.committed_end, report.committed_end)


def _updated(report: Report, replica: ReplicaOrder) -> ReplicaOrder:
    version = max(replica.version, report.version)
    return ReplicaOrder(replica.node, version, report.llsn_end)


def updated(order: StreamOrder, command: UpdateStream) -> StreamOrder:
    """Return a stream as it is after the operator's write."""
    return replace(
        order,
        replicas=replicas_after(command, order),
        term=command.term,
        revision=Revision(order.revision + 1),
        status=command.status,
        leader=command.leader,
        plan=command.plan,
        departed=departed_after(command, order),
        committed_end=committed_in(command, order),
    )


def replicas_after(command: UpdateStream, order: StreamOrder) -> tuple[ReplicaOrder, ...]:
    """Who stays keeps what is known of it; what it said in an older term is void (R1)."""
    known = {node: ReplicaOrder(node, version) for node, version in command.joining_versions}
    known |= {replica.node: replica for replica in order.replicas}
    replicas = [known.get(node) or ReplicaOrder(node) for node in command.ensemble]
    if command.term > order.term:
        replicas = [void_report(replica) for replica in replicas]
    return tuple(replicas)


def departed_after(command: UpdateStream, order: StreamOrder) -> tuple[NodeId, ...]:
    """Who left since the term began, and may have reports of it on their way; sorted."""
    if command.term > order.term:
        return ()
    leaving = [node for node in order.ensemble if node not in command.ensemble]
    return tuple(sorted((*order.departed, *leaving)))


def committed_in(command: UpdateStream, order: StreamOrder) -> Llsn:
    """What a stream's leader said of it counts in that leader's term only (R1)."""
    return order.committed_end if command.term == order.term else NO_LLSN


def void_report(replica: ReplicaOrder) -> ReplicaOrder:
    """A replica as it is known before it reports in a new term; cuts are not forgotten."""
    return ReplicaOrder(replica.node, replica.version)
