"""How a stream gets its leader: the seed's rules, and elections that went wrong elsewhere."""

from __future__ import annotations

import pytest

from tests.core.operator.cluster import OPERATOR, QUICK, Cluster, Message, restored, unknown
from tests.core.order.orders import S1
from tidelog import limits
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.options import Ignored
from tidelog.core.operator.plan import Change, Phase, Status, StreamPlan, encode_plan
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    AddFollowerRequest,
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    DropRequest,
    FenceRequest,
    FenceResponse,
    Reason,
    Refusal,
    Role,
)
from tidelog.types import NO_NODE, Llsn, NodeId, Term


def give_log(cluster: Cluster, node: int, *terms: int, term: int | None = None) -> None:
    """A member has entries of these terms, and is fenced in the last one unless told otherwise."""
    replica = cluster.node(node)
    replica.log = [EntryId(Term(term), Llsn(at)) for at, term in enumerate(terms, 1)]
    replica.term = Term(term if term is not None else max((0, *terms)))
    replica.is_complete = True
    replica.restart()


def interrupted(cluster: Cluster, term: int) -> None:
    """An election was begun and its operator died."""
    cluster.put(StreamPlan(Status.ELECTION), term)


# -- the seed --------------------------------------------------------------------------------------


def test_the_term_is_written_before_anybody_is_fenced() -> None:
    cluster = Cluster()
    cluster.loses_outcomes = True
    cluster.run(QUICK.patience_ticks - 1)
    assert cluster.row.plan.status is Status.ELECTION
    assert cluster.row.term == 2
    assert cluster.row.leader == NO_NODE
    assert not cluster.sent


def test_every_node_of_the_ensemble_is_fenced() -> None:
    cluster = Cluster()
    cluster.steady()
    assert [each.target for each in cluster.sent_of(FenceRequest)] == [1, 2, 3]


def test_a_fence_request_is_repeated_until_it_is_answered() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceRequest)
    cluster.run(20)
    assert not cluster.row.is_steady
    cluster.lost = lambda _: False
    cluster.run(QUICK.resend_ticks)
    assert cluster.row.is_steady


def test_a_majority_elects() -> None:
    cluster = Cluster()
    cluster.node(3).is_up = False
    cluster.run(3)
    assert cluster.row.is_steady


def test_less_than_a_majority_does_not_elect_and_uses_up_no_terms() -> None:
    cluster = Cluster()
    cluster.node(2).is_up = cluster.node(3).is_up = False
    cluster.run(200)
    assert cluster.row.plan.status is Status.ELECTION
    assert cluster.row.term == Term(2)
    assert not cluster.operator.is_at_work(S1), "others may need its place"
    cluster.node(2).is_up = True
    cluster.steady_without(3)
    assert cluster.row.term == 3


def test_a_majority_that_is_alive_is_waited_for_in_the_same_term() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceRequest) and message.target != 1
    cluster.run(200)
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 2


def test_the_highest_head_leads() -> None:
    cluster = Cluster()
    interrupted(cluster, 5)
    give_log(cluster, 1, 2, term=4)
    give_log(cluster, 2, 2, 2, 4, term=4)
    give_log(cluster, 3, 2, 2, term=4)
    cluster.steady()
    assert cluster.row.leader == 2


def test_a_longer_log_of_an_older_term_does_not_win() -> None:
    """Offset beats term: heads (78, n) twice and (77, n + 1); a node of term 78 must lead."""
    cluster = Cluster()
    interrupted(cluster, 79)
    give_log(cluster, 1, *[77] * 9, term=78)
    give_log(cluster, 2, *[77] * 4, 78, term=78)
    give_log(cluster, 3, *[77] * 4, 78, term=78)
    cluster.steady()
    assert cluster.row.leader == 2


def test_only_complete_replicas_are_counted() -> None:
    cluster = Cluster()
    cluster.steady()
    cluster.append(2)
    cluster.run()
    cluster.leader.is_up = False
    cluster.node(3).forget_all()
    cluster.run(100)
    assert not cluster.row.is_steady, "2 alone cannot know what 1 and 3 may have acknowledged"
    cluster.node(1).is_up = True
    cluster.node(1).restart()
    cluster.steady()
    assert len(cluster.committed) == 2


def gave_up(cluster: Cluster, node: int, term: int, llsn: int) -> None:
    """A member gave a log up that ended here, to be filled up, and its leader died."""
    cluster.node(node).forget_all()
    cluster.node(node).had = EntryId(Term(term), Llsn(llsn))


def elected_beside_one_that_gave_up(*had: int) -> Cluster:
    """1 is dead, 2 has one entry of term 4, 3 gave up a log that ended at ``had``."""
    cluster = Cluster()
    interrupted(cluster, 5)
    give_log(cluster, 2, 4, term=4)
    cluster.node(1).is_up = False
    gave_up(cluster, 3, *had)
    cluster.run(60)
    return cluster


@pytest.mark.parametrize("had", [(0, 0), (3, 7), (4, 1)])
def test_who_gave_its_log_up_helps_to_elect_who_has_all_that_it_had(had: tuple[int, int]) -> None:
    cluster = elected_beside_one_that_gave_up(*had)
    assert cluster.row.is_steady
    assert cluster.row.leader == 2


@pytest.mark.parametrize("had", [(4, 2), (5, 1)])
def test_who_gave_its_log_up_does_not_help_to_elect_who_lacks_what_it_had(
    had: tuple[int, int],
) -> None:
    assert not elected_beside_one_that_gave_up(*had).row.is_steady


def test_who_gave_its_log_up_never_leads() -> None:
    cluster = Cluster()
    interrupted(cluster, 5)
    for node in (1, 2, 3):
        gave_up(cluster, node, 0, 0)
    cluster.run(60)
    assert not cluster.row.is_steady
    assert not cluster.asked_to_lead


def test_an_incomplete_replica_never_leads_and_is_filled_up() -> None:
    cluster = Cluster()
    interrupted(cluster, 5)
    give_log(cluster, 2, 4, term=4)
    give_log(cluster, 3, 4, term=4)
    cluster.run(20)
    assert cluster.row.leader == 2
    assert cluster.node(1).is_complete
    (request,) = cluster.sent_of(BecomeLeaderRequest)
    assert [(each.node, each.is_complete) for each in request.followers] == [
        (1, False),
        (3, True),
    ]


def test_the_leader_is_told_the_heads_known_when_it_was_chosen_and_the_late_ones_afterwards() -> (
    None
):
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceResponse) and message.source == 3
    cluster.run()
    assert cluster.row.is_steady
    (request,) = cluster.sent_of(BecomeLeaderRequest)
    assert [each.node for each in request.followers] == [2]
    cluster.lost = lambda _: False
    cluster.steady()
    added = cluster.sent_of(AddFollowerRequest)
    assert [(each.target, each.follower.node) for each in added] == [(1, 3)]


def test_a_late_fence_answer_is_kept_until_the_leader_confirms() -> None:
    cluster = Cluster()
    late: list[FenceResponse] = []

    def lost(message: Message) -> bool:
        if isinstance(message, FenceResponse) and message.source == 3:
            late.append(message)
            return True
        return isinstance(message, BecomeLeaderResponse)

    cluster.lost = lost
    cluster.run()
    cluster.operator.step(late[0])
    assert not cluster.sent_of(AddFollowerRequest)
    cluster.lost = lambda message: isinstance(message, FenceResponse)
    cluster.run(QUICK.resend_ticks)
    assert cluster.row.is_steady
    assert [each.target for each in cluster.sent_of(AddFollowerRequest)] == [1]


def test_a_request_to_lead_is_repeated_as_it_was() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse)
    cluster.run(QUICK.patience_ticks - 1)
    requests = cluster.sent_of(BecomeLeaderRequest)
    assert len(requests) > 2
    assert all(request == requests[0] for request in requests)


def test_who_leads_the_fewest_streams_wins_among_equals() -> None:
    cluster = Cluster()
    other = cluster.order
    cluster.operator.view(
        type(other)(
            other.topic,
            type(S1)(2),
            other.replicas,
            leader=NodeId(1),
            plan=encode_plan(StreamPlan(Status.STEADY)),
        ),
        cluster.row.quorum,
    )
    cluster.run(3)
    assert cluster.row.leader == 2


# -- terms -----------------------------------------------------------------------------------------


def test_a_chosen_leader_that_is_silent_is_given_up_with_its_term() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderRequest) and message.target == 1
    cluster.run_until(lambda: cluster.row.term > 2)
    assert {each.target for each in cluster.sent_of(BecomeLeaderRequest) if each.term == 2} == {1}
    cluster.lost = lambda _: False
    cluster.steady()


@pytest.mark.parametrize(
    "reason", [Reason.LED_BEFORE, Reason.INCOMPLETE, Reason.NOT_MEMBER, Reason.NOT_FENCED]
)
def test_a_chosen_leader_that_refuses_is_given_up_with_its_term(reason: Reason) -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderRequest)
    cluster.run(3)
    assert cluster.row.term == 2
    cluster.operator.step(Refusal(NodeId(1), OPERATOR, S1, Term(2), Term(2), reason))
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 3


def test_a_leader_that_refuses_a_repeated_fence_is_not_given_up() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse)
    cluster.run(3)
    cluster.operator.step(Refusal(NodeId(1), OPERATOR, S1, Term(2), Term(2), Reason.ROLE))
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 2


def test_a_leader_that_restarts_before_it_is_known_does_not_lead_its_term_again() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse)
    cluster.run(3)
    assert cluster.node(1).leads
    cluster.node(1).restart()
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 3


def test_answers_that_do_not_count_change_nothing() -> None:
    cluster = Cluster(spare=(4,))
    cluster.lost = lambda message: isinstance(message, FenceResponse)
    cluster.run(3)
    head = EntryId(Term(9), Llsn(9))

    def fenced(node: int, term: int, target: NodeId = OPERATOR) -> FenceResponse:
        return FenceResponse(NodeId(node), target, S1, Term(term), head, is_complete=True)

    operator = cluster.operator
    before = dict(operator.ignored)
    operator.step(fenced(1, 2))
    operator.step(fenced(1, 2))  # Repeated.
    operator.step(fenced(2, 1))  # Of another term.
    operator.step(fenced(4, 2))  # Not of the ensemble.
    operator.step(fenced(2, 2, target=NodeId(7)))  # For another operator.
    operator.step(fenced(9, 2))  # Of a node that nobody registered.
    operator.step(BecomeLeaderResponse(NodeId(1), OPERATOR, S1, Term(2)))  # Nobody was asked.
    assert not cluster.sent_of(BecomeLeaderRequest)
    assert not operator.has_output
    news = {key: count - before.get(key, 0) for key, count in operator.ignored.items()}
    assert news == {
        Ignored.REPEATED: 1,
        Ignored.OTHER_TERM: 1,
        Ignored.NOT_ASKED: 2,
        Ignored.WRONG_TARGET: 1,
        Ignored.UNKNOWN_NODE: 1,
    }


def test_terms_go_on_above_what_nodes_know_when_the_metadata_was_restored() -> None:
    """Term regression: the repository came back older than the nodes, which must not get stuck."""
    cluster = Cluster()
    cluster.steady()
    cluster.append()
    for _ in range(3):
        cluster.ask(cluster.operator.elect(S1))
    assert cluster.row.term == 5
    restored(cluster, term=2)
    cluster.start_operator()
    cluster.steady()
    assert cluster.row.term > 5
    assert len(cluster.committed) == 1


def test_an_election_in_a_term_that_nodes_have_left_behind_jumps_above_theirs() -> None:
    cluster = Cluster()
    interrupted(cluster, 5)
    give_log(cluster, 1, 4, term=28)
    give_log(cluster, 2, 4, term=27)
    give_log(cluster, 3, 4, term=27)
    cluster.run(4 * QUICK.patience_ticks)
    assert cluster.row.is_steady
    assert cluster.row.term == 29


def test_a_term_out_of_all_bounds_is_not_believed() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceRequest)
    cluster.run(3)
    wild = Term(2 + limits.OPERATOR_TERM_JUMP_MAX + 1)
    cluster.operator.step(Refusal(NodeId(1), OPERATOR, S1, Term(2), wild, Reason.TERM_PASSED))
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 2


# -- the first leader ------------------------------------------------------------------------------


def test_an_empty_replica_is_complete_until_somebody_may_lead() -> None:
    """After that a replica without a log may have lost it: it must not count any more."""
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderRequest) or message.source == 3
    cluster.node(3).is_up = False
    cluster.run(3)
    assert not cluster.row.is_first
    fences = cluster.sent_of(FenceRequest)
    assert [each.is_first for each in fences if each.target < 3] == [True, True]
    assert not fences[-1].is_first


def test_a_first_election_that_was_cut_short_is_still_the_first() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, FenceRequest) and message.target != 1
    cluster.run(3)
    cluster.start_operator()
    cluster.lost = lambda _: False
    cluster.steady()
    assert cluster.row.term == 3


def test_data_of_a_first_leader_that_was_never_written_down_outlive_a_lost_disk() -> None:
    """1 led and committed with 2; its operator died; 2 lost its disk, and 3 was never fenced."""
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse) or message.target == 3
    cluster.run(3)
    cluster.node(1).append()
    cluster.run()
    assert len(cluster.committed) == 1
    cluster.node(1).is_up = False
    cluster.node(2).forget_all()
    cluster.lost = lambda _: False
    cluster.start_operator()
    cluster.run(100)
    assert not cluster.row.is_steady
    cluster.node(1).is_up = True
    cluster.node(1).restart()
    cluster.run(100)
    assert not cluster.row.is_steady, "1 alone is no majority of complete replicas"


# -- reconfigurations that an election finds -------------------------------------------------------


def swap(phase: Phase, head: int = 0) -> StreamPlan:
    change = Change(
        ChangeKind.SWAP, phase, NodeId(3), NodeId(4), EntryId(Term(2 if head else 0), Llsn(head))
    )
    return StreamPlan(Status.RECONFIGURATION, change)


def test_the_fencing_ensemble_of_a_committed_swap_has_the_new_node() -> None:
    """With the leader dead, two of four old members cannot elect: the new node must be asked."""
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(1).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 4)
    assert sorted({each.target for each in cluster.sent_of(FenceRequest)}) == [1, 2, 3, 4]


def test_two_of_four_fenced_are_no_majority_of_a_committed_swap() -> None:
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(1).is_up = cluster.node(4).is_up = False
    cluster.operator.elect(S1)
    cluster.run(100)
    assert cluster.row.plan.status is Status.ELECTION


def test_two_who_stay_are_enough_when_both_nodes_of_a_committed_swap_are_lost() -> None:
    """They are a majority before the swap and after it, so they meet all that was acknowledged."""
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(3).is_up = cluster.node(4).is_up = False
    cluster.node(1).restart()
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.leader in (1, 2)
    assert cluster.row.ensemble == (1, 2, 4)


def test_the_old_node_of_a_committed_swap_never_leads_and_is_no_follower() -> None:
    """A removed node that answers, late or not, is neither candidate nor follower."""
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 4):
        give_log(cluster, node, 2, term=3)
    give_log(cluster, 3, 2, 2, 2, term=2)
    cluster.node(1).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.leader == 2
    (request,) = cluster.sent_of(BecomeLeaderRequest)
    assert [each.node for each in request.followers] == [4]
    assert request.ensemble == (1, 2, 4)
    assert not [each for each in cluster.sent_of(AddFollowerRequest) if each.follower.node == 3]


def test_a_node_that_an_election_removed_is_told_to_delete_its_replica() -> None:
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(1).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    cluster.run(3)
    assert [each.target for each in cluster.sent_of(DropRequest)] == [3]
    assert cluster.node(3).role is Role.NOT_MEMBER


def test_the_leader_counts_with_the_size_of_the_final_ensemble() -> None:
    """An election completes an expansion: with the old size two of four would commit."""
    cluster = Cluster(spare=(4,))
    change = Change(ChangeKind.EXPAND, Phase.COMMIT, new=NodeId(4), head=EntryId(Term(2), Llsn(1)))
    cluster.put(StreamPlan(Status.RECONFIGURATION, change), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(1).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    (request,) = cluster.sent_of(BecomeLeaderRequest)
    assert request.ensemble == cluster.row.ensemble == (1, 2, 3, 4)


def test_a_prepared_change_is_dropped_when_an_election_begins() -> None:
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.PREPARE), 3, leader=1)
    for node in (1, 2, 3):
        give_log(cluster, node, 2, term=3)
    cluster.node(4).term = Term(3)
    cluster.node(1).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 3)
    assert sorted({each.target for each in cluster.sent_of(FenceRequest)}) == [1, 2, 3]
    cluster.run(3)
    assert [each.target for each in cluster.sent_of(DropRequest)] == [4]


def test_a_committed_change_stays_until_an_election_completes() -> None:
    cluster = Cluster(spare=(4,))
    cluster.put(swap(Phase.COMMIT, head=1), 3, leader=1)
    for node in (1, 2, 3, 4):
        give_log(cluster, node, 2, term=3)
    cluster.node(1).is_up = False
    cluster.lost = lambda message: isinstance(message, BecomeLeaderRequest)
    cluster.run_until(lambda: cluster.row.term == 6)
    assert cluster.row.plan.change is not None
    cluster.lost = lambda _: False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 4)


def test_a_stalled_contraction_is_rolled_back() -> None:
    """What was committed with the old node's help may be on two of the other four only."""
    cluster = Cluster(on=(1, 2, 3, 4, 5))
    change = Change(ChangeKind.CONTRACT, Phase.COMMIT, old=NodeId(5))
    cluster.put(StreamPlan(Status.RECONFIGURATION, change), 3, leader=1)
    for node in (1, 4, 5):
        give_log(cluster, node, 2, 2, term=3)
    for node in (2, 3):
        give_log(cluster, node, 2, term=3)
    cluster.committed = cluster.node(5).log[:]
    cluster.node(1).is_up = cluster.node(4).is_up = False
    cluster.run_until(lambda: cluster.row.is_steady)
    assert cluster.row.ensemble == (1, 2, 3, 4, 5)
    assert cluster.row.leader == 5
    assert not cluster.sent_of(DropRequest)


# -- writes ----------------------------------------------------------------------------------------


def test_completing_an_election_is_compare_and_set() -> None:
    cluster = Cluster()
    cluster.lost = lambda message: isinstance(message, BecomeLeaderResponse)
    cluster.run(3)
    cluster.shows_rows = False
    interrupted(cluster, 7)
    cluster.lost = lambda _: False
    cluster.run(QUICK.resend_ticks)
    assert cluster.node(1).leads
    assert cluster.row.term == 7
    assert not cluster.row.is_steady


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_term_whose_write_has_an_unknown_outcome_is_never_used(is_applied: bool) -> None:
    cluster = Cluster()
    operator = cluster.operator
    operator.tick()
    (update,) = operator.take().updates
    if is_applied:
        assert cluster.write(update.command) is None
    operator.answered(update.number, unknown())
    cluster.steady()
    assert cluster.row.term == (3 if is_applied else 2)
    if is_applied:
        assert 2 not in cluster.asked_to_lead
        assert all(each.term == 3 for each in cluster.sent)


def test_a_row_that_looks_like_the_own_write_is_not_taken_for_it() -> None:
    """Another operator wrote the very same term: only one of them may use it."""
    cluster = Cluster()
    operator = cluster.operator
    operator.tick()
    (update,) = operator.take().updates
    assert cluster.write(update.command) is None  # The other one's, equal to the last byte.
    operator.view(cluster.order, cluster.row.quorum)
    assert not operator.take().messages
    operator.answered(update.number, cluster.write(update.command))
    assert not operator.take().messages


def test_an_outcome_that_comes_after_patience_is_over_changes_nothing() -> None:
    cluster = Cluster()
    cluster.loses_updates = True
    operator: Operator = cluster.operator
    operator.tick()
    (update,) = operator.take().updates
    cluster.run(QUICK.patience_ticks)
    operator.answered(update.number, None)
    assert operator.ignored[Ignored.UNKNOWN_UPDATE] == 1
    assert not operator.take().messages
