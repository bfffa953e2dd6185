"""Appends that travel between event loops and the committing thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.embedded.logs import WAIT_SECONDS, gated, open_sim, values, wait_for_queued
from tidelog.embedded.commits import LoopCommits
from tidelog.errors import DeadlineExceeded, LogClosed, StorageFailed
from tidelog.formats.batch import encode_values
from tidelog.interface.appends import Append, Part
from tidelog.testing.disk import SimDisk


def append_of(value: bytes) -> Append:
    return Append("default", [Part(1, encode_values([value], timestamp_us=1))])


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, WAIT_SECONDS))


def count_wakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the running loop is woken from other threads, for outcomes."""
    loop = asyncio.get_running_loop()
    wakes = [0]
    call = loop.call_soon_threadsafe

    def counting(callback: Callable[..., object], *args: Any, **options: Any) -> Any:
        wakes[0] += callback.__name__ == "_resolve"
        return call(callback, *args, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    return wakes


def test_a_loop_is_woken_once_for_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    vfs, gate = gated(SimDisk())
    log = open_sim(SimDisk(), vfs=vfs)
    commits = LoopCommits(log.engine)

    async def main() -> None:
        wakes = count_wakes(monkeypatch)
        with gate.shut():
            first = commits.post(append_of(b"first"))
            await asyncio.to_thread(gate.wait_until_held)
            others = [commits.post(append_of(b"%d" % number)) for number in range(500)]
            await asyncio.to_thread(wait_for_queued, log, 500)
        receipts = await asyncio.gather(first, *others)
        assert [one.glsn for (one,) in receipts] == list(range(1, 502))
        assert wakes == [2]

    run(main())
    log.close()
    commits.stop()


def test_a_blocking_caller_that_leads_wakes_the_loop_too() -> None:
    vfs, gate = gated(SimDisk())
    log = open_sim(SimDisk(), vfs=vfs)
    commits = LoopCommits(log.engine)

    async def main() -> None:
        with gate.shut():
            blocking = asyncio.create_task(asyncio.to_thread(log.append, b"blocking"))
            await asyncio.to_thread(gate.wait_until_held)
            posted = [commits.post(append_of(b"%d" % number)) for number in range(5)]
        await asyncio.gather(blocking, *posted)

    run(main())
    assert len(values(log)) == 6
    log.close()
    commits.stop()


def test_failures_and_deadlines_reach_who_waits() -> None:
    vfs, gate = gated(SimDisk())
    log = open_sim(SimDisk(), vfs=vfs)
    commits = LoopCommits(log.engine)

    async def main() -> None:
        with gate.shut(), pytest.raises(DeadlineExceeded, match="may still"):
            await commits.commit(append_of(b"slow"), 0.01)
        await commits.commit(append_of(b"a"), None)
        log.engine.node.vfs.stop("broken")
        with pytest.raises(StorageFailed):
            await commits.commit(append_of(b"b"), None)
        await asyncio.to_thread(log.close)
        with pytest.raises(LogClosed):
            commits.post(append_of(b"c"))

    run(main())
    commits.stop()
