"""Runs the steps of a replica's store in threads, each in its turn.

T1  steps of one lane run in the order in which they were handed over, one at a time
T2  steps of different lanes run at once, so that they can share a sync
T3  a step that needs the store for itself waits for all before it, and all after it wait for it
T4  no more steps run than there are threads; the others wait here
T5  a brief step runs in the event loop if its lane is the only one at work and the disk is brisk:
    nobody could share its sync, and two changes of threads would take longer than the step
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

from tidelog.invariants import check

ALONE: Final = -2
"""The lane of steps that need the store for themselves."""
_LONELY: Final = 16
"""So many steps of one log channel in a row show that it is the only one at work."""
_BRISK_NS: Final = 2_000_000
"""The event loop is not held up for longer than this, but once."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do in a thread, then something to tell in the event loop."""

    lane: int
    work: Callable[[], Callable[[], None]]
    """Returns what to call in the event loop; must not raise."""
    is_brief: bool = False
    """Whether it does no more than a small write and a sync."""


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
        self._last_lane = ALONE
        self._in_a_row = 0
        self._is_brisk = False

    def add(self, step: Step) -> None:
        """Run a step as soon as it is its turn."""
        self._note(step.lane)
        if step.is_brief and self._is_lonely():
            self._run_here(step)
            return
        self._idle.clear()
        self._waiting.append(step)
        self._start_what_may()

    def is_free(self, lane: int) -> bool:
        """Whether a step of this lane would begin at once."""
        return not self._waiting and lane not in self._running and ALONE not in self._running

    async def wait_until_idle(self) -> None:
        """Wait until no step runs or waits."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Wait for all steps, and end the threads."""
        await self.wait_until_idle()
        await asyncio.to_thread(self._pool.shutdown)

    def _note(self, lane: int) -> None:
        """Group commits come between the steps of a log channel, whoever works."""
        if lane >= 0:
            self._in_a_row = self._in_a_row + 1 if lane == self._last_lane else 0
            self._last_lane = lane

    def _is_lonely(self) -> bool:
        """T5."""
        is_idle = not self._running and not self._waiting
        return is_idle and self._is_brisk and self._in_a_row >= _LONELY

    def _run_here(self, step: Step) -> None:
        begin = perf_counter_ns()
        tell = step.work()
        self._is_brisk = perf_counter_ns() - begin < _BRISK_NS
        tell()

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
        begin = perf_counter_ns()
        self._pool.submit(step.work).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._on_done, step, begin, done)
        )

    def _on_done(self, step: Step, begin: int, done: Future[Callable[[], None]]) -> None:
        del self._running[step.lane]
        if step.is_brief:
            self._is_brisk = perf_counter_ns() - begin < _BRISK_NS
        self._start_what_may()
        done.result()()
        if not self._running and not self._waiting:
            self._idle.set()
