"""Bounds and cancellation: what a client holds, and what it does with what nobody wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

import tidelog
from tests.client.proxy import Proxy
from tests.client.served import Node
from tidelog.client.channel import Channel
from tidelog.client.link import Reply
from tidelog.client.log import CLIENT
from tidelog.client.pages import PageReader, records_in, slices_of
from tidelog.client.pool import Pool
from tidelog.client.retries import Reconnect
from tidelog.client.run import attachments_of
from tidelog.client.shipments import Loose
from tidelog.client.shipper import Shipper
from tidelog.errors import DeadlineExceeded, OutOfOrder, Trimmed
from tidelog.formats.batch import encode_values
from tidelog.formats.messages import (
    AppendBatches,
    CreateTopic,
    Describe,
    FindEnd,
    Get,
    ReadPage,
    Receipts,
    Request,
    TopicDescription,
)
from tidelog.interface.appends import Part
from tidelog.interface.records import Receipt
from tidelog.limits import IN_FLIGHT_REQUESTS_MAX
from tidelog.net.endpoint import parse_endpoint
from tidelog.net.loops import run

WAIT_SECONDS = 30.0
DESCRIBE = Describe("default")


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[Channel]:
    endpoint = parse_endpoint(url.replace("tidelog://", "tcp://").rstrip("/"))
    channel = Channel([endpoint], client=CLIENT, reconnect=Reconnect(pause_max=0.05))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            yield channel
    finally:
        await channel.close()


def with_log(node: Node, work: Callable[[tidelog.AsyncRemoteLog], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_SECONDS), await tidelog.connect_async(node.url) as log:
            await work(log)

    run(main())


# -- cancellation ---------------------------------------------------------------------------------


def test_a_cancelled_wait_leaves_the_connection_usable(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        link = log.session.channel.link
        waits = [
            asyncio.create_task(log.find_end(1, wait=WAIT_SECONDS)),
            asyncio.create_task(anext(log.subscribe(1))),
        ]
        # More than one connection may have under way: each one must be given back.
        for _ in range(3 * IN_FLIGHT_REQUESTS_MAX):
            extra = asyncio.create_task(log.find_end(1, wait=WAIT_SECONDS))
            await asyncio.sleep(0)
            extra.cancel()
            with pytest.raises(asyncio.CancelledError):
                await extra
        for task in waits:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await log.append(b"a")
        assert (await log.get(b"k")) is None
        assert log.session.channel.link is link

    with_log(served, work)


def test_an_append_cancelled_before_it_was_sent_never_happens(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        cancelled = asyncio.create_task(log.append(b"cancelled"))
        kept = asyncio.create_task(log.append(b"kept"))
        while not cancelled.cancel():
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await kept).glsn == 1
        assert [record.value async for record in log.read()] == [b"kept"]

    with_log(served, work)


def test_a_cancelled_append_that_was_sent_harms_no_neighbour(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy:

        async def main() -> None:
            async with await tidelog.connect_async(proxy.url) as log:
                proxy.swallow_answers = True
                tasks = [asyncio.create_task(log.append(b"%d" % i)) for i in range(10)]
                await asyncio.to_thread(proxy.wait_until_swallowed)
                tasks[4].cancel()
                proxy.swallow_answers = False
                proxy.cut()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                glsns = [receipt.glsn for receipt in done if isinstance(receipt, Receipt)]
                assert glsns == [1, 2, 3, 4, 6, 7, 8, 9, 10]

        run(main())


def test_more_waits_than_a_connection_takes_hold_nobody_back(served: Node) -> None:
    """Subscribers wait at the end of the log; appends still get through."""

    async def work(log: tidelog.AsyncRemoteLog) -> None:
        waits = [
            asyncio.create_task(log.find_end(1, wait=WAIT_SECONDS))
            for _ in range(2 * IN_FLIGHT_REQUESTS_MAX)
        ]
        await log.position()
        assert (await log.append(b"a")).glsn == 1
        assert {place.glsn for place in await asyncio.gather(*waits)} == {2}

    with_log(served, work)


def test_more_lanes_than_a_connection_takes_all_get_their_turn(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        topic = await log.create_topic("wide", streams=IN_FLIGHT_REQUESTS_MAX // 4)
        receipts = await asyncio.gather(
            *(
                topic.append_batch([b"%d" % number], stream=stream)
                for number in range(20)
                for stream in topic.streams
            ),
            log.position(),
        )
        places = [receipt.glsn for receipt in receipts if isinstance(receipt, Receipt)]
        assert sorted(places) == list(range(1, 20 * len(topic.streams) + 1))
        by_stream: dict[int, list[bytes]] = {}
        async for record in topic.read():
            by_stream.setdefault(record.stream, []).append(record.value)
        assert set(map(tuple, by_stream.values())) == {tuple(b"%d" % i for i in range(20))}

    with_log(served, work)


# -- bounds ---------------------------------------------------------------------------------------


def test_what_comes_beyond_the_bound_waits_at_the_door_in_order(served: Node) -> None:
    async def main() -> None:
        async with channel_to(served.url) as channel:
            reply = await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
            assert isinstance(reply.answer, TopicDescription)
            [stream] = reply.answer.streams
            shipper = Shipper(Pool(channel), bytes_max=1_000)
            loop = asyncio.get_running_loop()
            futures = [loop.create_future() for _ in range(200)]
            for number, future in enumerate(futures):
                ticket = Loose(future, 400, monotonic() + WAIT_SECONDS, [b"%d" % number])
                shipper.submit("default", stream, ticket)
                assert shipper.queued_bytes <= 1_000
            receipts = await asyncio.gather(*futures)
            assert [receipt.glsn for receipt in receipts] == list(range(1, 201))
            assert shipper.queued_bytes == 0
            await shipper.close(1.0)

    run(main())


def test_a_ticket_at_the_door_has_its_deadline_too(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy:

        async def main() -> None:
            async with channel_to(proxy.url) as channel:
                await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
                shipper = Shipper(Pool(channel), bytes_max=1)
                proxy.swallow_answers = True
                loop = asyncio.get_running_loop()
                futures = [loop.create_future() for _ in range(3)]
                # The first one fills the room; it stays until the others have given up.
                for future, seconds in zip(futures, (0.5, 0.1, 0.1), strict=True):
                    shipper.submit("default", 1, Loose(future, 10, monotonic() + seconds, [b"a"]))
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
                definite = [getattr(outcome, "definite", None) for outcome in outcomes]
                assert isinstance(outcomes[0], DeadlineExceeded)
                assert definite == [False, True, True]
                assert shipper.queued_bytes == 0

        run(main())


class Counted(Pool):
    """Counts the pages that are asked for."""

    asked = 0

    async def ask_holder(self, request: Request, *args: Any, **options: Any) -> Reply:
        self.asked += 1
        return await super().ask_holder(request, *args, **options)


def test_a_reader_is_never_more_than_a_page_ahead(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        for _ in range(20):
            log.append_batch([bytes(1_000)] * 10)

    async def main() -> None:
        async with channel_to(served.url) as channel:
            counted = Counted(channel)
            reader = PageReader(counted, "default", 1, 201, seconds=WAIT_SECONDS, bytes_max=10_000)
            glsns: list[int] = []
            shown = 0
            while (reply := await reader.next_page()) is not None:
                shown += 1
                assert counted.asked <= shown + 1
                await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
                assert counted.asked <= shown + 1
                glsns += [record.glsn for record in records_in(slices_of(reply))]
            assert glsns == list(range(1, 201))
            assert shown > 10
            reader.close()

    run(main())


def test_what_is_trimmed_under_a_reader_is_told(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        for _ in range(20):
            log.append_batch([bytes(1_000)] * 10)
        pages = log.read_pages(1, 201, bytes_max=10_000)
        next(pages)
        log.trim(150)
        with pytest.raises(Trimmed) as caught:
            list(pages)
        assert caught.value.first_available == 150
        assert next(iter(log.read())).glsn == 150


def test_pages_of_chosen_streams_hold_all_of_their_entries(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        topic = log.create_topic("wide", streams=3)
        for number in range(60):
            topic.append(b"%d" % number)
        chosen = topic.streams[1:]
        pages = topic.read_pages(10, 50, streams=chosen, bytes_max=500)
        found = sorted(
            (stream, glsn) for page in pages for stream, piece in page for glsn in piece.glsns()
        )
        expected = sorted(
            (record.stream, record.glsn) for record in topic.read(10, 50) if record.stream in chosen
        )
        assert found == expected


@pytest.mark.parametrize(
    "request_", [ReadPage("none", 1), Get("none", b"k", 0), FindEnd("none", 1)]
)
def test_a_refused_request_leaves_the_connection_usable(served: Node, request_: Request) -> None:
    async def main() -> None:
        async with channel_to(served.url) as channel:
            with pytest.raises(tidelog.LogError):
                await channel.ask(request_, seconds=WAIT_SECONDS)
            link = channel.link
            await channel.ask(DESCRIBE, seconds=WAIT_SECONDS)
            assert channel.link is link

    run(main())


def test_an_append_does_not_overtake_the_one_that_it_names(served: Node) -> None:
    """What its producer sent before it was refused or lost: both come again, in order."""

    async def main() -> None:
        async with channel_to(served.url) as channel:

            async def send(sequence: int, after: int) -> int:
                body = encode_values([b"%d" % sequence], timestamp_us=1)
                reply = await channel.ask(
                    AppendBatches("default", (1,), 7, sequence, (after,)),
                    seconds=WAIT_SECONDS,
                    attachments=attachments_of([Part(1, body)]),
                )
                assert isinstance(reply.answer, Receipts)
                return reply.answer.receipts[0].glsn

            with pytest.raises(OutOfOrder):
                await send(2, after=1)
            assert await send(1, after=0) == 1
            assert await send(2, after=1) == 2
            assert await send(2, after=5) == 2  # What is known is answered, whatever it names.
            with pytest.raises(OutOfOrder):
                await send(9, after=3)
            third, fourth = await asyncio.gather(send(3, after=2), send(4, after=3))
            assert (third, fourth) == (3, 4)

    run(main())


def test_an_append_to_several_streams_overtakes_in_none_of_them(served: Node) -> None:
    """What it names is missing in one of them, so none of them takes it."""

    async def main() -> None:
        async with channel_to(served.url) as channel:
            created = CreateTopic("several", 2, "log")
            described = (await channel.ask(created, seconds=WAIT_SECONDS)).answer
            assert isinstance(described, TopicDescription)

            async def send(sequence: int, after: dict[int, int]) -> list[tuple[int, int]]:
                body = encode_values([b"%d" % sequence], timestamp_us=1)
                reply = await channel.ask(
                    AppendBatches("several", tuple(after), 7, sequence, tuple(after.values())),
                    seconds=WAIT_SECONDS,
                    attachments=attachments_of([Part(stream, body) for stream in after]),
                )
                assert isinstance(reply.answer, Receipts)
                return [(one.stream, one.llsn) for one in reply.answer.receipts]

            one, other = described.streams
            assert await send(1, {one: 0}) == [(one, 1)]
            with pytest.raises(OutOfOrder, match="append 2 of producer 7"):
                await send(3, {one: 1, other: 2})
            with pytest.raises(OutOfOrder, match="append 3 of producer 7"):
                await send(4, {one: 3})
            assert await send(2, {other: 0}) == [(other, 1)]
            assert await send(3, {one: 1, other: 2}) == [(one, 2), (other, 2)]
            assert await send(3, {one: 1, other: 2}) == [(one, 2), (other, 2)]
            fourth, fifth = await asyncio.gather(send(4, {one: 3}), send(5, {other: 3, one: 4}))
            assert (fourth, fifth) == ([(one, 3)], [(other, 3), (one, 4)])

    run(main())
