"""Serves the clients of a cluster on one of its storage nodes.

Any node answers any request: what is not here is asked of the node that has it.  Clients may know
better and go straight to leaders, but nothing depends on that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import Metric

from tidelog.embedded.audience import Audience
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import LogError
from tidelog.formats.messages import Hello
from tidelog.limits import CHORE_THREADS, READ_THREADS
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.cluster_backend import ClusterBackend
from tidelog.runtime.gateway.local_backend import LocalBackend
from tidelog.runtime.gateway.options import GatewayOptions
from tidelog.runtime.gateway.parts import GatewayParts
from tidelog.runtime.gateway.peers import INTERNAL_CLIENT, PeerSettings
from tidelog.runtime.gateway.surroundings import Admin, Metadata, Replicas
from tidelog.server.backend import Backend
from tidelog.server.counters import Counters
from tidelog.server.metrics import request_metrics
from tidelog.server.reception import Reception
from tidelog.server.refusals import check_log
from tidelog.types import StreamId

_logger: Final = logging.getLogger(__name__)


class Gateway:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        cluster_id: bytes,
        storage: Replicas,
        metadata: Metadata,
        endpoints: Sequence[Endpoint],
        options: GatewayOptions | None = None,
        server_security: ServerSecurity | None = None,
        client_security: ClientSecurity | None = None,
        admin: Admin | None = None,
        audience: Audience | None = None,
        on_failure: Callable[[LogError], None],
    ) -> None:
        """``client_security`` is for connections to other nodes.  ``audience``: where to
        note who reads.  ``on_failure`` is told what this process cannot go on after.
        """
        self.options = options or GatewayOptions()
        self.security = server_security or ServerSecurity()
        self._cluster_id = cluster_id
        self._on_failure = on_failure
        self.parts = GatewayParts(
            replicas=storage,
            metadata=metadata,
            options=self.options,
            readers=WorkThreads(READ_THREADS, "tidelog-read"),
            chores=WorkThreads(CHORE_THREADS, "tidelog-chore"),
            settings=PeerSettings(
                cluster_id=cluster_id,
                security=client_security or ClientSecurity(),
                dial_seconds=self.options.dial_seconds,
                keep_alive_seconds=self.options.keep_alive_seconds,
            ),
            admin=admin,
            audience=audience or Audience(),
        )
        self._for_clients = ClusterBackend(self.parts)
        self._for_nodes = LocalBackend(self.parts)
        self._reception = Reception(
            self,
            endpoints,
            options=self.options,
            context=self.security.context_for(endpoints),
        )
        self._tending: asyncio.Task[None] | None = None
        self._tend_now = asyncio.Event()
        self._led_publications = False
        self._stopped = False
        self.is_ready = False
        """Whether clients are served."""

    # -- what sessions share ------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        return self.parts.counters

    @property
    def log_id(self) -> bytes:
        return self._cluster_id

    def enter(self, hello: Hello) -> Backend:
        self.security.check_token(hello.token)
        check_log(hello, self._cluster_id)
        return self._for_nodes if hello.client == INTERNAL_CLIENT else self._for_clients

    def on_failure(self, error: LogError) -> None:
        self._on_failure(error)

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> list[Endpoint]:
        """Listen; returns the addresses, with the ports that the system picked for port 0."""
        found = await self._reception.open()
        self.parts.cluster.listen(self._on_view)
        self._tending = asyncio.get_running_loop().create_task(self._tend())
        self.is_ready = True
        return found

    async def stop(self) -> None:
        """Stop in order: what is in flight has ``stop_seconds``.  Once is enough."""
        if self._stopped:
            return
        self._stopped = True
        self.is_ready = False
        parts = self.parts
        self._reception.turn_away()
        parts.tides.stop()
        parts.router.close()
        await self._reception.close()
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])
        await parts.publishing.close()
        await parts.topics.close()
        await parts.peers.close()
        await parts.cluster.close()
        await parts.readers.stop()
        await parts.chores.stop()

    def metrics(self) -> Iterator[Metric]:
        """For Prometheus; cheap, and for the event loop."""
        yield from request_metrics(self.parts.counters)
        yield from self.parts.passed.metrics()

    # -- publications -------------------------------------------------------------------------

    def _on_view(self) -> None:
        """Whoever comes to lead the notes of publications finishes what was begun."""
        cluster, replicas = self.parts.cluster, self.parts.replicas
        leads = cluster.has_topic(PUBLISH_TOPIC) and (
            replicas.leader_of(StreamId(cluster.topic(PUBLISH_TOPIC).streams[0])) == replicas.node
        )
        if leads and not self._led_publications:
            self._tend_now.set()
        self._led_publications = leads

    async def _tend(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.options.stage_check_seconds):
                    await self._tend_now.wait()
            except TimeoutError:
                pass
            self._tend_now.clear()
            try:
                await self.parts.publishing.tend(self.options.stage_seconds)
            except LogError as error:
                _logger.warning("publications could not be tidied up: %s", error)
            except Exception:
                _logger.exception("publications could not be tidied up")
