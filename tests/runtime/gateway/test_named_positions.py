"""Named positions of a cluster: of several that saw the same, one gets its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

from tests.runtime.gateway.fake_cluster import cluster_of
from tests.server.raw import RawClient, run, until
from tidelog.errors import LeaderLost
from tidelog.formats.messages import GetPosition, NamedPosition, Refused, SetPosition
from tidelog.formats.stored_positions import POSITIONS_TOPIC
from tidelog.types import NO_NODE, NodeId

T = TypeVar("T")
TOPIC = "events"
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


async def get(client: RawClient, name: str = "reader") -> NamedPosition:
    found = await client.ask(GetPosition(TOPIC, name))
    assert isinstance(found, NamedPosition), found
    return found


def test_a_position_is_found_again_by_every_node() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            async with cluster.nodes[ONE].client() as client:
                assert await get(client) == NamedPosition(0, 0)
                assert not cluster.engine.has_topic(POSITIONS_TOPIC), "a look makes nothing"
            for revision, node in enumerate(cluster.nodes.values()):
                async with node.client() as client:
                    request = SetPosition(TOPIC, "reader", 10 + revision, revision)
                    stored = await client.ask(request)
                    assert stored == NamedPosition(10 + revision, revision + 1)
            for node in cluster.nodes.values():
                async with node.client() as client:
                    assert await get(client) == NamedPosition(12, 3)
                    assert await get(client, "another") == NamedPosition(0, 0)

    run(main())


def test_of_many_that_saw_the_same_revision_one_gets_its_way() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.show()

            async def store(node: NodeId, glsn: int) -> bool:
                async with cluster.nodes[node].client() as client:
                    answer = await client.ask(SetPosition(TOPIC, "reader", glsn, revision))
                    if isinstance(answer, Refused):
                        assert answer.error == "RevisionConflict", answer
                    return not isinstance(answer, Refused)

            for revision in range(5):
                stored = await asyncio.gather(
                    *(store(NodeId(number % 3 + 1), number + 1) for number in range(9))
                )
                assert stored.count(True) == 1
                async with cluster.nodes[ONE].client() as client:
                    assert await get(client) == NamedPosition(stored.index(True) + 1, revision + 1)

    run(main())


def test_a_write_of_an_older_leader_that_is_not_ordered_yet_keeps_everybody_waiting() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC)
            cluster.create(POSITIONS_TOPIC)
            cluster.show()
            replicas = cluster.nodes[ONE].replicas
            replicas.unsettled = True
            number = client.send(SetPosition(TOPIC, "reader", 1, 0))
            await until(lambda: cluster.nodes[ONE].gateway.counters.in_flight == 1, "it waits")
            assert await get(client) == NamedPosition(0, 0)
            replicas.unsettled = False
            assert (await client.answer(number))[0] == NamedPosition(1, 1)

    run(main())


def test_what_was_stored_between_the_look_and_the_append_is_seen() -> None:
    """A leader that was deposed and elected again must not go on with what it saw before."""

    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC)
            cluster.create(POSITIONS_TOPIC)
            cluster.show()
            gateway = cluster.nodes[ONE].gateway
            positions = gateway.parts.local_positions
            cells = positions._cells
            topic = gateway.parts.cluster.topic(TOPIC)
            readers = cells._local.readers
            run_look = readers.run
            interfered = False

            async def look_slowly(call: Callable[[], T]) -> T:
                nonlocal interfered
                found = await run_look(call)
                if not interfered:
                    interfered = True
                    other = type(positions)(type(cells)(cells._local), gateway.parts.cluster)
                    await other.set(topic, SetPosition(TOPIC, "reader", 7, 0), 5.0)
                return found

            with patch.object(readers, "run", look_slowly):
                refused = await client.refusal(SetPosition(TOPIC, "reader", 1, 0))
            assert refused.error == "RevisionConflict"
            assert await get(client) == NamedPosition(7, 1)

    run(main())


def test_an_outcome_that_nobody_knows_is_told_as_that() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[TWO].client() as client:
            cluster.create(TOPIC)
            cluster.create(POSITIONS_TOPIC)
            cluster.show()
            cluster.nodes[ONE].replicas.lose = lambda *_: LeaderLost("deposed")
            refused = await client.refusal(SetPosition(TOPIC, "reader", 1, 0))
            assert refused.error == "LeaderLost"
            assert await get(client) == NamedPosition(1, 1)

    run(main())


def test_positions_wait_for_a_leader() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC)
            internal = cluster.create(POSITIONS_TOPIC)
            cluster.place(internal.streams[0], [1, 2], leader=NO_NODE)
            number = client.send(SetPosition(TOPIC, "reader", 1, 0), timeout_ms=5_000)
            await until(lambda: cluster.nodes[ONE].gateway.counters.in_flight == 1, "it waits")
            cluster.place(internal.streams[0], [2, 1])
            assert (await client.answer(number))[0] == NamedPosition(1, 1)

    run(main())
