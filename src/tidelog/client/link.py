"""One open connection of a client: requests out, answers in, matched by number.

K1  every request that was posted is answered, cancelled, or told that the connection is gone
K2  no more requests are under way than the node takes; a part is kept for those that wait at
    the end of a log, so that they never hold the others back
K3  while something is awaited, a silent peer is pinged, and given up if it stays silent
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from tidelog.client.refusals import error_of
from tidelog.errors import BadFrame, ConnectionLost, LogError
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import (
    Answer,
    Cancel,
    Hello,
    Ping,
    Refused,
    Request,
    Welcome,
    decode_answer,
    encode_message,
)
from tidelog.formats.wire import FrameHeader
from tidelog.limits import IN_FLIGHT_REQUESTS_MAX
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint

KEEP_ALIVE_SECONDS: Final = 15.0
_SPARE: Final = 2
"""Places that stay free for pings."""
_HELLO: Final = 0
"""The number of the hello; requests count from 1."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    answer: Answer
    attachment: memoryview


Listener: TypeAlias = Callable[[Reply | None], None]
"""Told of the answer, or by None that the connection is gone."""


class Link:
    """Made by ``open_link``.  All calls belong into the event loop."""

    def __init__(
        self,
        on_gone: Callable[[LogError], None],
        *,
        patience: Patience | None = None,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._connection = FrameConnection(self, patience=patience)
        self.keep_alive = keep_alive
        """Seconds of silence after which the node is pinged (K3)."""
        self._numbers = 0
        self._listeners: dict[int, Listener] = {}
        self._room = 1
        self._hungry: deque[Callable[[], None]] = deque()
        self._error: LogError = ConnectionLost("the connection is gone")
        self._gone = False
        self._heard = False
        self._pinged = False
        self._timer: asyncio.TimerHandle | None = None
        self.log_id = b""
        self.useful = False
        """Whether it brought an answer to anything."""
        self.was_not_read = False
        """Whether the node hung up because it could not read what was sent."""
        self.waits: asyncio.Semaphore = asyncio.Semaphore(1)
        """Held by requests that wait at the end of a log (K2)."""

    @property
    def connection(self) -> FrameConnection:
        return self._connection

    @property
    def gone(self) -> bool:
        return self._gone

    # -- room for requests (K2) ---------------------------------------------------------------

    def try_reserve(self) -> bool:
        """Take a place for one request, to be posted or released."""
        if self._room <= 0:
            return False
        self._room -= 1
        return True

    def release(self) -> None:
        """Give a place back."""
        self._room += 1
        while self._hungry and self._room > 0:
            self._hungry.popleft()()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when it is worth while to try again, or the connection is gone."""
        self._hungry.append(wake)

    async def reserve_waiting(self) -> None:
        """Wait for a place, and for one of ``waits``, which the caller gives back in the end."""
        await self.waits.acquire()
        try:
            await self.reserve()
        except BaseException:
            self.waits.release()
            raise

    async def reserve(self) -> None:
        """Wait for a place."""
        while not self.try_reserve():
            woken: asyncio.Future[None] = self._loop.create_future()
            self._hungry.append(partial(_set, woken, None))
            try:
                await woken
            except asyncio.CancelledError:
                if not woken.cancelled() and self._room > 0 and self._hungry:
                    self._hungry.popleft()()  # It was this one's turn: somebody else's, then.
                raise

    # -- requests -----------------------------------------------------------------------------

    async def say_hello(self, hello: Hello) -> None:
        """Introduce this client; raises what the node has against it."""
        answered: asyncio.Future[Reply | None] = self._loop.create_future()
        self._listeners[_HELLO] = lambda reply: _set(answered, reply)
        self._connection.send(encode_message(hello), request=_HELLO)
        reply = await answered
        if reply is None:
            raise self._error
        answer = reply.answer
        if isinstance(answer, Refused):
            raise error_of(answer)
        if not isinstance(answer, Welcome):
            raise BadFrame(f"a node answered hello with {type(answer).__name__}")
        self._connection.open_up()
        self.log_id = answer.log_id
        in_flight = min(answer.in_flight_max, IN_FLIGHT_REQUESTS_MAX)
        self._room = max(in_flight - _SPARE, 1)
        self.waits = asyncio.Semaphore(max(self._room // 2, 1))

    def post(
        self,
        request: Request,
        listener: Listener,
        *,
        attachments: Sequence[Buffer] = (),
        timeout_ms: int = 0,
    ) -> int:
        """Send a request, for which a place was reserved; returns its number.

        If it raises, nothing was sent, and the place is the caller's to release.
        """
        return self.post_encoded(
            encode_message(request), listener, attachments=attachments, timeout_ms=timeout_ms
        )

    def post_encoded(
        self,
        message: bytes,
        listener: Listener,
        *,
        attachments: Sequence[Buffer] = (),
        timeout_ms: int = 0,
    ) -> int:
        """The same of a request that is encoded."""
        number = self._send(message, listener, attachments, timeout_ms)
        if self._timer is None:
            self._watch()
        return number

    def cancel(self, number: int) -> None:
        """Nobody waits for this answer any more; the node is told."""
        if self._listeners.pop(number, None) is not None:
            self._connection.send(encode_message(Cancel(number)), request=number)
            self.release()

    def close(self) -> None:
        """Send what is queued, then hang up."""
        self._connection.close()

    def abort(self, error: LogError) -> None:
        """Hang up; whoever waits is told why."""
        self._error = error
        self._connection.abort()

    async def wait_closed(self) -> None:
        await self._connection.wait_closed()

    def _send(
        self, message: bytes, listener: Listener, attachments: Sequence[Buffer], timeout_ms: int
    ) -> int:
        self._numbers += 1
        number = self._numbers
        if self._gone:
            self._loop.call_soon(listener, None)
            return number
        self._connection.send(
            message, request=number, timeout_ms=timeout_ms, attachments=attachments
        )
        self._listeners[number] = listener
        return number

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        self._heard = True
        answer = decode_answer(message)
        listener = self._listeners.pop(header.request, None)
        if listener is None:
            if header.request == _HELLO and isinstance(answer, Refused):
                self._error = ConnectionLost(f"the node hung up: {answer.message}")
                self.was_not_read = answer.error == BadFrame.__name__
            return  # Cancelled meanwhile.
        self.useful = self.useful or (header.request != _HELLO and not isinstance(answer, Refused))
        if header.request != _HELLO and listener is not _ignore:
            self.release()
        listener(Reply(answer, attachment))

    def on_broken(self, error: LogError) -> None:
        self.abort(error)

    def on_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._error = ConnectionLost(f"the connection is gone: {error}")
        if self._timer is not None:
            self._timer.cancel()
        self._gone = True
        self._room = IN_FLIGHT_REQUESTS_MAX  # Whoever still comes is told at once.
        listeners, self._listeners = self._listeners, {}
        hungry, self._hungry = self._hungry, deque()
        # First the owner, so that nobody who is told finds this link still in use.
        self._on_gone(self._error)
        for listener in listeners.values():
            listener(None)
        for wake in hungry:
            wake()

    # -- keeping alive (K3) -------------------------------------------------------------------

    def _watch(self) -> None:
        self._heard = self._pinged = False
        self._timer = self._loop.call_later(self.keep_alive, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._listeners or self._gone:
            return
        if self._heard:
            self._watch()
        elif self._pinged:
            self.abort(ConnectionLost("the node does not answer"))
        else:
            self._pinged = True
            self._send(encode_message(Ping()), _ignore, (), 0)
            self._timer = self._loop.call_later(self.keep_alive, self._look)


async def open_link(
    endpoint: Endpoint,
    dialer: Dialer,
    *,
    client: str,
    log_id: bytes,
    on_gone: Callable[[LogError], None],
    patience: Patience | None = None,
    keep_alive: float = KEEP_ALIVE_SECONDS,
) -> Link:
    """Connect to a node and say hello; Unreachable if there is nobody."""
    link = Link(on_gone, patience=patience, keep_alive=keep_alive)
    await dialer.dial(endpoint, link.connection)
    try:
        await link.say_hello(Hello(client, log_id, dialer.token))
    except BaseException:
        link.connection.abort()
        with suppress(asyncio.CancelledError):
            await link.wait_closed()
        raise
    return link


def _ignore(reply: Reply | None) -> None:
    """The answer to a ping: that it came is all that counts."""


def _set(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
