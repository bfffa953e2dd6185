"""The rules of figure 2 of the Raft paper, one test each, in its order.

Where this implementation is stricter than the figure, the test says so.
"""

from __future__ import annotations

import pytest

from tests.core.raft.group import CAMPAIGN_TICKS, ELECTION_TICKS, Group, command, of, stored
from tidelog.core.raft.entries import HardState, Index, RaftTerm
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    Heartbeat,
    VoteAnswer,
    VoteRequest,
)
from tidelog.core.raft.node import Role
from tidelog.types import NO_NODE, NodeId

VOTERS = (1, 2, 3)
NODE_1, NODE_2, NODE_3 = NodeId(1), NodeId(2), NodeId(3)


def append(
    term: int, previous: tuple[int, int], *data: tuple[int, int], commit: int = 0
) -> AppendRequest:
    """An append from node 2 to node 1; entries are given as (index, term)."""
    entries = tuple(command(index, entry_term) for index, entry_term in data)
    index, previous_term = Index(previous[0]), RaftTerm(previous[1])
    return AppendRequest(
        NODE_2, NODE_1, RaftTerm(term), index, previous_term, Index(commit), entries
    )


def node_1(*terms: int, term: int) -> Group:
    entries = (command(index, entry_term) for index, entry_term in enumerate(terms, 1))
    return Group(1, images={1: stored(VOTERS, *entries, term=term)})


# --- state ----------------------------------------------------------------------------------------


def test_term_vote_and_log_are_on_disk_before_a_request_is_answered() -> None:
    group = Group(*VOTERS)
    group.hold_back(1)
    group.step(VoteRequest(NODE_2, NODE_1, RaftTerm(1), Index(0), RaftTerm(0), False))
    group.step(append(1, (0, 0), (1, 1)))
    assert not group.sent
    group.complete(1)
    assert {type(each) for each in group.sent} == {VoteAnswer, AppendAnswer}
    image = group.members[1].disk.image
    assert image.hard_state == HardState(RaftTerm(1), NODE_2)
    assert image.entries == (command(1, 1),)


def test_a_new_node_is_in_term_0_and_has_voted_for_nobody() -> None:
    group = Group(*VOTERS)
    assert (group[1].term, group[1].vote, group[1].commit, group[1].applied) == (0, NO_NODE, 0, 0)


def test_the_commit_index_only_rises() -> None:
    group = node_1(1, 1, 1, term=1)
    for commit, expected in ((2, 2), (1, 2), (3, 3)):
        group.step(append(1, (3, 1), commit=commit))
        assert group[1].commit == expected


def test_a_new_leader_takes_each_follower_to_have_its_own_log() -> None:
    group = Group(*VOTERS, images={n: stored(VOTERS, command(1, 1), term=1) for n in VOTERS})
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    for target in (2, 3):
        status = group.follower_of(1, target)
        assert (status.match, status.next_index) == (0, 2)


# --- append entries -------------------------------------------------------------------------------


def test_an_append_of_an_older_term_is_refused() -> None:
    group = node_1(term=3)
    group.step(append(2, (0, 0), (1, 2)))
    (answer,) = group.sent
    assert isinstance(answer, AppendRefusal)
    assert answer.term == 3


def test_an_append_is_refused_if_the_entry_before_it_is_missing_or_of_another_term() -> None:
    for previous in ((2, 1), (1, 2)):
        group = node_1(1, term=2)
        group.step(append(2, previous, (previous[0] + 1, 2)))
        (answer,) = group.sent
        assert isinstance(answer, AppendRefusal)


def test_a_conflicting_entry_and_all_that_follow_it_are_deleted() -> None:
    group = node_1(1, 1, 1, 1, term=1)
    group.step(append(2, (1, 1), (2, 2)))
    assert [term for term, _ in group.log(1)] == [1, 2]


def test_entries_that_are_not_in_the_log_are_appended() -> None:
    group = node_1(1, term=1)
    group.step(append(1, (0, 0), (1, 1), (2, 1), (3, 1)))
    assert [term for term, _ in group.log(1)] == [1, 1, 1]


@pytest.mark.parametrize(("commit", "expected"), [(1, 1), (5, 2)])
def test_the_commit_index_is_the_leaders_or_that_of_the_last_new_entry(
    commit: int, expected: int
) -> None:
    group = node_1(term=1)
    group.step(append(1, (0, 0), (1, 1), (2, 1), commit=commit))
    assert group[1].commit == expected


# --- request vote ---------------------------------------------------------------------------------


def request_vote(group: Group, source: NodeId, term: int, last: tuple[int, int]) -> bool:
    index, last_term = Index(last[0]), RaftTerm(last[1])
    group.step(VoteRequest(source, NODE_1, RaftTerm(term), index, last_term, False))
    answer = group.sent[-1]
    assert isinstance(answer, VoteAnswer)
    return answer.granted


def test_a_vote_of_an_older_term_is_refused() -> None:
    assert not request_vote(node_1(term=3), NODE_2, 2, (9, 1))


def test_a_vote_is_given_once_per_term_and_only_to_an_up_to_date_log() -> None:
    group = node_1(1, 1, term=1)
    assert not request_vote(group, NODE_3, 2, (1, 1))
    assert request_vote(group, NODE_2, 2, (2, 1))
    assert not request_vote(group, NODE_3, 2, (3, 1))
    assert request_vote(group, NODE_3, 3, (3, 1))


# --- rules for servers: all ----------------------------------------------------------------------


def test_what_is_committed_is_applied_in_order() -> None:
    group = Group(*VOTERS)
    group.elect(1)
    group.propose(1, b"a", b"b", b"c")
    group.deliver()
    assert group[1].applied == group[1].commit == 4
    assert group.applied(1) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.CANDIDATE, Role.LEADER])
def test_a_later_term_turns_any_server_into_a_follower(role: Role) -> None:
    group = Group(*VOTERS)
    if role is Role.CANDIDATE:
        group.hold_back(1)
    if role is not Role.FOLLOWER:
        group.campaign(1)
        group.deliver()
    assert group[1].role is role
    group.step(Heartbeat(NODE_2, NODE_1, RaftTerm(9), Index(0), 0))
    assert (group.roles()[1], group[1].term, group[1].leader) == ("FOLLOWER", 9, 2)


# --- rules for servers: followers and candidates -------------------------------------------------


def test_a_follower_that_hears_nothing_becomes_a_candidate() -> None:
    """Stricter: it first asks whether it could win."""
    group = Group(*VOTERS)
    group.tick(1, times=CAMPAIGN_TICKS - 1)
    assert group.roles()[1] == "FOLLOWER"
    group.tick(1)
    assert group.roles()[1] == "PRE_CANDIDATE"


def test_hearing_the_leader_or_giving_a_vote_puts_an_election_off() -> None:
    group = Group(*VOTERS)
    group.tick(1, times=ELECTION_TICKS)
    group.step(Heartbeat(NODE_2, NODE_1, RaftTerm(1), Index(0), 0))
    group.tick(1, times=ELECTION_TICKS)
    assert request_vote(group, NODE_3, 2, (0, 0))
    group.tick(1, times=ELECTION_TICKS)
    assert group.roles()[1] == "FOLLOWER"


def test_a_candidate_raises_its_term_votes_for_itself_and_asks_all_others() -> None:
    group = Group(*VOTERS)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, VoteRequest))
    assert (group[1].term, group[1].vote) == (1, 1)
    asked = [each for each in group.wire if isinstance(each, VoteRequest)]
    assert [each.target for each in asked] == [2, 3]


def test_a_majority_of_votes_makes_a_leader() -> None:
    group = Group(1, 2, 3, 4, 5)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, VoteRequest))
    group.deliver(of(VoteRequest, VoteAnswer, target=2))
    group.deliver(of(VoteAnswer))
    assert group.roles()[1] == "CANDIDATE"
    group.deliver(of(VoteRequest, target=3))
    group.deliver(of(VoteAnswer))
    assert group.roles()[1] == "LEADER"


def test_an_append_of_a_new_leader_turns_a_candidate_into_a_follower() -> None:
    group = Group(*VOTERS)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, VoteRequest))
    group.step(append(1, (0, 0)))
    assert (group.roles()[1], group[1].leader) == ("FOLLOWER", 2)


def test_a_candidate_whose_time_runs_out_begins_anew() -> None:
    group = Group(*VOTERS)
    for _ in range(2):
        group.campaign(1)
        group.deliver(lambda message: not isinstance(message, VoteRequest))
        group.drop()
    assert (group[1].term, group[1].role) == (2, Role.CANDIDATE)


# --- rules for servers: leaders ------------------------------------------------------------------


def test_a_leader_speaks_up_at_once_and_at_every_heartbeat() -> None:
    group = Group(*VOTERS)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert [each.target for each in group.wire if isinstance(each, AppendRequest)] == [2, 3]
    group.deliver()
    group.tick(1)
    assert [each.target for each in group.wire if isinstance(each, Heartbeat)] == [2, 3]


def test_a_command_is_appended_and_answered_once_it_is_applied() -> None:
    group = Group(*VOTERS)
    group.elect(1)
    index = group.propose(1, b"a")
    assert index == group[1].last_index
    assert group[1].applied < index
    group.deliver()
    assert group[1].applied == index


def test_a_follower_is_sent_what_it_lacks_and_its_position_is_followed() -> None:
    group = Group(*VOTERS)
    group.elect(1)
    group.propose(1, b"a")
    assert group.follower_of(1, 2).next_index == 3
    group.deliver()
    assert group.follower_of(1, 2).match == 2


def test_a_refused_append_is_tried_again_further_back() -> None:
    images = {1: stored(VOTERS, *(command(index, 1) for index in range(1, 6)), term=1)}
    group = Group(*VOTERS, images=images)
    group.campaign(1)
    group.deliver()
    assert [group[n].last_index for n in VOTERS] == [6, 6, 6]


def test_a_leader_commits_an_entry_of_its_own_term_that_a_majority_has() -> None:
    """The other half, that it counts no others, is figure 8: see ``test_commitment``."""
    group = Group(*VOTERS)
    group.elect(1)
    index = group.propose(1, b"a")
    group.deliver(of(AppendRequest, target=3))
    assert group[1].commit < index
    group.deliver(of(AppendAnswer, source=3))
    assert group[1].commit == index
