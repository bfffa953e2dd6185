"""Three storage nodes over real sockets: fail-over, filling up, restarts, what can be read."""

from __future__ import annotations

import asyncio
from functools import partial
from unittest.mock import patch

from tests.runtime.storage_node.scripted import (
    DIRECTOR,
    OTHER,
    SECONDS,
    STREAM,
    TOPIC,
    Cluster,
    FileStorage,
    Member,
    batch,
    running,
    scene,
)
from tidelog.core.replica.entries import Batch
from tidelog.core.replica.messages import FenceRequest, Reason, Refusal, Role, StatusRequest
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    NodeToOperator,
    Ping,
    for_node,
    of_node,
)
from tidelog.net.metrics import render
from tidelog.runtime.storage_node import StorageNode
from tidelog.storage import replica_frame
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.replica_batches import sealed
from tidelog.types import NodeId, StreamId, Term


def data_of(cluster: Cluster, node: int, stream: StreamId = STREAM) -> list[bytes]:
    return cluster.member(node).storage.values(stream)


def file_storage(member: Member) -> FileStorage:
    assert isinstance(member.storage, FileStorage)
    return member.storage


@scene
async def test_nothing_acknowledged_is_lost_when_the_leader_dies() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        for number in range(20):
            await cluster.member(1).node.append(STREAM, batch(b"%d" % number))
        await cluster.member(1).stop()
        await cluster.elect(2, (3,))
        placed = await cluster.member(2).node.append(STREAM, batch(b"last"))
        assert placed.glsn >= 21
        assert data_of(cluster, 2) == [*(b"%d" % number for number in range(20)), b"last"]


@scene
async def test_batches_go_to_all_disks_as_the_bytes_that_their_leader_made() -> None:
    """Whoever had to give them their place would copy them."""
    copied: list[bool] = []

    def watched(stream: StreamId, given: Batch) -> StoredBatch:
        stored = sealed(stream, given)
        if not given.is_control:
            copied.append(stored.data is not given.data)
        return stored

    with patch.object(replica_frame, "sealed", watched):
        async with running() as cluster:
            await cluster.elect(1, (2, 3))
            for number in range(5):
                await cluster.member(1).node.append(
                    STREAM, batch(b"%d" % number), producer=7, sequence=number + 1
                )
            await cluster.until(lambda: len(copied) >= 15)
    assert not any(copied)


@scene
async def test_a_leader_that_comes_back_follows_and_catches_up() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        await cluster.member(1).stop()
        await cluster.elect(2, (3,))
        await cluster.member(2).node.append(STREAM, batch(b"b"))
        await cluster.member(1).start()
        await cluster.elect(2, (1, 3))
        await cluster.member(2).node.append(STREAM, batch(b"c"))
        await cluster.until(lambda: data_of(cluster, 1) == [b"a", b"b", b"c"])
        assert (await cluster.status(1)).role is Role.FOLLOWER


@scene
async def test_a_wiped_node_is_filled_up() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        for number in range(5):
            await cluster.member(1).node.append(
                STREAM, batch(b"%d" % number), producer=7, sequence=number + 1
            )
        await cluster.member(3).stop()
        cluster.member(3).storage.wipe()
        await cluster.member(3).start()
        assert not (await cluster.status(3)).is_complete
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"5"))
        await cluster.until(lambda: len(data_of(cluster, 3)) == 6)
        await cluster.member(1).stop()
        await cluster.elect(3, (2,))
        again = await cluster.member(3).node.append(STREAM, batch(b"4"), producer=7, sequence=5)
        assert (again.llsn, again.duplicate) == (5, True), "it knows the producers, too"


@scene
async def test_all_nodes_restart_with_what_they_had() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        last = await cluster.member(1).node.append(
            STREAM, batch(*[b"a"] * 5), producer=7, sequence=1
        )
        for member in cluster.members:
            await member.stop()
        for member in cluster.members:
            await member.start()
        await cluster.elect(3, (1, 2))
        node = cluster.member(3).node
        again = await node.append(STREAM, batch(*[b"a"] * 5), producer=7, sequence=1)
        assert (again.llsn, again.duplicate) == (last.llsn, True)
        assert (await node.append(STREAM, batch(b"b"))).glsn > last.glsn + 4


@scene
async def test_a_session_that_broke_is_opened_again() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        await cluster.member(2).stop()
        await cluster.member(3).stop()
        waiting = cluster.member(1).node.append(STREAM, batch(b"b"))
        await cluster.member(2).start()
        await cluster.member(3).start()
        await cluster.elect(1, (2, 3))
        await cluster.until(waiting.done)
        await cluster.member(1).node.append(STREAM, batch(b"c"))
        await cluster.until(lambda: data_of(cluster, 3) == [b"a", b"b", b"c"])


def ends_at(node: StorageNode, end: int) -> bool:
    return node.readable_end(TOPIC, [STREAM, OTHER]) == end


@scene
async def test_every_node_shows_all_of_a_topic_though_one_stream_is_idle() -> None:
    async with running(streams=(STREAM, OTHER)) as cluster:
        for stream in (STREAM, OTHER):
            await cluster.elect(1, (2, 3), stream)
        await cluster.member(1).node.append(OTHER, batch(b"once"))
        await cluster.member(1).node.append(STREAM, batch(b"a", b"a", b"a"))
        for member in cluster.members:
            node = member.node
            await cluster.until(partial(ends_at, node, 5))
            assert node.readable_end(TOPIC, [STREAM, StreamId(77)]) is None


@scene
async def test_listeners_are_told_when_more_can_be_read() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        node, told = cluster.member(2).node, asyncio.Event()
        end = node.listen(told.set)
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        async with asyncio.timeout(SECONDS):
            while node.readable_end(TOPIC, [STREAM]) != 2:
                await told.wait()
                told.clear()
        end()


@scene
async def test_an_incomplete_replica_shows_nothing() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        await cluster.member(3).stop()
        cluster.member(3).storage.wipe()
        await cluster.member(3).start()
        await cluster.status(3)
        assert cluster.member(3).node.readable_end(TOPIC, [STREAM]) is None


@scene
async def test_a_refusal_goes_to_the_operator_that_asked_be_it_on_a_storage_node() -> None:
    async with running() as cluster:
        term = await cluster.elect(1, (2, 3))
        heard: list[Refusal] = []

        def hear(_: NodeId, message: ClusterMessage) -> None:
            assert isinstance(message, NodeToOperator)
            answer = of_node(message)
            assert isinstance(answer, Refusal)
            heard.append(answer)

        post = cluster.member(2).post
        assert post is not None
        post.on((NodeToOperator,), hear)
        late = FenceRequest(NodeId(2), NodeId(1), STREAM, Term(term - 1), is_first=False)
        post.send(NodeId(1), for_node(late))
        await cluster.until(lambda: bool(heard))
        assert heard[0].reason is Reason.TERM_PASSED


@scene
async def test_words_about_streams_that_nobody_knows_are_dropped() -> None:
    async with running() as cluster:
        unknown = StatusRequest(DIRECTOR, NodeId(1), StreamId(77), Term(1))
        cluster.post.send(NodeId(1), for_node(unknown))
        await cluster.status(1)
        assert [one.stream for one in cluster.member(1).node.status()] == [STREAM]


@scene
async def test_a_ping_is_answered() -> None:
    async with running() as cluster:
        cluster.post.send(NodeId(1), Ping(5))
        await cluster.until(lambda: cluster.pongs == [5])


@scene
async def test_an_idle_cluster_writes_nothing() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a"))
        await cluster.until(
            lambda: all(one.node.readable_end(TOPIC, [STREAM]) == 2 for one in cluster.members)
        )
        files = [file_storage(member).files for member in cluster.members]
        operations = [one.operations for one in files]
        turns = cluster.options.replica.heartbeat_ticks * 5
        await asyncio.sleep(turns * cluster.options.tick_seconds)
        assert [one.operations for one in files] == operations


@scene
async def test_the_figures_of_a_node_tell_roles_lag_and_latencies() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        await cluster.member(1).node.append(STREAM, batch(b"a", b"a"))
        node = cluster.member(1).node
        await cluster.until(lambda: node.status()[0].ordered_end == 3)
        status = node.status()[0]
        assert (status.role, status.leader) == (Role.LEADER, 1)
        assert {one.node for one in status.followers} == {2, 3}
        text = render(node.metrics()).decode()
        assert 'tidelog_node_append_seconds_count{stage="ordered"} 1.0' in text
        assert "tidelog_node_order_seconds_count 1.0" in text
        assert 'tidelog_replica_role{role="leader",stream="1",topic="1"} 1.0' in text
        assert 'tidelog_session_open{node="2"} 1.0' in text
        assert "tidelog_node_append_entries_total 2.0" in text
