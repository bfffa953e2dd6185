"""An event loop in a thread of its own, for callers that block.

T1  a caller that is interrupted cancels what it waited for
T2  appends from all threads reach the loop in the order of each thread, and the loop is woken
    once for all that came meanwhile
T3  a call that was accepted is made, even if the loop ends meanwhile; any other is refused
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from tidelog.errors import BadOption, LogClosed, LogError
from tidelog.net.loops import new_loop

T = TypeVar("T")
_END_SECONDS: Final = 10.0


class LoopThread:
    """Started at once; ``stop`` ends it."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self.last_call: Callable[[], None] | None = None
        """What was asked for last, by any thread."""
        # The garbage collector may make a call in the middle of another one of the same thread.
        self._lock = threading.RLock()
        self._woken = False
        self._stopped = False
        self._ended = False
        """Whether the last calls were made (T3)."""
        # A daemon, so that a log that nobody closed does not hold the program back.
        self._thread = threading.Thread(target=self._run, name="tidelog-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        try:
            self.check_caller()
        except LogError:
            work.close()
            raise
        return self.wait(asyncio.run_coroutine_threadsafe(work, self._loop))

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
            if self._ended:
                raise _closed()
            # Both in one step: whoever finds its call to be the last one adds to it (T2).
            self.last_call = call
            self._calls.append(call)
            if not self._woken:
                self._wake()

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

    def stop(self) -> None:
        """End what still runs in the loop, and the thread; twice is fine."""
        if self._stopped:
            return
        self._stopped = True
        if self.is_ours and threading.current_thread() is not self._thread:
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
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            with self._lock:
                self._ended = True
            self._make_calls()


def _closed() -> LogClosed:
    return LogClosed("the client is closed: connect again")


def _elsewhere() -> LogClosed:
    return LogClosed("this client belongs to another process: connect again after a fork")
