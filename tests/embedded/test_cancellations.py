"""Opening and closing a log from an event loop, by somebody who does not wait to the end."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.embedded.logs import WAIT_SECONDS, wait_until
from tidelog import Log
from tidelog.embedded import async_log
from tidelog.embedded.opening import Opening
from tidelog.errors import LogLocked


def can_be_opened(path: Path) -> bool:
    try:
        tidelog.open(path).close()
    except LogLocked:
        return False
    return True


async def give_up(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_log_whose_opening_was_cancelled_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(path: Path, **options: Any) -> Log:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)
        return tidelog.open(path, **options)

    async def run() -> None:
        opening = asyncio.ensure_future(tidelog.open_async(tmp_path))
        await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        await give_up(opening)
        go_on.set()

    monkeypatch.setattr(async_log, "open_log", slow)
    asyncio.run(run())
    wait_until(lambda: can_be_opened(tmp_path), "nobody has it open")


def test_a_log_that_opened_in_the_moment_of_the_cancellation_is_let_go_of(tmp_path: Path) -> None:
    opening = Opening(lambda: tidelog.open(tmp_path))
    opening.run()
    assert not can_be_opened(tmp_path)
    opening.give_up()
    assert can_be_opened(tmp_path)


def test_a_close_that_was_cancelled_is_carried_out_all_the_same(tmp_path: Path) -> None:
    go_on = threading.Event()

    async def run() -> None:
        log = await tidelog.open_async(tmp_path)
        await log.append(b"a")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        held = asyncio.ensure_future(asyncio.to_thread(go_on.wait, WAIT_SECONDS))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await give_up(closing)
        go_on.set()
        await held
        await asyncio.to_thread(lambda: None)  # Behind the close.
        assert can_be_opened(tmp_path)
        assert not [t for t in threading.enumerate() if t.name.startswith("tidelog-")]

    asyncio.run(run())
