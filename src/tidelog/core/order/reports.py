"""Whether a report counts, what it changes, and when it is void.  No state.

Invariants:
  R1  only a replica of the current ensemble counts, and only in the stream's current term
  R2  a counted report begins exactly where its version ended the ordered part of the stream
  R3  within a term, what a replica has durable never shrinks; the cuts it knows never do
"""

from __future__ import annotations

from enum import Enum

from tidelog import limits
from tidelog.core.order.commands import Report, UpdateStream
from tidelog.core.order.history import History
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.types import FIRST_LLSN, NO_VERSION, Llsn, NodeId, Version


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
        or reason_by_end(report, replica)
        or _updated(report, replica)
    )


def is_well_formed(report: Report) -> bool:
    return (
        report.llsn_begin >= FIRST_LLSN
        and 0 <= report.length <= limits.REPORT_ENTRIES_MAX
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


def reason_by_end(report: Report, replica: ReplicaOrder) -> Ignored | None:
    """Compare a report with what the replica said before in this term (R3)."""
    end = report.llsn_begin + report.length
    if end < replica.end:
        return Ignored.SMALLER_END
    if end == replica.end and report.version <= replica.version:
        return Ignored.REPEATED
    return None


def _updated(report: Report, replica: ReplicaOrder) -> ReplicaOrder:
    version = max(replica.version, report.version)
    return ReplicaOrder(replica.node, version, Llsn(report.llsn_begin + report.length))


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


def void_report(replica: ReplicaOrder) -> ReplicaOrder:
    """A replica as it is known before it reports in a new term; cuts are not forgotten."""
    return ReplicaOrder(replica.node, replica.version)
