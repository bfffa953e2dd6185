"""Threads for work that may block, and a bound on what waits for them.

Invariants:
  T1  No more calls are handed to the threads than there are threads: who waits, waits in the event
      loop, where it can be cancelled.
  T2  A call that nobody awaits any more holds its place until its thread is done with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from tidelog.errors import LogClosed

T = TypeVar("T")


class WorkThreads:
    """``count`` threads; all calls of its methods belong into one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._free = asyncio.Semaphore(count)

    async def run(self, call: Callable[[], T]) -> T:
        """What ``call`` returns or raises; it runs in a thread as soon as one is free.

        LogClosed after ``stop``.
        """
        await self._free.acquire()
        try:
            running = self._pool.submit(call)
        except RuntimeError as error:
            self._free.release()
            raise LogClosed("stopping: nothing is begun any more") from error
        running.add_done_callback(self._on_done)
        return await asyncio.wrap_future(running)

    async def stop(self) -> None:
        """Wait for the calls that run."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def _on_done(self, _: Future[T]) -> None:
        with suppress(RuntimeError):  # The loop is gone, and with it all who waited.
            self._loop.call_soon_threadsafe(self._free.release)
