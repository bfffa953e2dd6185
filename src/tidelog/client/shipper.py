"""Takes the appends of a client in, one lane for each log stream, and sees to their deadlines.

S1  the bytes in all lanes are bounded; what comes beyond waits at the door, in order
S2  a ticket whose deadline passes is told whether it may have had an effect
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from secrets import randbits
from time import monotonic
from typing import Final

from tidelog.client.channel import Channel
from tidelog.client.lanes import Lanes
from tidelog.client.pool import Pool
from tidelog.client.run import Run
from tidelog.client.shipments import Loose, Ticket, Whole, fail
from tidelog.errors import (
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    Unreachable,
)
from tidelog.limits import MIB

QUEUED_BYTES_MAX: Final = 32 * MIB


class Shipper:
    """The appends of one client.  All calls belong into the event loop."""

    def __init__(self, pool: Pool, *, bytes_max: int = QUEUED_BYTES_MAX) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._door: deque[tuple[Sequence[Run], Ticket]] = deque()
        self._lanes: dict[str, Lanes] = {}
        self._runs: dict[tuple[str, int], Run] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._alarm = 0.0
        """When the timer goes off, by the clock of ``monotonic``."""
        self._drained = asyncio.Event()
        """Set when it is worth while to look whether all is done."""
        main = pool.main
        main.on_up = partial(self._on_up, main)
        main.on_down = partial(self._on_down, main)
        main.on_hopeless = self._on_hopeless
        main.wanted = self._is_busy
        pool.on_up = self._on_up
        pool.on_down = self._on_down
        pool.is_wanted = self._is_wanted

    @property
    def queued_bytes(self) -> int:
        """What is in the lanes (S1)."""
        return self._bytes

    def submit(self, topic: str, stream: int, ticket: Ticket) -> None:
        """Send an append; its waiter is told what became of it.

        Of several log streams, ``stream`` is the first.  It has its place in each of them.
        """
        runs = [self._run(topic, stream)]
        if isinstance(ticket, Whole):
            runs += [self._run(topic, part.stream) for part in ticket.parts[1:]]
        self._watch(ticket.deadline)
        self._take_in(runs, ticket)

    def gather(self, topic: str, stream: int, ticket: Loose) -> None:
        """The same, but entries may be added to it until the turn of the loop is over, or
        something comes behind it."""
        run = self._run(topic, stream)
        self._watch(ticket.deadline)
        run.gathering = ticket
        ticket.is_open = True
        run.schedule()

    def _run(self, topic: str, stream: int) -> Run:
        """The run for a ticket that comes now; what was gathered for it goes before that."""
        run = self._runs.get((topic, stream))
        if run is None:
            lanes = self._lanes.get(topic)
            if lanes is None:
                # A number of 64 bits that nobody else has, and not 0.
                lanes = self._lanes[topic] = Lanes(topic, randbits(64) or 1)
            run = Run(lanes.lane(stream), self._pool, self._on_settled, self._end_gathering)
            self._runs[topic, stream] = run
        self._end_gathering(run)
        return run

    def _end_gathering(self, run: Run) -> None:
        ticket, run.gathering = run.gathering, None
        if ticket is not None:
            ticket.is_open = False
            self._take_in((run,), ticket)

    def _take_in(self, runs: Sequence[Run], ticket: Ticket) -> None:
        if self._door or (self._bytes and self._bytes + ticket.size > self._bytes_max):
            self._door.append((runs, ticket))
        else:
            self._let_in(runs, ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for the ticket any more; if it was not sent, it never will be."""
        self._fail(ticket, LogClosed("the append was cancelled"))

    def _let_in(self, runs: Sequence[Run], ticket: Ticket) -> None:
        self._bytes += ticket.size
        ticket.inside = True
        for run in runs:
            run.lane.offer(ticket)

    def _release(self, size: int) -> None:
        self._bytes -= size
        while self._door:
            runs, ticket = self._door[0]
            if ticket.settled:
                self._door.popleft()
                continue
            if self._bytes and self._bytes + ticket.size > self._bytes_max:
                return
            self._door.popleft()
            self._let_in(runs, ticket)

    # -- connections --------------------------------------------------------------------------

    def _on_settled(self, size: int) -> None:
        self._release(size)
        self._drained.set()

    def _on_up(self, _channel: Channel) -> None:
        for run in self._runs.values():
            run.on_up()

    def _on_down(self, channel: Channel) -> None:
        for run in self._runs.values():
            run.on_down(channel)
        self._drained.set()

    def _is_busy(self) -> bool:
        return next(self._tickets(), None) is not None

    def _is_wanted(self, channel: Channel) -> bool:
        return any(run.uses(channel) for run in self._runs.values())

    # -- giving up (S2) -----------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """One timer for all tickets: deadlines rarely pass."""
        if self._timer is not None:
            if self._alarm <= deadline:
                return
            self._timer.cancel()
        # By the clock that all threads share: the loop's own may stand still while it waits.
        self._alarm = deadline
        self._timer = self._loop.call_later(max(deadline - monotonic(), 0), self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = monotonic()
        for run, ticket, maybe in list(self._tickets()):
            if ticket.deadline <= now:
                self._fail(ticket, self._too_late(run, maybe))
        self._release(0)
        for run in self._runs.values():
            run.schedule()  # Others may have waited for what nobody waits for any more.
        self._drained.set()
        deadlines = [ticket.deadline for _, ticket, _ in self._tickets()]
        if deadlines:
            self._watch(min(deadlines))

    def _too_late(self, run: Run, maybe: bool) -> LogError:
        if maybe:
            return DeadlineExceeded("the append had no answer in time; it may still take effect")
        if not self._pool.is_up:
            return Unreachable(f"{self._pool.main.trouble}; the append was not sent")
        if run.trouble is not None and run.trouble.definite:
            return type(run.trouble)(f"{run.trouble}; the append was not accepted in time")
        return Busy("the append was not sent in time, since too much was under way")

    def _tickets(self) -> Iterator[tuple[Run, Ticket, bool]]:
        """All that is not settled, and whether it may have had an effect."""
        for run in self._runs.values():
            self._end_gathering(run)
            yield from ((run, ticket, maybe) for ticket, maybe in run.lane.tickets())
        yield from ((runs[0], ticket, False) for runs, ticket in self._door if not ticket.settled)

    def _fail(self, ticket: Ticket, error: LogError) -> None:
        size = fail(ticket, error)
        if ticket.inside:
            self._release(size)

    def _fail_all(self, unsent: LogError) -> None:
        for _, ticket, maybe in list(self._tickets()):
            error = type(unsent)(str(unsent))
            if maybe:
                error = ConnectionLost(f"{unsent}; the append may have taken effect")
            self._fail(ticket, error)

    def _on_hopeless(self, error: LogError) -> None:
        self._fail_all(error)

    async def close(self, seconds: float) -> None:
        """Let what was appended before go on for a while, then fail the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._is_busy() and self._pool.is_up:
                    self._drained.clear()
                    await self._drained.wait()
        self._fail_all(LogClosed("the client was closed"))
        if self._timer is not None:
            self._timer.cancel()
        for run in self._runs.values():
            run.close()
