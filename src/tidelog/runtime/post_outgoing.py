"""What this process sends to one other: a queue, and a connection that is made on demand.

O1  a connection is only sought while something waits to be sent
O2  what waits is bounded; the oldest is dropped first, and all of it when nobody is reached, so
    that a process which comes back is not told what was true long ago
O3  messages leave in the order in which they came
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidelog.errors import BadFrame, ConnectionLost, LogError, Rejected, WrongCluster
from tidelog.formats.wire import FrameHeader
from tidelog.limits import KIB, POST_QUEUE_BYTES_MAX, POST_QUEUE_MESSAGES_MAX
from tidelog.net.connection import FrameConnection, FrameHandler
from tidelog.runtime.events import tell
from tidelog.runtime.post_counters import PostCounters
from tidelog.runtime.post_greeting import GREETING_REQUEST
from tidelog.types import NodeId

_logger: Final = logging.getLogger(__name__)

PAUSE_FIRST: Final = 0.025
PAUSE_MAX: Final = 0.2
"""Seconds between attempts; a process that was started again is found within the longest."""
PAUSE_REFUSED: Final = 1.0
"""After a peer that has something against us."""
_BURST_BYTES: Final = 256 * KIB


class Outgoing:
    """All calls belong into the event loop."""

    def __init__(
        self,
        target: NodeId,
        connect: Callable[[FrameHandler], Awaitable[FrameConnection]],
        counters: PostCounters,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._target = target
        self._connect = connect
        self._counters = counters
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._connection: FrameConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._pause = 0.0
        self._not_before = 0.0
        self._nudged = asyncio.Event()
        self._trouble: type[LogError] | None = None
        """What the last attempt failed with, so that people are told once."""

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def send(self, data: bytes) -> None:
        """Send a message as soon as it can be (O3)."""
        connection = self._connection
        if connection is not None and not self._queue and connection.is_writable:
            connection.send(data, request=GREETING_REQUEST)
            self._counters.sent += 1
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        self._drop_oldest()
        if self._task is None:
            self._start_pump()

    def nudge(self) -> None:
        """The target is there: try again at once."""
        self._not_before = 0.0
        self._nudged.set()

    async def stop(self) -> None:
        """Hang up; what waits is lost."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._connection is not None:
            connection = self._connection
            connection.abort()
            await connection.wait_closed()

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        raise BadFrame("nothing is said on this connection but by who opened it")

    def on_broken(self, error: LogError) -> None:
        if self._connection is not None:
            self._connection.abort()

    def on_lost(self, error: Exception | None) -> None:
        self._connection = None
        self._counters.outgoing -= 1

    # -- the queue ----------------------------------------------------------------------------

    def _drop_oldest(self) -> None:
        """Keep the bounds (O2)."""
        while (
            self._queued_bytes > POST_QUEUE_BYTES_MAX or len(self._queue) > POST_QUEUE_MESSAGES_MAX
        ):
            self._queued_bytes -= len(self._queue.popleft())
            self._counters.dropped += 1

    def _drop_all(self) -> None:
        """Nobody is there to be told (O2)."""
        self._counters.dropped += len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0

    def _start_pump(self) -> None:
        self._task = self._loop.create_task(self._pump())
        self._task.add_done_callback(self._pumped)

    async def _pump(self) -> None:
        """Send what waits, over a connection that is made if there is none (O1)."""
        while self._queue:
            connection = self._connection or await self._reach()
            if connection is None:
                self._drop_all()
            else:
                await self._send_queue(connection)

    def _pumped(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:  # None that is expected: the process is to hear of it.
            context = {"message": "the post failed", "exception": error, "task": task}
            self._loop.call_exception_handler(context)
        elif self._queue and not task.cancelled():
            self._start_pump()

    async def _send_queue(self, connection: FrameConnection) -> None:
        while self._queue:
            try:
                await connection.drain()
            except ConnectionLost:
                return
            burst = 0
            while self._queue and burst < _BURST_BYTES:
                data = self._queue.popleft()
                burst += len(data)
                connection.send(data, request=GREETING_REQUEST)
                self._counters.sent += 1
            self._queued_bytes -= burst

    # -- the connection -----------------------------------------------------------------------

    async def _reach(self) -> FrameConnection | None:
        """Connect, once a pause after the last failure is over; None if that fails again."""
        await self._wait_out_pause()
        self._nudged.clear()
        try:
            connection = await self._connect(self)
        except LogError as error:
            self._failed(error)
            return None
        self._pause = self._not_before = 0.0
        self._trouble = None
        if connection.is_lost:
            return None
        self._connection = connection
        self._counters.outgoing += 1
        self._counters.connects += 1
        tell(_logger, "peer found", peer=self._target)
        return connection

    async def _wait_out_pause(self) -> None:
        left = self._not_before - self._loop.time()
        if left > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), left)

    def _failed(self, error: LogError) -> None:
        is_refused = isinstance(error, Rejected | WrongCluster)
        self._pause = min(max(2 * self._pause, PAUSE_FIRST), PAUSE_MAX)
        self._not_before = self._loop.time() + (PAUSE_REFUSED if is_refused else self._pause)
        self._counters.failed_connects += 1
        if type(error) is not self._trouble:
            self._trouble = type(error)
            level = logging.WARNING if is_refused else logging.INFO
            tell(_logger, "peer not reached", level, peer=self._target, error=str(error))
