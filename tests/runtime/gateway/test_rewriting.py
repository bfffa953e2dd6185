"""Copies to the head of the log: made by leaders, and never of what was replaced meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

import pytest

from tests.runtime.gateway.fake_cluster import FakeCluster, cluster_of
from tests.server.raw import RawClient, run, sealed
from tidelog.embedded.reader import read_range
from tidelog.formats.batch import encode_entries
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import (
    AppendBatches,
    Number,
    Receipts,
    Rewrite,
    SetGcBoundary,
    TakeSnapshot,
)
from tidelog.interface.records import Record
from tidelog.types import NO_NODE, NodeId

T = TypeVar("T")
TOPIC = "events"
ONE, TWO = NodeId(1), NodeId(2)


async def write(client: RawClient, kind: Kind, key: bytes, version: int | None = None) -> None:
    value = b"v" if kind is Kind.PUT else b""
    batch = sealed(encode_entries([Entry(kind, value, key, 0, version, 1)]))
    assert isinstance(await client.ask(AppendBatches(TOPIC, (1,)), batch), Receipts)


def records(cluster: FakeCluster) -> list[Record]:
    topic = cluster.engine.find_topic(TOPIC)
    end = cluster.engine.high_watermark(topic.topic) + 1
    return list(read_range(cluster.engine, topic, 1, end))


def test_the_leader_copies_what_is_old_and_live() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[TWO].client() as client:
            cluster.create(TOPIC)
            cluster.show()
            for key in (b"a", b"b", b"a"):
                await write(client, Kind.PUT, key)
            await client.ask(TakeSnapshot(TOPIC))
            assert await client.ask(Rewrite(TOPIC, 10)) == Number(2)
            copies = [record for record in records(cluster) if record.rewritten]
            assert [(copy.key, copy.write_version) for copy in copies] == [(b"b", 2), (b"a", 3)]

    run(main())


@pytest.mark.parametrize("versions", ["log", "explicit"])
def test_what_is_deleted_while_copies_are_chosen_is_not_copied(versions: str) -> None:
    """Else a follower that has dropped the delete by then would show the key again."""

    async def main() -> None:
        async with cluster_of(1) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC, versions=versions)
            cluster.show()
            number = iter(range(1, 100)) if versions == "explicit" else None
            for key in (b"a", b"b"):
                await write(client, Kind.PUT, key, next(number) if number else None)
            if number:
                await client.ask(SetGcBoundary(TOPIC, (2).to_bytes(16)))
            await client.ask(TakeSnapshot(TOPIC))
            chores = cluster.nodes[ONE].gateway.parts.chores
            choose = chores.run
            deleted = False

            async def choose_slowly(call: Callable[[], T]) -> T:
                nonlocal deleted
                found = await choose(call)
                if not deleted:
                    deleted = True
                    await write(client, Kind.DELETE, b"a", next(number) if number else None)
                return found

            async with cluster.nodes[ONE].client() as another:
                with patch.object(chores, "run", choose_slowly):
                    assert await another.ask(Rewrite(TOPIC, 10)) == Number(1)
            copies = [record.key for record in records(cluster) if record.rewritten]
            assert copies == [b"b"]

    run(main())


def test_without_a_leader_nothing_is_copied() -> None:
    async def main() -> None:
        async with cluster_of(2) as cluster, cluster.nodes[ONE].client() as client:
            cluster.create(TOPIC)
            cluster.place(1, [1, 2], leader=NO_NODE)
            assert (await client.refusal(Rewrite(TOPIC, 10))).error == "NotLeader"

    run(main())
