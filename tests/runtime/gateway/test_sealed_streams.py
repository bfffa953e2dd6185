"""What clients learn of sealed log streams before they have done anything in vain."""

from __future__ import annotations

import pytest

from tests.runtime.gateway.fake_cluster import cluster_of
from tests.server.raw import batch_of, run
from tidelog.core.order.commands import StreamStatus
from tidelog.embedded.stages import STAGE_TOPIC
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import Sealed
from tidelog.formats.messages import (
    Describe,
    Publish,
    Published,
    StageBatches,
    Staged,
    TopicDescription,
)
from tidelog.types import StreamId

TOPIC = "events"
CLOSED = [StreamStatus.SEALING, StreamStatus.SEALED]


@pytest.mark.parametrize("status", CLOSED)
def test_nothing_is_staged_for_a_sealed_stream(status: StreamStatus) -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            cluster.create(TOPIC, streams=2)
            stages = cluster.create(STAGE_TOPIC)
            cluster.statuses[StreamId(2)] = status
            cluster.show()
            (node,) = cluster.nodes.values()
            async with node.client() as client:
                both = batch_of(b"a") + batch_of(b"b")
                refused = await client.refusal(StageBatches(TOPIC, (1, 2)), both)
                assert refused.error == Sealed.__name__
                assert "log stream 2 is sealed, nothing was staged" in refused.message
                assert cluster.engine.high_watermark(stages.topic) == 0
                staged = await client.ask(StageBatches(TOPIC, (1,)), batch_of(b"a"))
                assert isinstance(staged, Staged)
                cluster.statuses.clear()
                cluster.show()
                staged = await client.ask(StageBatches(TOPIC, (1, 2)), both)
                assert isinstance(staged, Staged)

    run(main())


@pytest.mark.parametrize("status", CLOSED)
def test_a_description_says_which_streams_are_sealed(status: StreamStatus) -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=3)
            cluster.show()
            cluster.statuses[StreamId(2)] = status
            cluster.changes += 1
            # No view tells of it: who describes a topic asks for the newest one.
            for node in cluster.nodes.values():
                async with node.client() as client:
                    described = await client.ask(Describe(TOPIC))
                    assert isinstance(described, TopicDescription)
                    sealed = [place.is_sealed for place in described.placements]
                    assert sealed == [False, True, False]

    run(main())


def test_a_stream_that_was_just_unsealed_is_not_refused_by_who_has_not_heard() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            cluster.create(TOPIC)
            cluster.create(STAGE_TOPIC)
            cluster.create(PUBLISH_TOPIC)
            (node,) = cluster.nodes.values()

            def seal() -> None:
                cluster.statuses[StreamId(1)] = StreamStatus.SEALED
                cluster.show()

            def unseal_unheard() -> None:
                cluster.statuses.clear()
                cluster.changes += 1

            seal()
            async with node.client() as client:
                unseal_unheard()
                staged = await client.ask(StageBatches(TOPIC, (1,)), batch_of(b"a"))
                assert isinstance(staged, Staged)
                seal()
                unseal_unheard()
                publish = Publish(TOPIC, "w", 1, (staged.stage,))
                assert await client.ask(publish) == Published(1, duplicate=False)

    run(main())
