"""A node that finishes a publication finds that others went on, and believes what is written."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.gateway.fake_cluster import FakeCluster, cluster_of
from tests.runtime.gateway.test_publishing import (
    ONE,
    TWO,
    Interruption,
    lead,
    stage,
    staged_publication,
    values,
)
from tests.server.raw import batch_of, run, until
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import LogError
from tidelog.formats.messages import Publish, Published, Refused
from tidelog.interface.appends import Part
from tidelog.runtime.gateway.stages import Stages
from tidelog.types import StreamId


def refuse_from(cluster: FakeCluster, first: int) -> None:
    """What is published under this number or a later one is not appended."""

    def refuse(stream: StreamId, sequence: int) -> LogError | None:
        return Interruption("died") if stream in (1, 2) and sequence >= first else None

    for node in cluster.nodes.values():
        node.replicas.refuse = refuse


def test_what_another_leader_began_meanwhile_is_not_told_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first batch is half done; the second one is asked for at a leader that hangs, then at
    another one, which finishes the first, begins the second, and is deposed in its turn."""
    read = Stages.read
    hanging: list[Stages] = []
    go_on = asyncio.Event()

    async def hang(self: Stages, number: int, seconds: float) -> tuple[int, list[Part]]:
        if self in hanging:
            await go_on.wait()
        return await read(self, number, seconds)

    monkeypatch.setattr(Stages, "read", hang)

    async def main() -> None:
        async with cluster_of(3) as cluster:
            one, two = cluster.nodes[ONE], cluster.nodes[TWO]
            first = await staged_publication(cluster)
            async with one.client() as client, one.client() as early, two.client() as late:
                second = Publish(first.topic, "writer", 2, (await stage(client, batch_of(b"f")),))
                refuse_from(cluster, 2)
                assert isinstance(await client.ask(first), Refused)
                hanging.append(one.gateway.parts.stages)
                asked = asyncio.ensure_future(early.ask(second))
                counters = one.gateway.parts.passed
                await until(lambda: counters.publications_resumed > 0, "it hangs")
                refuse_from(cluster, 4)
                lead(cluster, PUBLISH_TOPIC, TWO)
                assert isinstance(await late.ask(second), Refused)
                assert len(values(cluster)) == 5, "the first one is there"
                lead(cluster, PUBLISH_TOPIC, ONE)
                go_on.set()
                assert isinstance(await asked, Refused), "the second one is not there yet"
                refuse_from(cluster, 1 << 60)
                assert await client.ask(second) == Published(1, duplicate=True)
                assert len(values(cluster)) == 6

    run(main())
