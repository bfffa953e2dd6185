"""A replica service: masters connect, and their datastore is kept here as well.

Started, it serves; stopped, it ends in order: no new connections, then the requests in work get
their answers, then connections and store are closed.  A store that failed ends the service, once
whoever asked was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelog.core.session.messages import Request
from tidelog.errors import Busy, LogClosed, LogError, WrongLog
from tidelog.formats.messages import Hello
from tidelog.limits import CONNECTIONS_MAX, REPLICA_IN_FLIGHT_BYTES_MAX, REPLICA_THREADS_MAX
from tidelog.net.connection import FrameConnection, Patience
from tidelog.net.endpoint import Endpoint
from tidelog.net.listening import Listening, listen
from tidelog.net.security import ServerSecurity
from tidelog.net.threads import WorkThreads
from tidelog.replica_service.counters import Counters
from tidelog.replica_service.metrics import render_metrics
from tidelog.replica_service.peer import Peer
from tidelog.replica_service.replica_store import ReplicaStore
from tidelog.replica_service.room import Room
from tidelog.replica_service.sessions import Sessions
from tidelog.replica_service.store_work import StoreWork

_logger: Final = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 1.0
"""What closing connections may take beyond their own patience."""
_ASIDE_THREADS: Final = 3
"""For large batches to be decoded, and for compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How a service treats its masters; every field has a default that suits most uses."""

    patience: Patience = field(default_factory=Patience)
    stop_seconds: float = 10.0
    """How long requests in work may take when the service is stopped."""
    connections_max: int = CONNECTIONS_MAX
    in_flight_bytes_max: int = REPLICA_IN_FLIGHT_BYTES_MAX
    security: ServerSecurity = field(default_factory=ServerSecurity)


class ServiceState(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ReplicaService:
    """Belongs to one event loop.  It closes the store when it is stopped."""

    def __init__(
        self,
        store: ReplicaStore,
        endpoints: Sequence[Endpoint],
        *,
        options: ServiceOptions | None = None,
    ) -> None:
        self.options = options or ServiceOptions()
        self.state = ServiceState.STARTING
        self.failure: LogError | None = None
        """What ended the service, if it was not asked to stop."""
        self.counters = Counters()
        self._store = store
        self._endpoints = tuple(endpoints)
        self._stop_asked = asyncio.Event()
        self._listening: list[Listening] = []
        self._peers: set[Peer] = set()
        self._numbers = 0
        self._room = Room(self.options.in_flight_bytes_max)
        self._work = StoreWork(REPLICA_THREADS_MAX, "tidelog-store")
        self._aside = WorkThreads(_ASIDE_THREADS, "tidelog-aside")
        self.sessions = Sessions(store, self._work, self._aside, self.counters, self._on_failure)

    @property
    def is_ready(self) -> bool:
        """Whether masters are served."""
        return self.state is ServiceState.SERVING and self.failure is None

    async def metrics(self) -> bytes:
        """For Prometheus."""
        channels, held_bytes = self.sessions.channels, self._room.held
        return render_metrics(
            self.sessions.core, self.counters, channels=channels, held_bytes=held_bytes
        )

    async def start(self) -> list[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""
        context = self.options.security.context_for(self._endpoints)
        for endpoint in self._endpoints:
            self._listening.append(await listen(endpoint, self._accept, context))
        self.state = ServiceState.SERVING
        return [listening.endpoint for listening in self._listening]

    def ask_to_stop(self) -> None:
        self._stop_asked.set()

    async def wait_until_asked_to_stop(self) -> None:
        """Serve until somebody asks for the end, or the store fails."""
        await self._stop_asked.wait()

    async def stop(self) -> None:
        """Stop in order; requests in work have ``stop_seconds``."""
        if self.state in (ServiceState.STOPPING, ServiceState.STOPPED):
            return
        self.state = ServiceState.STOPPING
        for listening in self._listening:
            listening.close()
        for peer in self._peers:
            peer.stop()
        await self._wait_for_answers()
        await self._close_connections()
        for listening in self._listening:
            listening.remove()
        await self.sessions.stop()
        await self._aside.stop()
        await self._work.stop()
        await asyncio.to_thread(self._store.close)
        self.state = ServiceState.STOPPED

    async def _wait_for_answers(self) -> None:
        deadline = asyncio.get_running_loop().time() + self.options.stop_seconds
        while any(peer.is_busy for peer in self._peers):
            if asyncio.get_running_loop().time() >= deadline:
                _logger.warning("stopping with requests unanswered: their time was up")
                return
            await asyncio.sleep(0.005)

    async def _close_connections(self) -> None:
        """Each sees to it itself that it does not take long."""
        peers = list(self._peers)
        for peer in peers:
            peer.hang_up()
        with suppress(TimeoutError):
            await asyncio.wait_for(
                asyncio.gather(*(peer.end() for peer in peers)),
                self.options.patience.close + _CLOSE_SECONDS,
            )

    # -- connections --------------------------------------------------------------------------

    def _accept(self) -> FrameConnection:
        self._numbers += 1
        peer = Peer(self._numbers, self, self._room, patience=self.options.patience)
        self.counters.connections += 1
        self.counters.connections_total += 1
        if not self.is_ready:
            peer.turn_away(LogClosed("the replica is stopping: connect again in a moment"))
        elif len(self._peers) >= self.options.connections_max:
            number = len(self._peers)
            peer.turn_away(Busy(f"the replica has {number} connections: try again later"))
        self._peers.add(peer)
        return peer.connection

    @property
    def log_id(self) -> bytes:
        return bytes.fromhex(self.sessions.core.configuration_id or "")

    def on_hello(self, peer: Peer, hello: Hello) -> None:
        self.options.security.check_token(hello.token)
        if hello.log_id and hello.log_id != self.log_id:
            raise WrongLog(f"this replica does not hold {hello.log_id.hex()}: check the address")
        self.sessions.greeted(peer)

    def on_turned_away(self, error: LogError) -> None:
        self.counters.turned_away[type(error).__name__] += 1

    def on_request(self, peer: Peer, request: Request, attachment: memoryview) -> None:
        self.sessions.request(peer, request, attachment)

    def on_undecodable(self, peer: Peer, error: LogError) -> None:
        self.sessions.undecodable(peer)

    def on_lost(self, peer: Peer) -> None:
        self.counters.connections -= 1
        self._peers.discard(peer)
        self.sessions.lost(peer)

    def _on_failure(self, error: LogError) -> None:
        if self.failure is None:
            _logger.error("the replica stops: %s", error)
            self.failure = error
            self._stop_asked.set()
