"""Reads of a cluster: whichever node answers, nothing is missed and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.client.fake_nodes import FakeCluster, HangUp, Refuse
from tests.client.test_cluster_errors import until, with_cluster
from tidelog import AsyncRemoteLog
from tidelog.client import pages
from tidelog.errors import (
    ConnectionLost,
    LeaderLost,
    LogError,
    NotLeader,
    OutOfRange,
    RevisionConflict,
    Unreachable,
)
from tidelog.formats.messages import Get, NamedPosition, ReadPage
from tidelog.interface.records import Record


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CLUSTER_WAIT_SECONDS", 0.03)
    monkeypatch.setattr(pages, "BEHIND_SECONDS", 0.01)


async def take(records: AsyncIterator[Record], number: int) -> list[int]:
    """The GLSNs of the next records."""
    return [(await anext(records)).glsn for _ in range(number)]


async def fill(log: AsyncRemoteLog, number: int) -> None:
    for value in range(number):
        await log.append(b"%d" % value)


def test_a_subscriber_survives_the_death_of_its_node() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await fill(log, 5)
        records = log.subscribe(1)
        assert await take(records, 5) == [1, 2, 3, 4, 5]
        waiting = asyncio.create_task(take(records, 5))
        await until(lambda: any(isinstance(one, ReadPage) for one in cluster.nodes[0].asked))
        cluster.lead(1)
        await cluster.nodes[0].stop()
        await fill(log, 5)
        assert await waiting == [6, 7, 8, 9, 10]

    with_cluster(work)


def test_a_node_that_is_behind_is_left() -> None:
    """It answers, but is cut off from the others: it would wait for ever."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].reach = 3
        await fill(log, 6)
        assert await take(log.subscribe(1), 6) == [1, 2, 3, 4, 5, 6]
        cluster.nodes[1].reach = 6
        await fill(log, 2)
        cluster.nodes[0].reach = None
        assert [record.glsn async for record in log.read()] == list(range(1, 9))

    with_cluster(work)


def test_a_node_that_catches_up_is_waited_for() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for node in cluster.nodes:
            node.reach = 2
        await fill(log, 4)
        reading = asyncio.create_task(take(log.read(1, 5), 4))
        await until(lambda: sum(isinstance(one, ReadPage) for one in cluster.nodes[0].asked) > 2)
        assert not reading.done()
        for node in cluster.nodes:
            node.reach = None
            node.woken.set()
        assert await reading == [1, 2, 3, 4]

    with_cluster(work)


def test_a_range_that_no_node_reaches_is_told_in_the_end() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await fill(log, 2)
        with pytest.raises(OutOfRange):
            await take(log.read(1, 5), 1)
        reader = log.open_pages(1, 5)
        reader._seconds = 0.05
        assert await reader.next_page() is not None
        with pytest.raises(OutOfRange, match="has not reached GLSN 4"):
            await reader.next_page()
        reader.close()

    with_cluster(work)


@pytest.mark.parametrize(
    "error",
    [NotLeader(""), Unreachable(""), ConnectionLost(""), LeaderLost("")],
    ids=lambda error: type(error).__name__,
)
def test_reads_are_asked_again_when_a_node_cannot_answer(error: LogError) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await fill(log, 1)
        failures = count()

        def handle() -> None:
            if next(failures) < 3:
                raise error
            raise OutOfRange("for good")

        for node in cluster.nodes:
            node.on_read = handle
        with pytest.raises(OutOfRange, match="for good"):
            await take(log.subscribe(1), 1)

    with_cluster(work)


def test_one_log_stream_is_followed_by_itself() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for number in range(9):
            await log.append(b"%d" % number, stream=1 + number % 3)
        records = [record async for record in log.subscribe_to(2, 1, timeout=0.05)]
        assert [(one.stream, one.glsn) for one in records] == [(2, 2), (2, 5), (2, 8)]

    with_cluster(work, streams=3)


def test_others_do_not_keep_a_subscriber_of_one_log_stream_waiting() -> None:
    """Its time is for records of its own log stream."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        async def chatter() -> None:
            for number in count():
                await log.append(b"%d" % number, stream=1)

        others = asyncio.create_task(chatter())
        assert [record async for record in log.subscribe_to(2, 1, timeout=0.05)] == []
        others.cancel()

    with_cluster(work, streams=2)


def test_a_log_stream_is_read_from_a_node_that_has_it() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a", stream=1)
        await log.append(b"b", stream=2)
        for _ in range(3):
            await until(lambda: log.session.pool.reading("default", (2,)).endpoint is not None)
            async for _page in log.read_pages(1, 3, streams=(2,)):
                pass
        asked = [one for one in cluster.nodes[1].asked if isinstance(one, ReadPage)]
        assert asked
        assert all(one.streams == (2,) for one in asked)
        await cluster.nodes[1].stop()
        found = [page async for page in log.read_pages(1, 3, streams=(2,))]
        assert [stream for page in found for stream, _ in page] == [2]

    def place(cluster: FakeCluster) -> None:
        cluster.streams[1].replicas = (0,)
        cluster.streams[2].replicas = (1,)

    with_cluster(work, streams=2, prepare=place)


def test_a_key_is_looked_up_at_its_leader() -> None:
    """Only there is everything that was acknowledged."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(1)
        await log.append(b"a")
        await until(lambda: log.session.pool.towards("default", 1, 0) is not log.session.channel)
        assert await log.get(b"k") is None
        assert any(isinstance(request, Get) for request in cluster.nodes[1].asked)
        await cluster.nodes[1].stop()
        assert await log.get(b"k") is None

    with_cluster(work)


# -- named positions ------------------------------------------------------------------------------


def test_a_position_is_stored_by_whoever_saw_the_last_one() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        assert await log.position_of("reader") == NamedPosition(0, 0)
        stored = await log.store_position("reader", 7, expected=0)
        assert stored == NamedPosition(7, 1)
        with pytest.raises(RevisionConflict):
            await log.store_position("reader", 8, expected=0)
        assert await log.position_of("reader") == stored

    with_cluster(work)


def test_a_position_whose_answer_was_lost_is_stored_once() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(HangUp(took=True))
        assert await log.store_position("reader", 7, expected=0) == NamedPosition(7, 1)
        cluster.nodes[0].script.append(HangUp(took=True))
        cluster.nodes[1].script.append(HangUp(took=True))
        assert await log.store_position("reader", 9, expected=1) == NamedPosition(9, 2)

    with_cluster(work)


def test_somebody_elses_position_is_not_taken_for_a_lost_answer() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(Refuse(LeaderLost("deposed")))
        cluster.positions["reader"] = NamedPosition(3, 1)
        with pytest.raises(RevisionConflict):
            await log.store_position("reader", 7, expected=0)

    with_cluster(work)
