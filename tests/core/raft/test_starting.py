"""Starting from what is on disk, options, and what a node tells of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.raft.group import Group, command, first_snapshot, nodes, stored
from tidelog import limits
from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    RaftTerm,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.log import RaftLog
from tidelog.core.raft.membership import Memberships
from tidelog.core.raft.node import Raft, RaftOptions, Role
from tidelog.core.raft.progress import Pace, Progress
from tidelog.errors import BadOption, CorruptData
from tidelog.invariants import InvariantViolation
from tidelog.types import NO_NODE, NodeId

VOTERS = (1, 2, 3)


def start(image: Stored, node: int = 1) -> Raft:
    return Raft(NodeId(node), image, RaftOptions(), lambda n: 0)


def test_a_node_goes_on_from_its_disk() -> None:
    image = stored(VOTERS, command(1, 1), command(2, 3), term=4, vote=2)
    raft = start(image)
    assert (raft.term, raft.vote, raft.last_index) == (4, 2, 2)
    assert (raft.commit, raft.applied, raft.role, raft.leader) == (0, 0, Role.FOLLOWER, NO_NODE)
    assert raft.membership == Membership(nodes(*VOTERS))
    assert not raft.has_output


@pytest.mark.parametrize(
    "image",
    [
        stored(VOTERS, command(2, 1), term=1),
        stored(VOTERS, command(1, 1), command(3, 1), term=1),
        stored(VOTERS, command(1, 2), command(2, 1), term=2),
        stored(VOTERS, command(1, 2), term=1),
        stored(VOTERS, Entry(Index(1), RaftTerm(1), EntryKind.MEMBERSHIP, b"?"), term=1),
        stored((2, 1)),
    ],
)
def test_a_log_that_is_not_sound_is_not_started_from(image: Stored) -> None:
    with pytest.raises(CorruptData):
        start(image)


def test_a_node_needs_a_number() -> None:
    with pytest.raises(InvariantViolation):
        start(stored(VOTERS), node=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RaftOptions(heartbeat_ticks=0),
        lambda: RaftOptions(heartbeat_ticks=10),
        lambda: RaftOptions(append_bytes_max=0),
        lambda: RaftOptions(snapshot_chunk_bytes=limits.RAFT_CHUNK_BYTES_MAX + 1),
        lambda: RaftOptions(promote_lag_max=-1),
    ],
)
def test_options_that_a_node_cannot_work_with_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(BadOption):
        make()


def test_a_leader_tells_what_it_believes_of_the_others() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    status = group[1].status()
    assert (status.node, status.role, status.leader, status.vote) == (1, Role.LEADER, 1, 1)
    assert (status.commit, status.durable, status.last_index) == (2, 2, 2)
    assert [(each.node, each.match, each.pace) for each in status.followers] == [
        (2, 2, Pace.REPLICATE),
        (3, 2, Pace.REPLICATE),
    ]
    assert group[2].status().followers == ()


def test_word_of_a_write_that_was_never_handed_out_is_a_mistake_of_the_host() -> None:
    raft = start(stored(VOTERS))
    with pytest.raises(InvariantViolation, match="W1"):
        raft.written(1)


# --- the checks find what they are for ------------------------------------------------------------


def leader_with_entries() -> Raft:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    return group[1]


def progress_of(raft: Raft) -> Progress:
    leadership = raft._roles.leadership
    assert leadership is not None
    return leadership.replication.followers[NodeId(2)]


def set_commit(raft: Raft) -> None:
    raft._state.commit = Index(9)


def set_term(raft: Raft) -> None:
    raft._state.term = RaftTerm(0)


def set_vote(raft: Raft) -> None:
    raft._state.vote = NodeId(2)


def set_handed(raft: Raft) -> None:
    raft._state.writes.handed = raft._state.writes.durable = Index(0)


def set_durable(raft: Raft) -> None:
    raft._state.writes.durable = Index(9)


def set_outstanding(raft: Raft) -> None:
    raft._state.writes._outstanding.append((9, Index(9)))


def drop_entry(raft: Raft) -> None:
    del raft._state.log._entries[1]


def shorten_log(raft: Raft) -> None:
    raft._state.log._entries.pop()


def forget_membership(raft: Raft) -> None:
    raft._state.memberships = Memberships(Index(0), Membership(nodes(1)))


def forget_follower(raft: Raft) -> None:
    leadership = raft._roles.leadership
    assert leadership is not None
    del leadership.replication.followers[NodeId(2)]


def follow_itself(raft: Raft) -> None:
    leadership = raft._roles.leadership
    assert leadership is not None
    leadership.replication.followers[NodeId(1)] = Progress(Index(1))


def miscount_bytes(raft: Raft) -> None:
    leadership = raft._roles.leadership
    assert leadership is not None
    leadership._uncommitted_bytes += 1


def match_too_much(raft: Raft) -> None:
    progress_of(raft).match = Index(9)


def miscount_inflight(raft: Raft) -> None:
    progress_of(raft).inflight_bytes += 1


def reorder_inflight(raft: Raft) -> None:
    progress_of(raft)._inflight.append((Index(1), 0))


def probe_with_appends_in_flight(raft: Raft) -> None:
    progress_of(raft).pace = Pace.PROBE


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (set_commit, "S1"),
        (set_term, "S3"),
        (set_vote, "N2"),
        (set_handed, "S4"),
        (set_durable, "W1"),
        (set_outstanding, "W2"),
        (drop_entry, "L1"),
        (shorten_log, "L1"),
        (forget_membership, "M3"),
        (forget_follower, "F1"),
        (follow_itself, "F1"),
        (miscount_bytes, "C4"),
        (match_too_much, "P1"),
        (miscount_inflight, "P2"),
        (reorder_inflight, "P2"),
        (probe_with_appends_in_flight, "P3"),
    ],
)
def test_a_broken_invariant_is_found(damage: Callable[[Raft], None], invariant: str) -> None:
    raft = leader_with_entries()
    raft.validate()
    damage(raft)
    with pytest.raises(InvariantViolation, match=invariant):
        raft.validate()


def test_a_follower_that_said_too_much_is_found() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    following = group[2]._roles.following
    assert following is not None
    following._acknowledged = Index(9)
    with pytest.raises(InvariantViolation, match="G2"):
        group[2].validate()
    following._matched = Index(9)
    with pytest.raises(InvariantViolation, match="G1"):
        group[2].validate()


def snapshot_at(index: int, term: int = 1) -> Snapshot:
    return Snapshot(SnapshotHead(Index(index), RaftTerm(term), Membership(nodes(1))), b"")


@pytest.mark.parametrize(
    ("misuse", "invariant"),
    [
        (lambda log: log.append(command(4, 1)), "L1"),
        (lambda log: log.append(command(3, 0)), "L1"),
        (lambda log: log.truncate(Index(0)), "L2"),
        (lambda log: log.truncate(Index(3)), "L2"),
        (lambda log: log.slice(0, 1), "L2"),
        (lambda log: log.slice_of_bytes(0, 1), "L2"),
        (lambda log: log.compact(snapshot_at(3)), "L2"),
        (lambda log: log.compact(snapshot_at(2, term=2)), "L2"),
        (lambda log: log.replace(snapshot_at(0)), "L2"),
    ],
)
def test_a_log_is_not_led_astray(misuse: Callable[[RaftLog], object], invariant: str) -> None:
    log = RaftLog(first_snapshot(VOTERS), (command(1, 1), command(2, 1)))
    with pytest.raises(InvariantViolation, match=invariant):
        misuse(log)


def test_the_history_of_memberships_is_not_led_astray() -> None:
    history = Memberships(Index(5), Membership(nodes(1)))
    with pytest.raises(InvariantViolation, match="M3"):
        history.at(Index(4))
    with pytest.raises(InvariantViolation, match="M3"):
        history.truncate(Index(5))
    with pytest.raises(InvariantViolation, match="M3"):
        history.compact(Index(4))
    with pytest.raises(InvariantViolation, match="M3"):
        history.append(command(6, 1))
    with pytest.raises(InvariantViolation, match="M1"):
        history.append(Entry(Index(6), RaftTerm(1), EntryKind.MEMBERSHIP, b"?"))


def test_a_term_never_falls_and_a_vote_stays() -> None:
    raft = start(Stored(HardState(RaftTerm(2), NodeId(2)), first_snapshot(VOTERS), ()))
    for term, vote in ((1, 2), (2, 3), (2, NO_NODE)):
        with pytest.raises(InvariantViolation, match="S2"):
            raft._state.set_term(RaftTerm(term), NodeId(vote))
