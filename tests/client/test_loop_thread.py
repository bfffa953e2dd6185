"""Every call to the loop of a client is made or refused, in order, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from inspect import CORO_CLOSED, getcoroutinestate

import pytest

from tests.client.proxy import wait_until
from tidelog.client.loop_thread import LoopThread
from tidelog.errors import BadOption, ConnectionLost, LogClosed

WAIT_SECONDS = 30.0
A_MOMENT = 0.1
ROUNDS = 30
CALLS_MAX = 1_000_000


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


def test_a_coroutine_that_comes_when_the_loop_has_ended_is_refused_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller has found the loop to be there; then it ends."""
    thread = LoopThread()
    monkeypatch.setattr(thread, "check", lambda: None)
    thread.stop()
    late = answer()
    with pytest.raises(LogClosed):
        thread.run(late)
    assert getcoroutinestate(late) == CORO_CLOSED


def test_a_coroutine_that_the_loop_comes_to_while_it_ends_is_refused_and_closed() -> None:
    thread = LoopThread()
    entered, gate = threading.Event(), threading.Event()

    async def hold_on_to_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            entered.set()
            assert gate.wait(WAIT_SECONDS)

    late = answer()
    with ThreadPoolExecutor(3) as pool:
        held = pool.submit(thread.run, hold_on_to_the_end())
        wait_until(lambda: bool(asyncio.all_tasks(thread._loop)), "the coroutine runs")
        stopped = pool.submit(thread.stop)
        assert entered.wait(WAIT_SECONDS)
        # As if it had been accepted right before the stop.
        told = pool.submit(thread.wait, thread._accept_work(late))
        gate.set()
        stopped.result(WAIT_SECONDS)
        with pytest.raises(LogClosed):
            told.result(WAIT_SECONDS)
        with pytest.raises(ConnectionLost):
            held.result(WAIT_SECONDS)
    assert getcoroutinestate(late) == CORO_CLOSED


def test_nothing_is_accepted_while_the_last_coroutine_runs() -> None:
    thread = LoopThread()
    entered, gate = threading.Event(), asyncio.Event()

    async def last() -> None:
        entered.set()
        await gate.wait()

    with ThreadPoolExecutor(2) as pool:
        closed = pool.submit(thread.close, last)
        assert entered.wait(WAIT_SECONDS)
        late = answer()
        with pytest.raises(LogClosed):
            thread.run(late)
        with pytest.raises(LogClosed):
            thread.call(lambda: None)
        assert getcoroutinestate(late) == CORO_CLOSED
        again = pool.submit(thread.close, last)
        assert not closed.done()
        thread._loop.call_soon_threadsafe(gate.set)
        closed.result(WAIT_SECONDS)
        again.result(WAIT_SECONDS)
    thread.close(last)
    assert not thread.is_ours


def test_a_close_in_the_loop_is_refused_and_closes_nothing() -> None:
    thread = LoopThread()
    told: Future[None] = Future()

    def close() -> None:
        try:
            thread.close(nothing)
        except BadOption as error:
            told.set_exception(error)

    thread.call(close)
    with pytest.raises(BadOption):
        told.result(WAIT_SECONDS)
    assert thread.run(answer()) == 42
    thread.close(nothing)


def test_many_callers_meet_the_end_and_none_waits_for_ever() -> None:
    """Whoever is faster: each one has its answer or the error for a closed client."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(ROUNDS):
            thread = LoopThread()
            runs = [pool.submit(run_until_closed, thread) for _ in range(3)]
            thread.close(nothing)
            for run in runs:
                assert isinstance(run.result(WAIT_SECONDS), LogClosed)


def run_until_closed(thread: LoopThread) -> BaseException | None:
    for _ in range(CALLS_MAX):
        try:
            assert thread.run(answer()) == 42
        except LogClosed as error:
            return error
    return None


async def answer() -> int:
    return 42


async def nothing() -> None:
    pass
