"""Storage nodes and the metadata repository mean the same streams (V2, M3)."""

from __future__ import annotations

from tests.core.metadata.cluster import TOPIC, Cluster
from tests.core.metadata.seen import registering, unregistering
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, ToStorage
from tidelog.core.metadata.repository import PeerMessage
from tidelog.core.order.commands import (
    AddStreams,
    NewStream,
    Quorum,
    RemoveStream,
    StreamStatus,
    UpdateStream,
)
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Term

FIRST = NodeId(11)


def watched(cluster: Cluster, node: NodeId) -> list[Collect]:
    """All that asks a storage node from now on."""
    seen: list[Collect] = []

    def note(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, Collect) and message.target == node:
            seen.append(message)
        return True

    cluster.arrives = note
    return seen


def move(cluster: Cluster, stream: int, *nodes: int) -> None:
    """Give a stream another ensemble, in a new term."""
    order = cluster.leader.machine.order.stream(StreamId(stream))
    change = UpdateStream(
        order.stream,
        order.revision,
        Term(order.term + 1),
        tuple(NodeId(node) for node in nodes),
        NO_NODE,
        StreamStatus.RUNNING,
        b"",
    )
    assert cluster.ask(change).error is None


def placements(cluster: Cluster, node: NodeId = FIRST) -> int:
    return cluster.leader.machine.nodes[node].placements


def test_a_storage_node_learns_what_it_hosts_and_how_far_that_is_ordered() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    assert cluster.ask(AddStreams(TOPIC, (NewStream(StreamId(5), (FIRST,)),))).error is None
    cluster.tick(2)
    storage = cluster.storage[FIRST]
    assert storage.hosted == {1: 4, 2: 1, 5: 1}
    assert storage.placements == placements(cluster)
    assert cluster.storage[NodeId(12)].hosted == {1: 1, 2: 1}, "it was told when it began"


def test_a_storage_node_that_knows_what_it_hosts_is_not_told_again() -> None:
    cluster = Cluster().with_streams(2)
    seen = watched(cluster, FIRST)
    cluster.tick(3 * cluster.options.collect_ticks)
    assert seen
    assert [collect.hosted for collect in seen] == [None] * len(seen)


def test_a_storage_node_that_lost_its_memory_is_told_again() -> None:
    cluster = Cluster().with_streams(2)
    storage = cluster.storage[FIRST]
    storage.placements, storage.hosted = 0, {}
    seen = watched(cluster, FIRST)
    cluster.report([FIRST])
    assert storage.hosted == {1: 1, 2: 1}
    assert len(seen) == 1


def test_a_list_that_was_lost_is_sent_again() -> None:
    cluster = Cluster().with_streams(1)
    lost: list[Collect] = []

    def lose(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, Collect) and message.hosted is not None and not lost:
            lost.append(message)
            return False
        return True

    cluster.arrives = lose
    assert cluster.ask(AddStreams(TOPIC, (NewStream(StreamId(5), (FIRST,)),))).error is None
    cluster.tick(2 * cluster.options.collect_ticks)
    assert lost
    assert 5 in cluster.storage[FIRST].hosted


def test_no_commit_is_sent_to_a_node_that_does_not_know_what_it_hosts() -> None:
    """It would take silence about a stream for "nothing was ordered", or miss a new stream."""
    cluster = Cluster().with_streams(1, Quorum.MAJORITY)
    storage = cluster.storage[FIRST]
    sent: list[CommitResult] = []

    def hold_lists(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, CommitResult) and message.target == FIRST:
            sent.append(message)
        is_list = isinstance(message, Collect) and message.hosted is not None
        return not (is_list and message.target == FIRST)

    cluster.arrives = hold_lists
    assert cluster.ask(AddStreams(TOPIC, (NewStream(StreamId(5), (FIRST,)),))).error is None
    cluster.append(1, 3)
    cluster.tick(3 * cluster.options.collect_ticks)
    assert sent == []
    cluster.arrives = lambda message: True
    cluster.tick(2 * cluster.options.collect_ticks)
    assert storage.glsns(1) == [1, 2, 3]


def test_placements_are_counted_only_where_something_changes() -> None:
    cluster = Cluster(storage=4).with_streams(1)
    fourth = NodeId(14)
    move(cluster, 1, 11, 12, 13)
    before = {node: placements(cluster, node) for node in cluster.storage}
    move(cluster, 1, 11, 12, 13)
    assert {node: placements(cluster, node) for node in cluster.storage} == before
    move(cluster, 1, 11, 12, 14)
    assert placements(cluster, FIRST) == before[FIRST]
    assert placements(cluster, NodeId(13)) > before[NodeId(13)]
    assert placements(cluster, fourth) > before[fourth]


def test_a_node_that_was_registered_again_is_not_taken_for_its_former_self() -> None:
    cluster = Cluster(storage=4).with_streams(1)
    fourth = NodeId(14)
    move(cluster, 1, 11, 12, 13)
    before = placements(cluster, fourth)
    assert cluster.ask(unregistering(cluster.leader.machine, fourth)).error is None
    assert cluster.ask(registering(cluster.leader.machine, fourth)).error is None
    assert placements(cluster, fourth) > before


def test_a_removed_stream_leaves_the_lists_of_its_nodes() -> None:
    cluster = Cluster().with_streams(2)
    assert cluster.ask(RemoveStream(StreamId(1), Revision(1))).error is None
    cluster.tick(2)
    assert all(list(storage.hosted) == [2] for storage in cluster.storage.values())


def test_placements_go_on_from_a_snapshot() -> None:
    cluster = Cluster().with_streams(2)
    machine = cluster.leader.machine
    restored = MetadataMachine.restore(machine.snapshot())
    assert restored.snapshot() == machine.snapshot()
    assert restored.nodes[FIRST].placements == placements(cluster) > 0
