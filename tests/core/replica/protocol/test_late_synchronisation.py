"""Synchronisations that come late, again or for nothing: they must take nothing away."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.beginnings import a_group, assert_equal
from tests.core.replica.protocol.harness import OPERATOR, STREAM, Group, entry, nodes, of
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddFollowerRequest,
    FollowerHead,
    Reason,
    Refusal,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
    ToReplica,
)
from tidelog.core.replica.options import CursorKind
from tidelog.types import Llsn, Term

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)
SYNC = (SyncRequest, SyncInitRequest, SyncInitResponse, SyncEntriesRequest, SyncEntriesResponse)


def begin_of(group: Group) -> int:
    answers = [each for each in group.sent if isinstance(each, SyncInitResponse)]
    return answers[-1].begin


LATE_WORDS = [
    AddFollowerRequest(OPERATOR, NODE_1, STREAM, Term(2), FollowerHead(NODE_3, NO_ENTRY, False)),
    AddEntriesRefusal(NODE_3, NODE_1, STREAM, Term(2), entry(2, 1), NO_ENTRY, False),
    AddEntriesRefusal(NODE_3, NODE_1, STREAM, Term(2), entry(2, 2), NO_ENTRY, False),
    Refusal(NODE_3, NODE_1, STREAM, Term(2), Term(1), Reason.NOT_FENCED),
    Refusal(NODE_3, NODE_1, STREAM, Term(2), Term(0), Reason.NOT_MEMBER),
]


@pytest.mark.parametrize("late", LATE_WORDS, ids=lambda late: type(late).__name__)
def test_a_late_word_that_a_follower_lacks_much_does_not_cut_what_it_has_since(
    late: ToReplica,
) -> None:
    """The word is from before it was filled up; by now it has acknowledged and reported more."""
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    group.isolate(2)
    group.append(1, b"y")
    group.deliver()
    assert group.members[1].propagated == 3, "nodes 1 and 3 have it"
    group.report()
    group.step(late)
    for _ in range(10):
        group.tick()
        for message in group.take_messages():
            group.step(message)
            assert group.image(3).end == 3
    assert group.cut()
    group.tell_cuts()
    group.pass_time(10)
    assert_equal(group, 1, 3)


def test_a_follower_that_lacks_cuts_of_trimmed_entries_keeps_its_unordered_ones() -> None:
    """Nodes 1 and 3 are the quorum of y; that 3 has to be told of old cuts must not take y away."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.report()
    group.cut()
    group.tell_cuts(1, 2)
    group.isolate(2)
    group.append(1, b"y")
    group.deliver()
    assert group.members[1].propagated == 3
    group.trim(1, 2)
    group[3].fall_behind(group.order.version)
    for _ in range(40):
        group.tick()
        for message in group.take_messages():
            group.step(message)
            assert b"y" in group.data(3)
    assert not group[3].is_behind
    assert group[3].is_complete
    group.crash(1)
    group.heal()
    group.elect(3, 2)
    assert b"y" in group.data(3)


def test_an_answer_of_an_older_synchronisation_is_not_taken_for_a_new_one() -> None:
    """Node 3 lost its log twice; what it once had must not count."""
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    old = [each for each in group.sent if isinstance(each, SyncEntriesResponse)]
    assert old
    group.lose_log(3)
    group.add_follower(1, 3)
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    for message in old:
        group.step(message)
    assert group[1].cursors[NODE_3].kind is CursorKind.SYNCHRONISING
    group.pass_time(60)
    assert_equal(group, 1, 3)


def test_a_new_leader_begins_the_synchronisation_anew() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    late = group.take_messages()
    group.elect(2, 3)
    group.append(2, b"z")
    group.pass_time(60)
    for message in late:
        group.step(message)
    group.order_all()
    assert group[3].is_complete
    assert_equal(group, 2, 3)


def test_a_synchronisation_of_a_term_that_has_passed_destroys_nothing() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    inits = group.take_messages(of(SyncInitRequest))
    assert inits
    group.elect(2, 3)
    group.pass_time(60)
    before = group.image(3)
    for message in inits:
        group.step(message)
    group.deliver()
    assert group.image(3) == before


def test_a_synchronisation_that_nobody_asked_for_destroys_nothing() -> None:
    """A late one of the same leader: the replica is complete by now."""
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(60)
    inits = [each for each in group.sent if isinstance(each, SyncInitRequest)]
    group.append(1, b"y")
    group.order_all()
    for message in inits:
        group.step(message)
    group.deliver()
    group.pass_time(60)
    assert group.data(3) == [b"x", b"y"]
    assert group[3].is_complete


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_beginning_does_not_cut_what_came_after_it(restarts: bool) -> None:
    """It tells of the leader's log as it was; y was acknowledged since then, by nodes 1 and 3."""
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    late = [each for each in group.sent if isinstance(each, SyncInitRequest)]
    assert late
    group.isolate(2)
    group.append(1, b"y")
    group.deliver()
    assert group.members[1].propagated == 3
    if restarts:
        group.restart(3)
    for message in late:
        group.step(message)
        assert group.image(3).end == 3
    group.pass_time(30)
    group.crash(1)
    group.heal()
    group.elect(3, 2)
    assert group.data(3) == [b"x", b"y"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_beginning_does_not_make_a_follower_deaf(restarts: bool) -> None:
    """The leader has attached it and will send no parts: entries must be taken again."""
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    late = [each for each in group.sent if isinstance(each, SyncInitRequest)]
    if restarts:
        group.restart(3)
    for message in late:
        group.step(message)
    group.append(1, b"y")
    group.pass_time(40)
    assert group.data(3) == [b"x", b"y"]
    assert group[3].report() is not None
    group.order_all()
    assert_equal(group, 1, 3)


def test_a_filling_that_was_begun_twice_under_one_number_begins_anew() -> None:
    """Between both a cut was applied: the leader goes on telling GLSNs that are known by then."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"a")
    group.order_all()
    group.append(1, b"b")
    group.deliver()
    group.report()
    assert group.cut()
    group.tell_cuts(1, 2)
    group.tick(1, times=2)
    (late, *_) = group.take_messages(of(AddEntriesRequest, target=3))
    group.isolate(3)
    group.append(1, b"c")
    group.deliver()
    group[1].joined(Llsn(3))
    group.drop()
    group.heal()
    group.tick(1, times=10)
    (init, *_) = group.take_messages(of(SyncInitRequest))
    group.drop()
    group.step(init)
    group.deliver(of(SyncInitResponse))
    group.tell_cuts(3)
    group.step(late)
    assert group[3].context.llsn_end > 2
    group.step(init)
    group.pass_time(20)
    assert not group[1].is_filling
    assert group[3].context == group[1].context
    assert group.log(3) == group.log(1)
