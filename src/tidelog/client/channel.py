"""The way to a log: one connection to one of its nodes, made again whenever it breaks.

C1  a request that is harmless to repeat is repeated after a lost connection until its deadline
C2  one connection attempt at a time, with growing pauses, and only while somebody wants one
C3  after the first hello only the same log will do
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import SystemRandom
from typing import Final

from tidelog.client.link import KEEP_ALIVE_SECONDS, Link, Reply, open_link
from tidelog.client.refusals import error_of
from tidelog.errors import (
    BadAddress,
    BadFrame,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    Unauthorized,
    Unreachable,
    UnsupportedVersion,
    WrongLog,
)
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import (
    Describe,
    Explain,
    FindEnd,
    FindTime,
    Get,
    ListTopics,
    LogFigures,
    ReadPage,
    Refused,
    Request,
    TopicFigures,
)
from tidelog.net.connection import Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity

_FATAL: Final = (WrongLog, UnsupportedVersion, BadFrame, Unauthorized, BadAddress)
"""What no further attempt will change."""
_WITHOUT_EFFECT: Final = (
    Describe,
    Explain,
    FindEnd,
    FindTime,
    Get,
    ListTopics,
    LogFigures,
    ReadPage,
    TopicFigures,
)
"""Requests that change nothing, however often they arrive."""
_CHANCE: Final = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """How a client comes back to a node that it lost."""

    pause_first: float = 0.02
    pause_max: float = 1.0
    attempt: float = 5.0
    """For one attempt to connect."""
    keep_alive: float = KEEP_ALIVE_SECONDS
    chance: Callable[[], float] = _CHANCE.random
    """A number in [0, 1): clients that were lost together come back one by one."""

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        longest = min(self.pause_first * 2.0 ** min(failures - 1, 30), self.pause_max)
        return longest * (0.5 + self.chance() / 2)


class Channel:
    """All calls belong into one event loop."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        client: str,
        log_id: bytes = b"",
        reconnect: Reconnect | None = None,
        patience: Patience | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        """BadOption if ``security`` does not fit to the addresses, or its files are no good."""
        self._endpoints = tuple(endpoints)
        self._dialer = Dialer.to(self._endpoints, security or ClientSecurity())
        self._client = client
        self._log_id = log_id
        self._reconnect = reconnect or Reconnect()
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self.link: Link | None = None
        self.trouble: LogError = Unreachable("no connection was tried yet")
        """Why there is no connection."""
        self._waiters: set[asyncio.Future[Link]] = set()
        self._connector: asyncio.Task[None] | None = None
        self._useless = 0
        """How many connections in a row broke before they brought an answer."""
        self._closed = asyncio.Event()
        self.on_up: Callable[[], None] = _nothing
        self.on_down: Callable[[], None] = _nothing
        self.on_hopeless: Callable[[LogError], None] = lambda _error: None
        """Told that no connection will ever be made."""
        self.wanted: Callable[[], bool] = lambda: False
        """Asks whether a connection is needed although nobody waits for one."""

    @property
    def log_id(self) -> bytes:
        return self._log_id

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    # -- requests -----------------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        *,
        seconds: float,
        attachments: Sequence[Buffer] = (),
        repeat: bool = True,
        waits: bool = False,
    ) -> Reply:
        """The answer to a request; raises what it was refused with.

        ``waits``: it may take its time at the end of a log.
        """
        deadline = self._loop.time() + seconds
        lost: LogError | None = None
        while True:
            link = await self._link_before(deadline, lost)
            await self._reserve(link, deadline, lost, waits=waits)
            try:
                reply = await self._ask_once(link, request, attachments, deadline, seconds)
            finally:
                if waits:
                    link.waits.release()
            if reply is None:
                lost = None if isinstance(request, _WITHOUT_EFFECT) else self.trouble
                if not repeat:
                    raise ConnectionLost(
                        f"{self.trouble}; whether it took effect is not known: look before you "
                        "try again"
                    )
                continue
            if not isinstance(reply.answer, Refused):
                return reply
            error = error_of(reply.answer)
            if not isinstance(error, LogClosed):
                raise error
            # The node is stopping and did nothing: go on with the next one, or when it is back.
            link.abort(Unreachable(f"the node is stopping: {error}"))
            await link.wait_closed()

    async def _reserve(
        self, link: Link, deadline: float, lost: LogError | None, *, waits: bool
    ) -> None:
        """Take a place for a request, and one for those that wait if it may."""
        try:
            async with asyncio.timeout_at(deadline):
                if waits:
                    await link.waits.acquire()
                try:
                    await link.reserve()
                except BaseException:
                    if waits:
                        link.waits.release()
                    raise
        except TimeoutError:
            if lost is None:
                raise Busy("too many requests are under way: nothing was sent") from None
            raise ConnectionLost(f"{lost}; it may have taken effect") from None

    async def _ask_once(
        self,
        link: Link,
        request: Request,
        attachments: Sequence[Buffer],
        deadline: float,
        seconds: float,
    ) -> Reply | None:
        """The answer; None if the connection broke before it came."""
        answered: asyncio.Future[Reply | None] = self._loop.create_future()
        number = link.post(
            request,
            partial(_set, answered),
            attachments=attachments,
            timeout_ms=timeout_ms(deadline - self._loop.time()),
        )
        try:
            async with asyncio.timeout_at(deadline):
                return await answered
        except TimeoutError:
            raise DeadlineExceeded(
                f"{type(request).__name__} had no answer within {seconds:g} s; it may still take "
                "effect"
            ) from None
        finally:
            link.cancel(number)  # Does nothing if it was answered.

    async def _link_before(self, deadline: float, lost: LogError | None) -> Link:
        """The connection, or the next one; raises what is true when the deadline passes."""
        self._check_open(lost)
        if self.link is not None:
            return self.link
        waiter: asyncio.Future[Link] = self._loop.create_future()
        self._waiters.add(waiter)
        self.want()
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            if lost is None:
                raise Unreachable(f"{self.trouble}; nothing was sent") from None
            raise ConnectionLost(f"{lost}; it may have taken effect") from None
        except LogError as error:
            if lost is None:
                raise
            raise ConnectionLost(f"{lost}, then {error}; it may have taken effect") from error
        finally:
            self._waiters.discard(waiter)

    def _check_open(self, lost: LogError | None) -> None:
        if not self.closed:
            return
        if lost is not None:
            raise ConnectionLost("the client was closed; the request may have taken effect")
        raise LogClosed("the client is closed: connect again")

    # -- connection (C2) ----------------------------------------------------------------------

    def want(self) -> None:
        """Connect, if that is not under way already."""
        if self.link is None and self._connector is None and not self.closed:
            self._connector = self._loop.create_task(self._connect(), name="tidelog-connect")

    async def _connect(self) -> None:
        failures = 0
        try:
            if self._useless:
                await self._pause(self._useless)
            while not self.closed and (self._waiters or self.wanted()):
                endpoint = self._endpoints[failures % len(self._endpoints)]
                try:
                    self._go_up(await self._try(endpoint))
                    return
                except _FATAL as error:
                    self._give_up(error)
                    return
                except LogError as error:
                    self.trouble = _as_unreachable(error)
                failures += 1
                if failures % len(self._endpoints) == 0:
                    await self._pause(failures // len(self._endpoints))
        finally:
            self._connector = None

    async def _try(self, endpoint: Endpoint) -> Link:
        try:
            async with asyncio.timeout(self._reconnect.attempt):
                return await open_link(
                    endpoint,
                    self._dialer,
                    client=self._client,
                    log_id=self._log_id,
                    on_gone=self._go_down,
                    patience=self._patience,
                    keep_alive=self._reconnect.keep_alive,
                )
        except TimeoutError:
            raise Unreachable(
                f"{endpoint} does not answer within {self._reconnect.attempt:g} s"
            ) from None

    async def _pause(self, failures: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._reconnect.pause(failures)):
                await self._closed.wait()

    def _go_up(self, link: Link) -> None:
        if link.gone:
            raise Unreachable("the node hung up right after its welcome")
        self.link = link
        self._log_id = link.log_id  # C3
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(link)
        self.on_up()

    def _go_down(self, error: LogError) -> None:
        if self.link is None:
            return  # It never was up.
        self._useless = 0 if self.link.useful else self._useless + 1
        self.link = None
        self.trouble = _as_unreachable(error)
        self.on_down()
        if self.wanted():
            self.want()

    def _give_up(self, error: LogError) -> None:
        self.trouble = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(type(error)(str(error)))
        self.on_hopeless(error)

    # -- end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Hang up; requests under way are told."""
        self._closed.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(LogClosed("the client was closed"))
        connector = self._connector
        if connector is not None:
            connector.cancel()
            with suppress(asyncio.CancelledError):
                await connector
        if self.link is not None:
            link = self.link
            link.close()
            await link.wait_closed()


def timeout_ms(seconds: float) -> int:
    """What a frame says of a deadline; 0 would stand for none."""
    return min(max(int(seconds * 1000), 1), (1 << 32) - 1)


def _as_unreachable(error: LogError) -> LogError:
    return error if isinstance(error, Busy) else Unreachable(str(error))


def _set(future: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not future.done():
        future.set_result(reply)


def _nothing() -> None:
    pass
