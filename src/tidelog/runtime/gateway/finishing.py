"""Whose turn it is among publications that are half done.

One that a log stream holds up must not keep the others: several are finished at a time, and whoever
is through, or gives up, makes room for the one that has waited longest.

Invariants:
  F1  no more than ``AT_ONCE`` are under way
  F2  a publication has one turn at a time, and comes behind all that wait when it has another one
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

AT_ONCE: Final = 8
"""Each holds a chunk of what it appends in memory."""


class Finishing:
    """``resume`` finishes the publication of a key, or gives up.  Belongs to one event loop."""

    def __init__(self, resume: Callable[[bytes], Coroutine[Any, Any, object]]) -> None:
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._turns: dict[bytes, asyncio.Future[Exception | None]] = {}
        """Of all that wait or are under way: why it could not be finished."""
        self._waiting: deque[bytes] = deque()
        self._under_way: set[asyncio.Task[object]] = set()

    async def go_through(self, keys: Sequence[bytes], seconds: float) -> Exception | None:
        """Give each of them a turn; returns the first trouble that came up within so long.

        What has not had its turn by then will have it.
        """
        turns = [self._turn(key) for key in keys]
        self._begin()
        if turns:
            await asyncio.wait(turns, timeout=seconds)
        return next((trouble for turn in turns if turn.done() and (trouble := turn.result())), None)

    def _turn(self, key: bytes) -> asyncio.Future[Exception | None]:
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = self._loop.create_future()
            self._waiting.append(key)
        return turn

    def _begin(self) -> None:
        while self._waiting and len(self._under_way) < AT_ONCE:
            key = self._waiting.popleft()
            task = self._loop.create_task(self._resume(key), name="tidelog-finish")
            self._under_way.add(task)
            task.add_done_callback(partial(self._on_end, key))

    def _on_end(self, key: bytes, task: asyncio.Task[object]) -> None:
        self._under_way.discard(task)
        trouble = None if task.cancelled() else task.exception()
        if trouble is not None and not isinstance(trouble, Exception):
            raise trouble
        self._turns.pop(key).set_result(trouble)
        self._begin()

    async def close(self) -> None:
        """End what is under way; whoever waits for a turn is let go."""
        for key in self._waiting:
            self._turns.pop(key).set_result(None)
        self._waiting.clear()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
