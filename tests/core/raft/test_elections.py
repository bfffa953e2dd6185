"""Elections: pre-votes, votes and their durability, stickiness, check-quorum (E1, E2, N1 to N4)."""

from __future__ import annotations

import pytest

from tests.core.raft.group import CAMPAIGN_TICKS, ELECTION_TICKS, Group, command, nodes, of, stored
from tidelog.core.raft.entries import Index, RaftTerm
from tidelog.core.raft.messages import (
    AppendRefusal,
    AppendRequest,
    Heartbeat,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    VoteAnswer,
    VoteRequest,
)
from tidelog.core.raft.node import Ignored, Raft, RaftOptions, Role
from tidelog.types import NO_NODE, NodeId


def vote_request(
    source: int, target: int, term: int, *, last: tuple[int, int] = (0, 0), transfer: bool = False
) -> VoteRequest:
    index, last_term = last
    return VoteRequest(
        NodeId(source),
        NodeId(target),
        RaftTerm(term),
        Index(index),
        RaftTerm(last_term),
        transfer,
    )


def answers(group: Group, source: int) -> list[bool]:
    """What a node said to requests for its vote, in order."""
    said = [each for each in group.sent if isinstance(each, VoteAnswer)]
    return [each.granted for each in said if each.source == source]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_node_that_hears_no_leader_is_elected(size: int) -> None:
    group = Group(*range(1, size + 1))
    group.campaign(1)
    group.deliver()
    assert group.leader == 1
    assert {group[n].leader for n in group.alive} == {1}
    assert {group[n].term for n in group.alive} == {1}


def test_a_group_of_two_elects_nobody_while_one_is_down() -> None:
    group = Group(1, 2)
    group.crash(2)
    group.pass_time(10 * ELECTION_TICKS)
    assert group.roles() == {1: "PRE_CANDIDATE"}
    assert group[1].term == 0


def test_five_nodes_elect_a_leader_while_two_are_down() -> None:
    group = Group(1, 2, 3, 4, 5)
    group.crash(4)
    group.crash(5)
    group.campaign(1)
    group.deliver()
    assert group.leader == 1


def test_five_nodes_elect_nobody_while_three_are_down() -> None:
    group = Group(1, 2, 3, 4, 5)
    for number in (3, 4, 5):
        group.crash(number)
    group.pass_time(5 * ELECTION_TICKS)
    assert "LEADER" not in group.roles().values()


def test_a_leader_keeps_its_followers_from_elections() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.pass_time(10 * ELECTION_TICKS)
    assert group.leader == 1
    assert group[1].term == 1


def test_heartbeats_come_as_often_as_the_options_say() -> None:
    group = Group(1, 2, options=RaftOptions(heartbeat_ticks=3))
    group.elect(1)
    group.tick(1, times=9)
    assert len([each for each in group.sent if isinstance(each, Heartbeat)]) == 3


def test_an_isolated_node_raises_no_terms() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group.pass_time(10 * ELECTION_TICKS)
    assert group[3].term == 1
    group.heal()
    group.pass_time(2)
    assert group.leader == 1
    assert group[3].role is Role.FOLLOWER
    assert {group[n].term for n in group.alive} == {1}


def test_a_pre_vote_changes_nothing_at_the_node_that_grants_it() -> None:
    group = Group(1, 2, 3)
    group.campaign(1)
    group.deliver(of(PreVoteRequest))
    assert group.take_messages(of(PreVoteAnswer, source=2))
    assert (group[2].term, group[2].vote) == (0, NO_NODE)
    assert not group.writes


def test_a_pre_vote_is_refused_to_a_log_that_lacks_entries() -> None:
    longer = stored((1, 2, 3), command(1, 1), term=1)
    group = Group(1, 2, 3, images={2: longer, 3: longer, 1: stored((1, 2, 3), term=1)})
    group.campaign(1)
    group.deliver()
    assert group[1].role is Role.FOLLOWER
    assert {group[n].term for n in group.alive} == {1}


def test_a_candidate_with_an_old_term_learns_the_new_one_from_a_refused_pre_vote() -> None:
    group = Group(1, 2, 3, images={2: stored((1, 2, 3), term=7)})
    group.isolate(3)
    group.campaign(1)
    group.deliver()
    assert group[1].term == 7
    group.campaign(1)
    group.deliver()
    assert group.leader == 1
    assert group[1].term == 8


def test_the_first_vote_of_a_term_stands() -> None:
    group = Group(1, 2, 3)
    group.step(vote_request(2, 1, 1))
    group.step(vote_request(3, 1, 1))
    group.step(vote_request(2, 1, 1))
    assert answers(group, 1) == [True, False, True]
    assert group[1].vote == 2


@pytest.mark.parametrize(
    ("own", "other", "granted"),
    [
        ([(1, 1)], (1, 1), True),
        ([(1, 1)], (2, 1), True),
        ([(1, 1), (2, 1)], (1, 1), False),
        ([(1, 1), (2, 1)], (1, 2), True),
        ([(1, 2)], (5, 1), False),
        ([], (0, 0), True),
    ],
)
def test_a_vote_goes_only_to_a_log_that_is_at_least_as_up_to_date(
    own: list[tuple[int, int]], other: tuple[int, int], granted: bool
) -> None:
    entries = (command(index, term) for index, term in own)
    group = Group(1, 2, 3, images={1: stored((1, 2, 3), *entries, term=2)})
    group.step(vote_request(2, 1, 3, last=other))
    assert answers(group, 1) == [granted]
    assert group[1].term == 3


def test_a_vote_is_not_sent_before_it_is_durable() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    group.step(vote_request(2, 1, 1))
    assert answers(group, 1) == []
    group.step(vote_request(2, 1, 1))
    assert answers(group, 1) == []
    group.complete(1)
    assert answers(group, 1) == [True]


def test_a_vote_that_was_lost_in_a_crash_was_not_sent_and_may_go_to_another() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    group.step(vote_request(2, 1, 1))
    group.restart(1)
    group.step(vote_request(3, 1, 1))
    assert answers(group, 1) == [True]
    assert group[1].vote == 3


def test_a_durable_vote_survives_a_crash() -> None:
    group = Group(1, 2, 3)
    group.step(vote_request(2, 1, 1))
    group.restart(1)
    group.step(vote_request(3, 1, 1))
    assert answers(group, 1) == [True, False]


def test_a_vote_of_a_term_that_passed_before_it_was_durable_is_not_sent() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    group.step(vote_request(2, 1, 1))
    group.step(vote_request(3, 1, 2))
    group.complete(1)
    sent = [each for each in group.sent if isinstance(each, VoteAnswer)]
    assert [(each.target, each.term, each.granted) for each in sent] == [(3, 2, True)]


def test_a_candidate_asks_for_votes_only_once_its_own_is_durable() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    group.campaign(1)
    group.deliver()
    assert group[1].role is Role.CANDIDATE
    assert not [each for each in group.sent if isinstance(each, VoteRequest)]
    group.release(1)
    group.deliver()
    assert group.leader == 1


def test_a_single_voter_leads_only_once_its_vote_is_durable() -> None:
    group = Group(1)
    group.hold_back(1)
    group.campaign(1)
    assert group[1].role is Role.CANDIDATE
    group.complete(1)
    assert group.leader == 1


def test_a_vote_for_a_log_that_a_crash_shortened_is_not_counted() -> None:
    """Node 3 campaigns with an entry that it has only in memory, and crashes.

    Had it asked for votes at once, the vote for its longer log could reach it when it campaigns
    in the same term again, without the entry: nodes 1 and 2 have committed that.
    """
    group = Group(1, 2, 3)
    group.elect(1)
    group.hold_back(3)
    group.propose(1, b"kept")
    group.deliver()
    assert group.applied(2) == [b"kept"]
    assert group.log(3)[-1] == (1, b"kept")
    group.crash(1)
    group.tick(2, times=ELECTION_TICKS)
    group.campaign(3)
    group.deliver(of(PreVoteRequest))
    (late,) = group.take_messages(of(PreVoteAnswer))
    group.step(late)
    group.deliver(of(VoteRequest))
    votes = group.take_messages(of(VoteAnswer))
    group.restart(3)
    group.campaign(3)
    group.step(late)
    assert (group.roles()[3], group[3].term) == ("CANDIDATE", 2)
    for each in votes:
        group.step(each)
    group.deliver()
    assert group.roles()[3] != "LEADER"
    group.campaign(2)
    group.deliver()
    assert group.leader == 2
    assert group.applied(3) == [b"kept"]


def test_votes_of_nodes_that_are_no_voters_do_not_count() -> None:
    group = Group(1, 2, 3, learners=(4, 5))
    group.isolate(1)
    group.campaign(1)
    for source in (4, 5, 6):
        group.step(PreVoteAnswer(NodeId(source), NodeId(1), RaftTerm(1), True))
    assert group[1].role is Role.PRE_CANDIDATE


def test_a_repeated_vote_counts_once() -> None:
    group = Group(1, 2, 3, 4, 5)
    group.campaign(1)
    for _ in range(3):
        group.step(PreVoteAnswer(NodeId(2), NodeId(1), RaftTerm(1), True))
    assert group[1].role is Role.PRE_CANDIDATE


def test_a_candidate_that_most_refuse_goes_back_to_following() -> None:
    group = Group(1, 2, 3)
    group.campaign(1)
    group.deliver(of(PreVoteRequest, PreVoteAnswer))
    assert group.roles()[1] == "CANDIDATE"
    for source in (2, 3):
        group.step(VoteAnswer(NodeId(source), NodeId(1), RaftTerm(1), False))
    assert group.roles()[1] == "FOLLOWER"


def test_a_candidate_that_gets_no_answers_asks_again() -> None:
    group = Group(1, 2, 3)
    group.campaign(1)
    group.deliver(of(PreVoteRequest, PreVoteAnswer))
    group.drop()
    assert group[1].role is Role.CANDIDATE
    group.campaign(1)
    group.deliver()
    assert group.leader == 1
    assert group[1].term == 2


def test_split_votes_end_in_another_election() -> None:
    group = Group(1, 2, 3, 4)
    for number in (1, 2):
        group.campaign(number)
    group.deliver(of(PreVoteRequest, PreVoteAnswer))
    assert group.roles() == {1: "CANDIDATE", 2: "CANDIDATE", 3: "FOLLOWER", 4: "FOLLOWER"}
    group.deliver(of(VoteRequest, source=1, target=3))
    group.deliver(of(VoteRequest, source=2, target=4))
    group.deliver()
    assert "LEADER" not in group.roles().values()
    group.campaign(1)
    group.deliver()
    assert group.leader == 1


def test_a_candidate_follows_a_leader_of_its_own_term() -> None:
    group = Group(1, 2, 3)
    for number in (1, 2):
        group.campaign(number)
    group.deliver(of(PreVoteRequest, PreVoteAnswer))
    group.deliver(of(VoteRequest, VoteAnswer, source=1))
    group.deliver(of(VoteAnswer, target=1))
    assert group.roles()[2] == "CANDIDATE"
    group.deliver()
    assert group.roles() == {1: "LEADER", 2: "FOLLOWER", 3: "FOLLOWER"}


def test_a_node_that_votes_for_another_gives_up_its_own_pre_vote() -> None:
    group = Group(1, 2, 3)
    group.campaign(2)
    group.drop()
    group.step(vote_request(1, 2, 1))
    assert group[2].role is Role.FOLLOWER
    assert group[2].vote == 1


def test_who_hears_a_leader_gives_no_vote_to_another() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.step(vote_request(3, 2, 9, last=(9, 8)))
    assert group[2].term == 1
    assert group[2].ignored[Ignored.PROTECTED_LEADER] == 1
    assert group[1].term == 1


def test_a_leader_protects_itself_from_elections_while_it_hears_a_majority() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.step(vote_request(3, 1, 9, last=(9, 8)))
    assert group[1].role is Role.LEADER


def test_who_has_not_heard_the_leader_for_an_election_timeout_votes() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.tick(2, times=ELECTION_TICKS - 1)
    group.step(vote_request(3, 2, 2, last=(5, 1)))
    assert answers(group, 2)[1:] == []
    group.tick(2)
    group.step(vote_request(3, 2, 2, last=(5, 1)))
    assert answers(group, 2)[1:] == [True]


def test_a_leader_without_a_majority_steps_down() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.pass_time(ELECTION_TICKS - 1)
    assert group.roles()[1] == "LEADER"
    group.pass_time(ELECTION_TICKS + 1)
    assert group.roles()[1] != "LEADER"
    assert group[1].term == 1


def test_a_leader_that_hears_a_majority_stays_though_others_are_gone() -> None:
    group = Group(1, 2, 3, 4, 5)
    group.elect(1)
    group.crash(4)
    group.crash(5)
    group.pass_time(5 * ELECTION_TICKS)
    assert group.leader == 1


def test_learners_do_not_keep_a_leader_in_office() -> None:
    group = Group(1, 2, 3, learners=(4, 5))
    group.elect(1)
    group.crash(2)
    group.crash(3)
    group.pass_time(2 * ELECTION_TICKS)
    assert group[1].role is not Role.LEADER


def test_a_deposed_leader_finds_out_by_the_answer_to_its_heartbeat() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.elect(2)
    group.heal()
    assert group.roles()[1] == "LEADER"
    group.tick(1)
    group.deliver(of(Heartbeat, source=1))
    group.deliver(of(AppendRefusal, target=1))
    assert group.roles()[1] == "FOLLOWER"
    assert group[1].term == 2


def test_a_node_that_is_ahead_in_terms_makes_the_leader_catch_up() -> None:
    """It won a pre-vote and then lost touch: its higher term must not lock it out for ever."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.tick(2, 3, times=CAMPAIGN_TICKS)
    group.drop(of(PreVoteRequest, source=2))
    group.deliver(of(PreVoteRequest, PreVoteAnswer))
    assert (group[3].role, group[3].term) == (Role.CANDIDATE, 2)
    group.drop()
    group.pass_time(3 * ELECTION_TICKS)
    assert {group[n].leader for n in group.alive} == {group.leader}
    assert group[group.leader].term > 2


def test_a_second_leader_in_a_term_is_ignored() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    heartbeat = Heartbeat(NodeId(3), NodeId(2), RaftTerm(1), Index(0), 0)
    group.step(heartbeat)
    assert group[2].leader == 1
    assert group[2].ignored[Ignored.SECOND_LEADER] == 1


def test_the_election_timeout_is_drawn_anew_for_each_wait() -> None:
    draws: list[int] = []

    def draw(n: int) -> int:
        draws.append(n)
        return 0

    raft = Raft(NodeId(1), stored((1, 2, 3)), RaftOptions(), draw)
    before = len(draws)
    for _ in range(3 * ELECTION_TICKS):
        raft.tick()
    assert draws[before:] == [ELECTION_TICKS] * 3


def test_old_answers_and_requests_of_a_passed_term_are_answered_or_ignored() -> None:
    group = Group(1, 2, 3, images={1: stored((1, 2, 3), term=5)})
    messages: list[Message] = [
        vote_request(2, 1, 4),
        PreVoteRequest(NodeId(2), NodeId(1), RaftTerm(4), Index(0), RaftTerm(0)),
        VoteAnswer(NodeId(2), NodeId(1), RaftTerm(4), True),
        AppendRequest(
            NodeId(2), NodeId(1), RaftTerm(4), Index(0), RaftTerm(0), Index(0), (command(1, 4),)
        ),
    ]
    for message in messages:
        group.step(message)
    assert [type(each) for each in group.sent] == [VoteAnswer, PreVoteAnswer, AppendRefusal]
    assert {each.term for each in group.sent} == {5}
    assert group[1].last_index == 0
    assert group[1].ignored[Ignored.OLD_TERM] == 4


def test_who_is_no_member_never_campaigns() -> None:
    group = Group(1, 2, 3, learners=(4,))
    group.join(5)
    group.tick(4, 5, times=10 * ELECTION_TICKS)
    assert group[4].role is group[5].role is Role.FOLLOWER
    assert not group.sent


def test_a_voter_that_does_not_know_yet_that_it_is_one_votes_all_the_same() -> None:
    """Who may vote is the candidate's to say: the membership of the one asked may be behind."""
    group = Group(1, 2, learners=(3,))
    group.step(vote_request(1, 3, 1))
    assert answers(group, 3) == [True]
    assert group[3].membership.learners == nodes(3)
