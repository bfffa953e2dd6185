"""Offers work at a fixed rate, whatever becomes of it.

Each call has a planned time, and its latency counts from there: a system that stalls does not make
the load go away, as it would if the next call waited for the last one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from tidelog.errors import LogError

UNDER_WAY_MAX: Final = 100_000
"""More calls than this are not offered: the run would measure this machine's memory."""
IN_FLIGHT: Final = 256
"""Calls at once when no rate is given."""


@dataclass(slots=True)
class Offered:
    """What became of a run; latencies are of calls that succeeded, in seconds."""

    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    """Calls that were not made since too many were under way."""
    seconds: float = 0.0


class OpenLoop:
    """``call(number, planned)`` is one call; ``rate`` is calls per second, 0: as many as go."""

    def __init__(
        self,
        call: Callable[[int, float], Awaitable[None]],
        *,
        rate: float,
        seconds: float,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._call = call
        self._rate = rate
        self._seconds = seconds
        self._told = told
        self._offered = Offered()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> Offered:
        """Offer all, and wait for what is under way."""
        begin = perf_counter()
        if self._rate:
            await self._offer(begin)
        else:
            await asyncio.gather(*(self._go_round(begin, n) for n in range(IN_FLIGHT)))
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._offered.seconds = perf_counter() - begin
        return self._offered

    async def _offer(self, begin: float) -> None:
        total = max(int(self._rate * self._seconds), 1)
        number = 0
        while number < total:
            due = min(int((perf_counter() - begin) * self._rate) + 1, total)
            while number < due:
                self._start(number, begin + number / self._rate)
                number += 1
            self._told(len(self._offered.latencies))
            await asyncio.sleep(max(begin + number / self._rate - perf_counter(), 0))

    def _start(self, number: int, planned: float) -> None:
        if len(self._under_way) >= UNDER_WAY_MAX:
            self._offered.dropped += 1
            return
        task = asyncio.get_running_loop().create_task(self._one(number, planned))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _go_round(self, begin: float, number: int) -> None:
        while (now := perf_counter()) < begin + self._seconds:
            await self._one(number, now)
            number += IN_FLIGHT
            self._told(len(self._offered.latencies))

    async def _one(self, number: int, planned: float) -> None:
        try:
            await self._call(number, planned)
        except LogError as error:
            self._offered.errors[type(error).__name__] += 1
        else:
            self._offered.latencies.append(perf_counter() - planned)
