"""Readers with turns go to followers, spread over them, and survive any of them."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.fake_nodes import FakeCluster
from tests.client.test_cluster_errors import HASTY, until, with_cluster
from tidelog import AsyncRemoteLog
from tidelog.client import session
from tidelog.client.retries import Reconnect
from tidelog.errors import LogClosed
from tidelog.formats.messages import ReadPage

SOON_SECONDS = 5.0
"""Far less than a client's deadline."""


async def until_direct(log: AsyncRemoteLog, turn: int) -> None:
    """Until the connection is up that a reader with this turn prefers."""
    pool = log.session.pool
    wanted = pool.routes.holders("default", (1,), turn)[0]
    await until(lambda: pool.reading("default", (1,), turn).endpoint == wanted)


async def read_all(log: AsyncRemoteLog, turn: int) -> list[int]:
    """The GLSNs of the whole log stream, read with a turn."""
    end = (await log.position()).glsn
    async with asyncio.timeout(SOON_SECONDS):
        return [
            glsn
            async for page in log.read_pages(1, end, streams=(1,), turn=turn)
            for _, piece in page
            for glsn in piece.glsns()
        ]


async def fill(log: AsyncRemoteLog) -> list[int]:
    return [(await log.append(b"%d" % number)).glsn for number in range(5)]


def pages_at(cluster: FakeCluster) -> list[int]:
    """How many pages were asked for, by node."""
    return [sum(isinstance(one, ReadPage) for one in node.asked) for node in cluster.nodes]


def test_they_spread_over_followers_and_spare_the_leader() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        for turn in range(6):
            await until_direct(log, turn)
            assert await read_all(log, turn) == written
        assert pages_at(cluster) == [0, 3, 3]

    with_cluster(work, nodes=3)


def test_the_leader_is_read_if_nobody_else_is_left() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        for node in cluster.nodes[1:]:
            await node.stop()
        assert await read_all(log, 1) == written
        assert pages_at(cluster)[0] > 0

    with_cluster(work, nodes=3)


def test_a_node_that_dies_is_replaced_while_it_is_read() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        await until_direct(log, 0)
        cluster.nodes[1].on_read = cluster.nodes[1].hang_up
        assert await read_all(log, 0) == written
        await cluster.nodes[1].stop()
        assert await read_all(log, 0) == written

    with_cluster(work, nodes=3)


def test_a_node_that_stops_in_order_keeps_nobody_waiting() -> None:
    """It says that it is closed, and may be away for long: others have the same."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        await until_direct(log, 0)

        def closed() -> None:
            raise LogClosed("the node is stopping")

        cluster.nodes[1].on_read = closed
        cluster.nodes[1].turn_away()
        assert await read_all(log, 0) == written

    with_cluster(work, nodes=3)


def test_a_node_that_has_gone_deaf_keeps_nobody_waiting_for_long() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        await until_direct(log, 0)
        cluster.nodes[1].is_deaf = True
        assert await read_all(log, 0) == written

    patience = Reconnect(
        pause_first=HASTY.pause_first, chance=HASTY.chance, keep_alive_cluster=0.05
    )
    with_cluster(work, nodes=3, reconnect=patience)


def test_they_learn_where_replicas_have_moved_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "DESCRIBE_SECONDS", -1.0)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        written = await fill(log)
        await until_direct(log, 0)
        assert await read_all(log, 0) == written
        cluster.streams[1].replicas = (0, 2)
        pool, moved = log.session.pool, cluster.nodes[2].endpoint
        reader = log.open_pages(1, 6, (1,), turn=0)
        assert await reader.next_page() is not None, "which looks where the replicas are"
        await until(lambda: pool.routes.holders("default", (1,))[0] == moved)
        before = pages_at(cluster)[1]
        await until_direct(log, 0)
        assert await read_all(log, 0) == written
        assert pages_at(cluster)[1] == before, "who has no replica any more is left alone"

    def place(cluster: FakeCluster) -> None:
        cluster.streams[1].replicas = (0, 1)

    with_cluster(work, nodes=3, prepare=place)
