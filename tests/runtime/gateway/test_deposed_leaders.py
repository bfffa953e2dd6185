"""A leader that was deposed, or was just elected, knows less than clients were told: it looks what
there is before it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from tests.runtime.gateway.fake_cluster import FakeCluster, FakeNode, cluster_of
from tests.server.raw import RawClient, page_records, run, sealed, until
from tidelog.formats.batch import encode_puts
from tidelog.formats.messages import (
    Answer,
    AppendBatches,
    Get,
    GetPosition,
    NamedPosition,
    Page,
    Receipts,
    Request,
    SetPosition,
)
from tidelog.formats.stored_positions import POSITIONS_TOPIC
from tidelog.types import NodeId, StreamId

TOPIC = "events"
ONE, TWO = NodeId(1), NodeId(2)


async def put(client: RawClient, value: bytes) -> None:
    batch = sealed(encode_puts([b"k"], [value], timestamp_us=1))
    assert isinstance(await client.ask(AppendBatches(TOPIC, (1,)), batch), Receipts)


@contextmanager
def ignorant(cluster: FakeCluster, topic: str) -> Iterator[FakeNode]:
    """A leader to which the last cut of a topic did not come."""
    node = cluster.nodes[ONE]
    known = cluster.engine.find_topic(topic)
    ends = {stream: node.replicas.ordered_end(StreamId(stream)) - 1 for stream in known.streams}
    node.replicas.lag[known.topic] = 1
    with patch.object(node.replicas, "ordered_end", ends.__getitem__):
        yield node


def learn(cluster: FakeCluster, node: FakeNode) -> None:
    """The cut comes after all."""
    node.replicas.lag.clear()
    cluster.tell()


async def late_answer(
    cluster: FakeCluster, node: FakeNode, client: RawClient, request: Request
) -> tuple[Answer, memoryview]:
    """What it answers when it has asked what there is, and has heard of that."""
    reads = node.metadata.reads
    answering = asyncio.create_task(client.answer(client.send(request)))
    await until(
        lambda: node.metadata.reads > reads or answering.done(), "it asks what there is, or not"
    )
    is_early = answering.done()
    learn(cluster, node)
    answer = await answering
    assert not is_early, f"it answered {answer[0]} without asking"
    return answer


def test_a_key_is_looked_up_behind_all_that_clients_were_told() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            async with cluster.nodes[TWO].client() as client:
                await put(client, b"old")
                await put(client, b"new")
                with ignorant(cluster, TOPIC) as node:
                    request = Get(TOPIC, b"k", 0)
                    answer, attachment = await late_answer(cluster, node, client, request)
                assert isinstance(answer, Page)
                assert [one.value for one in page_records(answer, attachment)] == [b"new"]

    run(main())


def test_who_cannot_tell_what_there_is_looks_up_no_key() -> None:
    async def main() -> None:
        async with cluster_of(1) as cluster:
            cluster.create(TOPIC)
            cluster.show()
            node = cluster.nodes[ONE]
            async with node.client() as client:
                await put(client, b"value")
                node.metadata.is_cut_off = True
                assert (await client.refusal(Get(TOPIC, b"k", 0))).error == "Unreachable"

    run(main())


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (GetPosition(TOPIC, "reader"), NamedPosition(20, 2)),
        (SetPosition(TOPIC, "reader", 30, 2), NamedPosition(30, 3)),
    ],
    ids=["answered", "refused"],
)
def test_no_position_is_answered_or_refused_by_what_was_true_once(
    request_: Request, expected: NamedPosition
) -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster:
            cluster.create(TOPIC)
            cluster.create(POSITIONS_TOPIC)
            cluster.show()
            async with cluster.nodes[ONE].client() as client:
                await client.ask(SetPosition(TOPIC, "reader", 10, 0))
                await client.ask(SetPosition(TOPIC, "reader", 20, 1))
                with ignorant(cluster, POSITIONS_TOPIC) as node:
                    answer, _ = await late_answer(cluster, node, client, request_)
                assert answer == expected

    run(main())
