"""A served node: one open log, listening at some addresses.

It is started, serves, and is stopped in order: no new connections, then no new requests, then
those in flight get their answers, then connections and log are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from ssl import SSLContext
from typing import Final

from tidelog.embedded.commits import LoopCommits
from tidelog.embedded.engine import Engine
from tidelog.errors import LogError, StorageFailed
from tidelog.limits import CHORE_THREADS, READ_THREADS
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ServerSecurity
from tidelog.net.threads import WorkThreads
from tidelog.server.engine_backend import EngineBackend
from tidelog.server.metrics import render_metrics
from tidelog.server.parts import NodeParts
from tidelog.server.reception import Reception, ReceptionOptions
from tidelog.server.tide import Tide

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions(ReceptionOptions):
    """How a node treats its clients and what they leave behind."""

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
        self._stop_asked = asyncio.Event()
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
        self._reception = Reception(
            EngineBackend(self.parts), endpoints, options=self.options, context=context
        )

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self.state is State.SERVING and self.failure is None

    async def start(self) -> list[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""
        endpoints = await self._reception.open()
        self._tending = asyncio.get_running_loop().create_task(self._tend())
        self.state = State.SERVING
        return endpoints

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
        self._reception.turn_away()
        self.parts.tide.stop()
        await self._reception.close()
        await self._close_engine()
        self.state = State.STOPPED

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

    def _on_failure(self, error: LogError) -> None:
        if self.failure is None:
            _logger.error("the node stops: %s", error)
            self.failure = error
            self._stop_asked.set()
