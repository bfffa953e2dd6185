"""Gateways of several nodes, with real sockets between them, over one log that stands for all.

The log is an embedded one: what is appended is ordered at once, and every node sees of it the
streams that it holds, up to where its replica is said to be.  Who leads, who holds what, and what
goes wrong with an append is up to the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from tests.embedded.logs import INLINE
from tests.server.raw import LOCAL, RawClient
from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.state import StorageNode as StorageNodeRow
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import AddStreams, CreateTopic, RetainTopic, StreamStatus
from tidelog.core.order.state import ReplicaOrder, StreamOrder, TopicOrder
from tidelog.embedded.engine import Engine
from tidelog.embedded.maintenance import Maintenance
from tidelog.embedded.requests import (
    AdminRequest,
    AppendRequest,
    BoundaryRequest,
    TrimRequest,
)
from tidelog.errors import DeadlineExceeded, LogError, NotLeader, OutOfOrder, TopicExists
from tidelog.formats.batch import BatchBody
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.appends import Append, Part
from tidelog.interface.records import Ack
from tidelog.net.endpoint import Endpoint
from tidelog.runtime.gateway import Gateway, GatewayOptions
from tidelog.runtime.storage_node.appends import Placed
from tidelog.storage.node_store import NodeStore
from tidelog.testing.disk import SimDisk
from tidelog.types import (
    NO_NODE,
    Glsn,
    Llsn,
    NodeId,
    StreamId,
    TopicId,
    Version,
)

CLUSTER_ID: Final = bytes(range(16))
QUICK: Final = GatewayOptions(
    leader_seconds=0.2,
    catch_up_seconds=0.3,
    fresh_seconds=0.5,
    dial_seconds=0.5,
    ready_seconds=2.0,
    stop_seconds=2.0,
)
Before = Callable[[StreamId, int], LogError | None]


class FakeReplicas:
    """The storage node of one process: what it holds of the log, and as what."""

    def __init__(self, cluster: FakeCluster, node: NodeId) -> None:
        self._cluster = cluster
        self.node = node
        self.lag: dict[int, int] = {}
        """By topic, how many GLSNs its replicas are behind."""
        self.waits_to_be_asked = False
        """Whether what lags is stored as soon as somebody wants to read it."""
        self.listeners: list[Callable[[], None]] = []
        self.refuse: Before = lambda _stream, _sequence: None
        """Asked before each append: an error refuses it."""
        self.lose: Before = lambda _stream, _sequence: None
        """Asked after each append: an error is told although it took effect."""
        self.unsettled = False
        self.rolls = 0
        self.damaged: list[StreamId] = []
        """What was told of."""

    @property
    def maintenance(self) -> Maintenance:
        return self._cluster.engine.maintenance

    @property
    def node_store(self) -> NodeStore:
        """The log's own store, without the streams that are elsewhere."""
        whole = self._cluster.engine.node
        here = {
            stream: store
            for stream, store in whole.streams.items()
            if self.node in self._cluster.hosts_of(StreamId(stream))
        }
        return replace(whole, streams=here)

    def append(
        self,
        stream: StreamId,
        body: BatchBody,
        *,
        producer: int = 0,
        sequence: int = 0,
        after: int = 0,
        ack: Ack = Ack.ORDERED,
    ) -> asyncio.Future[Placed]:
        if self.leader_of(stream) != self.node:
            raise NotLeader(f"node {self.node} does not lead {stream}")
        refused = self.refuse(stream, sequence)
        if refused is not None:
            raise refused
        store = self._cluster.engine.node.streams[stream]
        if store.producers.last_sequence(producer) < after:
            raise OutOfOrder(f"{after} of producer {producer} has not arrived")
        part = Part(stream, body)
        topic = self._cluster.engine.node.topics[store.topic]
        request = AppendRequest(Append(topic.name, [part], producer, sequence))
        self._cluster.engine.submit(request)
        self._cluster.tell()
        outcome: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        lost = self.lose(stream, sequence)
        if lost is not None:
            outcome.set_exception(lost)
            return outcome
        receipt = request.receipts[0]
        glsn = receipt.glsn if ack is Ack.ORDERED else 0
        outcome.set_result(Placed(stream, Llsn(receipt.llsn), body.count, glsn, receipt.duplicate))
        return outcome

    def leader_of(self, stream: StreamId) -> NodeId:
        return self._cluster.leaders.get(stream, NO_NODE)

    def readable_end(self, topic: TopicId, streams: Sequence[StreamId]) -> int | None:
        if any(self.node not in self._cluster.hosts_of(stream) for stream in streams):
            return None
        return max(self._cluster.engine.high_watermark(topic) - self.lag.get(topic, 0), 0) + 1

    def ordered_end(self, stream: StreamId) -> int:
        return self._cluster.engine.node.streams[stream].context.glsn_end

    def issued_end(self, topic: TopicId) -> int:
        return 1

    def hasten_order(self) -> None:
        """What only waits to be stored can be read a moment later."""
        if self.waits_to_be_asked and self.lag:
            self.lag.clear()
            asyncio.get_running_loop().call_soon(self._cluster.tell)

    def settled_end(self, stream: StreamId) -> int | None:
        if self.leader_of(stream) != self.node or self.unsettled:
            return None
        return self._cluster.engine.node.streams[stream].end_llsn

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(told)
        return lambda: self.listeners.remove(told)

    def report_damage(self, stream: StreamId, why: str) -> None:
        self.damaged.append(stream)

    async def roll(self) -> None:
        self.rolls += 1
        self._cluster.engine.roll()


class FakeMetadata:
    """The metadata repository, as each node has it; ``is_cut_off``: it does not answer."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.view: MetadataView | None = None
        self._told: list[Callable[[MetadataView], None]] = []
        self.is_cut_off = False
        self.reads = 0

    def on_view(self, told: Callable[[MetadataView], None]) -> None:
        self._told.append(told)
        if self.view is not None:
            told(self.view)

    def take(self, view: MetadataView) -> None:
        if self.view is None or self.view.age < view.age:
            self.view = view
            for told in self._told:
                told(view)

    async def read(self, *, seconds: float) -> MetadataView:
        self.reads += 1
        await asyncio.sleep(0)
        if self.is_cut_off:
            raise DeadlineExceeded("cut off")
        view = self._cluster.view()
        self.take(view)
        return view

    async def ask(self, change: Change, *, seconds: float) -> None:
        await asyncio.sleep(0)
        if self.is_cut_off:
            raise DeadlineExceeded("cut off")
        self._cluster.apply(change)


class FakeNode:
    def __init__(self, cluster: FakeCluster, node: NodeId) -> None:
        self.node = node
        self.replicas = FakeReplicas(cluster, node)
        self.metadata = FakeMetadata(cluster)
        self.gateway: Gateway
        self.endpoint: Endpoint = LOCAL

    def client(self) -> RawClient:
        return RawClient(self.endpoint)

    async def start(self, options: GatewayOptions) -> None:
        self.gateway = Gateway(
            cluster_id=CLUSTER_ID,
            storage=self.replicas,
            metadata=self.metadata,
            endpoints=[self.endpoint],
            options=options,
            on_failure=_fail,
        )
        self.endpoint = (await self.gateway.start())[0]


class FakeCluster:
    """Nodes are numbered from 1 on."""

    def __init__(self, nodes: int) -> None:
        self.engine = Engine(SimDisk().vfs(), "/log", INLINE, create=True)
        self.nodes = {
            NodeId(number): FakeNode(self, NodeId(number)) for number in range(1, nodes + 1)
        }
        self.leaders: dict[StreamId, NodeId] = {}
        self._hosts: dict[StreamId, tuple[NodeId, ...]] = {}
        self._trims: dict[int, int] = {}
        self._boundaries: dict[int, int] = {}
        self.statuses: dict[StreamId, StreamStatus] = {}
        """What views say of streams that are not running; what replicas say is up to the test."""
        self.changes = 0

    # -- what tests change --------------------------------------------------------------------

    def create(self, name: str, *, streams: int = 1, versions: str = "log") -> TopicManifest:
        """A topic whose streams lie on all nodes and are led by the first one."""
        number = self.engine.node.manifest.next_topic
        self.engine.submit(AdminRequest(lambda: self.engine._create_topic(name, streams, versions)))
        topic = self.engine.node.topics[number]
        self._place(topic.streams, tuple(self.nodes))
        return topic

    def place(self, stream: int, hosts: Sequence[int], leader: int | None = None) -> None:
        """Where a stream lies, and who leads it: the first one, if nobody is named."""
        nodes = tuple(NodeId(node) for node in hosts)
        self._hosts[StreamId(stream)] = nodes
        self.leaders[StreamId(stream)] = NodeId(leader) if leader is not None else nodes[0]
        self.show()

    def show(self) -> None:
        """Tell all nodes the newest view."""
        self.changes += 1
        view = self.view()
        for node in self.nodes.values():
            if not node.metadata.is_cut_off:
                node.metadata.take(view)

    def tell(self) -> None:
        """Tell all nodes that there may be something new."""
        for node in self.nodes.values():
            for told in list(node.replicas.listeners):
                told()

    # -- the log ------------------------------------------------------------------------------

    def hosts_of(self, stream: StreamId) -> tuple[NodeId, ...]:
        return self._hosts.get(stream, ())

    def view(self) -> MetadataView:
        manifest = self.engine.node.manifest
        topics = sorted(self.engine.node.topics.values(), key=lambda topic: topic.topic)
        return MetadataView(
            number=self.changes,
            version=Version(sum(self.engine.high_watermark(topic.topic) for topic in topics)),
            topics=tuple(self._order(topic) for topic in topics),
            streams=tuple(
                StreamOrder(
                    TopicId(topic.topic),
                    StreamId(stream),
                    tuple(ReplicaOrder(node) for node in sorted(self.hosts_of(StreamId(stream)))),
                    status=self.statuses.get(StreamId(stream), StreamStatus.RUNNING),
                    leader=self.leaders.get(StreamId(stream), NO_NODE),
                )
                for topic in topics
                for stream in topic.streams
            ),
            nodes=tuple(
                StorageNodeRow(number, f"tcp://nowhere:1 {node.endpoint}")
                for number, node in self.nodes.items()
            ),
            members=(NodeId(1),),
            next_topic=TopicId(manifest.next_topic),
            next_stream=StreamId(manifest.next_stream),
        )

    def _order(self, topic: TopicManifest) -> TopicOrder:
        boundary = self._boundaries.get(topic.topic, 0)
        return TopicOrder(
            TopicId(topic.topic),
            tuple(StreamId(stream) for stream in topic.streams),
            topic.name,
            high_watermark=Glsn(self.engine.high_watermark(topic.topic)),
            versions="log" if topic.versions == "log" else "explicit",
            key_streams=topic.key_streams,
            trim_glsn_end=Glsn(self._trims.get(topic.topic, 1)),
            boundary_high=boundary >> 64,
            boundary_low=boundary & ((1 << 64) - 1),
        )

    def apply(self, change: Change) -> None:
        match change:
            case CreateTopic():
                if change.topic != self.engine.node.manifest.next_topic:
                    raise TopicExists(f"there is a topic {change.topic} already")
                topic = self.create(
                    change.name, streams=len(change.streams), versions=change.versions
                )
                assert topic.streams == tuple(new.stream for new in change.streams)
            case AddStreams():
                known = self.engine.node.topics[change.topic]
                self.engine.add_streams(known.name, len(change.streams))
                self._place([new.stream for new in change.streams], tuple(self.nodes))
            case RetainTopic():
                self._retain(change)
            case _:
                raise AssertionError(change)
        self.show()

    def _retain(self, change: RetainTopic) -> None:
        topic = change.topic
        self._trims[topic] = max(self._trims.get(topic, 1), change.trim_glsn_end)
        boundary = change.boundary_high << 64 | change.boundary_low
        self._boundaries[topic] = max(self._boundaries.get(topic, 0), boundary)
        self.engine.submit(TrimRequest(topic, self._trims[topic]))
        if boundary:
            self.engine.submit(BoundaryRequest(topic, boundary))

    def _place(self, streams: Sequence[int], hosts: tuple[NodeId, ...]) -> None:
        for stream in streams:
            self._hosts[StreamId(stream)] = hosts
            self.leaders[StreamId(stream)] = hosts[0]


@asynccontextmanager
async def cluster_of(
    nodes: int = 3, *, options: GatewayOptions = QUICK
) -> AsyncIterator[FakeCluster]:
    """A cluster that serves; stopped at the end."""
    cluster = FakeCluster(nodes)
    started: list[FakeNode] = []
    try:
        for node in cluster.nodes.values():
            await node.start(options)
            started.append(node)
        cluster.show()
        yield cluster
    finally:
        for node in started:
            await node.gateway.stop()
        cluster.engine.close()


def _fail(error: LogError) -> None:
    raise AssertionError(error)
