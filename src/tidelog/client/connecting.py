"""The connection of a client to one of the nodes of its log, made again whenever it breaks.

C1  one connection attempt at a time, at once with the next address, with growing pauses when all
    have failed, and only while somebody wants one
C2  after the first hello only the same log will do
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.client.link import Link, open_link
from tidelog.client.retries import FATAL, Reconnect
from tidelog.client.rounds import Rounds
from tidelog.errors import Busy, LogClosed, LogError, Unreachable
from tidelog.net.connection import Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity


class Connecting:
    """What a channel asks over.  All calls belong into one event loop."""

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

    def add_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """Other nodes of the same log, to be tried after those that are known."""
        self._rounds.add([endpoint for endpoint in endpoints if endpoint.tls == self._has_tls])
        if self.link is not None:
            self.link.keep_alive = self._keep_alive()

    async def next_link(self) -> Link:
        """Wait for a connection, while there is none; raises why there never will be one."""
        waiter: asyncio.Future[Link] = self._loop.create_future()
        self._waiters.add(waiter)
        self.want()
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)

    async def leave(self, link: Link, error: LogError) -> None:
        """Hang up on a node that is of no use now, and go on with the next one."""
        link.abort(error)
        await link.wait_closed()

    # -- connecting (C1) ----------------------------------------------------------------------

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
        self._log_id = link.log_id  # C2
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


def _as_unreachable(error: LogError) -> LogError:
    return error if isinstance(error, Busy) else Unreachable(str(error))


def _nothing() -> None:
    pass
