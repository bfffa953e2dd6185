"""The same log for asyncio, alone and beside threads that use it at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.embedded.logs import (
    INLINE,
    WAIT_SECONDS,
    flush,
    gated,
    open_sim,
    wait_for_queued,
    wait_until,
)
from tidelog import AsyncLog, Entry, Kind, Log, Options
from tidelog.embedded import commit_queue
from tidelog.errors import (
    Busy,
    DeadlineExceeded,
    LogClosed,
    LogLocked,
    Trimmed,
    UnknownTopic,
    ValueTooLarge,
)
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.testing.disk import SimDisk


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; it must come to an end."""
    asyncio.run(asyncio.wait_for(main, WAIT_SECONDS))


def of_sync(log: Log) -> AsyncLog:
    """The asynchronous face of an open log."""
    return AsyncLog(log, log.engine)


async def read_all(topic: tidelog.AsyncTopic) -> list[bytes]:
    return [record.value async for record in topic.read()]


def test_all_calls_have_an_awaited_twin(tmp_path: Path) -> None:
    async def main() -> None:
        async with await tidelog.open_async(tmp_path / "log", streams=2, options=INLINE) as log:
            assert (await log.append(b"a")).glsn == 1
            assert (await log.append_batch([b"b", b"c"])).count == 2
            await log.put(b"k", b"1")
            await log.put_batch([(b"k", b"2"), (b"l", b"3")])
            await log.write([Entry(Kind.PUT, b"4", b"m")])
            await log.delete(b"l")
            assert len(await log.delete_storage(7)) == 2
            found = await log.get(b"k")
            assert found is not None
            assert found.value == b"2"
            assert await log.get(b"l") is None
            assert await log.trim(3) == log.first_available == 3
            await log.snapshot()
            assert not (await log.compact(full=True)).failures
            assert await log.rewrite() == 2
            other = await log.create_topic("other", versions="explicit")
            await other.put(b"k", b"v", write_version=5)
            await other.set_gc_boundary(5)
            assert (await log.add_streams("other", 1)).streams == (3, 4)
            assert await log.topics() == ["default", "other"]
            assert (await log.topic("other")).high_watermark == 1
            assert (await log.stats()).high_watermark == log.high_watermark
            assert (await log.log_stats()).wal_frames > 5

    run(main())
    with tidelog.open(tmp_path / "log", options=INLINE) as log:
        assert log.topic("other").get(b"k") is not None


def test_many_appends_under_way_share_frames() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with of_sync(log) as opened:
            with gate.shut():
                first = asyncio.ensure_future(opened.append(b"first"))
                await asyncio.to_thread(gate.wait_until_held)
                others = [asyncio.ensure_future(opened.append(b"%d" % n)) for n in range(500)]
                await asyncio.to_thread(wait_for_queued, log, 500)
            receipts = await asyncio.gather(first, *others)
            assert [receipt.glsn for receipt in receipts] == list(range(1, 502))
            assert log.log_stats().wal_frames == 2

    log = open_sim(disk, vfs=vfs)
    run(main())


def test_many_appends_of_one_producer_share_frames_too() -> None:
    """More than the interpreter may nest: they must not be handled one inside the other."""
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with of_sync(log) as opened:
            with gate.shut():
                first = asyncio.ensure_future(opened.append(b"", producer="p", sequence=1))
                await asyncio.to_thread(gate.wait_until_held)
                others = [
                    asyncio.ensure_future(opened.append(b"", producer="p", sequence=sequence))
                    for sequence in [*range(2, 1500), *range(1492, 1500)]
                ]
                await asyncio.to_thread(wait_for_queued, log, len(others))
            await first
            receipts = await asyncio.gather(*others)
            fresh, again = receipts[:-8], receipts[-8:]
            assert [receipt.glsn for receipt in fresh] == list(range(2, 1500))
            assert [receipt.glsn for receipt in again] == list(range(1492, 1500))
            assert all(receipt.duplicate for receipt in again)
            assert log.log_stats().wal_frames <= 4

    log = open_sim(disk, vfs=vfs)
    run(main())


def test_a_tail_wakes_up_for_every_append() -> None:
    async def main() -> None:
        async with of_sync(open_sim(SimDisk(), streams=2)) as log:
            seen: list[bytes] = []
            got = asyncio.Condition()

            async def follow() -> None:
                async for record in log.subscribe():
                    async with got:
                        seen.append(record.value)
                        got.notify_all()

            task = asyncio.create_task(follow())
            await asyncio.sleep(0)
            for number in range(20):
                await log.append(b"%d" % number)
                async with got:
                    await got.wait_for(lambda number=number: len(seen) > number)  # type: ignore[misc]
            assert seen == [b"%d" % number for number in range(20)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not log._engine._listeners, "who stops listening is forgotten"

    run(main())


def test_a_tail_misses_nothing_that_threads_append() -> None:
    async def main() -> None:
        sync = open_sim(SimDisk(), streams=3)

        def append(number: int) -> None:
            for _ in range(100):
                sync.append(b"x", stream=sync.streams[number])

        async with of_sync(sync) as log:
            writers = [threading.Thread(target=append, args=(number,)) for number in range(3)]
            for writer in writers:
                writer.start()
            glsns = []
            async with aclosing(log.subscribe(1)) as records:
                async for record in records:
                    glsns.append(record.glsn)
                    if len(glsns) == 300:
                        break
            assert glsns == list(range(1, 301))
            for writer in writers:
                writer.join(WAIT_SECONDS)

    run(main())


def test_a_tail_ends_at_its_timeout_and_at_the_close() -> None:
    async def main() -> None:
        log = of_sync(open_sim(SimDisk()))
        await log.append(b"a")
        assert [record.value async for record in log.subscribe(1, timeout=0.01)] == [b"a"]

        seen: list[bytes] = []

        async def follow() -> None:
            async for record in log.subscribe(1):
                seen.append(record.value)

        task = asyncio.create_task(follow())
        await log.append(b"b")
        while len(seen) < 2:
            await asyncio.sleep(0)
        await log.close()
        await task
        assert seen == [b"a", b"b"]


def test_a_tail_in_the_middle_of_its_records_ends_at_the_close() -> None:
    async def main() -> None:
        log = of_sync(open_sim(SimDisk()))
        for _ in range(3):
            await log.append_batch([b"x"] * 1000)
        glsns = []
        async for record in log.subscribe(1):
            glsns.append(record.glsn)
            if record.glsn == 1:
                await log.close()
        assert glsns == list(range(1, len(glsns) + 1))

    run(main())


def test_a_long_read_comes_in_pages() -> None:
    async def main() -> None:
        async with of_sync(open_sim(SimDisk(), streams=2)) as log:
            for _ in range(3):
                await log.append_batch([b"x"] * 1000)
            glsns = [record.glsn async for record in log.read()]
            assert glsns == list(range(1, 3001))
            assert [r.glsn async for r in log.read(5, 2500, limit=1500)] == list(range(5, 1505))

    run(main())


def test_a_cancelled_append_leaves_the_log_usable() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with of_sync(log) as opened:
            with gate.shut():
                being_written = asyncio.create_task(opened.append(b"being written"))
                await asyncio.to_thread(gate.wait_until_held)
                queued = asyncio.create_task(opened.append(b"queued"))
                await asyncio.to_thread(wait_for_queued, log, 1)
                being_written.cancel()
                queued.cancel()
                outcomes = await asyncio.gather(being_written, queued, return_exceptions=True)
                assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2
            receipt = await opened.append(b"after")
            assert receipt.glsn == opened.high_watermark
            read = await read_all(opened)
            assert read == [b"being written", b"queued", b"after"], "they may take effect, whole"

    log = open_sim(disk, vfs=vfs)
    run(main())


def test_a_deadline_leaves_the_outcome_open() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with of_sync(log) as opened:
            with gate.shut():
                with pytest.raises(DeadlineExceeded, match="may still take effect") as caught:
                    await opened.append(b"a", timeout=0.01)
                assert not caught.value.definite
                gate.open()
            await opened.append(b"b")
            assert await read_all(opened) == [b"a", b"b"]

    log = open_sim(disk, vfs=vfs)
    run(main())


def test_errors_are_those_of_the_blocking_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async with await tidelog.open_async(tmp_path / "log", options=INLINE) as log:
            with pytest.raises(ValueTooLarge):
                await log.append(bytes(VALUE_BYTES_MAX + 1))
            with pytest.raises(UnknownTopic):
                await log.topic("x")
            with pytest.raises(LogLocked):
                await tidelog.open_async(tmp_path / "log", options=INLINE)
            await log.append_batch([b"a", b"b"])
            await log.trim(2)
            with pytest.raises(Trimmed) as caught:
                await anext(log.read(1))
            assert caught.value.first_available == 2
        with pytest.raises(LogClosed):
            await log.append(b"c")
        with pytest.raises(LogClosed):
            await anext(log.read())
        await log.close()

    run(main())


def test_too_many_bytes_under_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_queue, "APPEND_QUEUE_BYTES_MAX", 1000)
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        async with of_sync(log) as opened:
            with gate.shut():
                first = asyncio.create_task(opened.append(b"held"))
                await asyncio.to_thread(gate.wait_until_held)
                second = asyncio.create_task(opened.append(bytes(800)))
                await asyncio.to_thread(wait_for_queued, log, 1)
                with pytest.raises(Busy, match="await earlier appends") as caught:
                    await opened.append(bytes(800))
                assert caught.value.definite
            await asyncio.gather(first, second)
            await opened.append(bytes(800))
            assert opened.high_watermark == 3

    log = open_sim(disk, vfs=vfs)
    run(main())


def test_threads_and_tasks_share_one_log() -> None:
    """The lead goes to and fro between threads that block and the thread of the event loop."""

    async def main() -> None:
        sync = open_sim(SimDisk(), streams=2)
        glsns: list[int] = []

        def append() -> None:
            for _ in range(150):
                glsns.append(sync.append(b"thread").glsn)

        async with of_sync(sync) as log:
            threads = [threading.Thread(target=append) for _ in range(3)]
            for thread in threads:
                thread.start()

            async def append_many() -> None:
                for _ in range(50):
                    glsns.append((await log.append(b"task")).glsn)

            await asyncio.gather(*(append_many() for _ in range(9)))
            for thread in threads:
                await asyncio.to_thread(thread.join, WAIT_SECONDS)
            assert sorted(glsns) == list(range(1, 901))
            values = await read_all(log)
            assert (values.count(b"thread"), values.count(b"task")) == (450, 450)
            await asyncio.to_thread(flush, sync)
            assert await read_all(log) == values

    run(main())


def test_closing_waits_for_the_appends_under_way() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)

    async def main() -> None:
        opened = of_sync(log)
        with gate.shut():
            first = asyncio.create_task(opened.append(b"a"))
            await asyncio.to_thread(gate.wait_until_held)
            second = asyncio.create_task(opened.append(b"b"))
            await asyncio.to_thread(wait_for_queued, log, 1)
            closing = asyncio.create_task(opened.close())
            await asyncio.to_thread(wait_until, lambda: log.engine._queue._closed, "the closing")
            with pytest.raises(LogClosed):
                await opened.append(b"too late")
            gate.open()
            receipts = await asyncio.gather(first, second)
            await closing
        assert [receipt.glsn for receipt in receipts] == [1, 2]

    log = open_sim(disk, vfs=vfs)
    run(main())
    with open_sim(disk) as again:
        assert again.high_watermark == 2


def test_an_append_whose_event_loop_is_gone_is_committed_all_the_same() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    log = open_sim(disk, vfs=vfs)
    opened = of_sync(log)

    async def main() -> None:
        asyncio.create_task(opened.append(b"a"))  # noqa: RUF006 - it dies with the loop.
        await asyncio.to_thread(gate.wait_until_held)

    with gate.shut():
        run(main())
    wait_until(lambda: log.high_watermark == 1, "the commit")
    asyncio.run(opened.close())


def test_a_background_log_closes_from_the_event_loop(tmp_path: Path) -> None:
    async def main() -> None:
        options = Options(wal_file_bytes=64 << 10, tick_seconds=0.01)
        async with await tidelog.open_async(tmp_path / "log", options=options) as log:
            for _ in range(2):  # If the first ones are one group, the next ones need a new file.
                await asyncio.gather(*(log.append(bytes(2000)) for _ in range(200)))
            upkeep = log._engine.maintenance
            await asyncio.to_thread(wait_until, lambda: upkeep.flushes > 0, "a flush")

    run(main())
