"""Snapshots: our own, and those of the leader part by part (G4, L1, L2, P3, S1, W2)."""

from __future__ import annotations

import pytest

from tests.core.raft.group import (
    ELECTION_TICKS,
    Group,
    command,
    encode_state,
    nodes,
    of,
    stored,
)
from tidelog import limits
from tidelog.core.raft.entries import (
    Entry,
    HardState,
    Index,
    Membership,
    RaftTerm,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRequest,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    SnapshotAnswer,
    SnapshotChunk,
)
from tidelog.core.raft.node import AddLearner, Ignored, RaftOptions, Refused, Remove
from tidelog.core.raft.progress import Pace
from tidelog.invariants import InvariantViolation
from tidelog.types import NodeId

SMALL = RaftOptions(snapshot_chunk_bytes=10)
VOTERS = (1, 2, 3)


def group_with_a_laggard(options: RaftOptions = SMALL) -> Group:
    """Node 1 leads and has compacted what node 3, which is cut off, has never seen."""
    group = Group(*VOTERS, options=options)
    group.elect(1)
    group.isolate(3)
    group.propose(1, *(b"%d" % number * 4 for number in range(10)))
    group.deliver()
    group.compact(1)
    group.propose(1, b"tail")
    group.deliver()
    return group


def heal_without(group: Group, held: type[Message]) -> None:
    """Let the leader find out what node 3 lacks, with messages of a kind left on the wire."""
    group.heal()
    for _ in range(2):
        group.tick(1)
        group.deliver(lambda message: not isinstance(message, held))


def chunk(
    index: int, offset: int, data: bytes, total: int, *, term: int = 2, head_term: int = 1
) -> SnapshotChunk:
    """A part of a snapshot for node 1, from node 2."""
    head = SnapshotHead(Index(index), RaftTerm(head_term), Membership(nodes(*VOTERS)))
    return SnapshotChunk(NodeId(2), NodeId(1), RaftTerm(term), head, total, offset, data)


def append(term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0) -> AppendRequest:
    """An append to node 1, from node 2."""
    index, previous_term = Index(previous[0]), RaftTerm(previous[1])
    return AppendRequest(
        NodeId(2), NodeId(1), RaftTerm(term), index, previous_term, Index(commit), entries
    )


def lonely(*terms: int) -> Group:
    """Node 1 alone with entries of these terms; the test plays the leader."""
    entries = (command(index, term) for index, term in enumerate(terms, 1))
    return Group(1, images={1: stored(VOTERS, *entries, term=1)})


def received(group: Group) -> list[tuple[int, int]]:
    said = [each for each in group.sent if isinstance(each, SnapshotAnswer)]
    return [(each.index, each.received_bytes) for each in said]


def chunks_to(group: Group, target: int) -> list[int]:
    """The offsets of the parts on their way to a node."""
    return [
        each.offset
        for each in group.wire
        if isinstance(each, SnapshotChunk) and each.target == target
    ]


# --- our own --------------------------------------------------------------------------------------


def test_a_snapshot_takes_the_place_of_the_log_up_to_its_index() -> None:
    group = Group(1)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.compact(1)
    group.propose(1, b"c")
    assert group.log(1) == [(1, b"c")]
    _, write = group.writes[-2]
    assert write.snapshot is not None
    assert not write.replaces_log
    assert write.snapshot.head == SnapshotHead(Index(3), RaftTerm(1), Membership(nodes(1)))
    group.restart(1)
    assert group.applied(1) == [b"a", b"b"]
    group.elect(1)
    assert group.applied(1) == [b"a", b"b", b"c"]


def test_a_snapshot_that_a_crash_swallowed_costs_nothing() -> None:
    group = Group(1)
    group.elect(1)
    group.propose(1, b"a")
    group.hold_back(1)
    group.compact(1)
    group.restart(1)
    group.elect(1)
    assert group.applied(1) == [b"a"]


def test_a_snapshot_that_is_no_newer_changes_nothing() -> None:
    group = Group(1)
    group.elect(1)
    group.propose(1, b"a", b"b")
    index = group.compact(1)
    writes = len(group.writes)
    for older in (index, index - 1, 0):
        assert group[1].compact(Index(older), b"x") is None
    group.collect()
    assert len(group.writes) == writes


def test_a_snapshot_of_what_is_not_applied_is_a_mistake_of_the_host() -> None:
    group = Group(1)
    group.elect(1)
    with pytest.raises(InvariantViolation, match="S1"):
        group[1].compact(Index(9), b"")


def test_a_snapshot_too_large_to_be_sent_is_refused() -> None:
    group = Group(1)
    group.elect(1)
    size = limits.RAFT_SNAPSHOT_BYTES_MAX + 1
    assert group[1].compact(Index(1), bytes(size)) is Refused.TOO_LARGE


def test_a_snapshot_keeps_the_membership_of_its_index() -> None:
    group = Group(*VOTERS)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    applied = group[1].applied
    group.change(1, Remove(NodeId(3)))
    group.deliver()
    group[1].compact(applied, encode_state([b"a"]))
    group.collect()
    snapshot = group[1]._state.log.snapshot
    assert snapshot.head.membership.voters == nodes(1, 2, 3)
    assert group[1].membership.voters == nodes(1, 2)
    group.restart(1)
    assert group[1].membership.voters == nodes(1, 2)


# --- to a follower --------------------------------------------------------------------------------


def test_a_follower_whose_entries_are_gone_gets_the_snapshot_and_then_the_rest() -> None:
    group = group_with_a_laggard()
    group.heal()
    group.pass_time(3)
    assert group.applied(3) == group.applied(1)
    assert group.log(3) == group.log(1)
    assert group.follower_of(1, 3).pace is Pace.REPLICATE
    installed = [write for n, write in group.writes if n == 3 and write.replaces_log]
    assert len(installed) == 1


def test_a_follower_that_was_in_the_middle_of_the_log_is_overtaken_by_the_snapshot() -> None:
    group = Group(*VOTERS, options=SMALL)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.crash(3)
    group.propose(1, b"b")
    group.deliver()
    group.compact(1)
    group.restart(3)
    group.pass_time(3)
    assert group.applied(3) == [b"a", b"b"]


def test_one_part_of_a_snapshot_is_on_its_way_at_a_time() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    assert group.follower_of(1, 3).pace is Pace.SNAPSHOT
    assert chunks_to(group, 3) == [0]
    group.tick(1)
    group.deliver(of(Heartbeat, HeartbeatAnswer))
    group.propose(1, b"more")
    assert chunks_to(group, 3) == [0]
    group.deliver(of(SnapshotChunk), rounds=2)
    group.deliver(of(SnapshotAnswer), rounds=2)
    assert chunks_to(group, 3) == [10]


@pytest.mark.parametrize("lost", [SnapshotChunk, SnapshotAnswer])
def test_a_lost_part_is_sent_again_after_a_while(lost: type[Message]) -> None:
    group = group_with_a_laggard()
    heal_without(group, lost)
    group.drop(of(lost))
    group.pass_time(SMALL.resend_ticks - 2)
    assert group[3].commit < 11
    group.pass_time(3)
    assert group.applied(3) == group.applied(1)


def test_a_dead_follower_is_not_sent_the_same_part_over_and_over() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    group.crash(3)
    group.deliver()
    before = len(group.sent)
    group.pass_time(5 * SMALL.resend_ticks)
    assert not [each for each in group.sent[before:] if isinstance(each, SnapshotChunk)]
    group.restart(3)
    group.pass_time(2 * SMALL.resend_ticks)
    assert group.applied(3) == group.applied(1)


def test_the_search_for_a_lost_append_ends_in_a_snapshot_if_the_entries_are_gone() -> None:
    options = RaftOptions(inflight_count_max=1, append_bytes_max=1)
    group = group_with_a_laggard(options)
    assert group.follower_of(1, 3).next_index < group[1].status().snapshot_index
    group.heal()
    group.pass_time(options.resend_ticks + 1)
    assert group.applied(3) == group.applied(1)


def test_the_lost_end_of_a_snapshot_is_made_up_for() -> None:
    """The whole is installed, but word of it is lost: the last part is sent again."""
    group = group_with_a_laggard()
    heal_without(group, AppendAnswer)
    group.drop(of(AppendAnswer))
    assert group.follower_of(1, 3).pace is Pace.SNAPSHOT
    group.pass_time(SMALL.resend_ticks + 1)
    assert group.follower_of(1, 3).pace is Pace.REPLICATE
    assert group.applied(3) == group.applied(1)


def test_parts_that_come_twice_start_no_second_stream() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    (first,) = group.take_messages(of(SnapshotChunk))
    group.step(first)
    group.step(first)
    assert received(group)[-2:] == [(11, 10), (11, 10)]
    group.deliver(of(SnapshotAnswer))
    assert chunks_to(group, 3) == [10]
    group.deliver()
    assert group.applied(3) == group.applied(1)


def test_an_old_answer_only_costs_a_repeated_part() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotAnswer)
    (first,) = group.take_messages(of(SnapshotAnswer))
    group.step(first)
    group.deliver(of(SnapshotChunk), rounds=2)
    group.deliver(of(SnapshotAnswer), rounds=2)
    group.step(first)
    group.deliver()
    assert group.applied(3) == group.applied(1)


def test_a_follower_that_crashed_in_the_middle_begins_anew_with_the_newest_snapshot() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    group.deliver(of(SnapshotChunk), rounds=2)
    group.deliver(of(SnapshotAnswer), rounds=2)
    newest = group.compact(1)
    group.restart(3)
    group.deliver()
    group.pass_time(SMALL.resend_ticks + 1)
    assert group.applied(3) == group.applied(1)
    assert group[3].status().snapshot_index == newest


def test_a_snapshot_that_was_begun_is_finished_though_there_is_a_newer_one() -> None:
    """Else a leader that compacts often would never finish one."""
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    group.deliver(of(SnapshotChunk), rounds=2)
    older = group[1].status().snapshot_index
    newer = group.compact(1)
    assert older < newer
    group.deliver()
    group.pass_time(3)
    assert group.applied(3) == group.applied(1)
    heads = {each.head.index for each in group.sent if isinstance(each, SnapshotChunk)}
    assert heads == {older, newer}


def test_a_snapshot_is_acknowledged_only_once_it_is_durable() -> None:
    group = group_with_a_laggard()
    group.hold_back(3)
    group.heal()
    group.pass_time(2)
    assert group[3].commit == 11
    assert group.follower_of(1, 3).match == 1
    group.complete(3)
    group.deliver()
    assert group.follower_of(1, 3).match >= 11


def test_a_snapshot_that_a_crash_swallowed_is_sent_again() -> None:
    group = group_with_a_laggard()
    group.hold_back(3)
    group.heal()
    group.pass_time(2)
    assert group[3].commit == 11
    group.restart(3)
    assert group[3].commit == 0
    group.pass_time(2 * ELECTION_TICKS)
    assert group.applied(3) == group.applied(1)


def test_an_answer_for_another_snapshot_is_ignored() -> None:
    group = group_with_a_laggard()
    heal_without(group, SnapshotChunk)
    before = group[1].ignored.get(Ignored.LATE, 0)
    for index, size in ((5, 10), (11, 9999)):
        group.step(SnapshotAnswer(NodeId(3), NodeId(1), RaftTerm(1), Index(index), size))
    group.step(SnapshotAnswer(NodeId(2), NodeId(1), RaftTerm(1), Index(11), 10))
    assert group[1].ignored[Ignored.LATE] == before + 3
    group.step(SnapshotAnswer(NodeId(9), NodeId(1), RaftTerm(1), Index(11), 10))
    assert group[1].ignored[Ignored.UNKNOWN_SENDER] == 1


def test_a_new_node_gets_a_snapshot_though_the_log_was_never_compacted_below_it() -> None:
    image = Stored(
        HardState(), Snapshot(SnapshotHead(Index(0), RaftTerm(0), Membership(())), b""), ()
    )
    group = group_with_a_laggard()
    group.join(4, image)
    group.change(1, AddLearner(NodeId(4)))
    group.pass_time(4)
    assert group.applied(4) == group.applied(1)
    assert group[4].membership.learners == nodes(4)


# --- what a follower does with parts --------------------------------------------------------------


def test_parts_in_order_make_a_snapshot() -> None:
    group = lonely(1, 1)
    data = encode_state([b"x"])
    group.step(chunk(9, 0, data[:2], len(data)))
    group.step(chunk(9, 2, data[2:], len(data)))
    assert group.applied(1) == [b"x"]
    assert (group[1].commit, group[1].applied, group[1].last_index) == (9, 9, 9)
    assert group.log(1) == []
    assert received(group) == [(9, 2)]


def test_a_part_that_does_not_come_next_is_answered_with_what_is_there() -> None:
    group = lonely()
    group.step(chunk(9, 4, b"ef", 6))
    group.step(chunk(9, 0, b"ab", 6))
    group.step(chunk(9, 4, b"ef", 6))
    group.step(chunk(9, 0, b"ab", 6))
    assert received(group) == [(9, 0), (9, 2), (9, 2), (9, 2)]
    assert group[1].commit == 0


def test_a_newer_snapshot_takes_the_place_of_one_in_the_making() -> None:
    group = lonely()
    group.step(chunk(9, 0, b"ab", 6))
    group.step(chunk(12, 0, b"", 0))
    assert group[1].commit == 12
    assert group.applied(1) == []


def test_a_part_of_an_older_snapshot_does_not_disturb_a_newer_one() -> None:
    group = lonely()
    group.step(chunk(12, 0, b"ab", 6))
    group.step(chunk(9, 0, b"xy", 6))
    assert received(group) == [(12, 2)]
    assert group[1].ignored[Ignored.LATE] == 1


def test_a_new_leader_begins_a_snapshot_anew() -> None:
    group = lonely()
    group.step(chunk(9, 0, b"ab", 6))
    group.step(chunk(9, 2, b"cd", 6, term=3))
    assert received(group) == [(9, 2), (9, 0)]


def test_a_snapshot_of_what_the_log_holds_only_moves_the_commit_index() -> None:
    group = lonely(1, 1, 1)
    group.step(chunk(2, 0, b"", 5))
    assert group[1].commit == 2
    assert group.log(1) == [(1, b"")] * 3
    assert not [write for _, write in group.writes if write.snapshot is not None]
    answers = [each.match for each in group.sent if isinstance(each, AppendAnswer)]
    assert answers == [2]


def test_a_snapshot_replaces_entries_that_are_not_the_leaders() -> None:
    group = Group(1, images={1: stored(VOTERS, *(command(i, 1) for i in range(1, 20)), term=2)})
    data = encode_state([b"x"])
    group.step(chunk(9, 0, data, len(data), term=3, head_term=2))
    assert group[1].last_index == 9
    group.restart(1)
    assert (group[1].last_index, group.applied(1)) == (9, [b"x"])


def test_an_append_that_begins_below_the_snapshot_is_taken_over_from_there_on() -> None:
    group = lonely()
    group.step(chunk(3, 0, b"", 0))
    entries = tuple(command(index, 1, b"%d" % index) for index in (2, 3, 4))
    request = append(2, (1, 1), *entries, commit=4)
    group.step(request)
    assert group.log(1) == [(1, b"4")]
    group.step(append(2, (0, 0), command(1, 1), commit=0))
    answers = [each.match for each in group.sent if isinstance(each, AppendAnswer)]
    assert answers == [3, 4, 4]


def test_an_append_that_contradicts_the_snapshot_is_ignored() -> None:
    group = lonely()
    group.step(chunk(3, 0, b"", 0, head_term=2))
    entries = tuple(command(index, 1) for index in (2, 3, 4))
    group.step(append(2, (1, 1), *entries, commit=4))
    assert group[1].last_index == 3
    assert group[1].ignored[Ignored.CONTRADICTS_COMMITTED] == 1


@pytest.mark.parametrize(
    "broken",
    [
        chunk(9, 0, b"x", limits.RAFT_SNAPSHOT_BYTES_MAX + 1),
        chunk(9, 0, b"x", 0),
        chunk(9, 6, b"x", 6),
        chunk(9, -1, b"x", 6),
        chunk(0, 0, b"x", 6),
        chunk(9, 0, b"x", 6, head_term=3),
        chunk(9, 0, bytes(limits.RAFT_CHUNK_BYTES_MAX + 1), limits.RAFT_SNAPSHOT_BYTES_MAX),
    ],
)
def test_a_part_that_makes_no_sense_is_ignored(broken: SnapshotChunk) -> None:
    group = lonely()
    group.step(broken)
    assert not group.sent
    assert group[1].ignored[Ignored.NONSENSE] == 1


def test_a_write_of_entries_that_a_snapshot_replaced_counts_for_nothing() -> None:
    """Entries are on their way when the snapshot comes: only the snapshot's write counts."""
    group = lonely()
    group.hold_back(1)
    group.step(append(1, (0, 0), *(command(index, 1) for index in (1, 2, 3))))
    group.step(chunk(2, 0, b"", 0, term=2, head_term=2))
    assert group[1].last_index == 2
    group.complete(1, 1)
    assert not [each for each in group.sent if isinstance(each, AppendAnswer)]
    group.complete(1)
    assert [each.match for each in group.sent if isinstance(each, AppendAnswer)] == [2]


def test_a_leader_that_contradicts_its_own_entries_is_ignored() -> None:
    group = lonely()
    group.step(append(2, (0, 0), *(command(index, 1) for index in (1, 2, 3))))
    group.step(chunk(2, 0, b"", 0, head_term=2))
    group.step(append(2, (1, 1), command(2, 2)))
    assert group.log(1) == [(1, b"")] * 3
    assert group[1].ignored[Ignored.CONTRADICTS_LEADER] == 2
