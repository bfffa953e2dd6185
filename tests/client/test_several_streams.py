"""A call that touches several log streams has its place in each of them, whatever is under way.

What is held back here is held back for certain: an answer or a request that a proxy swallows, or an
append that the node refuses for now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelog
from tests.client.fake_nodes import Act, FakeCluster, HangUp, Hold, Refuse, Take, fake_cluster
from tests.client.proxy import Proxy, wait_until
from tests.client.served import Node
from tests.client.test_exactly_once import HASTY
from tidelog import AsyncRemoteLog, AsyncRemoteTopic
from tidelog.errors import (
    Busy,
    ConnectionLost,
    DiskFull,
    LogClosed,
    LogError,
    OutOfOrder,
    StaleWrite,
)
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.records import Receipt
from tidelog.interface.routing import stream_of_key
from tidelog.net.loops import run

WAIT_SECONDS = 30.0
STREAMS = 2
CALLS = ("put_batch", "write", "delete_storage")


def key_for(topic: AsyncRemoteTopic, stream: int) -> bytes:
    """A key that lies in a log stream."""
    keys = (b"%d" % number for number in range(1000))
    return next(key for key in keys if stream_of_key(topic.known.manifest, key) == stream)


async def on_all(topic: AsyncRemoteTopic, call: str = "put_batch") -> tuple[Receipt, ...]:
    """A call that touches all log streams."""
    keys = [key_for(topic, stream) for stream in topic.streams]
    match call:
        case "put_batch":
            return await topic.put_batch([(key, b"all") for key in keys])
        case "write":
            return await topic.write([Entry(Kind.PUT, b"all", key) for key in keys])
        case _:
            return await topic.delete_storage(7)


def with_proxy(
    node: Node, work: Callable[[Proxy, AsyncRemoteLog, AsyncRemoteTopic], Awaitable[None]]
) -> None:
    async def main() -> None:
        with Proxy(node.endpoints[0]) as proxy:
            async with (
                asyncio.timeout(WAIT_SECONDS),
                await tidelog.connect_async(proxy.url, reconnect=HASTY) as log,
            ):
                await work(proxy, log, await log.create_topic("several", streams=STREAMS))

    run(main())


def with_fake(work: Callable[[FakeCluster, AsyncRemoteLog], Awaitable[None]]) -> None:
    """On a single node, as far as the client is told."""

    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            fake_cluster(1, STREAMS, placed=False) as cluster,
            await tidelog.connect_async(cluster.url, reconnect=HASTY) as log,
        ):
            await work(cluster, log)

    run(main())


async def begun(call: Awaitable[object]) -> asyncio.Task[object]:
    """A call that has taken its place."""
    task = asyncio.ensure_future(call)
    assert isinstance(task, asyncio.Task)
    await asyncio.sleep(0)
    return task


async def was_refused(log: AsyncRemoteLog) -> None:
    """Until an append was told that it is out of order."""
    runs = log.session.shipper._runs
    await asyncio.to_thread(
        wait_until,
        lambda: any(isinstance(run.trouble, OutOfOrder) for run in list(runs.values())),
        "an append is refused",
    )


# -- against a node -------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_it_overtakes_nothing_that_waits_for_an_answer(served: Node, call: str) -> None:
    """The second append waits for the answer to the first one, to go with others."""

    async def work(proxy: Proxy, log: AsyncRemoteLog, topic: AsyncRemoteTopic) -> None:
        stream = topic.streams[-1]
        proxy.swallow_answers = True
        tasks = [await begun(topic.append(b"first", stream=stream))]
        await asyncio.to_thread(proxy.wait_until_swallowed)
        tasks.append(await begun(topic.append(b"second", stream=stream)))
        swallowed = proxy.swallowed
        tasks.append(await begun(on_all(topic, call)))
        await asyncio.to_thread(proxy.wait_until_swallowed, swallowed)
        proxy.swallow_answers = False
        proxy.cut()
        await asyncio.gather(*tasks)
        found = [record.value async for record in topic.read() if record.stream == stream]
        assert found == [b"first", b"second", b"" if call == "delete_storage" else b"all"]

    with_proxy(served, work)


@pytest.mark.parametrize("call", CALLS)
def test_it_is_overtaken_by_nothing_if_it_is_lost_on_the_way(served: Node, call: str) -> None:
    async def work(proxy: Proxy, log: AsyncRemoteLog, topic: AsyncRemoteTopic) -> None:
        proxy.swallow_requests = True
        tasks = [await begun(on_all(topic, call))]
        await asyncio.to_thread(proxy.wait_until_swallowed)
        proxy.swallow_requests = False
        for stream in topic.streams:
            tasks.append(await begun(topic.append(b"later", stream=stream)))
        await was_refused(log)
        proxy.cut()
        await asyncio.gather(*tasks)
        value = b"" if call == "delete_storage" else b"all"
        for stream in topic.streams:
            found = [record.value async for record in topic.read() if record.stream == stream]
            assert found == [value, b"later"]

    with_proxy(served, work)


def test_a_lost_connection_changes_no_order_and_doubles_nothing(served: Node) -> None:
    """Everything is taken, and no answer arrives."""

    async def work(proxy: Proxy, log: AsyncRemoteLog, topic: AsyncRemoteTopic) -> None:
        proxy.swallow_answers = True
        tasks = []
        for number in range(3):
            for stream in topic.streams:
                tasks.append(await begun(topic.append(b"%d" % number, stream=stream)))
            tasks.append(await begun(on_all(topic)))
        await asyncio.to_thread(proxy.wait_until_swallowed)
        proxy.swallow_answers = False
        proxy.cut()
        await asyncio.gather(*tasks)
        for stream in topic.streams:
            found = [record.value async for record in topic.read() if record.stream == stream]
            assert found == [b"0", b"all", b"1", b"all", b"2", b"all"]

    with_proxy(served, work)


def test_what_follows_one_that_was_refused_goes_on(served: Node) -> None:
    """It is all there or not at all, and what was under way behind it comes in its order."""

    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            await tidelog.connect_async(served.url, reconnect=HASTY) as log,
        ):
            topic = await log.create_topic("several", streams=STREAMS, versions="explicit")
            keys = [key_for(topic, stream) for stream in topic.streams]
            await topic.set_gc_boundary(10)
            stale = topic.write(
                [
                    Entry(Kind.PUT, b"new", keys[0], write_version=20),
                    Entry(Kind.PUT, b"stale", keys[1], write_version=5),
                ]
            )
            tasks = [
                await begun(topic.put(keys[0], b"before", write_version=19)),
                await begun(stale),
                await begun(topic.put(keys[0], b"behind", write_version=21)),
                await begun(topic.put(keys[1], b"behind", write_version=21)),
            ]
            _, refusal, *_ = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(refusal, StaleWrite)
            found = {(record.stream, record.value) async for record in topic.read()}
            assert found == {
                (topic.streams[0], b"before"),
                (topic.streams[0], b"behind"),
                (topic.streams[1], b"behind"),
            }

    run(main())


# -- against a node that does what it is told -----------------------------------------------------


def test_it_is_overtaken_by_nothing_if_it_is_refused_for_now() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script.append(Refuse(Busy("too much")))
        tasks = [await begun(on_all(log))]
        for stream in log.streams:
            tasks.append(await begun(log.append(b"later", stream=stream)))
        await asyncio.gather(*tasks)
        assert [cluster.values(stream) for stream in log.streams] == [[b"all", b"later"]] * STREAMS
        [again] = {one.sequence for one in node.appends if len(one.streams) == STREAMS}
        later = [one for one in node.appends if one.sequence != again]
        assert later[0].after == (again,)

    with_fake(work)


def test_it_overtakes_nothing_that_is_refused_for_now() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script += [Take(), Refuse(Busy("too much"))]
        tasks = [await begun(log.append(b"before", stream=stream)) for stream in log.streams]
        tasks.append(await begun(on_all(log)))
        await asyncio.gather(*tasks)
        assert [cluster.values(stream) for stream in log.streams] == [[b"before", b"all"]] * STREAMS

    with_fake(work)


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_one_that_was_refused_for_good_holds_nothing_up(refused: int) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script += [Take()] * refused + [Refuse(DiskFull("no room"))]
        stream = log.streams[1]
        calls = [log.append(b"before", stream=stream), on_all(log), log.append(b"x", stream=stream)]
        outcomes = await asyncio.gather(
            *[await begun(call) for call in calls], return_exceptions=True
        )
        assert [isinstance(one, DiskFull) for one in outcomes] == [i == refused for i in range(3)]
        values = [b"before", b"all", b"x"]
        del values[refused]
        assert cluster.values(stream) == values
        assert cluster.values(log.streams[0]) == [b"all"] * (refused != 1)

    with_fake(work)


def test_a_refusal_is_no_proof_if_an_earlier_try_had_no_answer() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script += [HangUp(took=True), Refuse(StaleWrite("below the boundary"))]
        with pytest.raises(ConnectionLost, match="below the boundary") as caught:
            await on_all(log)
        assert not caught.value.definite
        assert [cluster.values(stream) for stream in log.streams] == [[b"all"]] * STREAMS

    with_fake(work)


def test_a_call_that_has_no_time_left_is_told_once_and_holds_nothing_up() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script += [Refuse(Busy("too much"))] * 3
        keys = [key_for(log, stream) for stream in log.streams]
        hasty = await begun(log.put_batch([(key, b"all") for key in keys], timeout=0.0))
        later = [await begun(log.append(b"later", stream=stream)) for stream in log.streams]
        with pytest.raises(LogError):
            await hasty
        await asyncio.gather(*later)
        assert [cluster.values(stream)[-1] for stream in log.streams] == [b"later"] * STREAMS

    with_fake(work)


REFUSALS: list[LogError] = [
    Busy("too much"),
    OutOfOrder("too early"),
    ConnectionLost("lost"),
    LogClosed("stopping"),
]
acts: st.SearchStrategy[Act] = st.one_of(
    st.just(Take()),
    st.just(Take()),
    st.just(Hold()),
    st.sampled_from(REFUSALS).map(Refuse),
    st.booleans().map(HangUp),
)
calls = st.lists(st.sampled_from(("one", "other", "all", "turn")), min_size=1, max_size=30)


@settings(max_examples=60)
@given(script=st.lists(acts, max_size=20), made=calls)
def test_every_stream_has_all_calls_once_and_in_their_order(
    script: list[Act], made: list[str]
) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script = deque(script)
        keys = [key_for(log, stream) for stream in log.streams]
        tasks, expected = [], {stream: list[bytes]() for stream in log.streams}
        for number, call in enumerate(made):
            value = b"%d" % number
            if call == "turn":
                await asyncio.sleep(0.001)
                continue
            chosen = {"one": [0], "other": [1], "all": [0, 1]}[call]
            items = [(keys[place], value) for place in chosen]
            tasks.append(await begun(log.put_batch(items)))
            for place in chosen:
                expected[log.streams[place]].append(value)
        await asyncio.gather(*tasks)
        assert {stream: cluster.values(stream) for stream in log.streams} == expected

    with_fake(work)
