"""An event loop in a thread of its own, for callers that block.

T1  a caller that is interrupted cancels what it waited for
T2  appends from all threads reach the loop in the order of each thread, and the loop is woken
    once for all that came meanwhile
T3  a call that was accepted is made, even if the loop ends meanwhile; any other is refused
T4  a coroutine that was accepted is run to its end or closed, and its caller is told which
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.errors import BadOption, ConnectionLost, LogClosed, LogError
from tidelog.net.loops import new_loop

T = TypeVar("T")
_END_SECONDS: Final = 10.0


class LoopThread:
    """Started at once; ``close`` or ``stop`` ends it."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self.last_call: Callable[[], None] | None = None
        """What was asked for last, by any thread; coroutines do not count."""
        # The garbage collector may make a call in the middle of another one of the same thread.
        self._lock = threading.RLock()
        self._woken = False
        self._stopped = False
        """Whether nothing new is accepted."""
        self._ending = False
        """Whether what still runs in the loop is being ended: nothing is begun any more (T4)."""
        self._ended = False
        """Whether the last calls were made (T3)."""
        # A daemon, so that a log that nobody closed does not hold the program back.
        self._thread = threading.Thread(target=self._run, name="tidelog-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        try:
            with self._lock:
                self.check_caller()
                future = self._accept_work(work)
        except LogError:
            work.close()
            raise
        return self.wait(future)

    def wait(self, future: Future[T]) -> T:
        """The result of what runs in the loop (T1)."""
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, call: Callable[[], None]) -> None:
        """Call this in the loop, soon, after all that this thread asked for before (T2)."""
        self.check()
        with self._lock:
            # Both in one step: whoever finds its call to be the last one adds to it (T2).
            self.last_call = call
            self._accept(call)

    def _accept(self, call: Callable[[], None]) -> None:
        """Queue a call that is sure to be made (T3)."""
        with self._lock:
            if self._ended:
                raise _closed()
            self._calls.append(call)
            if not self._woken:
                self._wake()

    def _accept_work(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            self._accept(partial(self._begin, work, future))
        except BaseException:
            future.cancel()  # Interrupted, perhaps when it was queued already.
            raise
        return future

    def _begin(self, work: Coroutine[Any, Any, T], future: Future[T]) -> None:
        """In the loop, or in its place: run a coroutine, or close it (T4)."""
        if future.cancelled() or self._ending:
            work.close()
            if future.set_running_or_notify_cancel():
                future.set_exception(_closed())
            return
        task = self._loop.create_task(work)
        task.add_done_callback(partial(_tell, future))
        future.add_done_callback(partial(self._on_left, task))

    def _on_left(self, task: asyncio.Task[T], future: Future[T]) -> None:
        """In any thread: whoever waited does not do so any more (T1)."""
        if future.cancelled():
            with suppress(RuntimeError):  # The loop is closed, so the task has ended.
                self._loop.call_soon_threadsafe(task.cancel)

    def check_caller(self) -> None:
        """Raise unless the caller may ask the loop for something and wait for it."""
        self.check()
        self._check_not_loop()

    def check_waiter(self) -> None:
        """Raise unless what the loop was asked for before is done while the caller waits."""
        if not self._thread.is_alive():
            raise _elsewhere()
        self._check_not_loop()

    def _check_not_loop(self) -> None:
        if threading.current_thread() is self._thread:
            raise BadOption(
                "a blocking call in a callback of this client would wait for itself: make it in a "
                "thread of your own"
            )

    def check(self) -> None:
        """Raise unless the loop is there."""
        if self._stopped:
            raise _closed()
        if not self._thread.is_alive():
            raise _elsewhere()

    @property
    def is_ours(self) -> bool:
        """Whether the thread runs in this process: after a fork it does not."""
        return self._thread.is_alive()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Accept nothing more, run one last coroutine, and stop; twice is fine.

        Who comes while another thread closes waits until it is done.
        """
        if not self.is_ours:
            return
        self._check_not_loop()
        with self._lock:
            is_first, self._stopped = not self._stopped, True
            future = self._accept_work(last()) if is_first else None
        if future is None:
            self._thread.join(_END_SECONDS)
            return
        try:
            self.wait(future)
        finally:
            self._end()

    def stop(self) -> None:
        """Accept nothing more, end what still runs in the loop, and the thread; twice is fine."""
        self._stopped = True
        if self.is_ours and threading.current_thread() is not self._thread:
            self._end()

    def _end(self) -> None:
        with suppress(RuntimeError):  # The loop is closed already.
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)

    def _wake(self) -> None:
        try:
            self._woken = True
            self._loop.call_soon_threadsafe(self._make_calls)
        except RuntimeError:
            pass  # The loop is closed, but its thread has yet to make the last calls (T3).
        except BaseException:
            self._woken = False  # Interrupted: the next call wakes the loop.
            raise

    def _make_calls(self) -> None:
        # First this: whoever comes from now on wakes the loop again.
        self._woken = False
        while self._calls:
            self._calls.popleft()()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._ending = True
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._ending = True
            self._loop.close()
            with self._lock:
                self._ended = True
            self._make_calls()


def _tell(future: Future[T], task: asyncio.Task[T]) -> None:
    """Tell the caller what became of its coroutine, unless it has left."""
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if task.cancelled():
        future.set_exception(
            ConnectionLost("the client was closed; what was under way may have taken effect")
        )
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _closed() -> LogClosed:
    return LogClosed("the client is closed: connect again")


def _elsewhere() -> LogClosed:
    return LogClosed("this client belongs to another process: connect again after a fork")
