"""Reads of a cluster: whichever node is asked, the same comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.gateway.fake_cluster import FakeCluster, FakeNode, cluster_of
from tests.server.raw import RawClient, page_records, run, sealed, until
from tidelog.embedded.pages import EnginePage, read_page
from tidelog.embedded.reader import read_range
from tidelog.errors import CorruptData
from tidelog.formats.batch import encode_puts, encode_values
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import (
    AppendBatches,
    Describe,
    FindEnd,
    FindTime,
    Get,
    Number,
    Page,
    Position,
    ReadPage,
    Receipts,
    TopicDescription,
    Trim,
)
from tidelog.interface.records import Record
from tidelog.runtime.gateway import local_reads
from tidelog.runtime.gateway.local_log import LocalLog
from tidelog.types import NodeId

TOPIC = "events"
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


async def fill(client: RawClient, count: int, streams: int = 1) -> None:
    for number in range(count):
        await client.append(b"%d" % number, topic=TOPIC, stream=number % streams + 1)


async def read_all(client: RawClient, *, end: int = 0, bytes_max: int = 0) -> list[Record]:
    """Page by page, as readers do."""
    records: list[Record] = []
    begin = 1
    while True:
        page, found = await client.page(ReadPage(TOPIC, begin, end, (), bytes_max))
        assert page.glsn_begin == begin
        assert all(begin <= record.glsn < page.glsn_end for record in found)
        records += found
        if page.glsn_end in (begin, end):
            return records
        begin = page.glsn_end


def whole(cluster: FakeCluster) -> list[Record]:
    engine = cluster.engine
    topic = engine.find_topic(TOPIC)
    return list(read_range(engine, topic, 1, engine.high_watermark(topic.topic) + 1))


PLACES = st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3, unique=True)
BATCH = st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(0, 200))


@given(
    placed=st.tuples(PLACES, PLACES, PLACES),
    batches=st.lists(BATCH, min_size=1, max_size=12),
    asked=st.sampled_from([ONE, TWO, THREE]),
    bytes_max=st.sampled_from([1, 300, 2_000, 0]),
    flush_at=st.integers(0, 12),
)
@settings(max_examples=25, deadline=None)
def test_a_page_of_several_nodes_is_the_page_of_one_that_has_all(
    placed: tuple[list[int], list[int], list[int]],
    batches: list[tuple[int, int, int]],
    asked: NodeId,
    bytes_max: int,
    flush_at: int,
) -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=3)
            for stream, hosts in enumerate(placed, start=1):
                cluster.place(stream, hosts)
            async with cluster.nodes[asked].client() as client:
                for number, (stream, count, size) in enumerate(batches):
                    if number == flush_at:
                        cluster.engine.roll()
                        cluster.engine.maintenance.flush_rolled()
                    values = [b"%d-%d" % (number, each) + bytes(size) for each in range(count)]
                    await client.append(*values, topic=TOPIC, stream=stream)
                assert await read_all(client, bytes_max=bytes_max) == whole(cluster)

    run(main())


def test_a_page_ends_where_the_first_of_its_parts_ends() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [2])
            cluster.place(2, [3])
            async with cluster.nodes[ONE].client() as client:
                for number in range(6):
                    await client.append(b"large" * 500, topic=TOPIC, stream=1)
                    await client.append(b"%d" % number, topic=TOPIC, stream=2)
                assert await read_all(client, bytes_max=3_000) == whole(cluster)

    run(main())


def test_a_page_is_fetched_from_another_node_when_the_leader_cannot_be_reached() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(2, [2, 3])
            async with cluster.nodes[ONE].client() as client:
                await fill(client, 10, streams=2)
                await cluster.nodes[TWO].gateway.stop()
                assert await read_all(client) == whole(cluster)
                await cluster.nodes[THREE].gateway.stop()
                refused = await client.refusal(ReadPage(TOPIC, 1))
                assert refused.error == "Unreachable"

    run(main())


def test_a_stream_that_its_nodes_have_not_heard_of_yet_is_worth_another_try() -> None:
    """A reader that hears of a new log stream before its hosts do goes on when they have."""

    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2])
            async with cluster.nodes[ONE].client() as client:
                await fill(client, 1)
                with patch.object(cluster.nodes[TWO].replicas, "readable_end", lambda *_: None):
                    refused = await client.refusal(ReadPage(TOPIC, 1))
                    assert refused.error == "Unreachable"
                assert await read_all(client) == whole(cluster)

    run(main())


@contextmanager
def damaged(node: FakeNode, stream: int) -> Iterator[None]:
    """A stream cannot be read on a node."""
    local = node.gateway.parts.local_reads
    logs: list[LocalLog] = []
    view = local.view

    def noted(topic: TopicManifest, high: int) -> LocalLog:
        logs.append(view(topic, high))
        return logs[-1]

    def read(log: LocalLog, topic: TopicManifest, begin: int, end: int, *rest: Any) -> EnginePage:
        if log in logs and stream in (rest[0] or topic.streams):
            raise CorruptData("bits have flipped")
        return read_page(log, topic, begin, end, *rest)

    with patch.object(local, "view", noted), patch.object(local_reads, "read_page", read):
        yield


def test_what_is_damaged_here_is_told_and_read_elsewhere() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.show()
            node = cluster.nodes[ONE]

            async with node.client() as client:
                await fill(client, 6, streams=2)
                with damaged(node, stream=2):
                    assert await read_all(client, end=7) == whole(cluster)
            assert node.replicas.damaged == [2]
            assert cluster.nodes[TWO].replicas.damaged == []

    run(main())


def test_a_read_waits_for_what_its_node_has_not_heard_of_yet() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            topic = cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[TWO]
            async with cluster.nodes[ONE].client() as writer, node.client() as client:
                await fill(writer, 5)
                node.replicas.lag[topic.topic] = 2
                number = client.send(ReadPage(TOPIC, 5, 6))
                await until(lambda: node.metadata.reads > 0, "it is waited for")
                node.replicas.lag.clear()
                cluster.tell()
                answer, attachment = await client.answer(number)
                assert isinstance(answer, Page)
                assert [record.value for record in page_records(answer, attachment)] == [b"4"]

    run(main())


def test_what_a_replica_does_not_get_is_fetched_from_the_leader() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            topic = cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[TWO]
            async with cluster.nodes[ONE].client() as writer, node.client() as client:
                await fill(writer, 5)
                node.replicas.lag[topic.topic] = 2
                assert await read_all(client, end=6) == whole(cluster)

    run(main())


@pytest.mark.parametrize("hosts", [[1, 2], [2]], ids=["here", "elsewhere"])
def test_a_read_at_the_end_waits_for_something_to_come(hosts: list[int]) -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, hosts)
            cluster.place(2, [1])
            node = cluster.nodes[ONE]
            async with node.client() as client, node.client() as writer:
                number = client.send(ReadPage(TOPIC, 1, wait_ms=10_000))
                await until(lambda: bool(node.gateway.parts.tides._waiters), "it waits")
                await writer.append(b"x", topic=TOPIC, stream=1)
                answer, attachment = await client.answer(number)
                assert isinstance(answer, Page)
                assert [record.value for record in page_records(answer, attachment)] == [b"x"]

    run(main())


def test_a_reader_waits_where_all_that_can_be_asked_are_behind_it() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            topic = cluster.create(TOPIC)
            cluster.place(1, [2])
            node = cluster.nodes[TWO]
            async with cluster.nodes[ONE].client() as client:
                await fill(client, 5)
                node.replicas.lag[topic.topic] = 3
                page, records = await client.page(ReadPage(TOPIC, 5, wait_ms=50))
                assert (page.glsn_begin, page.glsn_end, records) == (5, 5, [])
                node.replicas.lag.clear()
                page, [record] = await client.page(ReadPage(TOPIC, 5, wait_ms=50))
                assert (page.glsn_end, record.value) == (6, b"4")

    run(main())


def test_a_read_that_waited_in_vain_is_an_empty_page() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2])
            async with cluster.nodes[ONE].client() as client:
                page, records = await client.page(ReadPage(TOPIC, 1, wait_ms=50))
                assert (page.glsn_begin, page.glsn_end, records) == (1, 1, [])

    run(main())


def test_what_was_trimmed_is_told_by_every_node() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [1, 2])
            async with cluster.nodes[TWO].client() as client:
                await fill(client, 10)
                refused = await client.refusal(Trim(TOPIC, 12))
                assert refused.error == "OutOfRange"
                assert await client.ask(Trim(TOPIC, 5)) == Number(5)
            for node in cluster.nodes.values():
                async with node.client() as client:
                    refused = await client.refusal(ReadPage(TOPIC, 4, 5))
                    assert (refused.error, refused.first_available) == ("Trimmed", 5)
                    page, _ = await client.page(ReadPage(TOPIC, 5))
                    assert page.first_available == 5

    run(main())


def test_a_key_is_looked_up_where_it_is_led_or_else_where_it_is() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2, 3])
            async with cluster.nodes[ONE].client() as client:
                batch = sealed(encode_puts([b"k"], [b"v"], timestamp_us=1))
                assert isinstance(await client.ask(AppendBatches(TOPIC, (1,)), batch), Receipts)
                for _ in range(2):
                    answer, attachment = await client.answer(client.send(Get(TOPIC, b"k", 0)))
                    assert isinstance(answer, Page)
                    records = page_records(answer, attachment)
                    assert [record.value for record in records] == [b"v"]
                    await cluster.nodes[TWO].gateway.stop()

    run(main())


def test_a_key_is_found_as_soon_as_its_append_was_answered_be_it_stored_or_not() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            topic = cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[ONE]
            node.replicas.waits_to_be_asked = True
            async with node.client() as client:
                batch = sealed(encode_puts([b"k"], [b"v"], timestamp_us=1))
                assert isinstance(await client.ask(AppendBatches(TOPIC, (1,)), batch), Receipts)
                node.replicas.lag[topic.topic] = 1
                answer, attachment = await client.answer(client.send(Get(TOPIC, b"k", 0)))
                assert isinstance(answer, Page)
                assert [one.value for one in page_records(answer, attachment)] == [b"v"]
                assert not node.replicas.lag, "it was waited for"

    run(main())


def test_who_waits_at_the_end_has_what_was_ordered_stored_at_once() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            topic = cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[ONE]
            node.replicas.lag[topic.topic] = 1
            async with node.client() as client, node.client() as writer:
                number = client.send(ReadPage(TOPIC, 1, wait_ms=10_000))
                await until(lambda: bool(node.gateway.parts.tides._waiters), "it waits")
                node.replicas.waits_to_be_asked = True
                await writer.append(b"x", topic=TOPIC, stream=1)
                answer, attachment = await client.answer(number)
                assert isinstance(answer, Page)
                assert [one.value for one in page_records(answer, attachment)] == [b"x"]

    run(main())


def test_ends_and_times_are_found_over_all_streams() -> None:
    async def main() -> None:
        async with cluster_of(3) as cluster:
            cluster.create(TOPIC, streams=2)
            cluster.place(1, [1])
            cluster.place(2, [2])
            async with cluster.nodes[ONE].client() as client:
                for time in range(1, 11):
                    message = AppendBatches(TOPIC, (time % 2 + 1,))
                    batch = sealed(encode_values([b"x"], timestamp_us=time))
                    assert isinstance(await client.ask(message, batch), Receipts)
            for node in cluster.nodes.values():
                async with node.client() as client:
                    end = await client.ask(FindEnd(TOPIC, 1))
                    assert isinstance(end, Position)
                    assert (end.glsn, end.high_watermark) == (11, 10)
                    bounded = await client.ask(FindEnd(TOPIC, 3, records_max=4))
                    assert isinstance(bounded, Position)
                    assert bounded.glsn == 7
                    found = await client.ask(FindTime(TOPIC, 6))
                    assert isinstance(found, Position)
                    assert (found.glsn, found.high_watermark) == (6, 10)

    run(main())


def test_a_node_remembers_who_asked_where_to_go_on() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            async with cluster.nodes[ONE].client() as client:
                await client.append(b"x", topic=TOPIC)
                await client.ask(FindEnd(TOPIC, 2, reader="report"))
                await client.ask(FindEnd(TOPIC, 1))
                assert (await client.refusal(FindEnd(TOPIC, 9, reader="lost"))).error
            (heard,) = cluster.nodes[ONE].gateway.parts.audience.tell()
            assert (heard.topic, heard.name, heard.glsn) == (TOPIC, "report", 2)

    run(main())


def test_the_end_of_a_topic_is_that_of_the_cluster_and_not_of_a_lagging_node() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            topic = cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[TWO]
            node.replicas.lag[topic.topic] = 5
            async with cluster.nodes[ONE].client() as writer, node.client() as client:
                await fill(writer, 5)
                described = await client.ask(Describe(TOPIC))
                assert isinstance(described, TopicDescription)
                assert described.high_watermark == 5
                # Without the metadata repository a node tells what it knows itself.
                await fill(writer, 1)
                node.metadata.is_cut_off = True
                described = await client.ask(Describe(TOPIC))
                assert isinstance(described, TopicDescription)
                assert described.high_watermark == 5

    run(main())


def test_a_position_that_the_log_has_not_reached_is_told_as_such() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.place(1, [2])
            for node in cluster.nodes.values():
                async with node.client() as client:
                    refused = await client.refusal(ReadPage(TOPIC, 9))
                    assert refused.error == "OutOfRange"

    run(main())
