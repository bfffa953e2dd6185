"""Messages between the processes of a cluster: any may be lost, none is awaited.

Every process opens one connection to each other one that it has something to say to, and speaks on
it alone; what it is told comes on the connection that the other one opened.  Besides, connections
of sessions between storage nodes are opened and accepted here, and handed to who keeps sessions.

Invariants:
  P1  only a process of this cluster, with a token that is known here, is listened to
  P2  whatever a peer sends, it ends at most its own connection
  P3  a message for another node, or for a role that is not here, is left and counted
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Final, TypeAlias

from prometheus_client.core import Metric

from tidelog.errors import (
    Busy,
    LogClosed,
    LogError,
    Unreachable,
    UnsupportedVersion,
    WrongCluster,
    WrongState,
)
from tidelog.formats.cluster_messages import (
    CLUSTER_ID_BYTES,
    CLUSTER_PROTOCOL_VERSION,
    ClusterMessage,
    PeerHello,
    Purpose,
    encode_cluster_message,
)
from tidelog.invariants import check
from tidelog.limits import (
    NODE_ADDRESS_CHARS_MAX,
    POST_CONNECTIONS_MAX,
    POST_MESSAGE_BYTES_MAX,
    POST_NODES_MAX,
)
from tidelog.net.connection import FrameConnection, FrameHandler, Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint, parse_endpoint
from tidelog.net.listening import Listening, listen
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.post_counters import PostCounters
from tidelog.runtime.post_greeting import call
from tidelog.runtime.post_incoming import Incoming
from tidelog.runtime.post_metrics import metrics_of
from tidelog.runtime.post_outgoing import Outgoing
from tidelog.types import NO_NODE, NodeId

__all__ = ["Post", "Purpose"]

Receive: TypeAlias = Callable[[NodeId, ClusterMessage], None]
AcceptSession: TypeAlias = Callable[[NodeId, FrameConnection], FrameHandler]

_logger: Final = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 1.0
"""For a connection and its welcome; a packet that gets lost is worth a new attempt."""
RECEIPT_SECONDS: Final = 2.0
"""After which a connection is given up on which bytes stay unconfirmed: a path that is cut."""
_PATIENCE: Final = Patience()


class Post:
    """Carries messages between the processes of a cluster, best effort.  Owns the listener for
    peers.  All calls belong into one event loop."""

    def __init__(
        self,
        *,
        cluster_id: bytes,
        node: NodeId,
        endpoints: Sequence[Endpoint],
        advertise: str,
        server_security: ServerSecurity,
        client_security: ClientSecurity,
    ) -> None:
        """``advertise``: where others find this process; empty: the first address, as bound."""
        check(len(cluster_id) == CLUSTER_ID_BYTES, "the id of a cluster has 16 bytes")
        check(node > NO_NODE, "a process of a cluster has a number")
        self._loop = asyncio.get_running_loop()
        self._cluster_id = cluster_id
        self.node = node
        self.advertise = advertise
        self.counters = PostCounters()
        self._endpoints = tuple(endpoints)
        self._server_security = server_security
        self._client_security = client_security
        self._dialers: dict[bool, Dialer] = {}
        self._listening: list[Listening] = []
        self._addresses: dict[NodeId, str] = {}
        self._told: dict[NodeId, str] = {}
        self._outgoing: dict[NodeId, Outgoing] = {}
        self._incoming: dict[Incoming, None] = {}
        self._receivers: dict[type, Receive] = {}
        self._taken_at_once: set[type] = set()
        self._accept_session: AcceptSession | None = None
        self._heard: dict[NodeId, float] = {}
        self._is_stopped = False

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> list[Endpoint]:
        """Listen for peers; returns the addresses, with the ports that the system picked."""
        context = self._server_security.context_for(self._endpoints)
        for endpoint in self._endpoints:
            self._listening.append(await listen(endpoint, self._accept, context))
        bound = [listening.endpoint for listening in self._listening]
        if not self.advertise and bound:
            self.advertise = str(bound[0])
        return bound

    async def stop(self) -> None:
        """Close all connections; what is queued is lost."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for listening in self._listening:
            listening.close()
        connections = [incoming.connection for incoming in self._incoming]
        for connection in connections:
            connection.abort()
        await asyncio.gather(
            *(outgoing.stop() for outgoing in self._outgoing.values()),
            *(connection.wait_closed() for connection in connections),
        )
        for listening in self._listening:
            listening.remove()

    # -- messages -----------------------------------------------------------------------------

    def learn(self, node: NodeId, address: str) -> None:
        """Remember where a node listens for its peers (``tcp://host:port``).

        What was told before teaches nothing: the node itself may have said something else since.
        """
        if self._told.get(node) != address and self._remember(node, address):
            self._told[node] = address

    def _remember(self, node: NodeId, address: str) -> bool:
        """Call a node at this address from now on; a connection that there is stays."""
        if node == self.node or not 0 < len(address) <= NODE_ADDRESS_CHARS_MAX:
            return False
        if node not in self._addresses and len(self._addresses) >= POST_NODES_MAX:
            _logger.warning("more than %d nodes: %d is not remembered", POST_NODES_MAX, node)
            return False
        if self._addresses.get(node) != address and node in self._outgoing:
            self._outgoing[node].nudge()
        self._addresses[node] = address
        return True

    def address_of(self, node: NodeId) -> str:
        """Where a node listens for its peers; empty if that is not known."""
        return self.advertise if node == self.node else self._addresses.get(node, "")

    def send(self, target: NodeId, message: ClusterMessage) -> None:
        """Send a message, if it can be; to itself: in the next turn of the loop, or at once."""
        if target == self.node:
            self.counters.sent += 1
            if type(message) in self._taken_at_once:
                self.receive(target, message)
            else:
                self._loop.call_soon(self.receive, target, message)
            return
        data = encode_cluster_message(message)
        outgoing = self._outgoing_to(target)
        if outgoing is None or len(data) > POST_MESSAGE_BYTES_MAX:
            self.counters.dropped += 1
        else:
            outgoing.send(data)

    def on(self, kinds: tuple[type, ...], receive: Receive, *, at_once: bool = False) -> None:
        """Hand messages of these types to ``receive``; a LogError from it breaks the connection.

        ``at_once``: it only takes note of them, so those of this process need not wait for whoever
        sends them to be done.
        """
        for kind in kinds:
            check(kind not in self._receivers, "a message has one receiver in a process")
            self._receivers[kind] = receive
            if at_once:
                self._taken_at_once.add(kind)

    def silent_seconds(self, node: NodeId) -> float:
        """How long nothing came from a node; infinite if nothing ever did."""
        if node == self.node:
            return 0.0
        heard = self._heard.get(node)
        return inf if heard is None else self._loop.time() - heard

    def metrics(self) -> Iterable[Metric]:
        """For Prometheus."""
        queued = sum(outgoing.queued_bytes for outgoing in self._outgoing.values())
        return metrics_of(self.counters, queued)

    def _outgoing_to(self, target: NodeId) -> Outgoing | None:
        outgoing = self._outgoing.get(target)
        if outgoing is None and target in self._addresses and not self._is_stopped:
            connect = partial(self._connect, target, Purpose.POST)
            outgoing = self._outgoing[target] = Outgoing(target, connect, self.counters)
        return outgoing

    # -- sessions -----------------------------------------------------------------------------

    async def open_session(self, target: NodeId, handler: FrameHandler) -> FrameConnection:
        """Connect to a node for a session and greet it; Unreachable, or what it has against us."""
        return await self._connect(target, Purpose.SESSION, handler)

    def on_session(self, accept: AcceptSession) -> None:
        """Hand connections of sessions that other nodes open to ``accept``.

        The peer is welcomed once ``accept`` returns: it must not send anything before, and may
        raise what there is against the peer.
        """
        self._accept_session = accept

    async def _connect(
        self, target: NodeId, purpose: Purpose, handler: FrameHandler
    ) -> FrameConnection:
        if self._is_stopped:
            raise LogClosed("the post is stopped")
        address = self._addresses.get(target)
        if address is None:
            raise Unreachable(f"nobody knows where node {target} is")
        endpoint = parse_endpoint(address)
        dialer = self._dialer(endpoint)
        hello = PeerHello(
            self._cluster_id, self.node, target, self.advertise, purpose, token=dialer.token
        )
        connection = await call(
            endpoint, dialer, hello, handler, patience=_PATIENCE, seconds=CONNECT_SECONDS
        )
        connection.await_receipt(RECEIPT_SECONDS)
        return connection

    def _dialer(self, endpoint: Endpoint) -> Dialer:
        dialer = self._dialers.get(endpoint.tls)
        if dialer is None:
            dialer = self._dialers[endpoint.tls] = Dialer.to((endpoint,), self._client_security)
        return dialer

    # -- what connections tell ----------------------------------------------------------------

    def _accept(self) -> FrameConnection:
        incoming = Incoming(self, _PATIENCE)
        if self._is_stopped:
            incoming.turn_away(LogClosed("the process is stopping"))
        elif len(self._incoming) >= POST_CONNECTIONS_MAX:
            incoming.turn_away(Busy(f"{len(self._incoming)} connections: try again later"))
        self._incoming[incoming] = None
        self.counters.incoming += 1
        return incoming.connection

    def admit(self, hello: PeerHello) -> None:
        """Raise what there is against a peer (P1)."""
        self._server_security.check_token(hello.token)
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(f"node {self.node} is of another cluster: check the address")
        if hello.version != CLUSTER_PROTOCOL_VERSION:
            raise UnsupportedVersion(
                f"node {hello.node} speaks version {hello.version} between processes, node "
                f"{self.node} {CLUSTER_PROTOCOL_VERSION}: use the same release on both"
            )
        if hello.target not in (NO_NODE, self.node):
            raise WrongCluster(f"node {self.node} is here, and not node {hello.target}")
        if hello.node in (NO_NODE, self.node):
            raise WrongCluster(f"node {hello.node} is this one: every process has its own number")

    def accept_session(self, node: NodeId, connection: FrameConnection) -> FrameHandler:
        if self._accept_session is None:
            raise WrongState(f"node {self.node} keeps no sessions")
        return self._accept_session(node, connection)

    def greeted(self, hello: PeerHello) -> None:
        """A peer is there, and says where it is to be found."""
        node = NodeId(hello.node)
        self.heard(node)
        self._remember(node, hello.address)
        if node in self._outgoing:
            self._outgoing[node].nudge()

    def heard(self, node: NodeId) -> None:
        """A sign of life came from a node."""
        if node in self._heard or len(self._heard) < POST_NODES_MAX:
            self._heard[node] = self._loop.time()

    def receive(self, node: NodeId, message: ClusterMessage) -> None:
        """A message came (P3)."""
        self.counters.received += 1
        receiver = self._receivers.get(type(message))
        target = getattr(message, "target", self.node)
        if receiver is None or target != self.node:
            self.counters.unheeded += 1
        else:
            receiver(node, message)

    def turned_away(self, error: LogError) -> None:
        """A peer was not let in, whether or not it came as far as a hello."""
        self.counters.turned_away[type(error).__name__] += 1

    def lost(self, incoming: Incoming) -> None:
        del self._incoming[incoming]
        self.counters.incoming -= 1
