"""Runs the steps of a replica's store in threads, each in its turn.

T1  steps of one lane run in the order in which they were handed over, one at a time
T2  steps of different lanes run at once, so that they can share a sync
T3  a step that needs the store for itself waits for all before it, and all after it wait for it
T4  no more steps run than there are threads; the others wait here
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tidelog.invariants import check

ALONE: Final = -2
"""The lane of steps that need the store for themselves."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do in a thread, then something to tell in the event loop."""

    lane: int
    work: Callable[[], Callable[[], None]]
    """Returns what to call in the event loop; must not raise."""


class StoreWork:
    """Belongs to one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._waiting: deque[Step] = deque()
        self._running: dict[int, Step] = {}
        """By lane."""
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, step: Step) -> None:
        """Run a step as soon as it is its turn."""
        self._idle.clear()
        self._waiting.append(step)
        self._start_what_may()

    async def wait_until_idle(self) -> None:
        """Wait until no step runs or waits."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Wait for all steps, and end the threads."""
        await self.wait_until_idle()
        await asyncio.to_thread(self._pool.shutdown)

    def _start_what_may(self) -> None:
        held: deque[Step] = deque()
        lanes_held: set[int] = set()
        while self._waiting:
            step = self._waiting.popleft()
            if self._may_start(step, lanes_held):
                self._start(step)
                continue
            held.append(step)
            lanes_held.add(step.lane)
            if step.lane == ALONE:
                break
        self._waiting.extendleft(reversed(held))

    def _may_start(self, step: Step, lanes_held: set[int]) -> bool:
        if step.lane == ALONE:
            return not self._running and not lanes_held  # T3
        return (
            ALONE not in self._running
            and step.lane not in self._running
            and step.lane not in lanes_held  # T1
            and len(self._running) < self._threads  # T4
        )

    def _start(self, step: Step) -> None:
        check(step.lane not in self._running, "T1: two steps of a lane would run at once")
        self._running[step.lane] = step
        self._pool.submit(step.work).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_done, step, done)
        )

    def _on_done(self, step: Step, done: Future[Callable[[], None]]) -> None:
        del self._running[step.lane]
        self._start_what_may()
        done.result()()
        if not self._running and not self._waiting:
            self._idle.set()
