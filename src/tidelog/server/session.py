"""One connection of a node: hello, then requests, each answered once.

Invariants:
  S1  Every request is answered exactly once, unless it was cancelled or the connection is lost.
  S2  Requests in flight are bounded in number and in bytes; beyond that nothing more is read.
  S3  Answers that wait to be sent are bounded: from a peer that does not read, nothing is read.
  S4  What goes wrong with one request or one connection harms no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tidelog.errors import (
    BadFrame,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    StorageFailed,
)
from tidelog.formats.audit_messages import ReadReplica
from tidelog.formats.messages import (
    AppendBatches,
    Cancel,
    Done,
    FindEnd,
    Get,
    Hello,
    Ping,
    ReadPage,
    Request,
    Welcome,
    decode_request,
)
from tidelog.formats.wire import FrameHeader
from tidelog.limits import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX
from tidelog.net.connection import FrameConnection, Patience
from tidelog.server.append_lane import AppendLane
from tidelog.server.backend import Backend, Entrance, Reply, WorkMessage
from tidelog.server.in_flight import InFlight, InFlightRequests
from tidelog.server.refusals import refused, surprised

_logger: Final = logging.getLogger(__name__)

SERVER_NAME: Final = "tidelog"


class Session:
    """Handles the frames of one connection; made when it is accepted."""

    def __init__(
        self, entrance: Entrance, on_end: Callable[[Session], None], *, patience: Patience
    ) -> None:
        self._entrance = entrance
        self._counters = entrance.counters
        self._backend: Backend | None = None
        """Known once the client has said hello."""
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.connection = FrameConnection(self, patience=patience)
        self._stopping = False
        self._requests = InFlightRequests(self._counters, self._on_deadline)
        self._appends = AppendLane(self._answer, self._refuse, self._go_on)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pages = asyncio.Semaphore(0)
        """Held by pages that are read or wait to be sent (S3)."""
        self._draining: asyncio.Task[None] | None = None
        """Waits until a peer that sends without reading reads (S3)."""

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return not self._requests

    def turn_away(self, error: LogError) -> None:
        """Refuse the connection as a whole, with request number 0, and close it."""
        self._counters.refused[type(error).__name__] += 1
        self._send(0, Reply.of(refused(error)))
        self.connection.close()

    def stop(self) -> None:
        """Refuse requests that come from now on."""
        self._stopping = True

    async def end(self) -> None:
        """Close the connection when its last answers were sent, and end what works for it."""
        self.connection.close()
        await self.connection.wait_closed()
        await self._appends.end()
        tasks = [*self._tasks, *([self._draining] if self._draining else [])]
        if tasks:
            await asyncio.wait(tasks)

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        request = decode_request(message)
        backend = self._backend
        if backend is None:
            self._greet(header, request)
            return
        self._counters.requests[type(request).__name__] += 1
        if isinstance(request, Cancel):
            self._requests.give_up(request.request)
            return
        flight = self._requests.open(header)
        if self._stopping:
            self._refuse(flight, LogClosed("the node is stopping: connect again in a moment"))
            return
        match request:
            case AppendBatches():
                self._appends.add(backend, flight, request, attachment)
            case Ping():
                self._answer(flight, Reply.of(Done()))
            case Hello():
                raise BadFrame("a second hello")
            case _:
                flight.task = self._start(backend, flight, request, attachment)
        if not self.connection.is_writable and self._draining is None:
            self._draining = self._loop.create_task(self._wait_for_reader())
        if self._is_busy:
            self.connection.pause()

    def on_broken(self, error: LogError) -> None:
        _logger.info("the connection of %s is closed: %s", self.connection.peer, error)
        self.turn_away(error)

    def on_lost(self, error: Exception | None) -> None:
        self._requests.give_all_up()
        self._appends.cancel()
        self._on_end(self)

    # -- hello --------------------------------------------------------------------------------

    def _greet(self, header: FrameHeader, request: Request) -> None:
        if not isinstance(request, Hello):
            raise BadFrame(f"a connection begins with a hello, not with {type(request).__name__}")
        self._backend = self._entrance.enter(request)
        self._pages = asyncio.Semaphore(self._backend.pages_at_once)
        self.connection.open_up()
        welcome = Welcome(self._entrance.log_id, SERVER_NAME, IN_FLIGHT_REQUESTS_MAX)
        self._send(header.request, Reply.of(welcome))

    # -- requests -----------------------------------------------------------------------------

    def _start(
        self, backend: Backend, flight: InFlight, request: WorkMessage, attachment: memoryview
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(self._work(backend, flight, request, attachment))
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    async def _work(
        self, backend: Backend, flight: InFlight, request: WorkMessage, attachment: memoryview
    ) -> None:
        try:
            if isinstance(request, ReadPage | FindEnd):
                await backend.wait_for_entries(request, flight.seconds)
            if isinstance(request, ReadPage | Get | ReadReplica):
                await self._send_page(backend, flight, request)
            else:
                reply = await backend.answer(request, attachment, flight.seconds)
                self._answer(flight, reply)
        except LogError as error:
            self._refuse(flight, error)
        except Exception as error:
            _logger.exception("a request failed: %s", type(request).__name__)
            self._refuse(flight, surprised(error))

    async def _send_page(
        self, backend: Backend, flight: InFlight, request: ReadPage | Get | ReadReplica
    ) -> None:
        async with self._pages:
            reply = await backend.answer(request, memoryview(b""), flight.seconds)
            self._counters.count_page(sum(map(len, reply.attachments)))
            self._answer(flight, reply)
            await self.connection.drain()

    def _answer(self, flight: InFlight, reply: Reply) -> None:
        if self._requests.close(flight):
            self._send(flight.number, reply)
        self._go_on()

    def _refuse(self, flight: InFlight, error: LogError) -> None:
        if self._requests.close(flight):
            self._counters.refused[type(error).__name__] += 1
            self._send(flight.number, Reply.of(refused(error)))
        if isinstance(error, StorageFailed):
            self._entrance.on_failure(error)
        self._go_on()

    def _on_deadline(self, flight: InFlight) -> None:
        self._refuse(
            flight,
            DeadlineExceeded(
                f"the node did not finish within the {flight.seconds} s that the client waits; "
                "what was asked for may still take effect"
            ),
        )

    async def _wait_for_reader(self) -> None:
        with suppress(ConnectionLost):
            await self.connection.drain()
        self._draining = None
        self._go_on()

    @property
    def _is_busy(self) -> bool:
        return (
            self._draining is not None
            or max(len(self._requests), len(self._tasks), self._appends.pending)
            >= IN_FLIGHT_REQUESTS_MAX
            or self._requests.bytes + self._appends.bytes >= IN_FLIGHT_BYTES_MAX
        )

    def _go_on(self) -> None:
        if not self._is_busy:
            self.connection.resume()

    def _send(self, number: int, reply: Reply) -> None:
        self.connection.send(reply.message, request=number, attachments=reply.attachments)
