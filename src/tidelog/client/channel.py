"""The way to a log: one connection to one of its nodes, made again whenever it breaks.

C1  a request that is harmless to repeat is repeated until its deadline: after a lost connection, or
    when a node says that it cannot answer now
C2  one connection attempt at a time, at once with the next address, with growing pauses when all
    have failed, and only while somebody wants one
C3  a definite error is told only if no try of the request may have had an effect
C4  after the first hello only the same log will do
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from tidelog.client.link import Link, Reply, open_link
from tidelog.client.outgoing import checked_message
from tidelog.client.refusals import error_of
from tidelog.client.retries import (
    FATAL,
    WITHOUT_EFFECT,
    Reconnect,
    in_doubt,
    is_worth_repeating,
)
from tidelog.client.rounds import Rounds
from tidelog.errors import (
    BadOption,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    Unreachable,
)
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import (
    Refused,
    Request,
)
from tidelog.net.connection import Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity

_UNREAD_MAX: Final = 3
"""Connections that a node may end because it cannot read something, while a request is on them.

Nobody knows which request it was; the one that it was must not end all connections to come.
"""


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
        dialer: Dialer | None = None,
    ) -> None:
        """BadOption if ``security`` does not fit to the addresses, or its files are no good.

        ``dialer`` is one that was made before, with its security.
        """
        self._dialer = dialer or Dialer.to(endpoints, security or ClientSecurity())
        self._client = client
        self._log_id = log_id
        self.reconnect: Final = reconnect or Reconnect()
        self._rounds = Rounds(endpoints, int(self.reconnect.chance() * len(endpoints)))
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self.link: Link | None = None
        self.endpoint: Endpoint | None = None
        """The node at the other end of the connection."""
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
        self.on_failed: Callable[[], None] = _nothing
        """Told that all addresses were tried in vain."""
        self.wanted: Callable[[], bool] = lambda: False
        """Asks whether a connection is needed although nobody waits for one."""

    @property
    def log_id(self) -> bytes:
        return self._log_id

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def _has_tls(self) -> bool:
        """Whether TLS was prepared; no hint leads away from it."""
        return self._dialer.context is not None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All addresses that are known."""
        return self._rounds.endpoints

    @property
    def has_others(self) -> bool:
        """Whether more than one address is known."""
        return self._rounds.size > 1

    def beside(self, endpoint: Endpoint) -> Channel:
        """Another channel of the same client, to one node; BadOption if TLS is a difference."""
        if endpoint.tls != self._has_tls:
            with_or_without = "without" if self._has_tls else "with"
            raise BadOption(f"{endpoint} is {with_or_without} TLS, unlike the node that named it")
        return Channel(
            (endpoint,),
            client=self._client,
            log_id=self._log_id,
            # Where this one fails, the first connection can do the same.
            reconnect=replace(self.reconnect, keep_alive=self._keep_alive_beside()),
            patience=self._patience,
            dialer=self._dialer,
        )

    def add_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Other nodes of the same log, to be tried after those that are known."""
        self._rounds.add([endpoint for endpoint in endpoints if endpoint.tls == self._has_tls])
        if self.link is not None:
            self.link.keep_alive = self._keep_alive()

    # -- requests -----------------------------------------------------------------------------

    async def ask(
        self,
        request: Request,
        *,
        seconds: float,
        attachments: Sequence[Buffer] = (),
        repeat: bool = True,
        patient: bool = True,
        waits: bool = False,
        doubt: LogError | None = None,
        telling: tuple[type[LogError], ...] = (),
    ) -> Reply:
        """The answer to a request; raises what it was refused with.

        ``repeat``: also after a lost connection.  ``patient``: also after a refusal that another
        try may change.  ``waits``: it may take its time at the end of a log.  ``doubt``: what
        befell a try that the caller made before.  ``telling``: refusals that tell the caller what
        became of earlier tries.
        """
        message = checked_message(request, attachments)
        deadline = self._loop.time() + seconds
        lost = doubt
        refusals = unread = 0
        while True:
            link = await self._link_before(deadline, lost)
            await self._reserve(link, deadline, lost, waits=waits)
            try:
                reply = await self._ask_once(
                    link, type(request).__name__, message, attachments, deadline, seconds
                )
            finally:
                if waits:
                    link.waits.release()
            if reply is None:
                lost = None if isinstance(request, WITHOUT_EFFECT) else self.trouble
                unread += link.was_not_read
                if not repeat or unread == _UNREAD_MAX:
                    raise ConnectionLost(
                        f"{self.trouble}; whether it took effect is not known: look before you "
                        "try again"
                    )
                continue
            if not isinstance(reply.answer, Refused):
                return reply
            error = error_of(reply.answer)
            if isinstance(error, LogClosed):
                # The node is stopping and did nothing: the next one, or this one once it is back.
                await self._leave_stopping(link, error, patient=patient)
                continue
            if isinstance(error, telling):
                raise error
            if not patient or not is_worth_repeating(request, error, repeat=repeat):
                _refuse(error, lost)
            refusals += 1
            await self._before_next_try(link, error, refusals, deadline, lost)
            if not error.definite and not isinstance(request, WITHOUT_EFFECT):
                lost = error

    async def _before_next_try(
        self, link: Link, error: LogError, refusals: int, deadline: float, lost: LogError | None
    ) -> None:
        """Pause, if there is time for another try; else raise what is true."""
        pause = self.reconnect.retry_pause(refusals)
        if self._loop.time() + pause >= deadline:
            _refuse(error, lost)
        await asyncio.sleep(pause)
        if isinstance(error, Unreachable) and self.link is link and self.has_others:
            # It cannot reach the others: one of them can, perhaps.
            await self.leave(link, error)

    async def _leave_stopping(self, link: Link, error: LogError, *, patient: bool) -> None:
        """Go on with the next node; who is not patient knows better whom to ask."""
        stopping = Unreachable(f"the node is stopping: {error}")
        await self.leave(link, stopping)
        if not patient:
            raise stopping

    async def leave(self, link: Link, error: LogError) -> None:
        """Hang up on a node that is of no use now, and go on with the next one."""
        link.abort(error)
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
        name: str,
        message: bytes,
        attachments: Sequence[Buffer],
        deadline: float,
        seconds: float,
    ) -> Reply | None:
        """The answer; None if the connection broke before it came."""
        answered: asyncio.Future[Reply | None] = self._loop.create_future()
        try:
            number = link.post_encoded(
                message,
                partial(_set, answered),
                attachments=attachments,
                timeout_ms=timeout_ms(deadline - self._loop.time()),
            )
        except BaseException:
            link.release()
            raise
        try:
            async with asyncio.timeout_at(deadline):
                return await answered
        except TimeoutError:
            raise DeadlineExceeded(
                f"{name} had no answer within {seconds:g} s; it may still take effect"
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
            raise in_doubt(lost, error) from error
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
        try:
            if self._useless >= self._rounds.size:
                await self._pause(self._useless // self._rounds.size)
            while not self.closed and (self._waiters or self.wanted()):
                if await self._try_round():
                    return
                self.on_failed()
                if not self.closed and (self._waiters or self.wanted()):
                    await self._pause(self._rounds.rounds)
        finally:
            self._connector = None

    async def _try_round(self) -> bool:
        """Try all addresses, one after the other; whether that settles the matter."""
        hopeless: list[LogError] = []
        tries = self._rounds.size
        for _ in range(tries):
            try:
                self._go_up(await self._try(self._rounds.next))
                return True
            except FATAL as error:
                hopeless.append(error)
            except LogError as error:
                self.trouble = _as_unreachable(error)
            self._rounds.failed()
        if len(hopeless) == tries:
            self._give_up(hopeless[0])
            return True
        if hopeless:
            self.trouble = Unreachable(f"{self.trouble}; and {hopeless[0]}")
        return False

    async def _try(self, endpoint: Endpoint) -> Link:
        seconds = self.reconnect.attempt
        if self.has_others and self._rounds.rounds == 0:
            seconds = min(seconds, self.reconnect.attempt_first)
        try:
            async with asyncio.timeout(seconds):
                return await open_link(
                    endpoint,
                    self._dialer,
                    client=self._client,
                    log_id=self._log_id,
                    on_gone=self._go_down,
                    patience=self._patience,
                    keep_alive=self._keep_alive(),
                )
        except TimeoutError:
            raise Unreachable(f"{endpoint} does not answer within {seconds:g} s") from None

    def _keep_alive(self) -> float:
        """How long to bear with a silent node: not so long if there are others."""
        seconds = self.reconnect.keep_alive
        return min(seconds, self.reconnect.keep_alive_cluster) if self.has_others else seconds

    def _keep_alive_beside(self) -> float:
        return min(self.reconnect.keep_alive, self.reconnect.keep_alive_cluster)

    async def _pause(self, failures: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.reconnect.pause(failures)):
                await self._closed.wait()

    def _go_up(self, link: Link) -> None:
        if link.gone:
            raise Unreachable("the node hung up right after its welcome")
        self.link = link
        self.endpoint = self._rounds.next
        self._rounds.worked()
        self._log_id = link.log_id  # C4
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(link)
        self.on_up()

    def _go_down(self, error: LogError) -> None:
        if self.link is None:
            return  # It never was up.
        self._useless = 0 if self.link.useful else self._useless + 1
        self.link = None
        self.endpoint = None
        self._rounds.lost()
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


def _refuse(error: LogError, lost: LogError | None) -> NoReturn:
    """Raise a refusal, or what is true of it after a try that may have had an effect."""
    if lost is None or not error.definite:
        raise error
    raise in_doubt(lost, error) from error


def _as_unreachable(error: LogError) -> LogError:
    return error if isinstance(error, Busy) else Unreachable(str(error))


def _set(future: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not future.done():
        future.set_result(reply)


def _nothing() -> None:
    pass
