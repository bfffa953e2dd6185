"""Masterless global commit: every metadata node answers its own storage nodes (seed 003)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.metadata.cluster import Cluster
from tidelog import limits
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, Share, ToStorage
from tidelog.core.metadata.proposing import Unheeded
from tidelog.core.metadata.repository import PeerMessage, RepositoryOptions
from tidelog.core.order.commands import Quorum, Report
from tidelog.types import FIRST_LLSN, FIRST_TERM, NO_VERSION, NodeId, StreamId


def collectors(cluster: Cluster) -> set[NodeId]:
    return {storage.collector for storage in cluster.storage.values()}


def test_reports_become_one_order_on_every_storage_node() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    cluster.append(2, 2)
    for storage in cluster.storage.values():
        assert storage.glsns(1) == [1, 2, 3]
        assert storage.glsns(2) == [4, 5]
        assert storage.watermark == 5


def test_each_metadata_node_collects_from_its_own_storage_nodes_and_answers_them() -> None:
    cluster = Cluster(metadata=3, storage=6).with_streams(1)
    answered: dict[NodeId, set[NodeId]] = {}

    def watch(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, CommitResult):
            answered.setdefault(message.target, set()).add(message.source)
        return True

    cluster.arrives = watch
    cluster.append(1, 1)
    assert collectors(cluster) == {1, 2, 3}
    assert answered == {node: {storage.collector} for node, storage in cluster.storage.items()}


def test_all_metadata_nodes_have_the_same_state_byte_by_byte() -> None:
    cluster = Cluster().with_streams(3)
    for stream in (1, 2, 3, 2, 1):
        cluster.append(stream, stream)
    cluster.tick(3)
    assert len({node.machine.snapshot() for node in cluster.nodes.values()}) == 1


def test_the_death_of_the_leader_loses_nothing_and_needs_no_recovery_but_the_election() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    dead = cluster.leader.node
    cluster.crash(dead)
    cluster.append(1, 2)  # reported while nobody leads
    cluster.append(2, 1)
    cluster.elect()
    cluster.tick(60)
    for storage in cluster.storage.values():
        assert storage.collector != dead
        assert sorted(storage.glsns(1) + storage.glsns(2)) == [1, 2, 3, 4, 5, 6]
    assert len({tuple(storage.glsns(1)) for storage in cluster.storage.values()}) == 1


def test_the_storage_nodes_of_a_dead_metadata_node_are_taken_over() -> None:
    cluster = Cluster().with_streams(1)
    dead = next(node for node in cluster.nodes if node != cluster.leader.node)
    orphans = [node for node, storage in cluster.storage.items() if storage.collector == dead]
    assert orphans
    cluster.crash(dead)
    cluster.append(1, 4)
    assert cluster.storage[orphans[0]].glsns(1) == []
    cluster.tick(cluster.options.takeover_ticks + 5)
    for storage in cluster.storage.values():
        assert storage.collector != dead
        assert storage.glsns(1) == [1, 2, 3, 4]


def test_the_storage_nodes_of_a_dead_leader_are_taken_over_by_the_next_one_at_once() -> None:
    # Long enough that a leader which began to listen anew would still wait.
    options = RepositoryOptions(takeover_ticks=9, leader_collects=0)
    cluster = Cluster(options=options).with_streams(1)
    dead = cluster.leader.node
    assert dead in collectors(cluster)
    cluster.crash(dead)
    cluster.elect()
    assert cluster.leader.node != dead
    cluster.tick()
    assert dead not in collectors(cluster)
    cluster.append(1, 4)
    assert all(storage.glsns(1) == [1, 2, 3, 4] for storage in cluster.storage.values())


def test_a_report_that_was_held_up_on_its_way_to_the_leader_writes_nothing() -> None:
    cluster = Cluster().with_streams(1)
    cluster.append(1, 3)
    old = cluster.storage[NodeId(11)].report()
    cluster.append(1, 3)
    cluster.tick(10)
    leader = cluster.leader
    before = leader.raft.last_index
    leader.step(Share(NodeId(99), leader.node, old.reports))
    cluster.tick(10)
    assert leader.raft.last_index == before


def test_a_takeover_of_a_quiet_storage_node_costs_one_entry_of_the_raft_log() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    cluster.tick(20)
    cluster.crash(next(node for node in cluster.nodes if node != cluster.leader.node))
    before = cluster.leader.raft.last_index
    cluster.tick(cluster.options.takeover_ticks + 50)
    assert cluster.leader.raft.last_index == before + 1


def test_a_metadata_node_that_comes_back_gets_storage_nodes_again() -> None:
    cluster = Cluster().with_streams(1)
    dead = next(node for node in cluster.nodes if node != cluster.leader.node)
    cluster.crash(dead)
    cluster.tick(cluster.options.takeover_ticks + 5)
    assert dead not in collectors(cluster)
    cluster.start(dead)
    cluster.tick(10)
    assert dead in collectors(cluster)
    cluster.append(1, 2)
    assert all(storage.glsns(1) == [1, 2] for storage in cluster.storage.values())


def test_a_storage_node_follows_the_newest_assignment_only() -> None:
    cluster = Cluster().with_streams(1)
    storage = next(iter(cluster.storage.values()))
    collector, assignment = storage.collector, storage.assignment
    old = Collect(NodeId(99), storage.node, assignment - 1, 1, NO_VERSION)
    assert storage.take(old) is None
    assert storage.collector == collector


def test_an_idle_cluster_writes_nothing_to_its_raft_log() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    cluster.tick(20)
    before = len(cluster.proposed)
    cluster.tick(500)
    assert len(cluster.proposed) == before


def test_a_report_that_lets_nothing_be_ordered_waits_for_the_one_that_does() -> None:
    """Its batch would only hold up the batch of the other one."""
    cluster = Cluster().with_streams(1, Quorum.MAJORITY)
    first, second, third = cluster.storage
    before = len(cluster.proposed)
    cluster.append(1, 3, [first])
    assert len(cluster.proposed) == before
    cluster.append(1, 3, [second])
    assert len(cluster.proposed) == before + len(cluster.nodes), "one entry on every node"
    assert cluster.storage[first].glsns(1) == [1, 2, 3]
    cluster.append(1, 3, [third])
    assert len(cluster.proposed) == before + len(cluster.nodes)


def test_a_report_that_nothing_else_comes_for_is_in_the_log_after_a_tick() -> None:
    cluster = Cluster().with_streams(1, Quorum.MAJORITY)
    first, second, _ = cluster.storage
    cluster.append(1, 3, [first])
    cluster.tick()
    stream = cluster.leader.machine.order.stream(StreamId(1))
    assert [replica.end for replica in stream.replicas if replica.node == first] == [4]
    cluster.append(1, 3, [second])
    assert cluster.storage[second].glsns(1) == [1, 2, 3]


def test_a_report_that_was_lost_on_its_way_to_the_leader_is_shared_again() -> None:
    cluster = Cluster().with_streams(1)
    lost: list[Share] = []

    def lose_first_shares(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, Share) and len(lost) < 2:
            lost.append(message)
            return False
        return True

    cluster.arrives = lose_first_shares
    cluster.append(1, 3)
    cluster.tick(2 * cluster.options.resend_ticks)
    assert len(lost) == 2
    assert all(storage.glsns(1) == [1, 2, 3] for storage in cluster.storage.values())


def test_a_commit_that_was_lost_on_its_way_to_a_storage_node_is_sent_again() -> None:
    cluster = Cluster().with_streams(1)
    cluster.arrives = lambda message: not isinstance(message, CommitResult)
    cluster.append(1, 3)
    cluster.append(1, 2)
    assert all(storage.glsns(1) == [] for storage in cluster.storage.values())
    cluster.arrives = lambda message: True
    cluster.tick(2 * cluster.options.resend_ticks)
    for storage in cluster.storage.values():
        assert storage.glsns(1) == [1, 2, 3, 4, 5]
        versions = [one.version for one in storage.commits[StreamId(1)]]
        assert versions == sorted(set(versions)), "one commit per missed version, in order"


def test_a_stream_whose_commits_nobody_learns_waits_and_then_goes_on() -> None:
    cluster = Cluster().with_streams(1, Quorum.MAJORITY)
    cluster.arrives = lambda message: not isinstance(message, CommitResult)
    appended = limits.ORDER_UNAPPLIED_CUTS_MAX + 5
    for _ in range(appended):
        cluster.append(1, 1)
    order = cluster.leader.machine.order
    assert order.version == limits.ORDER_UNAPPLIED_CUTS_MAX, "the rest waits for its replicas"
    cluster.arrives = lambda message: True
    cluster.tick(3 * cluster.options.resend_ticks)
    for storage in cluster.storage.values():
        assert storage.glsns(1) == list(range(1, appended + 1))


def test_a_storage_node_that_forgot_empty_commits_gets_the_cuts_again() -> None:
    cluster = Cluster().with_streams(2)
    cluster.append(1, 3)
    cluster.append(2, 2)
    storage = next(iter(cluster.storage.values()))
    forgot = storage.version
    storage.version = storage.commits[StreamId(1)][-1].version
    storage.commits[StreamId(2)].clear()
    assert storage.version < forgot
    cluster.report([storage.node])
    assert storage.version == forgot
    assert storage.glsns(2) == [4, 5]


def test_reports_from_others_than_the_assigned_storage_nodes_are_left_alone() -> None:
    cluster = Cluster().with_streams(1)
    storage = next(iter(cluster.storage.values()))
    good = storage.report()
    stranger = next(node for node in cluster.nodes if node != storage.collector)
    cluster.nodes[stranger].report(replace(good, target=stranger))
    assert cluster.nodes[stranger].unheeded[Unheeded.NOT_ASSIGNED] == 1
    foreign = Report(NodeId(99), StreamId(1), FIRST_TERM, NO_VERSION, FIRST_LLSN, 5)
    unknown = Report(storage.node, StreamId(77), FIRST_TERM, NO_VERSION, FIRST_LLSN, 5)
    collector = cluster.nodes[storage.collector]
    collector.report(replace(good, reports=(foreign, unknown)))
    assert collector.unheeded[Unheeded.NO_REPLICA] == 2
    cluster.settle()
    assert cluster.leader.machine.order.version == 0


def test_a_minority_orders_nothing() -> None:
    cluster = Cluster().with_streams(1)
    alone = cluster.leader.node

    def cut_off(message: PeerMessage | ToStorage | NodeReport) -> bool:
        if isinstance(message, (Collect, CommitResult, NodeReport)):
            return True
        return alone not in (message.source, message.target)

    cluster.arrives = cut_off
    mine = [node for node, storage in cluster.storage.items() if storage.collector == alone]
    version = cluster.nodes[alone].machine.order.version
    cluster.append(1, 3, mine)
    cluster.tick(3)
    assert cluster.nodes[alone].machine.order.version == version


def test_a_majority_orders_while_a_replica_is_silent() -> None:
    cluster = Cluster().with_streams(1, Quorum.MAJORITY)
    first, second, third = cluster.storage
    cluster.append(1, 5, [first, second])
    assert cluster.storage[first].glsns(1) == [1, 2, 3, 4, 5]
    # The silent replica learns of the cut, for its history is kept; it has no entry to apply yet.
    assert cluster.storage[third].version == cluster.storage[first].version


def test_a_storage_node_that_missed_more_than_the_history_learns_which_streams_are_behind() -> None:
    cluster = Cluster(options=RepositoryOptions(takeover_ticks=1_000_000)).with_streams(
        2, Quorum.MAJORITY
    )
    first, second, third = cluster.storage
    cluster.arrives = lambda message: getattr(message, "target", None) != third
    for _ in range(20):
        cluster.append(1, 1, [first, second])
    machine = cluster.leader.machine.order
    assert machine.cuts_after(cluster.storage[third].version) is None or machine.first_version == 1
    cluster.arrives = lambda message: True
    cluster.tick(30)
    late = cluster.storage[third]
    assert late.version == machine.version
    if late.behind:
        assert [one.stream for one in late.behind] == [1]
    else:
        assert late.glsns(1) == list(range(1, 21))
