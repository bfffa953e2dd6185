"""What appenders send together is told one by one, in order, and takes room until it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, wait
from threading import Event
from typing import Any

import pytest

import tidelog
from tests.client.proxy import Proxy
from tests.client.served import Node
from tidelog.client.lanes import SHIPMENT_BYTES
from tidelog.errors import DeadlineExceeded, LogClosed, LogError, StaleWrite
from tidelog.interface.records import Receipt
from tidelog.net.loops import run

WAIT_SECONDS = 30.0


def with_log(
    url: str,
    work: Callable[[tidelog.AsyncRemoteLog], Awaitable[None]],
    *,
    timeout: float = WAIT_SECONDS,
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            await tidelog.connect_async(url, timeout=timeout) as log,
        ):
            await work(log)

    run(main())


# -- in one event loop ----------------------------------------------------------------------------


def test_entries_of_one_turn_share_a_shipment_and_get_receipts_of_their_own(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender() as appender:
            futures = [await appender.append(b"%d" % number) for number in range(100)]
        [stream] = log.streams
        receipts = [future.result() for future in futures]
        assert receipts == [Receipt("default", stream, 1 + i, 1 + i) for i in range(100)]
        pages = [page async for page in log.read_pages(1, 101)]
        assert [piece.end - piece.begin for page in pages for _, piece in page] == [100]

    with_log(served.url, work)


def test_whoever_appends_in_between_gets_a_place_in_between(served: Node) -> None:
    """By another appender, and by a call that waits for its own receipt."""

    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender() as one, log.appender() as other:
            await one.append(b"0")
            await other.append(b"1")
            await one.append(b"2")
            waiting = asyncio.create_task(log.append(b"3"))
            await asyncio.sleep(0)
            await one.append(b"4")
            await waiting
        assert [record.value async for record in log.read()] == [b"%d" % i for i in range(5)]

    with_log(served.url, work)


def test_a_call_does_not_overtake_what_the_same_turn_has_gathered(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender() as appender:
            first = await appender.append(b"0")
            second = await log.append(b"1")
        assert ((await first).glsn, second.glsn) == (1, 2)

    with_log(served.url, work)


def test_what_is_gathered_is_bounded_in_bytes(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender() as appender:
            futures = [await appender.append(bytes(SHIPMENT_BYTES // 4)) for _ in range(10)]
        assert [future.result().glsn for future in futures] == list(range(1, 11))
        pages = [page async for page in log.read_pages(1, 11)]
        sizes = [piece.end - piece.begin for page in pages for _, piece in page]
        assert sum(sizes) == 10
        assert max(sizes) == 4

    with_log(served.url, work)


def test_a_cancelled_future_harms_no_neighbour_and_keeps_no_room(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender(bytes_max=1_000) as appender:
            for number in range(100):
                futures = [await appender.append(b"%d" % number) for _ in range(3)]
                futures[1].cancel()
                await appender.flush()
                told = [futures[0].result().glsn, futures[2].result().glsn]
                assert told == [3 * number + 1, 3 * number + 3]

    with_log(served.url, work)


def test_one_that_is_refused_harms_no_neighbour_of_its_turn(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        topic = await log.create_topic("explicit", versions="explicit")
        await topic.put(b"k", b"v", write_version=10)
        await topic.set_gc_boundary(10)
        appender = topic.appender()
        futures = [
            await appender.append(b"a"),
            await appender.put(b"k", b"v", write_version=9),
            await appender.append(b"b"),
        ]
        with pytest.raises(StaleWrite):
            await appender.flush()
        await appender.flush()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Receipt, StaleWrite, Receipt]

    with_log(served.url, work)


def test_all_that_was_gathered_is_told_that_its_time_is_over(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy:

        async def work(log: tidelog.AsyncRemoteLog) -> None:
            proxy.swallow_answers = True
            appender = log.appender()
            futures = [await appender.append(b"a") for _ in range(3)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeadlineExceeded] * 3
            with pytest.raises(DeadlineExceeded):
                await appender.flush()
            proxy.swallow_answers = False
            proxy.cut()

        with_log(proxy.url, work, timeout=0.3)


def test_what_is_appended_to_a_closed_client_is_told_so_each_time(served: Node) -> None:
    async def main() -> None:
        log = await tidelog.connect_async(served.url)
        appender = log.appender(bytes_max=200)
        before = await appender.append(b"a")
        await log.close()
        assert (await before).glsn == 1
        for _ in range(5):  # More than there is room for.
            with pytest.raises(LogClosed):
                await (await appender.append(b"b"))

    run(main())


def test_a_batch_is_told_that_its_time_is_over_and_gives_its_room_back(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy:

        async def work(log: tidelog.AsyncRemoteLog) -> None:
            proxy.swallow_answers = True
            appender = log.appender(bytes_max=100)
            for _ in range(3):  # Each alone is more than there is room for.
                batch = await appender.append_batch([bytes(100)] * 3)
                with pytest.raises(DeadlineExceeded):
                    await batch
            with pytest.raises(DeadlineExceeded):
                await appender.flush()
            proxy.swallow_answers = False
            proxy.cut()

        with_log(proxy.url, work, timeout=0.3)


def test_a_cancelled_batch_keeps_no_room(served: Node) -> None:
    async def work(log: tidelog.AsyncRemoteLog) -> None:
        async with log.appender(bytes_max=100) as appender:
            for number in range(10):
                batch = await appender.put_batch([(b"%d" % number, bytes(100))])
                batch.cancel()
        assert len([record async for record in log.read()]) == 10

    with_log(served.url, work)


# -- in threads -----------------------------------------------------------------------------------


def test_two_appenders_of_a_thread_keep_its_order(served: Node) -> None:
    with (
        tidelog.connect(served.url) as log,
        log.appender() as one,
        log.appender() as other,
    ):
        held = held_loop(log)
        for number in range(0, 30, 3):
            one.append(b"%d" % number)
            one.append(b"%d" % (number + 1))
            other.append(b"%d" % (number + 2))
        held.set()
        one.flush()
        other.flush()
        assert [record.value for record in log.read()] == [b"%d" % i for i in range(30)]


def test_futures_of_threads_can_be_cancelled_and_waited_for_together(served: Node) -> None:
    with tidelog.connect(served.url) as log, log.appender(bytes_max=1_000) as appender:
        for number in range(20):
            held = held_loop(log)
            futures = [appender.append(b"%d" % number) for _ in range(4)]
            assert futures[1].cancel()
            called: list[Future[Receipt]] = []
            futures[2].add_done_callback(called.append)
            held.set()
            done, left = wait(futures, WAIT_SECONDS)
            assert (len(done), left) == (4, set())
            with pytest.raises(CancelledError):
                futures[1].result()
            appender.flush()
            told = [futures[i].result(0).glsn for i in (0, 2, 3)]
            assert told == [4 * number + 1, 4 * number + 3, 4 * number + 4]
            assert called == [futures[2]]


def test_futures_of_threads_all_fail_when_their_time_is_over(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy, tidelog.connect(proxy.url, timeout=0.3) as log:
        proxy.swallow_answers = True
        appender = log.appender()
        futures = [appender.append(b"a") for _ in range(3)]
        futures[1].cancel()
        with pytest.raises(DeadlineExceeded):
            appender.flush()
        for future in futures[::2]:
            assert isinstance(future.exception(0), LogError)
        proxy.swallow_answers = False
        proxy.cut()


def test_batches_of_threads_fail_when_their_time_is_over_and_give_their_room_back(
    served: Node,
) -> None:
    with Proxy(served.endpoints[0]) as proxy, tidelog.connect(proxy.url, timeout=0.3) as log:
        proxy.swallow_answers = True
        appender = log.appender(bytes_max=100)
        batches = [appender.append_batch([bytes(100)] * 3) for _ in range(3)]
        with pytest.raises(DeadlineExceeded):
            appender.flush()
        for batch in batches:
            assert isinstance(batch.exception(0), LogError)
        proxy.swallow_answers = False
        proxy.cut()


def test_batches_of_threads_can_be_cancelled(served: Node) -> None:
    with tidelog.connect(served.url) as log, log.appender(bytes_max=1_000) as appender:
        held = held_loop(log)
        batch, other = appender.append_batch([b"a", b"b"]), appender.put_batch([(b"k", b"v")])
        assert batch.cancel()
        held.set()
        both: list[Future[Any]] = [batch, other]
        done, left = wait(both, WAIT_SECONDS)
        assert (len(done), left) == (2, set())
        appender.flush()
        assert [receipt.glsn for receipt in other.result(0)] == [3]


def held_loop(log: tidelog.RemoteLog) -> Event:
    """Keep the loop of a client busy until the event is set."""
    begun, held = Event(), Event()

    def hold() -> None:
        begun.set()
        held.wait(WAIT_SECONDS)

    log._thread.call(hold)
    assert begun.wait(WAIT_SECONDS)
    return held
