"""Changes of the metadata: answered exactly once, the same on every node, compare-and-set."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests.core.metadata.cluster import TOPIC, Cluster
from tests.core.metadata.seen import naming, pausing, registering, unregistering
from tidelog import limits
from tidelog.core.metadata.commands import (
    RegisterNode,
    Request,
    decode_batch,
)
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Share
from tidelog.core.metadata.proposing import Unheeded
from tidelog.core.metadata.repository import RepositoryOptions
from tidelog.core.metadata.state import MetadataState
from tidelog.core.order.commands import (
    AddStreams,
    CreateTopic,
    NewStream,
    Quorum,
    RemoveStream,
    RetainTopic,
    StreamStatus,
    UpdateStream,
)
from tidelog.core.raft.messages import AppendAnswer, TimeoutNow
from tidelog.errors import BadOption, Busy, CorruptData, DeadlineExceeded, TopicExists
from tidelog.types import FIRST_TERM, Glsn, NodeId, Revision, StreamId, Term, TopicId


def other_than_leader(cluster: Cluster) -> NodeId:
    return next(node for node in cluster.nodes if node != cluster.leader.node)


def fenced(cluster: Cluster, revision: int, term: int, leader: int = 11) -> UpdateStream:
    return UpdateStream(
        StreamId(1),
        Revision(revision),
        Term(term),
        tuple(sorted(cluster.storage)),
        NodeId(leader),
        StreamStatus.RUNNING,
        b"",
    )


def test_a_change_asked_for_at_a_follower_is_answered_there() -> None:
    cluster = Cluster()
    cluster.elect()
    answer = cluster.ask(RegisterNode(NodeId(11), "tcp://a:1"), other_than_leader(cluster))
    assert answer.error is None
    for node in cluster.nodes.values():
        assert node.machine.nodes[NodeId(11)].address == "tcp://a:1"


def all_but_refusals(machine: MetadataMachine) -> MetadataState:
    """The state without the memory of what was refused lately."""
    return replace(msgspec.msgpack.decode(machine.snapshot(), type=MetadataState), refused=())


def test_a_refused_change_is_answered_with_its_error_and_changes_nothing() -> None:
    cluster = Cluster().with_streams(1)
    before = all_but_refusals(cluster.leader.machine)
    unknown = NewStream(StreamId(9), (NodeId(77),))
    for change in (
        AddStreams(TOPIC, (unknown,)),
        CreateTopic(TopicId(5), (unknown,)),
        unregistering(cluster.leader.machine, 11),
        unregistering(cluster.leader.machine, 77),
        RegisterNode(NodeId(0)),
        RegisterNode(NodeId(78), "x" * 1_000),
    ):
        assert isinstance(cluster.ask(change).error, BadOption), change
    assert all_but_refusals(cluster.leader.machine) == before


def test_of_two_operators_with_the_same_revision_one_wins() -> None:
    cluster = Cluster().with_streams(1)
    revision = cluster.leader.machine.order.stream(StreamId(1)).revision
    first = cluster.ask(fenced(cluster, revision, 2, leader=11))
    second = cluster.ask(fenced(cluster, revision, 2, leader=12), other_than_leader(cluster))
    assert first.error is None
    assert second.error is not None
    assert cluster.leader.machine.order.stream(StreamId(1)).leader == 11


def test_a_new_term_fences_the_reports_of_the_old_one() -> None:
    cluster = Cluster().with_streams(1)
    revision = cluster.leader.machine.order.stream(StreamId(1)).revision
    assert cluster.ask(fenced(cluster, revision, FIRST_TERM + 1)).error is None
    cluster.append(1, 3)  # the storage nodes of this cluster report in the first term for ever
    cluster.tick(10)
    assert all(storage.glsns(1) == [] for storage in cluster.storage.values())


def test_a_removed_stream_leaves_its_storage_nodes_and_the_sequence_goes_on() -> None:
    cluster = Cluster().with_streams(1)
    cluster.append(1, 3)
    revision = cluster.leader.machine.order.stream(StreamId(1)).revision
    assert cluster.ask(RemoveStream(StreamId(1), revision)).error is None
    new = NewStream(StreamId(2), tuple(sorted(cluster.storage)))
    assert cluster.ask(AddStreams(TOPIC, (new,))).error is None
    for storage in cluster.storage.values():
        storage.ends.clear()
    cluster.append(2, 2)
    assert all(storage.glsns(2) == [4, 5] for storage in cluster.storage.values())


def test_an_unregistered_storage_node_is_no_longer_asked() -> None:
    cluster = Cluster()
    cluster.elect()
    cluster.ask(RegisterNode(NodeId(11)))
    cluster.tick(2)
    assert cluster.storage[NodeId(11)].collector
    assert cluster.ask(unregistering(cluster.leader.machine, 11)).error is None
    assert all(node.assigned == () for node in cluster.nodes.values())


def test_without_a_quorum_a_change_is_answered_as_unknown_and_exactly_once() -> None:
    cluster = Cluster()
    leader = cluster.elect()
    cluster.arrives = lambda message: False
    answer = cluster.ask(RegisterNode(NodeId(11)), leader.node)
    assert isinstance(answer.error, DeadlineExceeded)
    cluster.arrives = lambda message: True
    cluster.tick(100)
    assert (leader.node, answer.number) not in cluster.answers


def test_the_outcome_of_a_change_from_before_a_restart_answers_no_other_one() -> None:
    cluster = Cluster()
    cluster.elect()
    follower = other_than_leader(cluster)
    cluster.arrives = lambda message: not isinstance(message, AppendAnswer)
    cluster.nodes[follower].ask(RegisterNode(NodeId(11)))
    cluster.settle()  # the leader has it in its log, where it waits for a majority
    cluster.crash(follower)
    cluster.start(follower)
    number = cluster.nodes[follower].ask(RegisterNode(NodeId(12), "x" * 1_000))
    cluster.arrives = lambda message: not isinstance(message, Share)
    cluster.tick(5)
    assert cluster.nodes[follower].machine.nodes.keys() == {11}
    assert (follower, number) not in cluster.answers


def test_changes_beyond_the_bound_are_refused_as_busy_and_not_applied() -> None:
    cluster = Cluster()
    node = cluster.nodes[NodeId(1)]  # nobody leads yet, so all of them wait
    numbers = [node.ask(RegisterNode(NodeId(11 + each))) for each in range(1_100)]
    cluster.settle()
    busy = [
        number
        for number in numbers
        if (node.node, number) in cluster.answers
        and isinstance(cluster.answers[node.node, number].error, Busy)
    ]
    assert busy == numbers[1_024:]


def test_a_change_that_no_raft_entry_can_hold_is_refused_at_once() -> None:
    cluster = Cluster().with_streams(1)
    revision = cluster.leader.machine.order.stream(StreamId(1)).revision
    huge = replace(fenced(cluster, revision, 2), plan=bytes(limits.METADATA_REQUEST_BYTES_MAX))
    assert isinstance(cluster.ask(huge).error, BadOption)


def test_changes_that_do_not_fit_into_one_raft_entry_take_several() -> None:
    cluster = Cluster()
    cluster.elect()
    size = limits.METADATA_REQUEST_BYTES_MAX // 3
    node = cluster.leader
    for _ in range(9):
        node.ask(RegisterNode(NodeId(11), "x" * size))
    cluster.settle()
    assert len(cluster.answers) == 9, "each is answered, though the address is too long"


def test_a_raft_log_of_few_large_entries_is_cut_off_too_after_a_restart_as_well() -> None:
    """R5: a log file that is too large could not be opened again."""
    size = limits.METADATA_REQUEST_BYTES_MAX // 2
    options = RepositoryOptions(snapshot_bytes=3 * size)
    cluster = Cluster(metadata=1, options=options)
    for _ in range(4):
        cluster.elect()
        before = cluster.leader.raft.status().snapshot_index
        for _ in range(2):
            assert isinstance(cluster.ask(RegisterNode(NodeId(11), "x" * size)).error, BadOption)
        stored = cluster.disks[NodeId(1)].stored
        assert sum(len(entry.data) for entry in stored.entries) < 3 * size
        cluster.crash(NodeId(1))
        cluster.start(NodeId(1))
    assert before > 0, "the log was never cut off"


def test_what_is_shared_with_a_node_that_does_not_lead_is_left_alone() -> None:
    cluster = Cluster()
    cluster.elect()
    follower = cluster.nodes[other_than_leader(cluster)]
    request = Request(NodeId(2), 1, RegisterNode(NodeId(11)))
    follower.step(Share(NodeId(2), follower.node, (request,)))
    cluster.settle()
    assert follower.unheeded[Unheeded.NOT_LEADER] == 1
    assert not follower.machine.nodes


def test_what_waits_while_the_leader_hands_over_is_done_by_the_next_one() -> None:
    cluster = Cluster().with_streams(1)
    old, target = cluster.leader, other_than_leader(cluster)
    cluster.arrives = lambda message: not isinstance(message, TimeoutNow)
    assert old.raft.transfer_leadership(target) is None
    number = old.ask(registering(old.machine, 11, "tcp://b:2"))
    cluster.append(1, 3)
    assert (old.node, number) not in cluster.answers, "a leader that hands over proposes nothing"
    cluster.arrives = lambda message: True
    cluster.tick(10)
    assert cluster.leader.node != old.node
    assert cluster.answers[old.node, number].error is None
    assert all(storage.glsns(1) == [1, 2, 3] for storage in cluster.storage.values())


def test_a_storage_node_may_move_to_another_address() -> None:
    cluster = Cluster().with_streams(1)
    assert cluster.ask(registering(cluster.leader.machine, 11, "tcp://b:2")).error is None
    node = cluster.leader.machine.nodes[NodeId(11)]
    assert node.address == "tcp://b:2"
    assert node.collector, "its collector stays"


def test_a_read_sees_all_changes_that_were_answered_before() -> None:
    cluster = Cluster().with_streams(1)
    cluster.append(1, 3)
    follower = other_than_leader(cluster)
    cluster.nodes[follower].read(7)
    cluster.settle()
    cluster.tick(2)
    assert cluster.reads == [(follower, 7)]


def test_a_read_without_a_leader_is_lost_not_answered() -> None:
    cluster = Cluster()
    cluster.nodes[NodeId(1)].read(7)
    cluster.settle()
    assert cluster.lost_reads == [(1, 7)]
    assert cluster.reads == []


def test_a_restarted_cluster_goes_on_from_its_disks() -> None:
    cluster = Cluster(options=RepositoryOptions(snapshot_entries=3)).with_streams(2)
    for stream in (1, 2, 1, 1, 2):
        cluster.append(stream, 2)
    cluster.tick(5)
    before = cluster.leader.machine.snapshot()
    assert cluster.disks[NodeId(1)].stored.snapshot.data, "the log was never compacted"
    for node in list(cluster.nodes):
        cluster.crash(node)
        cluster.start(node)
    cluster.elect()
    cluster.tick(30)
    assert {node.machine.snapshot() for node in cluster.nodes.values()} == {before}
    cluster.append(1, 1)
    assert all(storage.glsns(1)[-1] == 11 for storage in cluster.storage.values())


def test_a_node_that_fell_behind_the_log_gets_a_snapshot_and_the_same_state() -> None:
    options = RepositoryOptions(snapshot_entries=3, leader_collects=0)
    cluster = Cluster(options=options).with_streams(2)
    late = other_than_leader(cluster)
    cluster.crash(late)
    cluster.tick(cluster.options.takeover_ticks + 5)
    for stream in (1, 2, 1, 1, 2, 1, 2):
        cluster.append(stream, 1)
    cluster.start(late)
    cluster.tick(50)
    assert cluster.nodes[late].machine.snapshot() == cluster.leader.machine.snapshot()
    assert cluster.nodes[late].assigned, "it collects again"


def test_a_change_that_came_in_a_snapshot_is_not_told_as_refused_when_it_is_repeated() -> None:
    """W3: who asked for it lagged, and so never saw that it was applied."""
    cluster = Cluster(options=RepositoryOptions(snapshot_entries=5, leader_collects=0))
    cluster.elect()
    cluster.ask(RegisterNode(NodeId(11)))
    leader, asker = cluster.leader, cluster.nodes[other_than_leader(cluster)]
    cluster.arrives = lambda message: getattr(message, "target", None) != asker.node
    created = CreateTopic(TopicId(7), (NewStream(StreamId(7), (NodeId(11),)),), "mine")
    number = asker.ask(created)
    cluster.settle()
    assert TopicId(7) in leader.machine.order.topics
    for turn in range(6):
        cluster.ask(pausing(leader.machine, is_paused=bool(turn % 2)), leader.node)
    assert leader.raft.status().snapshot_index > asker.raft.last_index
    cluster.arrives = lambda message: True
    cluster.tick(5)
    assert TopicId(7) in asker.machine.order.topics
    # Whoever leads next is offered what still waits, and refuses it.
    cluster.crash(leader.node)
    for _ in range(100):
        cluster.tick()
        if (asker.node, number) in cluster.answers:
            break
    assert isinstance(cluster.answers[asker.node, number].error, DeadlineExceeded)
    # What is asked for from now on is told as it is.
    refused = cluster.ask(replace(created, name="other"), asker.node).error
    assert isinstance(refused, TopicExists)


def test_a_damaged_snapshot_or_entry_is_corrupt_data() -> None:
    with pytest.raises(CorruptData):
        MetadataMachine.restore(b"\x93\x01")
    with pytest.raises(CorruptData):
        decode_batch(b"nonsense")


def test_a_single_metadata_node_is_a_whole_repository() -> None:
    cluster = Cluster(metadata=1, storage=1).with_streams(1, Quorum.MAJORITY)
    cluster.append(1, 2)
    assert cluster.storage[NodeId(11)].glsns(1) == [1, 2]


def test_operators_are_paused_and_members_named_on_every_node_and_after_a_restart() -> None:
    cluster = Cluster().with_streams(1)
    leader = cluster.leader.machine
    assert cluster.ask(pausing(leader)).error is None
    assert cluster.ask(naming(leader, 1, "tcp://a:1")).error is None
    assert cluster.ask(naming(leader, 2, "tcp://b:1")).error is None
    assert cluster.ask(naming(leader, 2, "")).error is None
    for node in cluster.nodes.values():
        machine = MetadataMachine.restore(node.machine.snapshot())
        assert machine.is_paused
        assert [(one.node, one.address) for one in machine.members.values()] == [(1, "tcp://a:1")]
        assert machine.snapshot() == node.machine.snapshot()
    assert cluster.ask(pausing(leader, is_paused=False)).error is None
    assert not leader.is_paused


def test_a_member_with_a_bad_address_or_one_too_many_is_not_named() -> None:
    cluster = Cluster()
    machine = cluster.elect().machine
    long = "x" * (limits.NODE_ADDRESS_CHARS_MAX + 1)
    assert isinstance(cluster.ask(naming(machine, 1, long)).error, BadOption)
    assert isinstance(cluster.ask(naming(machine, 0, "tcp://a:1")).error, BadOption)
    for number in range(1, limits.RAFT_MEMBERS_MAX + 1):
        assert cluster.ask(naming(machine, number, "tcp://a:1")).error is None
    one_more = limits.RAFT_MEMBERS_MAX + 1
    assert isinstance(cluster.ask(naming(machine, one_more, "tcp://a:1")).error, BadOption)
    assert cluster.ask(naming(machine, 1, "tcp://moved:1")).error is None


def test_the_number_of_changes_rises_with_what_is_made_and_not_with_cuts_or_refusals() -> None:
    cluster = Cluster().with_streams(1)
    cluster.tick(5)
    before = cluster.leader.machine.changes
    cluster.append(1, 3)
    assert cluster.leader.machine.order.version > 0
    assert cluster.ask(unregistering(cluster.leader.machine, 77)).error is not None
    assert cluster.leader.machine.changes == before
    assert cluster.ask(RetainTopic(TOPIC, Glsn(3))).error is None
    assert {node.machine.changes for node in cluster.nodes.values()} == {before + 1}


def test_a_change_that_was_given_to_a_leader_that_died_is_made_by_the_next_one() -> None:
    cluster = Cluster().with_streams(1)
    old, asked = cluster.leader.node, other_than_leader(cluster)
    cluster.arrives = lambda message: not isinstance(message, Share)
    node = cluster.nodes[asked]
    number = node.ask(registering(node.machine, 11, "tcp://b:2"))
    cluster.settle()
    cluster.crash(old)
    cluster.arrives = lambda message: True
    cluster.elect()
    cluster.tick(5)
    assert cluster.answers[asked, number].error is None
    assert cluster.leader.machine.nodes[NodeId(11)].address == "tcp://b:2"


def test_of_a_change_that_is_twice_in_the_log_the_first_outcome_is_told() -> None:
    cluster = Cluster().with_streams(1)
    old, asked = cluster.leader, other_than_leader(cluster)
    revision = old.machine.order.stream(StreamId(1)).revision
    # The leader puts it into its log and all have it, but it dies before anybody hears.
    cluster.arrives = lambda message: not isinstance(message, AppendAnswer)
    number = cluster.nodes[asked].ask(fenced(cluster, revision, 2))
    cluster.settle()
    cluster.crash(old.node)
    cluster.arrives = lambda message: True
    cluster.elect()
    cluster.tick(5)
    assert cluster.answers[asked, number].error is None, "made once, and told so"
    assert cluster.leader.machine.order.stream(StreamId(1)).revision == revision + 1
