"""Storage nodes in one event loop, with a scripted operator and metadata node on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from itertools import count
from typing import Final, Protocol, TypeVar

from tests.runtime.storage_node.image_disk import ImageDisk
from tidelog.core.metadata.commands import Batch, Change, RegisterNode, Request
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import CommitResult, NodeReport
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import (
    CreateTopic,
    Cut,
    NewStream,
    Quorum,
    StreamStatus,
    UpdateStream,
)
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    FromOperator,
    StatusRequest,
    StatusResponse,
    ToOperator,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.session.node_output import NodeOptions
from tidelog.formats.batch import BatchBody, decode_batch, encode_entries, seal_batch
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    NodeToOperator,
    Pong,
    for_node,
    of_node,
)
from tidelog.formats.entry import Entry, Kind
from tidelog.net import loops
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.post import Post
from tidelog.runtime.storage_node import Placed, StorageNode, StorageNodeOptions
from tidelog.runtime.storage_node.ports import Disk
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.testing.disk import SimDisk
from tidelog.types import NO_NODE, NodeId, StreamId, Term, TopicId

CLUSTER: Final = b"c" * 16
DIRECTOR: Final = NodeId(9)
"""The scripted metadata node and operator."""
TOPIC: Final = TopicId(1)
STREAM: Final = StreamId(1)
LOOKS_PER_TICK: Final = 50
OTHER: Final = StreamId(2)
SECONDS: Final = 20.0
OPTIONS: Final = StorageNodeOptions(
    tick_seconds=0.01,
    replica=ReplicaOptions(heartbeat_ticks=10, resend_ticks=5),
    session=NodeOptions(lanes=2, retry_ticks=2, patience_ticks=200),
)

T = TypeVar("T", bound=ToOperator)


class Views:
    """Satisfies ``ports.Views``."""

    def __init__(self) -> None:
        self.view: MetadataView | None = None
        self._told: list[Callable[[MetadataView], None]] = []

    def on_view(self, told: Callable[[MetadataView], None]) -> None:
        self._told.append(told)

    def tell(self, view: MetadataView) -> None:
        self.view = view
        for told in self._told:
            told(view)


async def new_post(node: NodeId) -> Post:
    post = Post(
        cluster_id=CLUSTER,
        node=node,
        endpoints=[TcpEndpoint("127.0.0.1", 0)],
        advertise="",
        server_security=ServerSecurity(),
        client_security=ClientSecurity(),
    )
    await post.start()
    return post


class Storage(Protocol):
    """What is left of a node's disk while the node is down."""

    def open(self) -> Disk: ...

    def close(self) -> None: ...

    def wipe(self) -> None: ...

    def values(self, stream: StreamId) -> list[bytes]:
        """The values of all entries that are durable."""
        ...


class ImageStorage:
    """In memory, with faults."""

    def __init__(self) -> None:
        self.disk = ImageDisk()

    def open(self) -> Disk:
        return self.disk

    def close(self) -> None:
        self.disk.restart()

    def wipe(self) -> None:
        self.disk.wipe()

    def values(self, stream: StreamId) -> list[bytes]:
        batches = self.disk.durable(stream).batches_between(1, 1 << 40)
        return [value for one in batches if not one.is_control for value in values_in(one.data)]


class FileStorage:
    """The disk that a node has, over simulated files."""

    def __init__(self) -> None:
        self.files = SimDisk()
        self._disk: ReplicaDisk | None = None

    @property
    def disk(self) -> ReplicaDisk:
        assert self._disk is not None
        return self._disk

    def open(self) -> Disk:
        self._disk = ReplicaDisk.open(
            self.files.vfs(), "/node", cluster_id=CLUSTER, wal_file_bytes=1 << 16
        )
        return self._disk

    def close(self) -> None:
        self.disk.close()

    def wipe(self) -> None:
        self.files = SimDisk()

    def values(self, stream: StreamId) -> list[bytes]:
        store = self.disk.node.streams[stream]
        found: list[bytes] = []
        for piece in store.read(1, store.end_llsn):
            fields = piece.batch.fields(piece.begin, piece.end)
            kinds = zip(fields.kinds, fields.values, strict=True)
            found += [bytes(value) for kind, value in kinds if kind != Kind.CONTROL]
        return found


def batch(*values: bytes) -> BatchBody:
    """These values as an append brings them."""
    return encode_entries([Entry(Kind.APPEND, value) for value in values])


def sealed_batch(*values: bytes) -> bytes:
    """The same as replicas exchange it."""
    body = batch(*values)
    header = seal_batch(body, stream=0, term=0, first_llsn=1, producer=0, sequence=0)
    return header + bytes(body.data)


def values_in(data: bytes) -> list[bytes]:
    found = decode_batch(data)
    return [bytes(value) for value in found.fields(0, found.count).values]


class Member:
    """One storage node, which may be stopped and started again over the same disk."""

    def __init__(self, cluster: Cluster, node: NodeId, storage: Storage) -> None:
        self._cluster = cluster
        self.number = node
        self.storage = storage
        self.views = Views()
        self.failures: list[BaseException] = []
        self.post: Post | None = None
        self._node: StorageNode | None = None

    @property
    def node(self) -> StorageNode:
        assert self._node is not None, "it was not started"
        return self._node

    @property
    def is_running(self) -> bool:
        return self._node is not None

    async def start(self) -> None:
        self.post = await new_post(self.number)
        self.views = Views()
        self._node = StorageNode(
            node=self.number,
            cluster_id=CLUSTER,
            disk=self.storage.open(),
            post=self.post,
            metadata=self.views,
            options=self._cluster.options,
            on_failure=self.failures.append,
        )
        self._cluster.introduce()
        if self._cluster.is_seen and self.number not in self._cluster.blind:
            self.views.view = self._cluster.view()
        await self._node.start()
        self._cluster.collect()

    async def stop(self) -> None:
        if self._node is not None and self.post is not None:
            if isinstance(self.storage, ImageStorage):
                self.storage.disk.gate.set()  # It has a last sync.
            await self._node.stop()
            await self.post.stop()
            self._node = self.post = None
            self.storage.close()

    @property
    def disk(self) -> ImageDisk:
        """The one in memory, to arrange faults."""
        assert isinstance(self.storage, ImageStorage)
        return self.storage.disk

    async def append(self, *values: bytes, stream: StreamId = STREAM) -> Placed:
        """Append as the leader, and wait until it is ordered."""
        return await self.node.append(stream, batch(*values))


class Cluster:
    """Storage nodes 1 to 3; the director cuts whatever is reported."""

    def __init__(self, options: StorageNodeOptions, storage: Callable[[], Storage]) -> None:
        self.options = options
        self.machine = MetadataMachine()
        self._delivery = Delivery(DIRECTOR, self.machine, resend_ticks=5)
        self.members = [Member(self, NodeId(node), storage()) for node in (1, 2, 3)]
        self.is_cutting = True
        self.is_seen = False
        """Whether storage nodes have a view."""
        self.blind: set[NodeId] = set()
        """Nodes that no view reaches."""
        self._post: Post | None = None
        self._answers: list[ToOperator] = []
        self.pongs: list[int] = []
        self._changes = 0
        self._term = 1

    # --- life ---

    async def start(self, streams: Sequence[StreamId] = (STREAM,)) -> None:
        self._post = await new_post(DIRECTOR)
        self._post.on((NodeReport,), self._on_report)
        self._post.on((NodeToOperator, Pong), self._on_answer)
        for member in self.members:
            self.apply(RegisterNode(member.number))
        ensemble = tuple(member.number for member in self.members)
        news = tuple(NewStream(stream, ensemble) for stream in streams)
        self.apply(CreateTopic(TOPIC, news, "topic"))
        for member in self.members:
            await member.start()
        self.is_seen = True
        self.tell_view()

    async def stop(self) -> None:
        for member in self.members:
            await member.stop()
        await self.post.stop()

    @property
    def post(self) -> Post:
        assert self._post is not None
        return self._post

    def member(self, node: int) -> Member:
        return self.members[node - 1]

    def introduce(self) -> None:
        """Tell every post where all others are."""
        posts = [one.post for one in self.members if one.post is not None]
        for post in [*posts, self.post]:
            for other in [*posts, self.post]:
                post.learn(other.node, other.advertise)

    # --- metadata ---

    def apply(self, change: Change) -> None:
        """Change the metadata."""
        self._changes += 1
        request = Request(DIRECTOR, self._changes, change)
        outcome = self.machine.apply(Batch((request,)))
        assert outcome.answers[0].error is None, outcome

    def view(self) -> MetadataView:
        order = self.machine.order
        return MetadataView(
            number=self._changes,
            version=order.version,
            topics=tuple(order.topics.values()),
            streams=tuple(order.streams.values()),
            nodes=tuple(self.machine.nodes.values()),
            members=(DIRECTOR,),
        )

    def tell_view(self) -> None:
        for member in self.members:
            if member.number not in self.blind:
                member.views.tell(self.view())

    def collect(self) -> None:
        for member in self.members:
            self.post.send(member.number, self._delivery.collect(member.number, 1))

    def cut(self) -> None:
        """Order what was reported, and tell."""
        self.machine.apply(Batch((Cut(),)))
        self._send(self._delivery.decided())

    def _send(self, results: Sequence[CommitResult]) -> None:
        for result in results:
            self.post.send(result.target, result)

    def _on_report(self, node: NodeId, report: ClusterMessage) -> None:
        assert isinstance(report, NodeReport)
        self.machine.apply(Batch(report.reports))
        self._send(self._delivery.reported(report))
        if self._delivery.must_tell_placements(node):
            self.post.send(node, self._delivery.collect(node, 1))
        if self.is_cutting:
            self.cut()

    # --- operator ---

    def _on_answer(self, node: NodeId, message: ClusterMessage) -> None:
        if isinstance(message, NodeToOperator):
            self._answers.append(of_node(message))
        elif isinstance(message, Pong):
            self.pongs.append(message.number)

    async def ask(self, request: FromOperator, kind: type[T]) -> T:
        """Repeat a request until it is answered."""
        async with asyncio.timeout(SECONDS):
            while True:
                self.post.send(request.target, for_node(request))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                    for answer in self._answers:
                        if isinstance(answer, kind) and _answers(answer, request):
                            self._answers.remove(answer)
                            return answer

    async def elect(self, leader: int, followers: Sequence[int], stream: StreamId = STREAM) -> Term:
        """Fence these nodes, make one of them the leader, and write that down."""
        order = self.machine.order.stream(stream)
        self._term += 1
        term = Term(self._term)
        self._write(stream, term, NO_NODE)
        self.tell_view()
        heads: dict[int, FenceResponse] = {}
        for node in (leader, *followers):
            fence = FenceRequest(DIRECTOR, NodeId(node), stream, term, order.leader == NO_NODE)
            heads[node] = await self.ask(fence, FenceResponse)
        known = tuple(
            FollowerHead(NodeId(node), heads[node].head, heads[node].is_complete)
            for node in followers
        )
        lead = BecomeLeaderRequest(
            DIRECTOR, NodeId(leader), stream, term, order.ensemble, Quorum.MAJORITY, known
        )
        await self.ask(lead, BecomeLeaderResponse)
        self._write(stream, term, NodeId(leader))
        self.tell_view()
        return term

    def _write(self, stream: StreamId, term: Term, leader: NodeId) -> None:
        order = self.machine.order.stream(stream)
        self.apply(
            UpdateStream(stream, order.revision, term, order.ensemble, leader, order.status, b"")
        )

    def mark(self, status: StreamStatus, stream: StreamId = STREAM) -> None:
        """Seal a stream, or unseal it, and tell."""
        one = self.machine.order.stream(stream)
        self.apply(
            UpdateStream(stream, one.revision, one.term, one.ensemble, one.leader, status, b"")
        )
        self.tell_view()

    async def status(self, node: int, stream: StreamId = STREAM) -> StatusResponse:
        term = self.machine.order.stream(stream).term
        return await self.ask(StatusRequest(DIRECTOR, NodeId(node), stream, term), StatusResponse)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; time passes for metadata nodes, too."""
        async with asyncio.timeout(SECONDS):
            for look in count(1):
                if holds():
                    return
                if look % LOOKS_PER_TICK == 0:
                    self._send(self._delivery.tick())  # What nobody could take comes again.
                await asyncio.sleep(0.002)


def _answers(answer: ToOperator, request: FromOperator) -> bool:
    return (answer.source, answer.stream, answer.term) == (
        request.target,
        request.stream,
        request.term,
    )


@asynccontextmanager
async def running(
    streams: Sequence[StreamId] = (STREAM,),
    *,
    options: StorageNodeOptions = OPTIONS,
    storage: Callable[[], Storage] = FileStorage,
) -> AsyncIterator[Cluster]:
    """Three storage nodes that are connected."""
    cluster = Cluster(options, storage)
    await cluster.start(streams)
    try:
        yield cluster
    finally:
        await cluster.stop()


def scene(play: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Make a test of a coroutine."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * SECONDS):
            await play()

    @wraps(play)
    def test() -> None:
        loops.run(bounded())

    return test
