"""Stage and publish on a cluster: exactly once, whoever dies in between and on which node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.runtime.gateway.black_hole import black_hole
from tests.runtime.gateway.fake_cluster import QUICK, FakeCluster, cluster_of
from tests.server.raw import RawClient, batch_of, run, sealed, until
from tidelog.client.refusals import error_of
from tidelog.core.order.commands import StreamStatus
from tidelog.embedded.reader import read_range
from tidelog.embedded.stages import STAGE_TOPIC
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import (
    DeadlineExceeded,
    LeaderLost,
    LogError,
    NotLeader,
    PartlyAppended,
    Sealed,
)
from tidelog.formats.batch import encode_entries
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import (
    Discard,
    Done,
    Publish,
    Published,
    Refused,
    SetGcBoundary,
    StageBatches,
    Staged,
)
from tidelog.runtime.gateway import publishing as publishing_module
from tidelog.types import NO_NODE, NodeId, StreamId

TOPIC = "events"
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
WAIT_SECONDS = 5.0


async def stage(client: RawClient, *batches: bytes, streams: Sequence[int] = (1,)) -> int:
    answer = await client.ask(StageBatches(TOPIC, tuple(streams)), b"".join(batches))
    assert isinstance(answer, Staged), answer
    return answer.stage


def values(cluster: FakeCluster) -> list[bytes]:
    topic = cluster.engine.find_topic(TOPIC)
    end = cluster.engine.high_watermark(topic.topic) + 1
    begin = cluster.engine.first_available(topic)
    return [record.value for record in read_range(cluster.engine, topic, begin, end)]


def lead(cluster: FakeCluster, name: str, node: NodeId) -> None:
    for stream in cluster.engine.find_topic(name).streams:
        others = [other for other in cluster.nodes if other != node]
        cluster.place(stream, [node, *others])


def test_what_was_staged_is_published_once() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(2, [3, 1, 2])
            stages = []
            for number, node in enumerate(cluster.nodes.values()):
                async with node.client() as client:
                    batches = batch_of(b"a%d" % number), batch_of(b"b%d" % number)
                    stages.append(await stage(client, *batches, streams=(1, 2)))
            assert values(cluster) == []
            async with cluster.nodes[TWO].client() as client:
                request = Publish(TOPIC, "writer", 1, tuple(stages))
                assert await client.ask(request) == Published(6, duplicate=False)
                assert sorted(values(cluster)) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
            for node in cluster.nodes.values():
                async with node.client() as client:
                    assert await client.ask(request) == Published(6, duplicate=True)
            assert len(values(cluster)) == 6
            assert [value for value in values(cluster) if value[:1] == b"a"] == [
                b"a0", b"a1", b"a2",
            ]  # fmt: skip

    run(main())


def test_batches_of_a_writer_ascend_and_writers_do_not_meet() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            async with cluster.nodes[TWO].client() as client:
                for batch, writer in ((5, "w"), (6, "w"), (5, "v")):
                    one = await stage(client, batch_of(b"%s%d" % (writer.encode(), batch)))
                    answer = await client.ask(Publish(TOPIC, writer, batch, (one,)))
                    assert answer == Published(1, duplicate=False)
                old = await stage(client, batch_of(b"too late"))
                answer = await client.ask(Publish(TOPIC, "w", 3, (old,)))
                assert answer == Published(0, duplicate=True)
            assert values(cluster) == [b"w5", b"w6", b"v5"]

    run(main())


class Interruption(LogError):
    """A process died here."""


def steps_of(cluster: FakeCluster) -> list[str]:
    """Where a publication can be interrupted: before and after each append that it makes."""
    counted: list[str] = []

    def count(when: str) -> Callable[[StreamId, int], None]:
        return lambda stream, sequence: counted.append(f"{when} {stream} {sequence}")

    for node in cluster.nodes.values():
        node.replicas.refuse = count("before")
        node.replicas.lose = count("after")
    return counted


async def staged_publication(cluster: FakeCluster) -> Publish:
    cluster.create(TOPIC, streams=2)
    cluster.create(STAGE_TOPIC)
    cluster.create(PUBLISH_TOPIC)
    lead(cluster, PUBLISH_TOPIC, ONE)
    cluster.place(1, [2, 1, 3])
    cluster.place(2, [3, 1, 2])
    async with cluster.nodes[ONE].client() as client:
        first = await stage(client, batch_of(b"a"), batch_of(b"b"), streams=(1, 2))
        second = await stage(client, batch_of(b"c"), streams=(2,))
        third = await stage(client, batch_of(b"d"), batch_of(b"e"), streams=(2, 1))
    return Publish(TOPIC, "writer", 1, (first, second, third))


def test_a_publication_that_is_interrupted_anywhere_is_finished_by_whoever_comes_next() -> None:
    async def count() -> int:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            steps = steps_of(cluster)
            async with cluster.nodes[ONE].client() as client:
                assert await client.ask(request) == Published(5, duplicate=False)
            return len(steps)

    async def main(at: int) -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            left = at

            def interrupt(*_: object) -> LogError | None:
                nonlocal left
                left -= 1
                return Interruption("died") if left < 0 else None

            for node in cluster.nodes.values():
                node.replicas.refuse = node.replicas.lose = interrupt
            async with cluster.nodes[ONE].client() as client:
                assert isinstance(await client.ask(request), Refused)
            for node in cluster.nodes.values():
                node.replicas.refuse = node.replicas.lose = lambda *_: None
            # Another node leads from now on, and the writer has staged everything once more.
            lead(cluster, PUBLISH_TOPIC, TWO)
            async with cluster.nodes[THREE].client() as client:
                again = await stage(client, batch_of(b"a"), batch_of(b"b"), streams=(1, 2))
                more = await stage(client, batch_of(b"c"), batch_of(b"d"), streams=(2, 1))
                answer = await client.ask(Publish(TOPIC, "writer", 1, (again, more)))
            assert isinstance(answer, Published)
            found = values(cluster)
            if answer.duplicate:
                assert sorted(found) == [b"a", b"b", b"c", b"d", b"e"], at
                assert found.index(b"b") < found.index(b"c") < found.index(b"d")
            else:
                assert sorted(found) == [b"a", b"b", b"c", b"d"], at

    steps = run(count())
    assert steps >= 14
    for at in range(steps):
        run(main(at))


def test_a_new_leader_finishes_what_nobody_asks_for_again() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            appended = 0

            def stop_soon(stream: StreamId, _: int) -> LogError | None:
                nonlocal appended
                appended += stream in (1, 2)
                return Interruption("died") if appended > 1 else None

            for node in cluster.nodes.values():
                node.replicas.refuse = stop_soon
            async with cluster.nodes[ONE].client() as client:
                assert isinstance(await client.ask(request), Refused)
            assert values(cluster) in ([b"a"], [b"b"])
            for node in cluster.nodes.values():
                node.replicas.refuse = lambda *_: None
            lead(cluster, PUBLISH_TOPIC, THREE)
            await until(lambda: len(values(cluster)) == 5, "it was finished")

    run(main())


def test_a_publication_outlasts_lost_answers() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            lost: set[tuple[StreamId, int]] = set()

            def lose(stream: StreamId, sequence: int) -> LogError | None:
                if sequence and (stream, sequence) not in lost:
                    lost.add((stream, sequence))
                    return LeaderLost("deposed, perhaps")
                return None

            for node in cluster.nodes.values():
                node.replicas.lose = lose
            async with cluster.nodes[TWO].client() as client:
                assert await client.ask(request) == Published(5, duplicate=False)
            assert sorted(values(cluster)) == [b"a", b"b", b"c", b"d", b"e"]

    run(main())


def test_the_same_publication_asked_for_by_many_at_once_is_published_once() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)

            async def publish(node: NodeId) -> Published:
                async with cluster.nodes[node].client() as client:
                    answer = await client.ask(request)
                    assert isinstance(answer, Published)
                    return answer

            answers = await asyncio.gather(*(publish(NodeId(n % 3 + 1)) for n in range(9)))
            assert [answer.duplicate for answer in answers].count(False) == 1
            assert len(values(cluster)) == 5

    run(main())


def test_stages_that_are_gone_publish_nothing() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.create("other")
            cluster.show()
            async with cluster.nodes[TWO].client() as client:
                one = await stage(client, batch_of(b"a"))
                two = await stage(client, batch_of(b"b"))
                assert await client.ask(Discard(TOPIC, (one,))) == Done()
                refused = await client.refusal(Publish(TOPIC, "w", 1, (two, one)))
                assert refused.error == "StageExpired"
                refused = await client.refusal(Publish(TOPIC, "w", 1, (two, 99)))
                assert refused.error == "StageExpired"
                refused = await client.refusal(Publish("other", "w", 1, (two,)))
                assert refused.error == "BadOption"
                assert values(cluster) == []
                answer = await client.ask(Publish(TOPIC, "w", 1, (two,)))
                assert answer == Published(1, duplicate=False)

    run(main())


def test_stages_expire_but_not_those_that_a_publication_needs() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            publishing = cluster.nodes[ONE].gateway.parts.publishing
            for node in cluster.nodes.values():
                node.replicas.refuse = lambda stream, _: (
                    Interruption("died") if stream in (1, 2) else None
                )
            async with cluster.nodes[ONE].client() as client:
                await stage(client, batch_of(b"never published"))
                assert isinstance(await client.ask(request), Refused)
                await publishing._expire(0.0)
                topic = cluster.engine.find_topic(STAGE_TOPIC)
                assert cluster.engine.first_available(topic) == min(request.stages)
                for node in cluster.nodes.values():
                    node.replicas.refuse = lambda *_: None
                assert await client.ask(request) == Published(5, duplicate=True)
                await publishing._expire(0.0)
                assert cluster.engine.first_available(topic) == 5
                refused = await client.refusal(Publish(TOPIC, "w", 1, (4,)))
                assert refused.error == "StageExpired"

    run(main())


@pytest.mark.parametrize("status", [StreamStatus.SEALING, StreamStatus.SEALED])
def test_a_publication_for_a_sealed_stream_is_refused_before_it_is_begun(
    status: StreamStatus,
) -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            for node in cluster.nodes.values():
                node.replicas.refuse = seals(2)
            cluster.statuses[StreamId(2)] = status
            cluster.show()
            async with cluster.nodes[ONE].client() as client:
                refused = await client.refusal(request)
                assert refused.error == Sealed.__name__
                assert "unseal it" in refused.message
                only_one = await stage(client, batch_of(b"x"))
                answer = await client.ask(Publish(TOPIC, "writer", 2, (only_one,)))
                assert answer == Published(1, duplicate=False), "nothing was begun before"
                open_all(cluster)
                again = Publish(TOPIC, "writer", 3, request.stages)
                assert await client.ask(again) == Published(5, duplicate=False)

    run(main())


def test_a_publication_that_a_seal_interrupts_is_not_told_to_be_nothing() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            for node in cluster.nodes.values():
                node.replicas.refuse = seals(2)  # No view tells of it yet.
            async with cluster.nodes[ONE].client() as client:
                refused = await client.refusal(request)
                assert refused.error == PartlyAppended.__name__
                assert "stream 2 is sealed" in refused.message
                assert values(cluster) == [b"a", b"e"]
                following = await stage(client, batch_of(b"f"))
                after = Publish(TOPIC, "writer", 2, (following,))
                refused = await client.refusal(after)
                assert refused.error == PartlyAppended.__name__
                assert "batch 1 of this writer" in refused.message
                open_all(cluster)
                assert await client.ask(after) == Published(1, duplicate=False)
                assert await client.ask(request) == Published(0, duplicate=True)
            assert sorted(values(cluster)) == [b"a", b"b", b"c", b"d", b"e", b"f"]

    run(main())


def test_a_publication_is_in_doubt_if_its_leader_is_lost_before_it_is_noted_as_done() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            request = await staged_publication(cluster)
            (notes,) = cluster.engine.find_topic(PUBLISH_TOPIC).streams

            def depose(stream: StreamId, _: int) -> LogError | None:
                if stream != notes or not values(cluster):
                    return None
                cluster.leaders[StreamId(notes)] = NO_NODE
                return NotLeader("deposed")

            cluster.nodes[ONE].replicas.refuse = depose
            async with cluster.nodes[ONE].client() as client:
                refused = await client.refusal(request, timeout_ms=500)
                assert not error_of(refused).definite, refused
            assert len(values(cluster)) == 5

    run(main())


async def publications_of_two(
    cluster: FakeCluster, held_up: bytes, interrupted: bytes, versions: str = "log"
) -> int:
    """Two writers have begun; the first one is held up by log stream 2: returns its stage."""

    def refuse(stream: StreamId, _: int) -> LogError | None:
        return {1: Interruption("died"), 2: Sealed("stream 2 is sealed")}.get(stream)

    cluster.create(TOPIC, streams=2, versions=versions)
    cluster.create(STAGE_TOPIC)
    cluster.create(PUBLISH_TOPIC)
    lead(cluster, PUBLISH_TOPIC, ONE)
    for node in cluster.nodes.values():
        node.replicas.refuse = refuse
    async with cluster.nodes[ONE].client() as client:
        await stage(client, interrupted)  # And never published.
        first = await stage(client, held_up, streams=(2,))
        second = await stage(client, interrupted, streams=(1,))
        for writer, one in (("a", first), ("b", second)):
            assert isinstance(await client.ask(Publish(TOPIC, writer, 1, (one,))), Refused)
    for node in cluster.nodes.values():
        node.replicas.refuse = seals(2)
    return first


def test_a_publication_that_a_sealed_stream_holds_up_keeps_neither_others_nor_stages() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            first = await publications_of_two(cluster, batch_of(b"a"), batch_of(b"b"))
            publishing = cluster.nodes[ONE].gateway.parts.publishing
            with pytest.raises(PartlyAppended, match="stream 2 is sealed"):
                await publishing.tend(0.0)
            assert values(cluster) == [b"b"]
            topic = cluster.engine.find_topic(STAGE_TOPIC)
            assert cluster.engine.first_available(topic) == first, "it is needed still"
            open_all(cluster)
            await publishing.tend(0.0)
            assert sorted(values(cluster)) == [b"a", b"b"]
            assert cluster.engine.first_available(topic) == first + 2

    run(main())


def test_publications_that_nobody_leads_hold_up_neither_others_nor_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are tried for as long as they may be; meanwhile all else goes on."""
    monkeypatch.setattr(publishing_module, "_FINISH_SECONDS", 0.2)
    writers = ("a", "b", "c")

    def refuse(stream: StreamId, _: int) -> LogError | None:
        return {1: Interruption("died"), 2: Sealed("sealed")}.get(stream)

    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.create(STAGE_TOPIC)
            cluster.create(PUBLISH_TOPIC)
            lead(cluster, PUBLISH_TOPIC, ONE)
            for node in cluster.nodes.values():
                node.replicas.refuse = refuse
            async with cluster.nodes[ONE].client() as client:
                await stage(client, batch_of(b"never published"))
                stages = [await stage(client, batch_of(b"2"), streams=(2,)) for _ in writers]
                stages.append(await stage(client, batch_of(b"1")))
                for writer, one in zip((*writers, "last"), stages, strict=True):
                    assert isinstance(await client.ask(Publish(TOPIC, writer, 1, (one,))), Refused)
            for node in cluster.nodes.values():
                node.replicas.refuse = nobody_leads(2)
            publishing = cluster.nodes[ONE].gateway.parts.publishing
            tending = asyncio.create_task(publishing.tend(0.0))
            await until(lambda: values(cluster) == [b"1"], "the last one is finished")
            await tending
            topic = cluster.engine.find_topic(STAGE_TOPIC)
            assert cluster.engine.first_available(topic) == stages[0], "it is needed still"
            open_all(cluster)
            await until(lambda: values(cluster) == [b"1", *[b"2"] * 3], "all are finished")

    run(main())


def test_a_step_that_takes_too_long_gives_its_place_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing_module, "_STEP_SECONDS", 0.2)

    async def main() -> None:
        async with cluster_of(2) as cluster:
            await publications_of_two(cluster, batch_of(b"a"), batch_of(b"b"))
            for node in cluster.nodes.values():
                node.replicas.refuse = nobody_leads(2)
            publishing = cluster.nodes[ONE].gateway.parts.publishing
            with pytest.raises(DeadlineExceeded, match="finished later"):
                await asyncio.wait_for(publishing.tend(0.0), WAIT_SECONDS)
            assert values(cluster) == [b"b"]
            open_all(cluster)
            await publishing.tend(0.0)
            assert values(cluster) == [b"b", b"a"]

    run(main())


def nobody_leads(stream: int) -> Callable[[StreamId, int], LogError | None]:
    return lambda one, _: NotLeader(f"nobody leads {stream}") if one == stream else None


def test_a_boundary_waits_for_what_is_held_up_but_keeps_nobody_else() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            held_up, interrupted = (
                sealed(encode_entries([Entry(Kind.PUT, key, key, 0, 7, 1)]))
                for key in (b"k", b"d")  # Of log streams 2 and 1.
            )
            await publications_of_two(cluster, held_up, interrupted, "explicit")
            boundary = SetGcBoundary(TOPIC, (9).to_bytes(16))
            async with cluster.nodes[ONE].client() as client:
                refused = await client.refusal(boundary)
                assert "stream 2 is sealed" in refused.message
                assert values(cluster) == [b"d"], "of the other writer"
                open_all(cluster)
                assert await client.ask(boundary) == Done()
                assert values(cluster) == [b"d", b"k"]

    run(main())


def seals(sealed_stream: int) -> Callable[[StreamId, int], LogError | None]:
    """What refuses appends to this log stream."""
    return lambda stream, _: (
        Sealed(f"stream {stream} is sealed") if stream == sealed_stream else None
    )


def open_all(cluster: FakeCluster) -> None:
    cluster.statuses.clear()
    for node in cluster.nodes.values():
        node.replicas.refuse = lambda *_: None
    cluster.show()


def test_no_boundary_moves_over_what_is_to_be_published() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, versions="explicit")
            cluster.show()
            put = sealed(encode_entries([Entry(Kind.PUT, b"v", b"k", 0, 7, 1)]))
            async with cluster.nodes[TWO].client() as client:
                one = await stage(client, put)
                replicas = cluster.nodes[ONE].replicas
                replicas.refuse = lambda stream, _: Interruption("died") if stream == 1 else None
                request = Publish(TOPIC, "w", 1, (one,))
                assert isinstance(await client.ask(request), Refused)
                replicas.refuse = lambda *_: None
                boundary = SetGcBoundary(TOPIC, (9).to_bytes(16))
                assert await client.ask(boundary) == Done()
                assert values(cluster) == [b"v"], "it was finished first"
                stale = await stage(client, put)
                refused = await client.refusal(Publish(TOPIC, "w", 2, (stale,)))
                assert refused.error == "StaleWrite"
                put = sealed(encode_entries([Entry(Kind.PUT, b"w", b"k", 0, 10, 1)]))
                fresh = await stage(client, put)
                answer = await client.ask(Publish(TOPIC, "w", 2, (fresh,)))
                assert answer == Published(1, duplicate=False), "nothing was begun before"

    run(main())


def test_tending_goes_on_when_a_node_moves_while_it_is_dialled() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, black_hole() as hole:
            cluster.create(TOPIC)
            cluster.create(STAGE_TOPIC)
            cluster.create(PUBLISH_TOPIC)
            lead(cluster, PUBLISH_TOPIC, ONE)
            for stream in cluster.engine.find_topic(STAGE_TOPIC).streams:
                cluster.place(stream, [TWO])
            gateway = cluster.nodes[ONE].gateway
            async with cluster.nodes[ONE].client() as client:
                one = await stage(client, batch_of(b"a"))
                with patch.object(gateway.parts.cluster, "address", lambda _: hole.address):
                    gateway._tend_now.set()
                    await until(lambda: hole.callers > 0, "the stages are asked for")
                gateway.parts.peers.peer(TWO)  # Somebody else asks for it where it is now.
                answer = await client.ask(Publish(TOPIC, "w", 1, (one,)))
                assert answer == Published(1, duplicate=False)
            gateway._tend_now.set()
            topic = cluster.engine.find_topic(STAGE_TOPIC)
            await until(lambda: cluster.engine.first_available(topic) == one + 1, "it is trimmed")

    run(main())


@pytest.mark.parametrize("asked", [ONE, TWO])
def test_tending_by_the_clock_trims_what_is_done_with(asked: NodeId) -> None:
    options = replace(QUICK, stage_check_seconds=0.05)

    async def main() -> None:
        async with cluster_of(2, options=options) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            async with cluster.nodes[asked].client() as client:
                one = await stage(client, batch_of(b"a"))
                answer = await client.ask(Publish(TOPIC, "w", 1, (one,)))
                assert answer == Published(1, duplicate=False)
                topic = cluster.engine.find_topic(STAGE_TOPIC)
                await until(
                    lambda: cluster.engine.first_available(topic) == one + 1, "it is trimmed"
                )

    run(main())
