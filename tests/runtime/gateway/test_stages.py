"""Stages are read from replicas that may be behind, and that is no news about the stages."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.gateway.fake_cluster import FakeCluster, cluster_of
from tests.server.raw import RawClient, batch_of, run
from tidelog.embedded.requests import AppendRequest
from tidelog.embedded.stages import STAGE_TOPIC
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import Busy, StageExpired
from tidelog.formats.batch import encode_entries
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import FindTime, Position, Publish, Published, StageBatches, Staged
from tidelog.interface.appends import Append, Part
from tidelog.runtime.gateway import publishing
from tidelog.runtime.gateway.stages import Stages

TOPIC = "events"


async def stage(client: RawClient, value: bytes) -> int:
    answer = await client.ask(StageBatches(TOPIC, (1,)), batch_of(value))
    assert isinstance(answer, Staged), answer
    return answer.stage


def make_topics(cluster: FakeCluster) -> int:
    """Returns the number of that of the stages."""
    cluster.create(TOPIC)
    stages = cluster.create(STAGE_TOPIC)
    cluster.create(PUBLISH_TOPIC)
    cluster.show()
    return stages.topic


@pytest.mark.parametrize("behind", [1, 2])
def test_a_stage_that_nobody_can_read_yet_has_not_expired(behind: int) -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            stages = make_topics(cluster)
            (node, *_) = cluster.nodes.values()
            async with node.client() as client:
                await stage(client, b"of somebody else")
                number = await stage(client, b"a")
                for one in cluster.nodes.values():
                    one.replicas.lag[stages] = behind
                reading = node.gateway.parts.stages.read
                with pytest.raises(Busy):
                    await reading(number, 0.5)
                publishing = asyncio.ensure_future(client.ask(Publish(TOPIC, "w", 1, (number,))))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(publishing), 1.0)
                for one in cluster.nodes.values():
                    one.replicas.lag.clear()
                cluster.tell()
                assert await publishing == Published(1, duplicate=False)

    run(main())


def test_a_stage_that_never_was_is_told_to_be_none() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            make_topics(cluster)
            (node,) = cluster.nodes.values()
            async with node.client() as client:
                number = await stage(client, b"a")
                for wrong in (number + 1, number + 2):
                    refused = await client.refusal(Publish(TOPIC, "w", 1, (wrong,)))
                    assert refused.error == StageExpired.__name__

    run(main())


def test_a_publication_has_as_much_time_as_its_stages_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each try begins with the first stage, so a fixed time would never do for many of them."""
    read = Stages.read
    monkeypatch.setattr(publishing, "_PUBLISH_SECONDS", 0.2)

    async def read_slowly(self: Stages, number: int, seconds: float) -> tuple[int, list[Part]]:
        await asyncio.sleep(0.02)
        return await read(self, number, seconds)

    async def main() -> None:
        async with cluster_of(1) as cluster:
            make_topics(cluster)
            (node,) = cluster.nodes.values()
            async with node.client() as client:
                stages = [await stage(client, b"%d" % number) for number in range(30)]
                monkeypatch.setattr(Stages, "read", read_slowly)
                answer = await client.ask(Publish(TOPIC, "w", 1, tuple(stages)))
                assert answer == Published(30, duplicate=False)

    run(main())


def append_control(cluster: FakeCluster, topic: str) -> None:
    """As a new leader does that finds entries which are not ordered."""
    (stream, *_) = cluster.engine.find_topic(topic).streams
    part = Part(stream, encode_entries([Entry(Kind.CONTROL)]))
    cluster.engine.submit(AppendRequest(Append(topic, [part])))
    cluster.show()
    cluster.tell()


def test_stages_do_not_expire_because_somebody_else_leads() -> None:
    """The entry that a new leader begins with has no time, and says nothing about theirs."""

    async def main() -> None:
        async with cluster_of(3) as cluster:
            make_topics(cluster)
            (node, *_) = cluster.nodes.values()
            async with node.client() as client:
                number = await stage(client, b"a")
                append_control(cluster, STAGE_TOPIC)
                await node.gateway.parts.publishing.tend(3600.0)
                answer = await client.ask(Publish(TOPIC, "w", 1, (number,)))
                assert answer == Published(1, duplicate=False)

    run(main())


def test_a_time_is_found_whoever_led_meanwhile() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            make_topics(cluster)
            (node, *_) = cluster.nodes.values()

            async def first_since(moment: int) -> int:
                found = await client.ask(FindTime(TOPIC, moment))
                assert isinstance(found, Position)
                return found.glsn

            async with node.client() as client:
                for moment in (10, 20, 30):
                    entry = Entry(Kind.APPEND, b"v", timestamp_us=moment)
                    append_control(cluster, TOPIC)
                    cluster.engine.submit(
                        AppendRequest(Append(TOPIC, [Part(1, encode_entries([entry]))]))
                    )
                append_control(cluster, TOPIC)
                for _ in range(2):  # In memory, then joined in a segment.
                    # The odd positions are control entries.
                    found = [await first_since(moment) for moment in (5, 10, 11, 20, 21, 30, 31)]
                    assert found == [1, 1, 3, 3, 5, 5, 7]
                    cluster.engine.roll()
                    cluster.engine.maintenance.flush_rolled()

    run(main())
