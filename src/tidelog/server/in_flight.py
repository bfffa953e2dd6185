"""The requests of a connection that wait for their answer.

Invariants:
  I1  A request is closed exactly once: by its answer, its deadline, its client, or the end of the
      connection.
  I2  No two open requests have the same number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.errors import BadFrame
from tidelog.formats.wire import FrameHeader
from tidelog.server.counters import Counters

_TIMEOUT_SECONDS: Final = 60.0
"""For requests that bring none."""


@dataclass(slots=True, eq=False)
class InFlight:
    """A request that was not answered yet, or no more."""

    number: int
    size: int
    since: float
    seconds: float
    """How long its client waits."""
    timer: asyncio.TimerHandle
    task: asyncio.Task[None] | None = None
    """What works on it, if that can be cancelled."""
    is_open: bool = True


class InFlightRequests:
    """The open requests of one connection."""

    def __init__(self, counters: Counters, on_deadline: Callable[[InFlight], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._counters = counters
        self._on_deadline = on_deadline
        self._open: dict[int, InFlight] = {}
        self.bytes = 0
        """What the open requests brought with them."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self, header: FrameHeader) -> InFlight:
        """Begin with a request; BadFrame if its number is taken (I2)."""
        number = header.request
        if not number or number in self._open:
            raise BadFrame(f"request number {number} is in use: number requests from 1 on")
        seconds = header.timeout_ms / 1000 if header.timeout_ms else _TIMEOUT_SECONDS
        timer = self._loop.call_later(seconds, self._expire, number)
        flight = InFlight(number, header.body_bytes, self._loop.time(), seconds, timer)
        self._open[number] = flight
        self.bytes += flight.size
        self._counters.in_flight += 1
        return flight

    def close(self, flight: InFlight) -> bool:
        """Be done with a request; False if that had happened before (I1)."""
        if not flight.is_open:
            return False
        flight.is_open = False
        flight.timer.cancel()
        del self._open[flight.number]
        self.bytes -= flight.size
        self._counters.in_flight -= 1
        return True

    def give_up(self, number: int) -> None:
        """Nobody waits for a request any more; one that is not known was answered before."""
        flight = self._open.get(number)
        if flight is not None:
            self._abandon(flight)

    def give_all_up(self) -> None:
        for flight in list(self._open.values()):
            self._abandon(flight)

    def _abandon(self, flight: InFlight) -> None:
        if flight.task is not None:
            flight.task.cancel()
        self.close(flight)

    def _expire(self, number: int) -> None:
        flight = self._open[number]
        if flight.task is not None:
            flight.task.cancel()
        self._on_deadline(flight)
