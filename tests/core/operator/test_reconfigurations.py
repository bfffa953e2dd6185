"""How an ensemble changes: swap, expand, contract, and what stops them."""

from __future__ import annotations

import pytest

from tests.core.operator.cluster import OPERATOR, OTHER_OPERATOR, QUICK, Cluster, Message
from tests.core.order.orders import S1
from tidelog.core.operator.options import Ignored
from tidelog.core.operator.output import Refused, Result
from tidelog.core.operator.plan import Phase, Status
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AbortRequest,
    AbortResponse,
    AddFollowerRequest,
    BecomeLeaderRequest,
    ChangeKind,
    CommitRequest,
    CommitResponse,
    DropRequest,
    DropResponse,
    FenceRequest,
    FenceResponse,
    PrepareRequest,
    PrepareResponse,
    Reason,
    Refusal,
    Role,
    SnapshotRequest,
    SnapshotResponse,
)
from tidelog.types import NO_NODE, NodeId, Term, Version

SWAP = (ChangeKind.SWAP, NodeId(3), NodeId(4))
EXPAND = (ChangeKind.EXPAND, NO_NODE, NodeId(4))
CONTRACT = (ChangeKind.CONTRACT, NodeId(3), NO_NODE)
AFTER = {ChangeKind.SWAP: (1, 2, 4), ChangeKind.EXPAND: (1, 2, 3, 4), ChangeKind.CONTRACT: (1, 2)}
CHANGES = pytest.mark.parametrize("change", [SWAP, EXPAND, CONTRACT], ids=lambda one: one[0].value)


def settled(operators: tuple[NodeId, ...] = (OPERATOR,)) -> Cluster:
    """A stream on 1, 2 and 3, led by 1, with entries that all have, and a spare node."""
    cluster = Cluster(spare=(4,), operators=operators)
    cluster.steady()
    assert cluster.row.leader == 1
    cluster.append(3)
    cluster.run(2)
    cluster.forget_sent()
    return cluster


# -- the seed --------------------------------------------------------------------------------------


@CHANGES
def test_a_change_goes_through(change: tuple[ChangeKind, NodeId, NodeId]) -> None:
    cluster = settled()
    outcome = cluster.ask(cluster.operator.change(S1, *change))
    assert outcome.result is Result.DONE
    assert cluster.row.ensemble == AFTER[change[0]]
    assert cluster.row.term == 3
    assert cluster.row.leader == 1
    assert cluster.leader.ensemble == cluster.row.ensemble
    cluster.append()
    cluster.steady()
    assert len(cluster.committed) == 4


@CHANGES
def test_the_plan_is_written_before_the_leader_prepares(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.loses_outcomes = True
    cluster.operator.change(S1, *change)
    cluster.run()
    assert cluster.row.plan.status is Status.RECONFIGURATION
    assert cluster.row.plan.change is not None
    assert cluster.row.plan.change.phase is Phase.PREPARE
    assert not cluster.sent_of(PrepareRequest)


@pytest.mark.parametrize("change", [SWAP, EXPAND])
def test_commit_is_written_only_when_the_new_node_has_its_snapshot(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, SnapshotResponse)
    cluster.operator.change(S1, *change)
    cluster.run(30)
    assert not cluster.sent_of(CommitRequest)
    assert cluster.row.plan.change is not None
    assert cluster.row.plan.change.phase is Phase.PREPARE
    (request, *_) = cluster.sent_of(SnapshotRequest)
    assert (request.target, request.leader, request.head) == (4, 1, cluster.leader_now.head)
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.ensemble == AFTER[change[0]]


def test_a_snapshot_that_ends_before_the_leaders_head_does_not_count() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, SnapshotRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.operator.step(SnapshotResponse(NodeId(4), OPERATOR, S1, Term(3), NO_ENTRY))
    cluster.run(3)
    assert not cluster.sent_of(CommitRequest)
    assert cluster.operator.ignored[Ignored.SHORT] == 1


def test_the_ensemble_is_written_only_when_the_leader_has_applied_it() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitResponse)
    cluster.operator.change(S1, *SWAP)
    cluster.run(5)
    assert cluster.row.ensemble == (1, 2, 3)
    assert cluster.row.plan.change is not None
    assert cluster.row.plan.change.head == cluster.node(4).log[2]


def test_a_contraction_is_tried_again_until_the_leader_can() -> None:
    """2 lags behind: without 3, what is committed would not be on a majority of the rest."""
    cluster = settled()
    cluster.node(2).is_up = False
    cluster.append()
    cluster.run()
    assert len(cluster.committed) == 4
    request = cluster.operator.change(S1, *CONTRACT)
    cluster.run(6)
    assert len(cluster.sent_of(CommitRequest)) > 1
    assert NodeId(3) in cluster.row.ensemble
    cluster.node(2).is_up = True
    assert cluster.ask(request).result is Result.DONE
    assert cluster.row.ensemble == (1, 2)


def test_a_contraction_that_cannot_be_completed_is_rolled_back_by_an_election() -> None:
    cluster = settled()
    cluster.node(2).is_up = False
    cluster.append()
    cluster.run()
    request = cluster.operator.change(S1, *CONTRACT)
    assert cluster.ask(request).result is Result.UNKNOWN
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 3)
    assert cluster.row.term == 4
    assert not cluster.sent_of(DropRequest)


def test_a_follower_that_a_contraction_waits_for_is_attached_meanwhile() -> None:
    """What waits must not stop the work that it waits for."""
    cluster = settled()
    cluster.node(2).forget_all()
    cluster.append()
    cluster.operator.change(S1, *CONTRACT)
    cluster.lost = lambda message: isinstance(message, DropRequest)
    cluster.run_until(lambda: cluster.row.ensemble == (1, 2))
    assert [each.follower.node for each in cluster.sent_of(AddFollowerRequest)] == [2]
    assert cluster.row.term == 3


def test_a_contraction_leaves_no_rest_that_could_not_elect() -> None:
    """Nothing was written yet, so the rest lacks nothing: but 2 was never fenced, and is empty."""
    cluster = Cluster()
    cluster.lost = lambda message: NodeId(2) in (message.source, message.target)
    cluster.run_until(lambda: cluster.row.is_steady)
    cluster.run()
    assert cluster.row.leader == 1
    request = cluster.operator.change(S1, *CONTRACT)
    cluster.run(5)
    assert not cluster.sent_of(CommitRequest)
    cluster.lost = lambda _: False
    assert cluster.ask(request).result is Result.DONE
    cluster.node(1).restart()
    cluster.steady()
    assert cluster.row.ensemble == (1, 2)


def test_no_member_is_fenced_in_a_term_that_the_leader_has_not_entered() -> None:
    cluster = settled()
    cluster.node(2).forget_all()
    cluster.run()
    cluster.forget_sent()
    cluster.lost = lambda message: isinstance(message, PrepareResponse)
    cluster.operator.change(S1, *SWAP)
    cluster.run(6)
    assert not [each for each in cluster.sent_of(FenceRequest) if each.term == 3]
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 3


@pytest.mark.parametrize("change", [SWAP, CONTRACT])
def test_the_old_node_is_told_to_delete_its_replica_until_it_answers(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, DropResponse)
    cluster.ask(cluster.operator.change(S1, *change))
    cluster.run(5)
    dropped = cluster.sent_of(DropRequest)
    assert len(dropped) > 1
    assert {(each.target, each.term) for each in dropped} == {(3, 3)}
    assert cluster.node(3).role is Role.NOT_MEMBER
    cluster.lost = lambda _: False
    cluster.run(3)
    cluster.forget_sent()
    cluster.run(20)
    assert not cluster.sent_of(DropRequest)


def test_a_dead_old_node_is_not_asked_for_ever() -> None:
    cluster = settled()
    cluster.node(3).is_up = False
    cluster.ask(cluster.operator.change(S1, *SWAP))
    cluster.run(QUICK.patience_ticks + QUICK.status_ticks)
    cluster.forget_sent()
    cluster.run(50)
    assert not cluster.sent_of(DropRequest)


def test_a_node_that_comes_back_is_not_told_to_delete_its_replica() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, DropRequest)
    cluster.ask(cluster.operator.change(S1, *CONTRACT))
    cluster.run(1)
    assert cluster.sent_of(DropRequest)
    request = cluster.operator.change(S1, ChangeKind.EXPAND, new=NodeId(3))
    cluster.forget_sent()
    cluster.lost = lambda _: False
    assert cluster.ask(request).result is Result.DONE
    cluster.run(20)
    assert not cluster.sent_of(DropRequest)
    assert cluster.row.ensemble == (1, 2, 3)


# -- cuts that are no longer kept ------------------------------------------------------------------


@pytest.mark.parametrize("change", [SWAP, EXPAND])
def test_what_a_new_node_knows_is_told_with_the_new_ensemble(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.node(4).version = Version(7)
    cluster.ask(cluster.operator.change(S1, *change))
    assert [command.joining_versions for command in cluster.commands[-3:]] == [(), (), ((4, 7),)]


def test_what_a_new_node_knows_is_told_by_whoever_completes_the_change() -> None:
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    cluster.node(4).version = Version(7)
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.node(4).version = Version(9)
    del cluster.operators[OPERATOR]
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.commands[-1].joining_versions == ((4, 7),)
    cluster = settled()
    cluster.node(4).version = Version(7)
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.node(4).version = Version(9)
    cluster.lost = lambda _: False
    cluster.operator.elect(S1)
    cluster.run()
    assert cluster.row.ensemble == (1, 2, 4)
    assert cluster.commands[-1].joining_versions == ((4, 9),)


@CHANGES
def test_a_new_ensemble_waits_until_enough_replicas_know_the_cuts(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.are_behind = True
    request = cluster.operator.change(S1, *change)
    cluster.run(3 * QUICK.patience_ticks)
    assert not cluster.outcomes
    cluster.node(4).version = Version(5)  # It was still catching up.
    cluster.run(QUICK.resend_ticks)
    cluster.are_behind = False
    assert cluster.ask(request).result is Result.DONE
    assert (cluster.row.ensemble, cluster.row.term) == (AFTER[change[0]], 3)
    joining = ((4, 5),) if change[2] else ()
    assert cluster.commands[-1].joining_versions == joining


def test_an_election_waits_until_enough_replicas_know_the_cuts() -> None:
    """It completes a swap: the leader leads already, only the row has to wait."""
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.lost = lambda message: isinstance(message, FenceResponse) and message.source == 2
    cluster.are_behind = True
    request = cluster.operator.elect(S1)
    cluster.run(3 * QUICK.patience_ticks)
    assert cluster.node(1).leads
    assert not [outcome for outcome in cluster.outcomes if outcome.request == request]
    cluster.lost = lambda _: False
    cluster.run(QUICK.resend_ticks)
    assert cluster.sent_of(AddFollowerRequest)[-1].follower.node == 2
    cluster.are_behind = False
    assert cluster.ask(request).result is Result.DONE
    assert (cluster.row.ensemble, cluster.row.term) == ((1, 2, 4), 4)


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("elects", [True, False])
def test_a_leader_that_is_lost_while_the_row_waits_is_replaced(dies: bool, elects: bool) -> None:
    cluster = settled()
    cluster.are_behind = True
    cluster.lost = lambda message: elects and isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    if elects:
        cluster.operator.elect(S1)
    cluster.run(QUICK.election_pause_ticks)
    assert not cluster.row.is_steady
    term = cluster.row.term
    cluster.leader_now.restart()
    cluster.node(1).is_up = not dies
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.term == term + 1)
    cluster.are_behind = False
    cluster.run_until(lambda: cluster.row.is_steady and cluster.leader.leads)
    assert cluster.row.ensemble == (1, 2, 4)


def test_a_leader_that_restarts_while_the_new_node_synchronises_is_replaced() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, SnapshotRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.node(1).restart()
    cluster.run(QUICK.election_pause_ticks)
    assert cluster.row.term == 4


# -- undone ----------------------------------------------------------------------------------------


@CHANGES
def test_a_change_in_prepare_can_be_undone(change: tuple[ChangeKind, NodeId, NodeId]) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareResponse | SnapshotRequest)
    request = cluster.operator.change(S1, *change)
    cluster.run(3)
    abort = cluster.operator.abort(S1)
    assert cluster.ask(abort).result is Result.DONE
    assert cluster.ask(request).result is Result.ABORTED
    assert cluster.row.is_steady
    assert (cluster.row.ensemble, cluster.row.term, cluster.row.leader) == ((1, 2, 3), 3, 1)
    cluster.lost = lambda _: False
    cluster.append()
    cluster.steady()
    assert len(cluster.committed) == 4


def test_steady_is_written_only_when_the_leader_has_undone_it() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareResponse | AbortRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    abort = cluster.operator.abort(S1)
    cluster.run(5)
    assert cluster.row.plan.status is Status.RECONFIGURATION
    assert cluster.ask(abort).result is Result.UNKNOWN
    cluster.lost = lambda _: False
    cluster.steady()


def test_a_new_node_that_dies_lets_the_change_be_undone() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, SnapshotRequest)
    request = cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    cluster.node(4).is_up = False
    assert cluster.ask(request).result is Result.ABORTED
    assert cluster.row.ensemble == (1, 2, 3)
    assert cluster.row.is_steady


def test_a_new_node_that_takes_too_long_lets_the_change_be_undone() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, SnapshotRequest)
    request = cluster.operator.change(S1, *EXPAND)
    assert cluster.ask(request, ticks=QUICK.snapshot_ticks + 5).result is Result.ABORTED


def test_a_new_node_that_refuses_lets_the_change_be_undone_and_is_cleaned_up() -> None:
    cluster = settled()
    cluster.node(4).term = Term(9)
    request = cluster.operator.change(S1, *SWAP)
    assert cluster.ask(request).result is Result.ABORTED
    assert cluster.row.ensemble == (1, 2, 3)
    cluster.run(2)
    assert cluster.sent_of(DropRequest)[0].target == 4


def test_what_is_being_undone_is_undone_by_whoever_comes_next() -> None:
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    cluster.lost = lambda message: isinstance(message, PrepareResponse | AbortRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.operator.abort(S1)
    cluster.run(2)
    assert cluster.row.plan.change is not None
    assert cluster.row.plan.change.phase is Phase.ABORT
    del cluster.operators[OPERATOR]
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert (cluster.row.ensemble, cluster.row.term) == ((1, 2, 3), 3)


def test_an_election_drops_what_is_being_undone() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareResponse | AbortRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.operator.abort(S1)
    cluster.run(2)
    cluster.node(1).is_up = False
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 3)


def test_what_the_leader_has_undone_cannot_be_committed_any_more() -> None:
    """The leader counts on the old node again: an election that took the new one instead would
    lose what the two have committed since.  Another operator is just about to write *commit*.
    """
    cluster = Cluster(on=(1, 2), spare=(3,), operators=(OPERATOR, OTHER_OPERATOR))
    cluster.steady()
    cluster.append()
    cluster.run()
    held: list[SnapshotResponse] = []

    def hold(message: Message) -> bool:
        if isinstance(message, SnapshotResponse) and message.target == OTHER_OPERATOR:
            held.append(message)
        return isinstance(message, SnapshotResponse | AbortResponse)

    cluster.lost = hold
    cluster.operator.change(S1, ChangeKind.SWAP, NodeId(2), NodeId(3))
    other = cluster.operators[OTHER_OPERATOR]
    cluster.run_until(lambda: bool(held))
    cluster.shows_rows = False
    cluster.operator.abort(S1)
    cluster.run()
    cluster.node(1).append()
    cluster.run()
    assert len(cluster.committed) == 2
    other.step(held[0])
    del cluster.operators[OPERATOR]
    cluster.lost = lambda _: False
    cluster.node(1).is_up = False
    cluster.shows_rows = True
    cluster.run(100)
    assert not cluster.row.is_steady
    cluster.node(1).is_up = True
    cluster.node(1).restart()
    cluster.steady()
    assert len(cluster.committed) == 2


def test_a_committed_change_cannot_be_undone() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(3)
    assert cluster.ask(cluster.operator.abort(S1)).reason is Refused.COMMITTED
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.ensemble == (1, 2, 4)


@pytest.mark.parametrize("reason", [Reason.ABORTED, Reason.COMMITTED])
def test_a_leader_that_is_further_than_the_row_is_left_to_who_brought_it_there(
    reason: Reason,
) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    request = cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.operator.step(Refusal(NodeId(1), OPERATOR, S1, Term(3), Term(3), reason))
    assert cluster.ask(request).result is Result.UNKNOWN
    assert cluster.row.term == 3


# -- leaders that do not answer, or refuse ---------------------------------------------------------


@CHANGES
def test_a_leader_that_dies_in_prepare_is_replaced_and_the_change_dropped(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareResponse | SnapshotRequest)
    request = cluster.operator.change(S1, *change)
    cluster.run(2)
    cluster.node(1).is_up = False
    assert cluster.ask(request).result is Result.UNKNOWN
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.leader in (2, 3)
    assert cluster.row.ensemble == (1, 2, 3)


@CHANGES
def test_a_leader_that_dies_in_commit_leaves_a_change_that_an_election_settles(
    change: tuple[ChangeKind, NodeId, NodeId],
) -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    request = cluster.operator.change(S1, *change)
    cluster.run(2)
    cluster.node(1).is_up = False
    assert cluster.ask(request).result is Result.UNKNOWN
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.is_steady)
    rolled_back = change[0] is ChangeKind.CONTRACT
    assert cluster.row.ensemble == ((1, 2, 3) if rolled_back else AFTER[change[0]])


def test_a_leader_that_restarts_amid_a_change_is_replaced_by_an_election() -> None:
    """A swap whose election fails is tried again, not left as it is."""
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.node(1).restart()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderRequest)
    cluster.run_until(lambda: cluster.row.term == 5)
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.ensemble == (1, 2, 4)


def test_a_commit_that_is_not_answered_ends_in_an_election() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitRequest)
    request = cluster.operator.change(S1, *SWAP)
    assert cluster.ask(request).result is Result.UNKNOWN
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.ensemble == (1, 2, 4)
    assert cluster.row.term == 4


def test_a_prepare_that_is_not_answered_is_resumed_in_the_same_term() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareRequest)
    request = cluster.operator.change(S1, *SWAP)
    assert cluster.ask(request).result is Result.UNKNOWN
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.ensemble == (1, 2, 4)
    assert cluster.row.term == 3


def test_a_late_answer_to_a_repeated_prepare_does_not_end_the_commit() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, CommitResponse)
    request = cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    cluster.operator.step(Refusal(NodeId(1), OPERATOR, S1, Term(3), Term(3), Reason.COMMITTED))
    cluster.lost = lambda _: False
    assert cluster.ask(request).result is Result.DONE
    assert cluster.row.term == 3


def test_answers_of_others_than_the_asked_do_not_count() -> None:
    cluster = settled()
    cluster.lost = lambda message: isinstance(message, PrepareResponse)
    cluster.operator.change(S1, *SWAP)
    cluster.run(2)
    before = cluster.row
    head = cluster.node(1).head
    for stray in (
        PrepareResponse(NodeId(2), OPERATOR, S1, Term(3), Term(2), head),
        CommitResponse(NodeId(1), OPERATOR, S1, Term(3), is_done=True),
        SnapshotResponse(NodeId(4), OPERATOR, S1, Term(3), head),
        Refusal(NodeId(2), OPERATOR, S1, Term(3), Term(3), Reason.NOT_LEADER),
    ):
        cluster.operator.step(stray)
    assert not cluster.operator.take().updates
    assert cluster.row == before


def test_completing_a_change_is_compare_and_set() -> None:
    """A late answer of a deposed leader must not bring its term and ensemble back."""
    cluster = settled((OPERATOR, OTHER_OPERATOR))
    held: list[CommitResponse] = []

    def hold(message: Message) -> bool:
        if isinstance(message, CommitResponse):
            held.append(message)
        return isinstance(message, CommitResponse)

    cluster.lost = hold
    first = cluster.operator
    first.change(S1, *CONTRACT)
    cluster.run(2)
    assert held
    del cluster.operators[OPERATOR]
    cluster.lost = lambda message: message.source == 1 or message.target == 1
    cluster.operators[OTHER_OPERATOR].elect(S1)
    cluster.run_until(lambda: cluster.row.is_steady)
    elected = cluster.row
    first.step(held[0])
    (update,) = first.take().updates
    assert cluster.write(update.command) is not None
    assert cluster.row == elected
