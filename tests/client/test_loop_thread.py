"""Every call to the loop of a client is made or refused, in order, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.client.proxy import wait_until
from tidelog.client.loop_thread import LoopThread
from tidelog.errors import LogClosed

WAIT_SECONDS = 30.0
A_MOMENT = 0.1


def test_a_call_that_is_late_is_refused_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked whether the loop is there; then it ends."""
    thread = LoopThread()
    looked, gate = threading.Semaphore(0), threading.Event()
    check = thread.check

    def check_and_pause() -> None:
        check()
        looked.release()
        assert gate.wait(WAIT_SECONDS)

    monkeypatch.setattr(thread, "check", check_and_pause)
    made: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(thread.call, partial(made.append, number)) for number in range(2)]
        for _ in calls:
            assert looked.acquire(timeout=WAIT_SECONDS)
        thread.stop()
        gate.set()
        for call in calls:
            with pytest.raises(LogClosed):
                call.result(WAIT_SECONDS)
    assert made == []


def test_what_was_accepted_while_the_loop_ends_is_made() -> None:
    thread = LoopThread()
    made: list[int] = []
    entered, gate = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert gate.wait(WAIT_SECONDS)

    thread.call(hold)
    assert entered.wait(WAIT_SECONDS)
    for number in range(3):
        thread.call(partial(made.append, number))
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(thread.stop)
        wait_until(lambda: refuses(thread), "the client is closed")
        gate.set()
        stopped.result(WAIT_SECONDS)
    assert made == [0, 1, 2]


def refuses(thread: LoopThread) -> bool:
    try:
        thread.check()
    except LogClosed:
        return True
    return False


def test_the_last_call_is_the_one_that_is_made_last() -> None:
    """Appenders add to the last call: nobody else's may lie behind it."""
    thread = LoopThread()
    first_is_in, second_is_in = threading.Event(), threading.Event()

    class Slow(deque[Callable[[], None]]):
        def append(self, call: Callable[[], None], /) -> None:
            super().append(call)
            if call is first:
                first_is_in.set()
                second_is_in.wait(A_MOMENT)

    made: list[str] = []
    first, second = partial(made.append, "first"), partial(made.append, "second")
    thread._calls = Slow()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(thread.call, first)
        assert first_is_in.wait(WAIT_SECONDS)
        pool.submit(thread.call, second).add_done_callback(lambda _: second_is_in.set())
        one.result(WAIT_SECONDS)
    wait_until(lambda: len(made) == 2, "both calls are made")
    last = thread.last_call
    thread.stop()
    assert (made[-1], last) == ("second", second)
