"""Linearizable reads: never older than what was committed when they began (R1 to R3)."""

from __future__ import annotations

import pytest

from tests.core.raft.group import CAMPAIGN_TICKS, ELECTION_TICKS, Group, of
from tidelog.core.raft.entries import Index, RaftTerm
from tidelog.core.raft.messages import (
    AppendRequest,
    Heartbeat,
    HeartbeatAnswer,
    ReadAnswer,
    ReadRequest,
)
from tidelog.core.raft.node import Ignored, Raft, RaftOptions, Role
from tidelog.types import NodeId


def led_group(*voters: int, options: RaftOptions | None = None) -> Group:
    """A group that node 1 leads, with one command committed at index 2."""
    group = Group(*voters, options=options)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    return group


def test_a_read_at_the_leader_waits_for_a_majority_to_confirm_it() -> None:
    group = led_group(1, 2, 3)
    group.read(1, 7)
    assert group.members[1].reads == {}
    group.deliver(of(Heartbeat, target=2))
    assert group.members[1].reads == {}
    group.deliver(of(HeartbeatAnswer, source=2))
    assert group.members[1].reads == {7: 2}


def test_a_read_of_a_single_voter_is_answered_at_once() -> None:
    group = led_group(1)
    group.read(1, 7)
    assert group.members[1].reads == {7: 2}
    assert not group.wire


def test_a_deposed_leader_that_does_not_know_it_answers_no_read() -> None:
    """Node 2 leads and has committed more; node 1 is cut off and believes that it leads."""
    group = led_group(1, 2, 3)
    group.isolate(1)
    group.elect(2)
    group.propose(2, b"b")
    group.deliver()
    assert group.roles()[1] == "LEADER"
    group.read(1, 7)
    group.deliver()
    assert group.members[1].reads == {}
    group.heal()
    group.pass_time(2)
    assert group.members[1].reads == {}
    assert group.members[1].lost_reads == [7]


def test_answers_to_heartbeats_from_before_the_read_do_not_confirm_it() -> None:
    group = led_group(1, 2, 3)
    group.tick(1)
    group.deliver(of(Heartbeat))
    early = group.take_messages(of(HeartbeatAnswer))
    assert len(early) == 2
    group.read(1, 7)
    for message in early:
        group.step(message)
    assert group.members[1].reads == {}
    group.deliver()
    assert group.members[1].reads == {7: 2}


def test_a_new_leader_answers_reads_only_once_it_has_committed_in_its_term() -> None:
    """It has the entry of index 2, but does not know yet that this is committed."""
    group = led_group(1, 2, 3)
    group.propose(1, b"b")
    group.deliver(of(AppendRequest, target=2))
    group.deliver(lambda message: message.target == 1)
    assert group.applied(1) == [b"a", b"b"]
    group.crash(1)
    group.drop()
    group.tick(3, times=ELECTION_TICKS)
    group.campaign(2)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert group[2].commit == 2
    group.read(2, 7)
    group.tick(2)
    group.deliver(of(Heartbeat, HeartbeatAnswer))
    assert group.members[2].reads == {}
    group.deliver()
    assert group.members[2].reads == {7: 4}


def test_reads_share_a_round_of_heartbeats() -> None:
    group = led_group(1, 2, 3)
    before = len(group.sent)
    for context in range(100):
        group[1].read(context)
    group.deliver()
    assert sorted(group.members[1].reads) == list(range(100))
    heartbeats = [each for each in group.sent[before:] if isinstance(each, Heartbeat)]
    assert len(heartbeats) == 2


def test_reads_that_come_during_a_round_wait_for_the_next() -> None:
    group = led_group(1, 2, 3)
    group.read(1, 1)
    group.propose(1, b"b")
    group.deliver(of(AppendRequest))
    group.deliver(lambda message: message.target == 1)
    group.read(1, 2)
    group.deliver()
    assert group.members[1].reads == {1: 2, 2: 3}


def test_a_lost_round_is_confirmed_by_the_next_heartbeat() -> None:
    group = led_group(1, 2, 3)
    group.read(1, 7)
    group.drop(of(Heartbeat))
    group.tick(1)
    group.deliver()
    assert group.members[1].reads == {7: 2}


def test_a_read_at_a_follower_is_answered_through_the_leader() -> None:
    group = led_group(1, 2, 3)
    group.read(3, 7)
    group.deliver()
    assert group.members[3].reads == {7: 2}
    assert group.members[1].reads == {}


def test_a_learner_can_read_too() -> None:
    group = Group(1, 2, learners=(3,))
    group.elect(1)
    group.read(3, 7)
    group.deliver()
    assert group.members[3].reads == {7: 1}


def test_a_read_without_a_leader_is_lost_at_once() -> None:
    group = Group(1, 2, 3)
    group.read(1, 7)
    assert group.members[1].lost_reads == [7]


@pytest.mark.parametrize("lost", [ReadRequest, ReadAnswer])
def test_a_forwarded_read_that_is_not_answered_is_lost_after_a_while(
    lost: type[ReadRequest | ReadAnswer],
) -> None:
    group = led_group(1, 2, 3)
    group.read(3, 7)
    group.deliver(lambda message: not isinstance(message, lost))
    group.drop(of(lost))
    group.pass_time(ELECTION_TICKS - 1)
    assert group.members[3].lost_reads == []
    group.pass_time(1)
    assert group.members[3].lost_reads == [7]
    assert group.members[3].reads == {}


def test_forwarded_reads_are_lost_with_their_leader() -> None:
    group = led_group(1, 2, 3)
    group.crash(1)
    group.read(3, 7)
    group.tick(3, times=CAMPAIGN_TICKS)
    assert group.members[3].lost_reads == [7]


def test_an_answer_that_comes_after_the_read_was_lost_is_ignored() -> None:
    group = led_group(1, 2, 3)
    group.read(3, 7)
    group.deliver(of(ReadRequest, Heartbeat, HeartbeatAnswer))
    (late,) = group.take_messages(of(ReadAnswer))
    group.pass_time(ELECTION_TICKS)
    group.step(late)
    assert group.members[3].reads == {}
    assert group[3].ignored[Ignored.LATE] == 1


def test_an_answer_to_a_read_from_before_a_crash_is_not_taken_for_a_new_one() -> None:
    """Contexts are the host's, and it may begin them anew; what travels is drawn by chance."""
    group = led_group(1, 2, 3)
    group.read(3, 1)
    group.deliver(of(ReadRequest, Heartbeat, HeartbeatAnswer))
    (late,) = group.take_messages(of(ReadAnswer))
    group.restart(3)
    group.tick(1)
    group.deliver(of(Heartbeat))
    group.members[3].raft = restarted_with_other_chance(group)
    group.deliver(of(Heartbeat))
    group.propose(1, b"b")
    group.deliver(of(AppendRequest, target=2))
    group.deliver(lambda message: message.target == 1)
    group.tick(1)
    group.deliver(of(Heartbeat, target=3))
    group.read(3, 1)
    group.step(late)
    assert group.members[3].reads == {}
    group.deliver()
    assert group.members[3].reads == {1: 3}


def restarted_with_other_chance(group: Group) -> Raft:
    member = group.members[3]
    return Raft(member.node, member.disk.image, member.options, lambda n: 0)


def test_a_leader_that_steps_down_loses_its_reads() -> None:
    group = led_group(1, 2, 3)
    group.isolate(1)
    group.read(1, 7)
    group.pass_time(2 * ELECTION_TICKS + 1)
    assert group[1].role is not Role.LEADER
    assert group.members[1].lost_reads == [7]


def test_a_followers_read_is_lost_with_the_leader_that_worked_on_it() -> None:
    group = led_group(1, 2, 3)
    group.cut((1, 2), (1, 3))
    group.read(3, 7)
    group.pass_time(2 * ELECTION_TICKS + 1)
    assert group.members[3].lost_reads == [7]
    assert group.members[1].lost_reads == [], "it was not its own"


def test_reads_that_wait_are_bounded() -> None:
    options = RaftOptions(reads_max=2)
    group = led_group(1, 2, 3, options=options)
    for context in (1, 2, 3):
        group[1].read(context)
        group[2].read(context)
    group.collect()
    assert group.members[1].lost_reads == [3]
    assert group.members[2].lost_reads == [3]
    group.deliver(of(ReadRequest))
    assert group[1].ignored[Ignored.TOO_MANY_READS] == 2
    group.deliver()
    assert sorted(group.members[1].reads) == [1, 2]


def test_reads_of_strangers_are_ignored() -> None:
    group = led_group(1, 2, 3)
    group.step(ReadRequest(NodeId(9), NodeId(1), RaftTerm(1), 7))
    assert group[1].ignored[Ignored.UNKNOWN_SENDER] == 1
    group.step(ReadRequest(NodeId(3), NodeId(2), RaftTerm(1), 7))
    assert group[2].ignored[Ignored.LATE] == 1
    group.step(ReadAnswer(NodeId(1), NodeId(2), RaftTerm(1), 7, Index(9)))
    assert group.members[2].reads == {}


def test_an_answer_to_a_read_that_reaches_a_leader_is_ignored() -> None:
    group = led_group(1, 2, 3)
    group.step(ReadAnswer(NodeId(2), NodeId(1), RaftTerm(1), 7, Index(9)))
    assert group[1].ignored[Ignored.LATE] >= 1
    assert group.members[1].reads == {}
