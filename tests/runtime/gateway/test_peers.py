"""The way to another node: what whoever uses it is told when it is given up, or cannot be used."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.gateway.black_hole import black_hole
from tests.runtime.gateway.fake_cluster import CLUSTER_ID, cluster_of
from tests.server.raw import run, until
from tidelog.client.link import Reply
from tidelog.errors import BadOption, LogError, Unreachable
from tidelog.formats.messages import AppendBatches, FindTime
from tidelog.net.security import ClientSecurity
from tidelog.runtime.gateway.peers import PassedOn, Peer, PeerSettings
from tidelog.types import NodeId

TWO = NodeId(2)
UNSPEAKABLE = "\ud800"
"""No text, so nothing that has it in it can be encoded."""


def peer_at(address: str) -> Peer:
    settings = PeerSettings(
        cluster_id=CLUSTER_ID,
        security=ClientSecurity(),
        dial_seconds=30.0,
        keep_alive_seconds=30.0,
    )
    return Peer(TWO, address, settings)


def appended(told: list[Reply | LogError], topic: str = "events") -> PassedOn:
    deadline = asyncio.get_running_loop().time() + 30.0
    return PassedOn(AppendBatches(topic, (1,)), (), 0, deadline, told.append)


def test_who_asks_a_node_that_moves_while_it_is_dialled_is_told_and_not_cancelled() -> None:
    async def main() -> None:
        async with black_hole() as hole:
            peer = peer_at(hole.address)
            told: list[Reply | LogError] = []
            asking = asyncio.create_task(peer.ask(FindTime("events", 0), seconds=30.0))
            peer.pass_on(appended(told))
            await until(lambda: hole.callers > 0, "it is dialled")
            await peer.close()
            with pytest.raises(Unreachable, match="has moved"):
                await asking
            assert [type(one) for one in told] == [Unreachable]
            with pytest.raises(Unreachable, match="has moved"):
                await peer.ask(FindTime("events", 0), seconds=30.0)

    run(main())


def test_who_is_cancelled_while_a_node_is_dialled_stays_cancelled() -> None:
    async def main() -> None:
        async with black_hole() as hole:
            peer = peer_at(hole.address)
            alone = asyncio.create_task(peer.ask(FindTime("events", 0), seconds=30.0))
            at_once = asyncio.create_task(peer.ask(FindTime("events", 0), seconds=30.0))
            await until(lambda: hole.callers > 0, "it is dialled")
            alone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await alone
            connecting = peer._connecting
            assert connecting is not None
            connecting.add_done_callback(lambda _: at_once.cancel())
            await peer.close()
            with pytest.raises(asyncio.CancelledError):
                await at_once

    run(main())


def test_what_cannot_be_encoded_takes_no_place_on_the_way_to_a_node() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            peer = cluster.nodes[NodeId(1)].gateway.parts.peers.peer(TWO)
            cluster.create("events")
            cluster.show()
            await peer.ask(FindTime("events", 0), seconds=30.0)
            link = peer._link
            assert link is not None
            places = link._room
            with pytest.raises(UnicodeEncodeError):
                await peer.ask(FindTime(UNSPEAKABLE, 0), seconds=30.0)
            told: list[Reply | LogError] = []
            peer.pass_on(appended(told, UNSPEAKABLE))
            assert [type(one) for one in told] == [BadOption]
            assert link._room == places
            await peer.ask(FindTime("events", 0), seconds=30.0)

    run(main())
