"""What no node would read is refused before it is sent, and holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import tidelog
from tests.client.fake_nodes import FakeCluster
from tests.client.served import Node
from tests.client.test_cluster_errors import with_cluster
from tests.client.test_flow import DESCRIBE, channel_to, with_log
from tidelog import AsyncRemoteLog
from tidelog.client.channel import Channel
from tidelog.client.link import Reply
from tidelog.errors import BadOption, BatchTooLarge, ConnectionLost
from tidelog.formats.messages import FindTime, Get, GetPosition, Request
from tidelog.limits import (
    ATTACHMENT_BYTES_MAX,
    IN_FLIGHT_REQUESTS_MAX,
    MESSAGE_BYTES_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from tidelog.net.loops import run

WAIT_SECONDS = 30.0
UNREADABLE: dict[str, tuple[str, Callable[[AsyncRemoteLog], Awaitable[Any]]]] = {
    "a long topic": ("topic", lambda log: log.topic("t" * (TOPIC_NAME_CHARS_MAX + 1))),
    "a long name": ("name", lambda log: log.position_of("p" * 5_000)),
    "no text": ("surrogates", lambda log: log.position_of("\ud800")),
    "a long key": (str(MESSAGE_BYTES_MAX), lambda log: log.get(bytes(MESSAGE_BYTES_MAX))),
    "many streams": ("streams", lambda log: anext(log.read_arrow(streams=range(5_000)))),
    "a long writer": ("writer", lambda log: log.publish("w" * 5_000, 1, [])),
    "many stages": ("stages", lambda log: log.publish("w", 1, range(70_000))),
    "a negative stage": ("stages", lambda log: log.discard([-1])),
    "no number": ("sequence", lambda log: log.append(b"a", producer="p", sequence=True)),
    "a late time": ("64 bits", lambda log: log.find_time(1 << 70)),
}


@pytest.mark.parametrize(("told", "call"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_no_node_would_read_is_told_at_once_and_costs_nobody_the_connection(
    served: Node, told: str, call: Callable[[AsyncRemoteLog], Awaitable[Any]]
) -> None:
    async def work(log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        link = log.session.channel.link
        with pytest.raises(BadOption, match=told):
            await call(log)
        assert (await log.append(b"b")).glsn == 2
        assert log.session.channel.link is link

    with_log(served, work)


def test_more_than_a_frame_holds_is_told_at_once(served: Node) -> None:
    async def work(log: AsyncRemoteLog) -> None:
        link = log.session.channel.link
        with pytest.raises(BatchTooLarge, match=str(ATTACHMENT_BYTES_MAX)):
            await log.offer_plan(bytes(ATTACHMENT_BYTES_MAX + 1))
        await log.append(b"a")
        assert log.session.channel.link is link

    with_log(served, work)


@pytest.mark.parametrize("stream", [True, 1.0, np.int64(1)], ids=repr)
def test_a_log_stream_that_only_looks_like_one_is_refused_by_the_call(
    served: Node, stream: int
) -> None:
    with tidelog.connect(served.url) as log, log.appender() as appender:
        assert stream in log.streams
        for call in (
            lambda: log.append(b"v", stream=stream),
            lambda: log.append_batch([b"v"], stream=stream),
            lambda: log.append(b"v", stream=stream, producer="p", sequence=1),
            lambda: appender.append(b"v", stream=stream),
            lambda: appender.append_batch([b"v"], stream=stream),
        ):
            with pytest.raises(BadOption, match="log stream"):
                call()
        assert appender.append(b"a", stream=1).result(WAIT_SECONDS).glsn == 1


def test_whoever_waits_for_ever_is_served_like_all_others(served: Node) -> None:
    async def work(log: AsyncRemoteLog) -> None:
        for_ever = float("inf")
        await log.append(b"a", timeout=for_ever)
        await log.append(b"b", timeout=for_ever, producer="p", sequence=1)
        await log.trim(2, timeout=for_ever)
        async with await tidelog.connect_async(served.url, timeout=for_ever) as other:
            assert (await other.append(b"c")).glsn == 3

    with_log(served, work)


# -- places (K2) ----------------------------------------------------------------------------------


async def fail_often(channel: Channel, request: Request, *, seconds: float) -> None:
    for _ in range(3 * IN_FLIGHT_REQUESTS_MAX):
        with pytest.raises((BadOption, OverflowError)):
            await channel.ask(request, seconds=seconds)


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [
        (FindTime("default", 1 << 70), WAIT_SECONDS),
        (GetPosition("default", "p" * 5_000), WAIT_SECONDS),
        (DESCRIBE, float("inf")),
    ],
    ids=["not encoded", "not read", "no header"],
)
def test_what_cannot_be_sent_takes_no_place_on_the_connection(
    served: Node, request_: Request, seconds: float
) -> None:
    async def main() -> None:
        async with channel_to(served.url) as channel:
            await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
            link = channel.link
            await fail_often(channel, request_, seconds=seconds)
            await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
            assert channel.link is link

    run(main())


def test_a_link_tells_nobody_of_a_request_that_it_did_not_take(served: Node) -> None:
    async def main() -> None:
        told: list[Reply | None] = []
        async with channel_to(served.url) as channel:
            await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
            link = channel.link
            assert link is not None
            with pytest.raises(OverflowError):
                link.post(FindTime("default", 1 << 70), told.append)
            await channel.close()
            await link.wait_closed()
        assert told == []

    run(main())


# -- what a node does not read all the same -------------------------------------------------------


def test_a_request_that_a_node_does_not_read_ends_few_connections() -> None:
    """Of another release, which has tighter bounds."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.unreadable = (Get,)
        appends = [asyncio.create_task(log.append(b"%d" % number)) for number in range(10)]
        with pytest.raises(ConnectionLost, match="not a request"):
            await log.get(b"k")
        assert [(await append).glsn for append in appends] == list(range(1, 11))
        connections = node.connections
        await log.append(b"a")
        assert node.connections <= max(connections, 4) <= 4

    with_cluster(work, nodes=1)
