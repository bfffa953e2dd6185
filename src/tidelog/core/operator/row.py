"""A stream's row in the metadata repository, and the rows that may follow it.  No state.

Every write names the revision that it is based on.  Only the functions of this module make rows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec
from msgspec.structs import replace

from tidelog.core.operator.plan import (
    STEADY,
    Change,
    Ensemble,
    Phase,
    Status,
    StreamPlan,
    can_elect,
    changed_ensemble,
    decode_plan,
    encode_plan,
    fencing_ensemble,
    final_ensemble,
    flaw_in_plan,
)
from tidelog.core.order.commands import Quorum, StreamStatus, UpdateStream
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.entries import EntryId
from tidelog.errors import CorruptData
from tidelog.invariants import check
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Term, Version


class Row(msgspec.Struct, frozen=True, gc=False):
    """What an operator has to know of a stream."""

    stream: StreamId
    revision: Revision
    term: Term
    ensemble: Ensemble
    leader: NodeId
    status: StreamStatus
    """Whether cuts take from it; nothing to an operator, who writes it back as it was."""
    plan: StreamPlan
    quorum: Quorum

    @property
    def is_steady(self) -> bool:
        """Whether ``leader`` leads, by all that is written."""
        return self.plan.status is Status.STEADY

    @property
    def fencing(self) -> Ensemble:
        """Whom an election has to fence."""
        return fencing_ensemble(self.ensemble, self.plan.change)

    @property
    def final(self) -> Ensemble:
        """The ensemble that an election ends with."""
        return final_ensemble(self.ensemble, self.plan.change)

    def can_elect(self, present: Container[NodeId]) -> bool:
        """Whether these nodes are enough for an election."""
        return can_elect(present, self.ensemble, self.plan.change)

    @property
    def is_first(self) -> bool:
        """Whether nobody was ever asked to lead: then a replica without a log lacks nothing."""
        return self.plan.status is Status.NEW or self.plan.is_first

    @property
    def versions(self) -> dict[NodeId, Version]:
        """The last cut that a new node is known to know."""
        change = self.plan.change
        if change is None or change.new == NO_NODE or change.phase is not Phase.COMMIT:
            return {}
        return {change.new: change.version}

    @property
    def lasting(self) -> Ensemble:
        """The members that are not about to leave."""
        change = self.plan.change
        return tuple(node for node in self.ensemble if change is None or node != change.old)

    @property
    def involved(self) -> tuple[NodeId, ...]:
        """The members, and who is about to be one."""
        change = self.plan.change
        if change is None or change.new == NO_NODE:
            return self.ensemble
        return (*self.ensemble, change.new)


def read_row(order: StreamOrder, quorum: Quorum) -> Row:
    """Read what the repository has of a stream; raise CorruptData if it makes no sense."""
    plan = decode_plan(order.plan)
    flaw = flaw_in_plan(plan, order.ensemble, order.leader)
    if flaw is not None:
        raise CorruptData(f"the plan of stream {order.stream} is not sound: {flaw}")
    return Row(
        stream=order.stream,
        revision=order.revision,
        term=order.term,
        ensemble=order.ensemble,
        leader=order.leader,
        status=order.status,
        plan=plan,
        quorum=quorum,
    )


def update_to(row: Row, following: Row, versions: Mapping[NodeId, Version]) -> UpdateStream:
    """Return the write that turns ``row`` into ``following``, if nobody was faster.

    ``versions``: the last cuts that nodes told of.  What joining nodes know goes with the write,
    for the repository has not heard of them.
    """
    check(following.revision == row.revision + 1, "a write is based on the revision before it")
    check(following.term >= row.term, "a term went back")
    return UpdateStream(
        stream=row.stream,
        revision=row.revision,
        term=following.term,
        ensemble=following.ensemble,
        leader=following.leader,
        status=following.status,
        plan=encode_plan(following.plan),
        joining_versions=tuple(
            (node, versions[node]) for node in joining(row, following) if node in versions
        ),
    )


def joining(row: Row, following: Row) -> list[NodeId]:
    """Return who becomes a member with a write."""
    return [node for node in following.ensemble if node not in row.ensemble]


# -- elections -----------------------------------------------------------------------------------


def with_new_term(row: Row, known: Term) -> Row:
    """Begin an election, in a term above ``known``, which a node may have told of.

    Only a reconfiguration in *commit* stays: on others nobody counts yet, or any more.
    """
    change = row.plan.change
    kept = change if change is not None and change.phase is Phase.COMMIT else None
    return replace(
        row,
        revision=_next(row),
        term=next_term(row, known),
        leader=NO_NODE,
        plan=StreamPlan(Status.ELECTION, kept, row.is_first),
    )


def with_a_leader_to_be(row: Row) -> Row:
    """Write down that somebody may lead from now on: an empty replica lacks something."""
    return replace(row, revision=_next(row), plan=replace(row.plan, is_first=False))


def with_leader(row: Row, leader: NodeId) -> Row:
    """Complete an election, and the reconfiguration that it found, or rolled back."""
    check(leader in row.final, "the leader is of the final ensemble")
    return replace(row, revision=_next(row), ensemble=row.final, leader=leader, plan=STEADY)


# -- reconfigurations ----------------------------------------------------------------------------


def with_prepared(row: Row, change: Change, known: Term) -> Row:
    """Begin a reconfiguration."""
    check(row.is_steady, "reconfigurations begin in steady state")
    return replace(
        row,
        revision=_next(row),
        term=next_term(row, known),
        plan=StreamPlan(Status.RECONFIGURATION, change),
    )


def with_committed(row: Row, head: EntryId, version: Version) -> Row:
    """Go to *commit*; a new node has the log up to ``head`` and the cuts up to ``version``."""
    change = replace(_change(row), phase=Phase.COMMIT, head=head, version=version)
    return replace(row, revision=_next(row), plan=StreamPlan(Status.RECONFIGURATION, change))


def with_changed_ensemble(row: Row) -> Row:
    """Complete a reconfiguration that the leader has applied."""
    change = _change(row)
    check(change.phase is Phase.COMMIT, "a reconfiguration completes in commit")
    ensemble = changed_ensemble(row.ensemble, change)
    return replace(row, revision=_next(row), ensemble=ensemble, plan=STEADY)


def with_aborted(row: Row) -> Row:
    """Go to *abort*: from now on nobody can write *commit*."""
    check(_change(row).phase is Phase.PREPARE, "there is no way back from commit")
    change = replace(_change(row), phase=Phase.ABORT)
    return replace(row, revision=_next(row), plan=StreamPlan(Status.RECONFIGURATION, change))


def with_change_undone(row: Row) -> Row:
    """Complete an abort that the leader has answered."""
    check(_change(row).phase is Phase.ABORT, "a leader aborts what nobody can commit any more")
    return replace(row, revision=_next(row), plan=STEADY)


def next_term(row: Row, known: Term) -> Term:
    """Return a term that nobody has heard of."""
    return Term(max(row.term, known) + 1)


def _next(row: Row) -> Revision:
    return Revision(row.revision + 1)


def _change(row: Row) -> Change:
    change = row.plan.change
    if change is None:
        raise CorruptData(f"stream {row.stream} has no reconfiguration")
    return change
