"""Topics of a cluster: made and described by any node; kept small on all of them."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from tests.runtime.gateway.fake_cluster import cluster_of
from tests.server.raw import RawClient, run, sealed
from tidelog.errors import BadOption
from tidelog.formats.admin_messages import ClusterFigures
from tidelog.formats.batch import encode_entries, encode_puts
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import (
    AddStreams,
    Answer,
    AppendBatches,
    Compact,
    CreateTopic,
    Describe,
    Done,
    Explain,
    Figures,
    Hello,
    Lines,
    ListTopics,
    LogFigures,
    Receipts,
    Refused,
    SetGcBoundary,
    TakeSnapshot,
    TopicDescription,
    TopicFigures,
    TopicNames,
)
from tidelog.interface.figures import CompactionResult, LogStats, TopicStats
from tidelog.runtime.gateway.upkeep import joined_figures
from tidelog.types import NO_NODE, NodeId

TOPIC = "events"
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


async def put(client: RawClient, *keys: bytes, stream: int = 1) -> None:
    batch = sealed(encode_puts(list(keys), [b"v"] * len(keys), timestamp_us=1))
    assert isinstance(await client.ask(AppendBatches(TOPIC, (stream,)), batch), Receipts)


def test_a_topic_is_made_by_any_node_and_known_to_all() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            async with cluster.nodes[TWO].client() as client:
                assert await client.ask(ListTopics()) == TopicNames(())
                assert (await client.refusal(Describe(""))).error == "UnknownTopic"
                made = await client.ask(CreateTopic(TOPIC, 2, "log"))
                assert isinstance(made, TopicDescription)
                assert (made.name, made.streams, made.key_streams) == (TOPIC, (1, 2), 2)
                refused = await client.refusal(CreateTopic(TOPIC, 2, "log"))
                assert refused.error == "TopicExists"
                for name, streams in (("~mine", 1), ("", 1), ("none", 0)):
                    refused = await client.refusal(CreateTopic(name, streams, "log"))
                    assert refused.error == "BadOption"
            async with cluster.nodes[THREE].client() as client:
                more = await client.ask(AddStreams(TOPIC, 2))
                assert isinstance(more, TopicDescription)
                assert (more.streams, more.key_streams) == ((1, 2, 3, 4), 2)
            for node in cluster.nodes.values():
                async with node.client() as client:
                    described = await client.ask(Describe(""))
                    assert isinstance(described, TopicDescription)
                    assert described.streams == (1, 2, 3, 4)
                    assert await client.ask(ListTopics()) == TopicNames((TOPIC,))

    run(main())


def test_many_topics_that_are_made_at_once_all_get_their_own_numbers() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:

            async def make(number: int) -> TopicDescription:
                async with cluster.nodes[NodeId(number % 3 + 1)].client() as client:
                    made = await client.ask(CreateTopic(f"topic-{number}", 2, "log"))
                    assert isinstance(made, TopicDescription), made
                    return made

            made = await asyncio.gather(*map(make, range(12)))
            assert len({topic.topic for topic in made}) == len(made)
            assert len({stream for topic in made for stream in topic.streams}) == 2 * len(made)

    run(main())


def test_a_description_tells_where_every_stream_lies() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [3, 1])
            cluster.place(2, [1, 2], leader=NO_NODE)
            where = {node: str(fake.endpoint) for node, fake in cluster.nodes.items()}
            async with cluster.nodes[ONE].client() as client:
                described = await client.ask(Describe(TOPIC))
            assert isinstance(described, TopicDescription)
            first, second = described.placements
            assert (first.leader, first.replicas) == (where[THREE], (where[THREE], where[ONE]))
            assert (second.leader, second.replicas) == ("", (where[ONE], where[TWO]))

    run(main())


def test_a_topic_without_leaders_is_not_called_made() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            with patch.object(cluster, "_place", lambda *_: None):
                refused = await client.refusal(CreateTopic(TOPIC, 1, "log"), timeout_ms=500)
            assert refused.error == "DeadlineExceeded"

    run(main())


def test_stale_versions_are_refused_by_the_leader() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[TWO].client() as client:
            cluster.create(TOPIC, versions="explicit")
            cluster.show()
            assert await client.ask(SetGcBoundary(TOPIC, (7).to_bytes(16))) == Done()
            for version, error in ((7, "StaleWrite"), (8, "")):
                entry = Entry(Kind.PUT, b"v", b"k", 0, version, 1)
                answer = await client.ask(
                    AppendBatches(TOPIC, (1,)), sealed(encode_entries([entry]))
                )
                assert (answer.error if isinstance(answer, Refused) else "") == error

    run(main())


def test_a_boundary_is_for_explicit_versions_alone() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC)
            cluster.show()
            refused = await client.refusal(SetGcBoundary(TOPIC, (7).to_bytes(16)))
            assert refused.error == BadOption.__name__

    run(main())


def test_snapshots_and_compactions_are_made_on_all_nodes_that_hold_a_topic() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [1, 2])
            async with cluster.nodes[THREE].client() as client:
                for _ in range(20):
                    await put(client, b"a", b"b")
                assert await client.ask(TakeSnapshot(TOPIC)) == Done()
                answer = await client.ask(Compact(TOPIC, full=True))
                assert isinstance(answer, Figures)
                msgspec.json.decode(answer.json, type=CompactionResult)
                rolls = [node.replicas.rolls for node in cluster.nodes.values()]
                assert rolls == [1, 1, 1]
                lines = await client.ask(Explain(TOPIC, b"a", 0))
                assert isinstance(lines, Lines)
                assert len(lines.lines) == 1
                await cluster.nodes[TWO].gateway.stop()
                refused = await client.refusal(TakeSnapshot(TOPIC))
                assert refused.error == "Unreachable"
                assert "node 2" in refused.message

    run(main())


def test_figures_are_of_all_streams_wherever_they_lie() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [1])
            cluster.place(2, [2])
            async with cluster.nodes[THREE].client() as client:
                await client.append(b"x", topic=TOPIC, stream=1)
                await client.append(b"y", topic=TOPIC, stream=2)
                answer = await client.ask(TopicFigures(TOPIC))
                assert isinstance(answer, Figures)
                figures = msgspec.json.decode(answer.json, type=TopicStats)
                assert [stream.stream for stream in figures.streams] == [1, 2]
                assert figures.high_watermark == 2
            async with cluster.nodes[TWO].client() as client:
                answer = await client.ask(LogFigures())
                assert isinstance(answer, Figures)
                log = msgspec.json.decode(answer.json, type=LogStats)
                assert [topic.topic for topic in log.topics] == [TOPIC]
                assert [stream.stream for stream in log.topics[0].streams] == [2]

    run(main())


def test_dropped_deletes_of_each_replica_count() -> None:
    async def main() -> TopicStats:
        async with cluster_of(1) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            parts = cluster.nodes[ONE].gateway.parts
            return await parts.local_upkeep.topic_figures(parts.cluster.topic(TOPIC))

    one = run(main())

    def dropped(count: int, horizon: int) -> TopicStats:
        stream = replace(one.streams[0], delete_horizon=horizon, dropped_deletes=count)
        return replace(one, streams=(stream,))

    joined = joined_figures({ONE: dropped(2, 5), TWO: dropped(1, 9)}, 10)
    assert (joined.delete_horizon, joined.dropped_deletes) == (9, 3)
    # One goes that had dropped some, and another one drops the same: that is no end of it.
    others = joined_figures({TWO: dropped(3, 9)}, 10)
    assert others.dropped_deletes == joined.dropped_deletes
    assert others.delete_mark != joined.delete_mark
    swapped = joined_figures({ONE: dropped(1, 9), TWO: dropped(2, 5)}, 10)
    assert swapped.delete_mark != joined.delete_mark
    assert joined_figures({ONE: dropped(0, 1), TWO: dropped(0, 1)}, 10).delete_mark == 0


def test_requests_of_administrators_go_to_their_agent() -> None:
    class Agent:
        async def answer(self, request: object, seconds: float) -> Answer:
            assert request == ClusterFigures()
            return Figures(b"{}")

    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            refused = await client.refusal(ClusterFigures())
            assert refused.error == "WrongState"
            cluster.nodes[ONE].gateway.parts.admin = Agent()
            assert await client.ask(ClusterFigures()) == Figures(b"{}")

    run(main())


def test_another_cluster_is_not_taken_for_this_one() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            client = await RawClient(cluster.nodes[ONE].endpoint).connect()
            client.send(Hello("test", b"x" * 16))
            _, answer, _ = await client.receive_frame()
            assert isinstance(answer, Refused)
            assert answer.error == "WrongLog"
            await client.close()

    run(main())
