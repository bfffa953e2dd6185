"""Listens for clients and keeps their sessions, until they have gone.

It is closed in order: no new connections, then no new requests, then those in flight get their
answers, then the connections are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final

from tidelog.errors import Busy, LogClosed
from tidelog.limits import CONNECTIONS_MAX
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.endpoint import Endpoint
from tidelog.net.listening import Listening, listen
from tidelog.server.backend import Entrance
from tidelog.server.session import Session

_logger: Final = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 1.0
"""What closing connections may take beyond their own patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceptionOptions:
    """How clients are treated; every field has a default that suits most uses."""

    patience: Patience = field(default_factory=Patience)
    stop_seconds: float = 10.0
    """How long requests in flight may take when the node is stopped."""
    connections_max: int = CONNECTIONS_MAX


class Reception:
    """Belongs to one event loop."""

    def __init__(
        self,
        entrance: Entrance,
        endpoints: Sequence[Endpoint],
        *,
        options: ReceptionOptions,
        context: SSLContext | None,
    ) -> None:
        self._entrance = entrance
        self._endpoints = tuple(endpoints)
        self._options = options
        self._context = context
        self._listening: list[Listening] = []
        self._sessions: set[Session] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def open(self) -> list[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""
        self._is_open = True
        for endpoint in self._endpoints:
            self._listening.append(await listen(endpoint, self._accept, self._context))
        return [listening.endpoint for listening in self._listening]

    def turn_away(self) -> None:
        """Take no more connections and requests."""
        self._is_open = False
        for listening in self._listening:
            listening.close()
        for session in self._sessions:
            session.stop()

    async def close(self) -> None:
        """End what is there; requests in flight have ``stop_seconds``."""
        self.turn_away()
        await self._wait_until_idle()
        for session in list(self._sessions):
            session.connection.close()
        await self._wait_for_connections()
        while self._ending:
            await asyncio.wait(self._ending)
        for listening in self._listening:
            listening.remove()

    async def _wait_for_connections(self) -> None:
        """Wait until all are gone; each sees to it itself that it does not take long."""
        waits = [session.connection.wait_closed() for session in self._sessions]
        with suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(*waits), self._options.patience.close + _CLOSE_SECONDS
            )

    async def _wait_until_idle(self) -> None:
        """Wait until every request in flight has its answer, or the time is up."""
        deadline = asyncio.get_running_loop().time() + self._options.stop_seconds
        while not all(session.is_idle for session in self._sessions):
            if asyncio.get_running_loop().time() >= deadline:
                _logger.warning("stopping with requests unanswered: their time was up")
                return
            await asyncio.sleep(0.005)

    def _accept(self) -> FrameConnection:
        session = Session(self._entrance, self._on_end, patience=self._options.patience)
        counters = self._entrance.counters
        counters.connections += 1
        counters.connections_total += 1
        if not self._is_open:
            session.turn_away(LogClosed("the node is stopping: connect again in a moment"))
        elif len(self._sessions) >= self._options.connections_max:
            number = len(self._sessions)
            session.turn_away(Busy(f"the node has {number} connections: try again later"))
        self._sessions.add(session)
        return session.connection

    def _on_end(self, session: Session) -> None:
        self._entrance.counters.connections -= 1
        self._sessions.discard(session)
        task = asyncio.get_running_loop().create_task(session.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
