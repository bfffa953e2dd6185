"""What a log does for asyncio, embedded or served: the same tests for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.client.served import Node
from tests.security.material import client, server
from tidelog.errors import (
    BadEntry,
    LogClosed,
    OutOfRange,
    RevisionConflict,
    Trimmed,
    UnknownStream,
    UnknownTopic,
    ValueTooLarge,
)
from tidelog.formats.batch import encode_values
from tidelog.interface.appends import Part
from tidelog.interface.async_handles import AsyncLogHandle
from tidelog.interface.records import Record
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.net.loops import new_loop

WAIT_SECONDS = 30.0
Work = Callable[[AsyncLogHandle], Awaitable[None]]
Run = Callable[[Work], None]


@asynccontextmanager
async def opened(face: str, path: Path) -> AsyncIterator[AsyncLogHandle]:
    if face == "embedded":
        async with await tidelog.open_async(path) as log:
            yield log
        return
    tls = face == "tls"
    where, security = ("tls", server()) if tls else ("tcp", None)
    running = await asyncio.to_thread(Node, path, [f"{where}://127.0.0.1:0"], security)
    try:
        async with await tidelog.connect_async(running.url, security=client()) as log:
            yield log
    finally:
        await asyncio.to_thread(running.stop)


@pytest.fixture(params=["embedded", "served", "served, uvloop", "tls", "tls, uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a coroutine with a log; all of it must end in time."""
    face, _, fast = request.param.partition(", ")

    async def main(work: Work) -> None:
        async with asyncio.timeout(WAIT_SECONDS), opened(face, tmp_path / "log") as log:
            await work(log)

    def start(work: Work) -> None:
        factory = new_loop if fast else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(work))

    return start


async def values(log: Any) -> list[bytes]:
    return [record.value async for record in log.read()]


def test_writing_and_reading(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        assert (await log.append(b"a")).glsn == 1
        assert (await log.append_batch([b"b", b"c"])).glsn_end == 4
        await log.put(b"k", b"1")
        await log.put_batch([(b"l", b"2"), (b"m", b"3")])
        await log.delete(b"l")
        await log.delete_storage(7)
        assert (await values(log))[:4] == [b"a", b"b", b"c", b"1"]
        assert [r.glsn async for r in log.read(3, 6, limit=2)] == [3, 4]
        found = await log.get(b"m")
        assert found is not None
        assert found.value == b"3"
        assert await log.get(b"l") is None
        assert (await log.position()).high_watermark == log.high_watermark == 8
        rows = [row async for batch in log.read_arrow() for row in batch.to_pylist()]
        assert [row["glsn"] for row in rows] == list(range(1, 9))

    run(work)


def test_many_appends_at_once_are_all_there_in_the_order_of_their_tasks(run: Run) -> None:
    async def write(log: AsyncLogHandle, task: int) -> None:
        for number in range(50):
            await log.append(b"%d-%d" % (task, number))

    async def work(log: AsyncLogHandle) -> None:
        await asyncio.gather(*(write(log, task) for task in range(20)))
        found = await values(log)
        assert len(found) == len(set(found)) == 1000
        for task in range(20):
            mine = [value for value in found if value.startswith(b"%d-" % task)]
            assert mine == [b"%d-%d" % (task, number) for number in range(50)]

    run(work)


def test_an_appender_waits_for_room_and_keeps_order(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        async with log.appender(bytes_max=5_000) as appender:
            futures = [await appender.append(b"%d" % i) for i in range(400)]
            futures.append(await appender.put(b"k", b"v"))
            futures.append(await appender.delete(b"k"))
        assert [future.result().glsn for future in futures] == list(range(1, 403))
        assert (await values(log))[:400] == [b"%d" % i for i in range(400)]

    run(work)


def test_an_appender_takes_batches_between_entries(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        async with log.appender(bytes_max=2_000) as appender:
            first = await appender.append(b"0")
            batch = await appender.append_batch([b"%d" % i for i in range(1, 100)])
            last = await appender.append(b"100")
            with pytest.raises(BadEntry):
                await appender.append_batch([])
        assert await values(log) == [b"%d" % i for i in range(101)]
        told = batch.result()
        assert (first.result().glsn, told.glsn, told.count, last.result().glsn) == (1, 2, 99, 101)

    run(work)


def test_a_batch_of_an_appender_lies_behind_what_came_before_in_each_log_stream(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        topic = await log.create_topic("wide", streams=3)
        keys = [b"key-%d" % i for i in range(60)]
        async with topic.appender() as appender:
            for turn in range(20):
                await appender.put(keys[0], b"alone %d" % turn)
                batch = await appender.put_batch([(key, b"together %d" % turn) for key in keys])
        assert sum(receipt.count for receipt in batch.result()) == 60
        found = [record.value async for record in topic.read() if record.key == keys[0]]
        assert found == [
            b"%s %d" % (how, turn) for turn in range(20) for how in (b"alone", b"together")
        ]

    run(work)


def test_an_appender_takes_nothing_once_its_context_was_left(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        async with log.appender(bytes_max=1) as appender:
            await appender.append(b"a")
        with pytest.raises(LogClosed, match="make another one"):
            await appender.append(b"late")
        with pytest.raises(LogClosed):
            await appender.put(b"late", b"")
        with pytest.raises(LogClosed):
            await appender.append_batch([b"late"])
        await appender.flush()
        await log.append(b"b")
        assert await values(log) == [b"a", b"b"]

    run(work)


def test_whoever_waits_for_room_in_an_appender_is_told_that_it_was_left(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        async with log.appender(bytes_max=1) as appender:
            waiting = [asyncio.create_task(appender.append(b"%d" % i)) for i in range(20)]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        told = [one for one in outcomes if isinstance(one, asyncio.Future)]
        assert {type(one) for one in outcomes} <= {type(told[0]), LogClosed}
        assert [future.result().glsn for future in told] == list(range(1, len(told) + 1))
        assert len(await values(log)) == len(told) > 0

    run(work)


def test_a_subscription_gets_what_comes(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        heard: list[bytes] = []

        async def listen() -> None:
            stream: Any = log.subscribe(1)
            async with aclosing(stream):
                async for record in stream:
                    heard.append(record.value)
                    if len(heard) == 30:
                        return

        listening = asyncio.create_task(listen())
        for number in range(30):
            await log.append(b"%d" % number)
        await listening
        assert heard == [b"%d" % i for i in range(30)]
        assert [r.value async for r in log.subscribe(29, timeout=0.01)] == [b"28", b"29"]

    run(work)


def test_errors_are_those_of_the_blocking_calls(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        with pytest.raises(ValueTooLarge):
            await log.append(bytes(VALUE_BYTES_MAX + 1))
        with pytest.raises(UnknownTopic):
            await log.topic("x")
        await log.append_batch([b"a", b"b"])
        assert await log.trim(2) == 2
        with pytest.raises(Trimmed):
            await anext(aiter(log.read(1)))
        with pytest.raises(OutOfRange):
            await anext(aiter(log.read(9)))

    run(work)


def test_topics_are_made_staged_and_kept_small(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        topic = await log.create_topic("other", streams=2)
        assert await log.topics() == ["default", "other"]
        assert len((await log.add_streams("other", 1)).streams) == 3
        part = Part(topic.streams[0], encode_values([b"a"], timestamp_us=1))
        stage = await topic.stage([part])
        assert (await topic.publish("w", 1, [stage])).entries == 1
        await topic.discard([stage])
        assert (await topic.find_end(1)).glsn == 2
        assert (await topic.find_time(0)).glsn == 1
        for number in range(3):
            await topic.put(b"k", b"%d" % number)
        assert len(await topic.explain(b"k")) == 3
        await topic.snapshot()
        assert not (await topic.compact(full=True)).failures
        assert await topic.rewrite(entries_max=1) in {0, 1}
        assert (await topic.stats()).topic == "other"
        assert (await log.log_stats()).topics[0].topic == "default"

    run(work)


def test_a_closed_log_says_so(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        await log.append(b"a")
        await log.close()
        await log.close()
        with pytest.raises(LogClosed):
            await log.append(b"b")

    run(work)


def test_one_log_stream_is_followed_by_itself(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        topic = await log.create_topic("wide", streams=2)
        first, second = topic.streams
        for number in range(6):
            await topic.append(b"%d" % number, stream=topic.streams[number % 2])
        found = [record.value async for record in topic.subscribe_to(second, 1, timeout=0.01)]
        assert found == [b"1", b"3", b"5"]
        with pytest.raises(UnknownStream):
            await anext(topic.subscribe_to(4_000, 1))
        waiting = asyncio.create_task(first_of(topic.subscribe_to(first, 7)))
        await topic.append(b"other", stream=second)
        await topic.append(b"mine", stream=first)
        assert (await waiting).value == b"mine"

    run(work)


async def first_of(records: AsyncIterator[Record]) -> Record:
    return await anext(records)


def test_positions_are_kept_under_names(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        stored = await log.store_position("reader", 5, expected=0)
        assert await log.position_of("reader") == stored
        outcomes = await asyncio.gather(
            *(log.store_position("reader", glsn, expected=1) for glsn in range(6, 12)),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 5
        assert (await log.position_of("reader")).revision == 2

    run(work)
