"""A served node: one open log, listening at some addresses.

It is started, serves, and is stopped in order: no new connections, then no new requests, then
those in flight get their answers, then connections and log are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from ssl import SSLContext
from typing import Final

from tidelog.embedded.commits import LoopCommits
from tidelog.embedded.engine import Engine
from tidelog.errors import Busy, LogClosed, LogError, StorageFailed
from tidelog.limits import CHORE_THREADS, CONNECTIONS_MAX, READ_THREADS
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.endpoint import Endpoint
from tidelog.net.listening import Listening, listen
from tidelog.net.security import ServerSecurity
from tidelog.net.threads import WorkThreads
from tidelog.server.metrics import render_metrics
from tidelog.server.parts import NodeParts
from tidelog.server.session import Session
from tidelog.server.tide import Tide

_logger: Final = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 1.0
"""What closing connections may take beyond their own patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """How a node treats its clients; every field has a default that suits most uses."""

    patience: Patience = field(default_factory=Patience)
    stop_seconds: float = 10.0
    """How long requests in flight may take when the node is stopped."""
    connections_max: int = CONNECTIONS_MAX
    stage_seconds: float = 3600.0
    """How long staged batches wait to be published before they are forgotten."""
    stage_check_seconds: float = 60.0
    """How often to look for those."""


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ServedNode:
    """Belongs to one event loop.  It closes the engine when it is stopped."""

    def __init__(
        self,
        engine: Engine,
        endpoints: Sequence[Endpoint],
        *,
        options: NodeOptions | None = None,
        security: ServerSecurity | None = None,
        context: SSLContext | None = None,
    ) -> None:
        """``context`` is what ``security`` makes for these addresses, before a log is opened."""
        self.options = options or NodeOptions()
        self.state = State.STARTING
        self.failure: LogError | None = None
        """What ended the node, if it was not asked to stop."""
        self._endpoints = tuple(endpoints)
        self._context = context
        self._stop_asked = asyncio.Event()
        self._listening: list[Listening] = []
        self._sessions: set[Session] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._tending: asyncio.Task[None] | None = None
        self.parts = NodeParts(
            engine=engine,
            commits=LoopCommits(engine),
            readers=WorkThreads(READ_THREADS, "tidelog-read"),
            chores=WorkThreads(CHORE_THREADS, "tidelog-chore"),
            tide=Tide(engine),
            on_failure=self._on_failure,
            security=security or ServerSecurity(),
        )

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self.state is State.SERVING and self.failure is None

    async def start(self) -> list[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""
        for endpoint in self._endpoints:
            self._listening.append(await listen(endpoint, self._accept, self._context))
        self._tending = asyncio.get_running_loop().create_task(self._tend())
        self.state = State.SERVING
        return [listening.endpoint for listening in self._listening]

    def ask_to_stop(self) -> None:
        """Let ``wait_until_asked_to_stop`` return."""
        self._stop_asked.set()

    async def wait_until_asked_to_stop(self) -> None:
        """Serve until somebody asks for the end, or the storage fails."""
        await self._stop_asked.wait()

    async def metrics(self) -> bytes:
        """For Prometheus."""
        return await self.parts.chores.run(lambda: render_metrics(self.parts))

    async def stop(self) -> None:
        """Stop in order; requests in flight have ``stop_seconds``."""
        if self.state in (State.STOPPING, State.STOPPED):
            return
        self.state = State.STOPPING
        for listening in self._listening:
            listening.close()
        for session in self._sessions:
            session.stop()
        self.parts.tide.stop()
        await self._wait_until_idle()
        for session in list(self._sessions):
            session.connection.close()
        await self._wait_for_connections()
        while self._ending:
            await asyncio.wait(self._ending)
        for listening in self._listening:
            listening.remove()
        await self._close_engine()
        self.state = State.STOPPED

    async def _wait_for_connections(self) -> None:
        """Wait until all are gone; each sees to it itself that it does not take long."""
        waits = [session.connection.wait_closed() for session in self._sessions]
        with suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(*waits), self.options.patience.close + _CLOSE_SECONDS
            )

    async def _tend(self) -> None:
        """Forget stages that nobody published, now and then."""
        options, parts = self.options, self.parts
        while True:
            await asyncio.sleep(options.stage_check_seconds)
            try:
                await parts.chores.run(lambda: parts.engine.staging.expire(options.stage_seconds))
            except StorageFailed as error:
                self._on_failure(error)
            except LogError as error:
                _logger.warning("staged batches could not be tidied up: %s", error)

    async def _close_engine(self) -> None:
        parts = self.parts
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])
        await parts.readers.stop()
        await parts.chores.stop()
        try:
            await asyncio.to_thread(parts.engine.close)
        finally:
            await asyncio.to_thread(parts.commits.stop)

    async def _wait_until_idle(self) -> None:
        """Wait until every request in flight has its answer, or the time is up."""
        deadline = asyncio.get_running_loop().time() + self.options.stop_seconds
        while not all(session.is_idle for session in self._sessions):
            if asyncio.get_running_loop().time() >= deadline:
                _logger.warning("stopping with requests unanswered: their time was up")
                return
            await asyncio.sleep(0.005)

    # -- connections --------------------------------------------------------------------------

    def _accept(self) -> FrameConnection:
        session = Session(self.parts, self._on_end, patience=self.options.patience)
        counters = self.parts.counters
        counters.connections += 1
        counters.connections_total += 1
        if not self.is_ready:
            session.turn_away(LogClosed("the node is stopping: connect again in a moment"))
        elif len(self._sessions) >= self.options.connections_max:
            number = len(self._sessions)
            session.turn_away(Busy(f"the node has {number} connections: try again later"))
        self._sessions.add(session)
        return session.connection

    def _on_end(self, session: Session) -> None:
        self.parts.counters.connections -= 1
        self._sessions.discard(session)
        task = asyncio.get_running_loop().create_task(session.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _on_failure(self, error: LogError) -> None:
        if self.failure is None:
            _logger.error("the node stops: %s", error)
            self.failure = error
            self._stop_asked.set()
