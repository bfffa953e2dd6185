"""Direct connections save a detour, and never cost anything else."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.fake_nodes import FakeCluster
from tests.client.test_cluster_errors import until, with_cluster
from tidelog import AsyncRemoteLog
from tidelog.client import pool
from tidelog.client.channel import Channel
from tidelog.errors import BadOption
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.loops import run
from tidelog.net.security import ClientSecurity


def test_appends_go_straight_to_the_leader_of_their_log_stream() -> None:
    def spread(cluster: FakeCluster) -> None:
        for stream in cluster.streams.values():
            stream.leader = stream.number - 1

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for node in cluster.nodes:
            node.passes_on = False
        for number in range(30):
            await log.append(b"%d" % number, stream=1 + number % 3)
        for node in cluster.nodes:
            node.appends.clear()
        for number in range(30):
            await log.append(b"%d" % number, stream=1 + number % 3)
        for node in cluster.nodes:
            assert [request.streams for request in node.appends] == [(node.number + 1,)] * 10

    with_cluster(work, nodes=3, streams=3, prepare=spread)


def test_a_receipt_that_names_the_leader_is_believed() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(1)
        await log.append(b"a")
        assert len(cluster.nodes[0].appends) == 1
        await until(lambda: cluster.nodes[1].connections == 1)
        await until(lambda: log.session.pool.towards("default", 1, 0) is not log.session.channel)
        await log.append(b"b")
        assert len(cluster.nodes[1].appends) == 1

    with_cluster(work)


def test_a_leader_that_this_client_cannot_reach_is_reached_through_another_node() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await cluster.nodes[1].stop()
        cluster.lead(1)
        for number in range(20):
            await log.append(b"%d" % number)
        assert cluster.nodes[1].appends == []
        assert cluster.values(1) == [b"%d" % number for number in range(20)]

    with_cluster(work)


def test_direct_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(1)
        await log.append(b"a")
        await until(lambda: cluster.nodes[1].open_connections == 1)
        await until(lambda: cluster.nodes[1].open_connections == 0)
        assert cluster.nodes[0].open_connections == 1
        await log.append(b"b")

    with_cluster(work)


def test_no_more_direct_connections_are_opened_than_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "DIRECT_MAX", 1)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for leader in (1, 2, 1, 2):
            cluster.lead(leader)
            await log.append(b"a")
            await log.append(b"a")
            await until(lambda: sum(node.open_connections for node in cluster.nodes) <= 2)
        assert len(cluster.values(1)) == 8

    with_cluster(work, nodes=3)


def test_one_address_is_enough_to_learn_of_the_others() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        channel = log.session.channel
        assert set(channel.endpoints) == {node.endpoint for node in cluster.nodes}
        await cluster.nodes[0].stop()
        assert (await log.position()).glsn == 1
        assert channel.endpoint in {node.endpoint for node in cluster.nodes[1:]}

    with_cluster(work, nodes=3, one_address=True)


@pytest.mark.parametrize("tls", [True, False])
def test_a_hint_never_leads_away_from_tls_nor_to_where_it_was_not_prepared(tls: bool) -> None:
    async def main() -> None:
        known = TcpEndpoint("127.0.0.1", 1, tls=tls)
        other = TcpEndpoint("127.0.0.1", 2, tls=not tls)
        channel = Channel((known,), client="test", security=ClientSecurity())
        with pytest.raises(BadOption, match="unlike the node that named it"):
            channel.beside(other)
        channel.add_endpoints([other])
        assert channel.endpoints == (known,)
        await channel.close()

    run(main())


def test_closing_hangs_up_everywhere() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(1)
        await log.append(b"a")
        await until(lambda: cluster.nodes[1].open_connections == 1)
        await log.close()
        async with asyncio.timeout(5):
            await until(lambda: sum(node.open_connections for node in cluster.nodes) == 0)

    with_cluster(work)
