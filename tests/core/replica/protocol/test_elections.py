"""Fencing, becoming leader, adding followers: who may do what in which term."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.replica.protocol.harness import OPERATOR, STREAM, Group, entry, nodes, of
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderResponse,
    FenceResponse,
    FollowerHead,
    Reason,
    Refusal,
    Role,
    TruncateRequest,
)
from tidelog.types import Llsn, NodeId, Term

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)


def add_request(leader: int, follower: FollowerHead, term: int) -> AddFollowerRequest:
    return AddFollowerRequest(OPERATOR, NodeId(leader), STREAM, Term(term), follower)


# -- fencing -------------------------------------------------------------------------------------


def test_a_fenced_node_answers_with_its_head() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.append(1, b"x", b"y")
    group.deliver()
    assert group.fence(2, term + 1) == FollowerHead(NODE_2, entry(term, 2), True)
    assert group[2].role is Role.FENCED


def test_a_fence_is_answered_when_its_term_is_durable_and_not_before() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    assert not group.ask(group.fence_request(1, 2))
    group.sync(1)
    answers = group.take_messages(of(FenceResponse))
    assert [answer.source for answer in answers] == [1]


def test_a_fence_is_answered_when_the_entries_before_it_are_durable() -> None:
    """An entry that a crash may still take away must not be promised to an election."""
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.hold_back(2)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, target=2))
    assert not group.ask(group.fence_request(2, term + 1))
    group.release(2)
    answer = group.take_one(FenceResponse)
    assert answer.head == entry(term, 1)


def test_a_fenced_term_survives_a_crash_so_that_the_old_leader_stays_refused() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.deliver()
    group.fence(2, term + 1)
    group.restart(2)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, target=2))
    assert group.log(2) == []
    refusal = group.take_one(Refusal, source=2)
    assert (refusal.reason, refusal.known_term) == (Reason.TERM_PASSED, term + 1)


def test_a_fence_that_was_not_durable_was_never_answered() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.hold_back(2)
    assert not group.ask(group.fence_request(2, term + 1))
    group.restart(2)
    assert group[2].term == term
    assert not group.take_messages(of(FenceResponse))


def test_a_fence_is_repeated_while_fenced_with_the_same_answer() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.deliver()
    first = group.fence(2, term + 1)
    assert group.fence(2, term + 1) == first


def test_a_fence_that_comes_twice_before_it_is_durable_is_answered_alike() -> None:
    group = Group(1, 2, 3)
    group.hold_back(1)
    group.ask(group.fence_request(1, 2))
    group.ask(group.fence_request(1, 2))
    group.release(1)
    answers = group.take_messages(of(FenceResponse))
    assert len(set(map(repr, answers))) == 1


def test_a_repeated_fence_takes_nothing_from_a_leader_or_a_follower_of_that_term() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    for number, role in ((1, Role.LEADER), (2, Role.FOLLOWER)):
        assert group.refusal(group.fence_request(number, term)).reason is Reason.ROLE
        assert group[number].role is role
    group.append(1, b"y")
    group.deliver()
    assert group.data(2) == [b"x", b"y"]
    assert group[1].commit_index == 2


def test_a_fence_of_a_term_that_has_passed_is_refused_with_the_known_one() -> None:
    group = Group(1, 2, 3)
    group.fence(1, 7)
    refusal = group.refusal(group.fence_request(1, 6))
    assert (refusal.reason, refusal.term, refusal.known_term) == (Reason.TERM_PASSED, 6, 7)


def test_a_fenced_leader_tells_its_clients_at_once() -> None:
    """An append that waits must not wait for ever."""
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.fence(1, term + 1)
    assert group.members[1].deposed == 1
    assert group[1].append(b"y", 1) is Reason.NOT_LEADER


def test_a_fenced_leader_takes_no_acknowledgement_any_more() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.fence(1, term + 1)
    group.deliver()
    assert group[1].commit_index == 0
    assert group.members[1].propagated == 0


def test_an_empty_node_is_complete_only_in_the_first_election() -> None:
    group = Group(1, 2, 3)
    assert group.fence(1, 2) == FollowerHead(NODE_1, NO_ENTRY, True)
    group.had_leader = True
    assert group.fence(2, 2) == FollowerHead(NODE_2, NO_ENTRY, False)


def test_a_node_that_was_complete_and_empty_stays_complete() -> None:
    """A stream that was never written to must be able to elect again."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.restart(2, 3)
    term = group.elect(2, 3)
    assert group[2].reign == term


def test_a_node_that_finds_its_log_damaged_is_incomplete() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.lose_log(2)
    assert group.fence(2, term + 1) == FollowerHead(NODE_2, NO_ENTRY, False)


# -- becoming leader -----------------------------------------------------------------------------


def test_a_leader_is_one_of_the_highest_term_not_of_the_longest_log() -> None:
    """Two nodes end in term 3 after 1 entry, one in term 2 after 3."""
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"a", b"b", b"c")
    group.drop()
    group.elect(2, 3)
    group.append(2, b"x")
    group.order_all()
    term = group.row.term + 1
    heads = [group.fence(number, term) for number in (1, 2, 3)]
    assert max(heads, key=lambda each: each.head).node != 1
    assert [head.head for head in heads] == [entry(2, 3), entry(3, 1), entry(3, 1)]


def test_a_node_leads_only_a_term_that_it_was_fenced_in() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    refusal = group.refusal(group.lead_request(3, 3))
    assert refusal.reason is Reason.NOT_FENCED
    assert group[3].role is Role.FENCED
    assert group[3].append(b"x", 1) is Reason.NOT_LEADER


def test_a_node_without_a_replica_does_not_lead() -> None:
    group = Group(1, 2, 3)
    assert group.refusal(group.lead_request(3, 2)).reason is Reason.NOT_FENCED
    assert group[3].role is Role.NOT_MEMBER


def test_a_follower_of_a_term_does_not_become_its_leader() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.deliver()
    assert group.refusal(group.lead_request(2, term)).reason is Reason.ROLE
    assert group[2].role is Role.FOLLOWER


def test_an_incomplete_node_does_not_lead() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.lose_log(2)
    group.fence(2, term + 1)
    refusal = group.refusal(group.lead_request(2, term + 1))
    assert refusal.reason is Reason.INCOMPLETE
    assert group[2].role is Role.FENCED


def test_a_node_outside_of_the_ensemble_does_not_lead_and_stays_fenced() -> None:
    """Nothing is half done: a leader is one only once all of the request was carried out."""
    group = Group(1, 2, 3)
    head = group.fence(3, 2)
    request = group.lead_request(3, 2, head, ensemble=(1, 2))
    assert group.refusal(request).reason is Reason.NOT_MEMBER
    assert group[3].role is Role.FENCED
    assert group[3].append(b"x", 1) is Reason.NOT_LEADER
    assert group.fence(3, 2) == head


def test_t3_a_leader_that_restarts_does_not_lead_its_term_again() -> None:
    """What it sent and lost would come a second time, with other content."""
    group = Group(1, 2, 3)
    group.write_row(term=2)
    heads = [group.fence(number, 2) for number in (1, 2)]
    request = group.lead_request(1, 2, *heads)
    group.answer(request, BecomeLeaderResponse)
    group.write_row(leader=1)
    group.hold_back(1)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, target=2))
    assert group.data(2) == [b"x"]
    group.restart(1)
    group.hold_back()

    refusal = group.refusal(request)
    assert refusal.reason is Reason.LED_BEFORE
    assert group[1].role is Role.FENCED
    assert group[1].append(b"y", 1) is Reason.NOT_LEADER


def test_t3_a_node_that_was_fenced_in_an_earlier_life_does_not_lead() -> None:
    """It cannot know whether it has led the term already."""
    group = Group(1, 2, 3)
    head = group.fence(1, 2)
    group.restart(1)
    assert group.fence(1, 2) == head
    assert group.refusal(group.lead_request(1, 2, head)).reason is Reason.LED_BEFORE


def test_t3_a_restarted_leader_is_elected_in_the_next_term() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"x")
    group.order_all()
    group.restart(1)
    group.elect(1, 2)
    group.append(1, b"y")
    group.order_all()
    assert group.data(1) == group.data(2) == [b"x", b"y"]


def test_a_repeated_become_leader_request_resets_nothing() -> None:
    group = Group(1, 2, 3)
    group.write_row(term=2)
    heads = [group.fence(number, 2) for number in (1, 2)]
    request = group.lead_request(1, 2, *heads)
    group.answer(request, BecomeLeaderResponse)
    group.append(1, b"x")
    group.deliver()
    before = (group[1].head, group[1].commit_index, dict(group[1].cursors))
    assert group.answer(request, BecomeLeaderResponse).term == 2
    assert (group[1].head, group[1].commit_index, dict(group[1].cursors)) == before
    assert not group.take_messages(of(AddEntriesRequest))


def test_a_deposed_leader_does_not_lead_its_term_again() -> None:
    group = Group(1, 2, 3)
    group.write_row(term=2)
    heads = [group.fence(number, 2) for number in (1, 2)]
    request = group.lead_request(1, 2, *heads)
    group.answer(request, BecomeLeaderResponse)
    group.fence(2, 3)
    group.append(1, b"x")
    group.deliver()
    assert group[1].role is Role.FENCED, "node 2 told of a later term"
    assert group.members[1].deposed == 1
    group.refusal(request)
    assert group[1].role is Role.FENCED


def test_the_message_of_a_stale_leader_does_not_touch_the_new_one() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.deliver()
    group.elect(2, 3)
    group.append(1, b"stale")
    group.deliver()
    assert group[2].role is Role.LEADER
    assert group[1].role is Role.FENCED
    group.append(2, b"x")
    group.order_all()
    assert group.data(2) == group.data(3) == [b"x"]


def test_a_leader_accepts_appends_before_its_followers_are_there() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    assert group.append(1, b"x") == 1
    assert group.members[1].stored == 2
    assert group.members[1].propagated == 0


# -- adding followers ----------------------------------------------------------------------------


def test_a_late_follower_is_added_where_its_log_ends() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    group.elect(1, 2)
    group.append(1, b"y")
    group.order_all()
    group.add_follower(1, 3)
    requests = group.take_messages(of(AddEntriesRequest, target=3))
    assert requests
    assert not any(isinstance(each, TruncateRequest) for each in group.sent)
    for request in requests:
        group.step(request)
    group.order_all()
    assert group.data(3) == [b"x", b"y"]


def test_adding_a_follower_twice_leaves_its_cursor() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    head = group.fence(3, term)
    request = add_request(1, head, term)
    group.answer(request, AddFollowerResponse)
    group.append(1, b"x")
    group.deliver()
    before = dict(group[1].cursors)
    group.answer(request, AddFollowerResponse)
    assert dict(group[1].cursors) == before
    assert not group.take_messages(of(AddEntriesRequest))


def test_a_follower_outside_of_the_ensemble_is_not_added() -> None:
    """A late answer of a node that was removed must not bring it back."""
    group = Group(1, 2, 3, spares=[4])
    term = group.elect(1, 2)
    request = add_request(1, FollowerHead(NodeId(4), NO_ENTRY, True), term)
    assert group.refusal(request).reason is Reason.NOT_MEMBER
    assert NodeId(4) not in group[1].cursors


def test_a_leader_is_not_its_own_follower() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    group.ask(add_request(1, FollowerHead(NODE_1, NO_ENTRY, True), term))
    assert NODE_1 not in group[1].cursors


def test_only_the_leader_of_the_term_adds_followers() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2)
    head = FollowerHead(NODE_3, NO_ENTRY, True)
    assert group.refusal(add_request(2, head, term)).reason is Reason.NOT_LEADER
    group.elect(2, 3)
    assert group.refusal(add_request(2, head, term)).reason is Reason.TERM_PASSED


def test_an_incomplete_follower_is_synchronised_and_does_not_count_meanwhile() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    group.lose_log(3)
    group.elect(1, 2)
    group.isolate(2)
    group.add_follower(1, 3)
    llsn = group.append(1, b"y")
    group.deliver(of(AddEntriesRequest, AddEntriesResponse))
    assert group[1].commit_index < llsn
    group.pass_time(30)
    assert group[3].is_complete
    assert group[1].commit_index == llsn
    assert group.data(3) == [b"x", b"y"]


# -- T2: whose entries a follower takes ----------------------------------------------------------


def test_t2_a_node_that_the_election_never_fenced_refuses_the_leaders_entries() -> None:
    """The leader never learnt its head: its log may have anything behind the common part."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.elect(2, 3)
    stray = AddEntriesRequest(NODE_2, NODE_1, STREAM, Term(3), Term(3), entry(2, 1), (), Llsn(1))
    group.step(stray)
    refusal = group.take_one(Refusal, source=1)
    assert refusal.reason is Reason.NOT_FENCED
    assert group[1].term == 2
    assert group[1].role is Role.LEADER, "only its own election ends it"


def test_t2_a_follower_goes_with_its_leader_to_the_term_of_a_reconfiguration() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    request = AddEntriesRequest(
        NODE_1, NODE_2, STREAM, Term(term + 1), Term(term), entry(term, 1), (), Llsn(1)
    )
    group.step(request)
    assert group[2].term == term + 1
    ack = group.take_one(AddEntriesResponse, source=2)
    assert ack.term == term + 1
    state = group.image(2).hard_state
    assert state is not None
    assert state.term == term + 1


def test_t1_an_entry_of_a_lower_term_is_refused_with_the_known_one() -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.append(1, b"x")
    (late,) = group.take_messages(of(AddEntriesRequest, target=2))[-1:]
    group.fence(2, term + 1)
    group.step(late)
    refusal = group.take_one(Refusal, source=2)
    assert (refusal.term, refusal.known_term) == (term, term + 1)
    assert group.log(2) == []


@pytest.mark.parametrize("reign", [4, 99])
def test_a_reign_above_its_term_is_nonsense_and_changes_nothing(reign: int) -> None:
    group = Group(1, 2, 3)
    term = group.elect(1, 2, 3)
    group.append(1, b"x")
    (request,) = group.take_messages(of(AddEntriesRequest, target=2))[-1:]
    assert isinstance(request, AddEntriesRequest)
    group.step(replace(request, reign=Term(reign)))
    assert group.log(2) == []
    assert group[2].term == term
