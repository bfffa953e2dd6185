"""Handing the leadership over."""

from __future__ import annotations

import pytest

from tests.core.raft.group import ELECTION_TICKS, Group, of
from tidelog.core.raft.entries import RaftTerm
from tidelog.core.raft.messages import AppendRequest, PreVoteRequest, TimeoutNow, VoteRequest
from tidelog.core.raft.node import Ignored, Refused, Remove
from tidelog.types import NO_NODE, NodeId


def led_group(*voters: int, learners: tuple[int, ...] = ()) -> Group:
    group = Group(*voters, learners=learners)
    group.elect(1)
    group.pass_time(2)
    return group


def transfer(group: Group, target: int) -> Refused | None:
    result = group[1].transfer_leadership(NodeId(target))
    group.collect(1)
    return result


def test_the_leadership_goes_to_a_follower_that_is_up_to_date() -> None:
    group = led_group(1, 2, 3)
    assert transfer(group, 2) is None
    group.deliver()
    assert group.roles() == {1: "FOLLOWER", 2: "LEADER", 3: "FOLLOWER"}
    assert not [each for each in group.sent[-20:] if isinstance(each, PreVoteRequest)]
    asked = [each for each in group.sent if isinstance(each, VoteRequest) and each.source == 2]
    assert all(each.transfer for each in asked)


def test_a_target_that_is_behind_is_brought_up_to_date_first() -> None:
    group = led_group(1, 2, 3)
    group.propose(1, b"a")
    group.drop(of(AppendRequest, target=2))
    assert transfer(group, 2) is None
    assert not [each for each in group.wire if isinstance(each, TimeoutNow)]
    group.deliver()
    group.pass_time(3)
    assert group.leader == 2
    assert group.applied(2) == [b"a"]


def test_proposals_and_changes_are_refused_meanwhile() -> None:
    group = led_group(1, 2, 3)
    transfer(group, 2)
    assert group[1].status().transfer_target == 2
    assert group[1].propose(b"a") is Refused.TRANSFERRING
    assert group.change(1, Remove(NodeId(3))) is Refused.TRANSFERRING
    assert transfer(group, 3) is Refused.TRANSFERRING
    assert transfer(group, 2) is None


def test_a_transfer_to_a_node_that_died_is_given_up_after_an_election_timeout() -> None:
    group = led_group(1, 2, 3)
    group.crash(2)
    transfer(group, 2)
    group.pass_time(ELECTION_TICKS - 1)
    assert group[1].propose(b"a") is Refused.TRANSFERRING
    group.pass_time(1)
    assert group[1].status().transfer_target == NO_NODE
    assert not isinstance(group[1].propose(b"a"), Refused)
    group.deliver()
    assert group.applied(3) == [b"a"]


def test_a_lost_order_to_take_over_is_repeated() -> None:
    group = led_group(1, 2, 3)
    transfer(group, 2)
    group.drop(of(TimeoutNow))
    group.pass_time(2)
    assert group.leader == 2


@pytest.mark.parametrize(
    ("target", "refused"),
    [(1, Refused.NO_CHANGE), (9, Refused.NOT_A_VOTER), (4, Refused.NOT_A_VOTER)],
)
def test_the_leadership_goes_only_to_another_voter(target: int, refused: Refused) -> None:
    group = led_group(1, 2, 3, learners=(4,))
    assert transfer(group, target) is refused


def test_only_a_leader_hands_over() -> None:
    group = led_group(1, 2, 3)
    assert group[2].transfer_leadership(NodeId(1)) is Refused.NOT_LEADER


def test_who_cannot_lead_does_not_take_over() -> None:
    group = led_group(1, 2, 3, learners=(4,))
    for target in (4, 1):
        before = group[target].ignored.get(Ignored.LATE, 0)
        group.step(TimeoutNow(NodeId(2), NodeId(target), RaftTerm(1)))
        assert group[target].term == 1
        assert group[target].ignored[Ignored.LATE] == before + 1


def test_an_order_to_take_over_of_an_old_term_is_ignored() -> None:
    group = led_group(1, 2, 3)
    transfer(group, 2)
    (order,) = group.take_messages(of(TimeoutNow))
    group.crash(1)
    group.elect(3)
    group.step(order)
    assert group.leader == 3
    assert group[2].ignored[Ignored.OLD_TERM] >= 1
