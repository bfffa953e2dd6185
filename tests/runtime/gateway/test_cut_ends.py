"""Bounded readers stop where cuts end, whichever node they ask where that is."""

from __future__ import annotations

import pytest

from tests.runtime.gateway.fake_cluster import cluster_of
from tests.server.raw import run
from tidelog.formats.messages import FindEnd, Position
from tidelog.types import NodeId

TOPIC = "events"


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_node_without_a_replica_does_not_split_what_was_appended_as_a_whole(asked: int) -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1])
            node = cluster.nodes[NodeId(asked)]
            async with node.client() as client, cluster.nodes[NodeId(2)].client() as writer:

                async def end_from(begin: int, records_max: int) -> int:
                    found = await client.ask(FindEnd(TOPIC, begin, records_max=records_max))
                    assert isinstance(found, Position)
                    return found.glsn

                assert await end_from(1, 10) == 1  # From now on ends are remembered.
                for _ in range(3):
                    await writer.append(*[b"v"] * 10, topic=TOPIC)
                assert [await end_from(1, bound) for bound in (15, 20, 29, 30)] == [11, 21, 21, 31]
                assert await end_from(11, 5) == 21, "what exceeds the bound by itself is not split"

    run(main())
