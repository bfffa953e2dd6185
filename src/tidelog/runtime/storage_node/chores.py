"""Work of a storage node that looks at files: in threads, with its end told in a turn.

Invariants:
  T1  no more than ``CHORE_THREADS`` run at once; what waits is bounded by those who ask
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from tidelog.limits import CHORE_THREADS

T = TypeVar("T")


class Chores:
    """Belongs to one event loop."""

    def __init__(self, put: Callable[[Callable[[], None]], None]) -> None:
        """``put`` takes what is to be called in the next turn."""
        self._loop = asyncio.get_running_loop()
        self._put = put
        self._pool = ThreadPoolExecutor(CHORE_THREADS, thread_name_prefix="tidelog-chore")

    def run(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Call ``work`` in a thread, then ``then`` with what it returned, in a turn."""
        self._pool.submit(work).add_done_callback(partial(self._on_done, then))

    def run_only(self, work: Callable[[], None]) -> None:
        """Call ``work`` in a thread."""
        self.run(work, _ignore)

    def tell(self, word: Callable[[], None]) -> None:
        """Call ``word`` in a turn; from any thread."""
        self._loop.call_soon_threadsafe(self._put, word)

    async def stop(self) -> None:
        """Wait for what runs; what waits is left."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def _on_done(self, then: Callable[[T], None], done: Future[T]) -> None:
        if not done.cancelled():
            self.tell(lambda: then(done.result()))


def _ignore(_: None) -> None:
    """There is nothing to be told."""
