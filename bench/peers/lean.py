"""A client of next to nothing: prepared bytes go out, and acknowledgements are counted.

It shows what a system can do where its usual client is the bottleneck.  What it sends is what that
client would send; it only leaves out making it again for each append.

  L1  a system acknowledges in the order of what it was sent, on each connection
  L2  at most a window of frames is unacknowledged on each connection
"""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, TypeVar, cast

from bench.peers.interface import Client
from bench.peers.processes import HOST
from tidelog.net.loops import loop_factory

ANSWER_SECONDS: Final = 60.0
BUFFER_BYTES: Final = 1 << 20
_SLEEP_SECONDS_MIN: Final = 0.0005
"""Shorter pauses are not worth a turn of the loop."""

T = TypeVar("T")


class PeerError(Exception):
    """A peer refused something, or broke off."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes to send, and the acknowledgements that they bring."""

    data: bytes
    acknowledgements: int = 1

    def times(self, count: int) -> Frame:
        """Several of them in one write."""
        return Frame(self.data * count, self.acknowledgements * count)


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failure: str | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._due: deque[float] = deque()
        self._late: list[float] = []

    # -- what a protocol is made of -----------------------------------------------------------

    @abstractmethod
    def acknowledgements_in(self, data: bytes) -> int:
        """How many acknowledgements have come with this piece of what the peer sends."""

    def send(self, frame: Frame) -> None:
        """Hand a frame to the system."""
        self.transport.write(frame.data)

    @property
    def has_room(self) -> bool:
        """Whether the system takes more now."""
        return not self._is_paused

    # -- the connection -----------------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise PeerError("not connected")
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"the connection was lost: {exc}")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.wake()

    def data_received(self, data: bytes) -> None:
        found = self.acknowledgements_in(data)
        if not found:
            return
        self.acknowledged += found
        if self._due:
            now = perf_counter()
            for _ in range(min(found, len(self._due))):
                self._late.append(now - self._due.popleft())
        self.wake()

    def fail(self, why: str) -> None:
        """Whoever waits is told."""
        if self.failure is None:
            self.failure = why
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self) -> None:
        """Wait until something was acknowledged, or there is room again."""
        if self.failure is not None:
            raise PeerError(self.failure)
        self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.wait_for(self._waiter, ANSWER_SECONDS)
        if self.failure is not None:
            raise PeerError(self.failure)

    # -- works --------------------------------------------------------------------------------

    async def pump(self, frame: Frame, count: int, window: int) -> None:
        """Send a frame ``count`` times (L2)."""
        per_frame = frame.acknowledgements
        begin = self.acknowledged
        sent = 0
        while (done := (self.acknowledged - begin) // per_frame) < count:
            while sent < count and sent - done < window and self.has_room:
                self.send(frame)
                sent += 1
            await self.changed()

    async def pump_until(
        self, frame: Frame, deadline: float, window: int, count: int = sys.maxsize
    ) -> int:
        """Send a frame until a time of the performance counter, or ``count`` times (L2).

        Returns how often it was sent, once all of that is acknowledged.
        """
        begin = self.acknowledged
        sent = 0
        while True:
            done = (self.acknowledged - begin) // frame.acknowledgements
            may_send = sent < count and perf_counter() < deadline
            if done == sent and not may_send:
                return sent
            while may_send and sent - done < window and self.has_room:
                self.send(frame)
                sent += 1
                may_send = sent < count
            await self.changed()

    async def one_by_one(self, frame: Frame, count: int) -> list[float]:
        """Send a frame ``count`` times, each when the last was acknowledged; seconds of each."""
        return [await self._timed_one(frame) for _ in range(count)]

    async def one_by_one_until(self, frame: Frame, deadline: float) -> list[float]:
        """The same until a time of the performance counter, and at least once."""
        taken = [await self._timed_one(frame)]
        while perf_counter() < deadline:
            taken.append(await self._timed_one(frame))
        return taken

    async def _timed_one(self, frame: Frame) -> float:
        goal = self.acknowledged + frame.acknowledgements
        begin = perf_counter()
        self.send(frame)
        while self.acknowledged < goal:
            await self.changed()
        return perf_counter() - begin

    def send_timed(self, frame: Frame, due: float) -> None:
        """Send a frame whose answer is to be timed from ``due`` on (L1)."""
        self._due.append(due)
        self.send(frame)

    async def timed(self) -> list[float]:
        """Wait for all answers; the seconds of each since it was due."""
        while self._due:
            await self.changed()
        late, self._late = self._late, []
        return late


async def until(due: float) -> float:
    """Sleep until a time of the performance counter, unless it is almost there.

    Returns when an append that begins now began: when it was due if it is late, else now.
    """
    left = due - perf_counter()
    if left > _SLEEP_SECONDS_MIN:
        await asyncio.sleep(left)
    return min(due, perf_counter())


class LoopClient(Client):
    """A client that works in an event loop, which runs only during calls."""

    def open(self) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self.run(self.connect())

    def close(self) -> None:
        try:
            self.run(self.disconnect())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @abstractmethod
    async def connect(self) -> None: ...

    @abstractmethod
    async def disconnect(self) -> None: ...


class LeanClient(LoopClient):
    """A client on links; subclasses say what is sent, and how much of it at once."""

    name = "lean"
    batch_links: int = 1
    """Connections for batches, and, below, for small appends and those at a fixed rate."""
    small_links: int = 1
    rate_links: int = 1
    batch_window: int = 8
    """Batches under way on each connection."""
    small_per_write: int = 100
    small_window: int = 40
    """Writes of small appends under way on each connection."""

    def __init__(self) -> None:
        self._links: list[Link] = []

    @abstractmethod
    async def new_link(self) -> Link:
        """A connection that is ready for appends."""

    @abstractmethod
    def frame(self, values: Sequence[bytes]) -> Frame:
        """What appends these values in one unit."""

    async def connect(self) -> None:
        await self._some_links(1)

    async def disconnect(self) -> None:
        for link in self._links:
            link.transport.close()
        self._links.clear()

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        self.run(self._spread(self.frame(values), count, self.batch_links, self.batch_window))

    def append_small(self, value: bytes, count: int) -> None:
        frame = self.frame([value]).times(self.small_per_write)
        writes = -(-count // self.small_per_write)
        self.run(self._spread(frame, writes, self.small_links, self.small_window))

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        return self.run(self._links[0].one_by_one(self.frame([value]), count))

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        return self.run(self._at_rate(self.frame([value]), rate, count))

    async def _at_rate(self, frame: Frame, rate: float, count: int) -> list[float]:
        """Send a frame at fixed times, by turns over the connections."""
        links = await self._some_links(self.rate_links)
        begin = perf_counter()
        for number in range(count):
            due = await until(begin + number / rate)
            links[number % len(links)].send_timed(frame, due)
        return [seconds for link in links for seconds in await link.timed()]

    async def _spread(self, frame: Frame, count: int, connections: int, window: int) -> None:
        """Send over some connections, of which each takes its share."""
        links = await self._some_links(connections)
        share, rest = divmod(count, len(links))
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, link in enumerate(links):
                    tasks.create_task(link.pump(frame, share + (number < rest), window))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _some_links(self, count: int) -> list[Link]:
        while len(self._links) < count:
            self._links.append(await self.new_link())
        return self._links[:count]


async def open_link(link: Link, port: int) -> Link:
    """Connect a link to a node of this machine."""
    await asyncio.get_running_loop().create_connection(lambda: link, HOST, port)
    return link
