"""Appends find their leaders: here, elsewhere, later, or they are refused."""

from __future__ import annotations

import pytest

from tests.runtime.gateway.fake_cluster import FakeCluster, cluster_of
from tests.server.raw import RawClient, batch_of, run, until
from tidelog.errors import Busy, LeaderLost
from tidelog.formats.messages import AppendBatches, Hello, Receipts, Refused, Welcome
from tidelog.types import NO_NODE, NodeId, StreamId

TOPIC = "events"
ONE = StreamId(1)
TWO = StreamId(2)


def values(cluster: FakeCluster) -> list[bytes]:
    """What the log's first stream holds, in its order."""
    store = cluster.engine.node.streams[ONE]
    return [
        piece.batch.value_at(position)
        for piece in store.read(1, store.ordered_end)
        for position in range(piece.begin, piece.end)
    ]


def test_an_append_is_taken_by_whichever_node_is_asked() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1, 3])
            for number, node in cluster.nodes.items():
                async with node.client() as client:
                    receipts = await client.append(b"%d" % number, topic=TOPIC)
                    assert receipts.receipts[0].glsn == number
            assert values(cluster) == [b"1", b"2", b"3"]
            passed = [node.gateway.parts.passed for node in cluster.nodes.values()]
            assert [each.appends_passed_on for each in passed] == [1, 0, 1]
            assert passed[1].appends_here == 3

    run(main())


def test_who_did_not_lead_tells_who_does() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1])
            async with cluster.nodes[NodeId(1)].client() as client:
                receipts = await client.append(b"x", topic=TOPIC)
                assert receipts.leader == str(cluster.nodes[NodeId(2)].endpoint)
            async with cluster.nodes[NodeId(2)].client() as client:
                assert (await client.append(b"y", topic=TOPIC)).leader == ""

    run(main())


def test_an_append_waits_for_a_leader_and_keeps_its_place() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1], leader=NO_NODE)
            async with cluster.nodes[NodeId(1)].client() as client:
                numbers = [
                    client.send(AppendBatches(TOPIC, (1,)), batch_of(b"%d" % number))
                    for number in range(20)
                ]
                counters = cluster.nodes[NodeId(1)].gateway.counters
                await until(lambda: counters.in_flight == len(numbers), "all wait")
                cluster.place(1, [2, 1])
                for number in numbers:
                    assert isinstance((await client.answer(number))[0], Receipts)
            assert values(cluster) == [b"%d" % number for number in range(20)]

    run(main())


def test_without_a_leader_an_append_is_refused_after_a_while() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1], leader=NO_NODE)
            async with cluster.nodes[NodeId(1)].client() as client:
                refused = await client.refusal(AppendBatches(TOPIC, (1,)), batch_of(b"x"))
                assert refused.error == "NotLeader"
            assert values(cluster) == []

    run(main())


def test_a_leader_that_cannot_be_reached_is_named_to_the_client() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1])
            other = cluster.nodes[NodeId(2)]
            await other.gateway.stop()
            async with cluster.nodes[NodeId(1)].client() as client:
                refused = await client.refusal(AppendBatches(TOPIC, (1,)), batch_of(b"x"))
                assert refused.error == "NotLeader"
                assert refused.leader == str(other.endpoint)

    run(main())


def test_nothing_is_passed_on_twice() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1])
            client = await RawClient(cluster.nodes[NodeId(1)].endpoint).connect()
            assert isinstance(await client.ask(Hello("tidelog-node")), Welcome)
            refused = await client.refusal(AppendBatches(TOPIC, (1,)), batch_of(b"x"))
            assert refused.error == "NotLeader"
            assert refused.leader == str(cluster.nodes[NodeId(2)].endpoint)
            await client.close()

    run(main())


def test_a_later_append_never_gets_in_before_an_earlier_one_that_was_refused() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1])
            leader = cluster.nodes[NodeId(2)].replicas
            leader.refuse = lambda _, sequence: Busy("full") if sequence == 5 else None
            async with cluster.nodes[NodeId(1)].client() as client:
                numbers = [
                    client.send(
                        AppendBatches(
                            TOPIC, (1,), 7, sequence, (sequence - 1,) if sequence > 4 else ()
                        ),
                        batch_of(b"%d" % sequence),
                    )
                    for sequence in (4, 5, 6, 7)
                ]
                answers = [(await client.answer(number))[0] for number in numbers]
            names = [answer.error if isinstance(answer, Refused) else "" for answer in answers]
            assert names == ["", "Busy", "OutOfOrder", "OutOfOrder"]
            assert values(cluster) == [b"4"]

    run(main())


def test_who_waits_for_a_deposed_leader_is_told_at_once() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 1, 3])
            old = cluster.nodes[NodeId(2)].gateway
            async with cluster.nodes[NodeId(1)].client() as client:
                await client.append(b"first", topic=TOPIC)
                # The old leader has stopped without a word: it reads, and never answers.
                for session in old._reception._sessions:
                    session.connection.pause()
                number = client.send(AppendBatches(TOPIC, (1,), 7, 1), batch_of(b"x"))
                passed = cluster.nodes[NodeId(1)].gateway.parts.passed
                await until(lambda: passed.appends_passed_on == 2, "it was passed on")
                cluster.place(1, [3, 1, 2])
                answer, _ = await client.answer(number)
                assert isinstance(answer, Refused)
                assert answer.error == LeaderLost.__name__
                for session in old._reception._sessions:
                    session.connection.resume()

    run(main())


def test_an_append_to_several_streams_goes_to_several_leaders() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [1, 2, 3])
            cluster.place(2, [3, 1, 2])
            async with cluster.nodes[NodeId(2)].client() as client:
                batches = batch_of(b"a") + batch_of(b"b")
                answer = await client.ask(AppendBatches(TOPIC, (2, 1)), batches)
                assert isinstance(answer, Receipts)
                assert [receipt.stream for receipt in answer.receipts] == [2, 1]

    run(main())


def test_half_an_append_is_never_told_to_be_nothing() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [1, 2])
            cluster.place(2, [1, 2], leader=NO_NODE)
            async with cluster.nodes[NodeId(1)].client() as client:
                batches = batch_of(b"a") + batch_of(b"b")
                refused = await client.refusal(AppendBatches(TOPIC, (1, 2)), batches)
                assert refused.error == LeaderLost.__name__
            assert values(cluster) == [b"a"]

    run(main())


def test_each_leader_is_told_what_lies_before_an_append_in_its_own_stream() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [1, 2])
            cluster.place(2, [2, 1])
            both = AppendBatches(TOPIC, (1, 2), 7, 5, (3, 4))
            batches = batch_of(b"a") + batch_of(b"b")
            async with cluster.nodes[NodeId(1)].client() as client:
                for stream, sequence in ((1, 3), (2, 4)):
                    assert (await client.refusal(both, batches)).error in (
                        "OutOfOrder",
                        "LeaderLost",
                    )
                    one = AppendBatches(TOPIC, (stream,), 7, sequence)
                    await client.ask(one, batch_of(b"%d" % sequence))
                assert isinstance(await client.ask(both, batches), Receipts)
            assert values(cluster) == [b"3", b"a"]

    run(main())


def test_a_topic_that_a_node_has_not_heard_of_yet_is_not_called_unknown() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.leaders[ONE] = NodeId(2)
            cluster.changes += 1  # No view with it was told to anybody.
            async with cluster.nodes[NodeId(2)].client() as client:
                message = AppendBatches(TOPIC, (1,))
                assert (await client.refusal(message, batch_of(b"x"))).error == "NotLeader"
                await until(
                    lambda: cluster.nodes[NodeId(2)].gateway.parts.cluster.has_topic(TOPIC),
                    "it was looked up",
                )
                assert isinstance(await client.ask(message, batch_of(b"x")), Receipts)

    run(main())


def test_a_topic_that_is_not_there_is_refused_for_good() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[NodeId(1)].client() as client:
            message = AppendBatches("nothing", (1,))
            assert (await client.refusal(message, batch_of(b"x"))).error == "NotLeader"
            metadata = cluster.nodes[NodeId(1)].metadata
            await until(lambda: metadata.reads > 0, "it was looked up")
            for _ in range(3):
                refused = await client.refusal(message, batch_of(b"x"))
            assert refused.error == "UnknownTopic"

    run(main())


@pytest.mark.parametrize("name", ["~stage", "~publish", "~positions"])
def test_internal_topics_are_nobodys_business(name: str) -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[NodeId(1)].client() as client:
            cluster.create(name)
            cluster.show()
            refused = await client.refusal(AppendBatches(name, (1,)), batch_of(b"x"))
            assert refused.error == "UnknownTopic"

    run(main())
