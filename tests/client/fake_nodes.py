"""Nodes of a cluster that do as they are told: real sockets and frames, and a log in memory.

All nodes share one log, which keeps producers apart as a leader does: a repeat is answered, what
comes before its predecessor is out of order.  Every node serves every request unless its script
says otherwise; a script is what to do with the appends that come, one after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import (
    BadFrame,
    LogError,
    NotLeader,
    OutOfOrder,
    RevisionConflict,
    Sealed,
    TopicExists,
    Unauthorized,
    UnknownTopic,
    WrongLog,
)
from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.formats.checksum import Buffer
from tidelog.formats.message_fields import PieceHeader, Placement, WireReceipt
from tidelog.formats.messages import (
    Answer,
    AppendBatches,
    Cancel,
    CreateTopic,
    Describe,
    Done,
    Get,
    GetPosition,
    Hello,
    NamedPosition,
    Page,
    Ping,
    ReadPage,
    Receipts,
    Request,
    SetPosition,
    TopicDescription,
    Welcome,
    decode_request,
    encode_message,
)
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.listening import Listening, listen
from tidelog.server.refusals import refused

TOPIC: Final = "default"
LOG_ID: Final = bytes(range(16))
HOLD_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Refuse:
    """Refuse an append, with whatever error."""

    error: LogError


@dataclass(frozen=True)
class HangUp:
    """Hang up on the client; ``took``: after the append was taken, so only its answer is lost."""

    took: bool


@dataclass(frozen=True)
class Silence:
    """Say nothing."""

    took: bool


@dataclass(frozen=True)
class Hold:
    """Take the append, and answer it behind the next one that is answered, or after a while."""


@dataclass(frozen=True)
class MoveLeader:
    """Another node leads from now on; then go on with the append as usual."""

    node: int


@dataclass(frozen=True)
class Take:
    """Append it."""


Act: TypeAlias = Refuse | HangUp | Silence | Hold | MoveLeader | Take


@dataclass
class FakeStream:
    number: int
    leader: int = 0
    """Which node leads; -1: nobody does."""
    is_sealed: bool = False
    replicas: tuple[int, ...] = ()
    """The nodes that have it; empty: all."""
    producers: ProducerTable = field(default_factory=ProducerTable)
    glsns: list[int] = field(default_factory=list)
    """Of each entry, by LLSN - 1."""


class FakeCluster:
    """Nodes that share a topic."""

    def __init__(self, nodes: int = 2, streams: int = 1, *, placed: bool = True) -> None:
        """``placed``: whether the nodes tell where log streams lie."""
        self.streams = {number: FakeStream(number) for number in range(1, streams + 1)}
        self.entries: list[tuple[int, int, bytes]] = []
        """(stream, LLSN, value) by GLSN - 1."""
        self.positions: dict[str, NamedPosition] = {}
        self.made: dict[str, TopicDescription] = {}
        """Topics beside the one that is always there; they can only be described."""
        self.placed = placed
        self.nodes = [FakeNode(self, number) for number in range(nodes)]

    @property
    def url(self) -> str:
        return "tidelog://" + ",".join(node.address for node in self.nodes) + "/"

    def values(self, stream: int) -> list[bytes]:
        return [value for number, _, value in self.entries if number == stream]

    def add_stream(self) -> None:
        number = len(self.streams) + 1
        self.streams[number] = FakeStream(number)

    def lead(self, node: int) -> None:
        """Let a node lead all log streams."""
        for stream in self.streams.values():
            stream.leader = node

    def leader_address(self, stream: int) -> str:
        leader = self.streams[stream].leader
        return str(self.nodes[leader].endpoint) if leader >= 0 else ""

    def take(self, request: AppendBatches, attachment: memoryview) -> tuple[WireReceipt, ...]:
        streams = [self.streams[number] for number in request.streams]
        for stream, after in zip(streams, request.after or (0,) * len(streams), strict=True):
            self._check(stream, request, after)
        receipts, offset = [], 0
        for stream in streams:
            batch = decode_batch(attachment, offset)
            offset += batch.length
            receipts.append(self._take_one(stream, request, batch.values()))
        return tuple(receipts)

    def _check(self, stream: FakeStream, request: AppendBatches, after: int) -> None:
        """Raise if a log stream does not take its part: then none of them does."""
        producer = request.producer
        if stream.is_sealed:
            raise Sealed(f"stream {stream.number} is sealed")
        known = stream.producers.lookup(producer, request.sequence) if producer else None
        if known is None and after and stream.producers.is_new(producer, after):
            raise OutOfOrder(f"append {after} has not arrived")

    def _take_one(
        self, stream: FakeStream, request: AppendBatches, values: list[bytes]
    ) -> WireReceipt:
        producer, sequence = request.producer, request.sequence
        known = stream.producers.lookup(producer, sequence) if producer else None
        if known is not None:
            glsn = stream.glsns[known.llsn_begin - 1]
            return WireReceipt(stream.number, glsn, known.llsn_begin, known.count, True)
        begin, glsn = len(stream.glsns) + 1, len(self.entries) + 1
        for offset, value in enumerate(values):
            stream.glsns.append(glsn + offset)
            self.entries.append((stream.number, begin + offset, value))
        if producer:
            stream.producers.record(producer, sequence, begin, len(values))
        for node in self.nodes:
            node.woken.set()
        return WireReceipt(stream.number, glsn, begin, len(values), False)

    def describe(self) -> TopicDescription:
        placements = [
            Placement(number, self.leader_address(number), self._replicas(stream))
            for number, stream in self.streams.items()
        ]
        streams = tuple(self.streams)
        return TopicDescription(
            1, TOPIC, streams, len(streams), "log", 1, len(self.entries),
            tuple(placements) if self.placed else (),
        )  # fmt: skip

    def _replicas(self, stream: FakeStream) -> tuple[str, ...]:
        numbers = stream.replicas or range(len(self.nodes))
        return tuple(str(self.nodes[number].endpoint) for number in numbers)


class FakeNode:
    """Serves until it is stopped; may be started again at the same address."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.endpoint = TcpEndpoint("127.0.0.1", 0)
        self.log_id = LOG_ID
        self.token = ""
        self.script: deque[Act] = deque()
        self.passes_on = True
        """Whether an append for another leader is passed on; if not, it is refused."""
        self.hints = True
        """Whether it says who leads."""
        self.on_read: Callable[[], None] = lambda: None
        """Called for every page that is asked for; what it raises is the answer."""
        self.reach: int | None = None
        """The last GLSN that it can show; None: all."""
        self.is_deaf = False
        """Answers nothing, as a node that is stopped (SIGSTOP)."""
        self.unreadable: tuple[type[Request], ...] = ()
        """Requests on which it hangs up, as a node of a release that does not know them."""
        self.appends: list[AppendBatches] = []
        self.asked: list[Request] = []
        self.connections = 0
        """How many clients came so far."""
        self.woken = asyncio.Event()
        self._sessions: set[FakeSession] = set()
        self._listening: Listening | None = None

    @property
    def address(self) -> str:
        return self.endpoint.address

    async def start(self) -> None:
        self._listening = await listen(self.endpoint, self._accept)
        assert isinstance(self._listening.endpoint, TcpEndpoint)
        self.endpoint = self._listening.endpoint

    async def stop(self) -> None:
        """As if it were killed."""
        self.turn_away()
        self.hang_up()
        await asyncio.gather(*[session.connection.wait_closed() for session in self._sessions])

    def turn_away(self) -> None:
        """Let nobody in any more."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def hang_up(self) -> None:
        """Cut all connections."""
        for session in list(self._sessions):
            session.connection.abort()

    @property
    def open_connections(self) -> int:
        return len(self._sessions)

    def _accept(self) -> FrameConnection:
        session = FakeSession(self, self._sessions.discard)
        self._sessions.add(session)
        self.connections += 1
        return session.connection


class FakeSession:
    """One connection of a client."""

    def __init__(self, node: FakeNode, on_end: Callable[[FakeSession], None]) -> None:
        self.node = node
        self.cluster = node.cluster
        self.connection = FrameConnection(self)
        self._on_end = on_end
        self._held: list[tuple[int, Answer]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        request = decode_request(message)
        if self.node.is_deaf:
            return
        self.node.asked.append(request)
        if isinstance(request, self.node.unreadable):
            self._answer(0, refused(BadFrame("not a request")))
            self.connection.close()
            return
        try:
            self._handle(header.request, request, attachment)
        except LogError as error:
            self._answer(header.request, refused(error))
            if isinstance(request, Hello):
                self.connection.close()

    def on_broken(self, error: LogError) -> None:
        self.connection.abort()

    def on_lost(self, error: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        self._on_end(self)

    def _handle(self, number: int, request: Request, attachment: memoryview) -> None:
        match request:
            case Hello():
                self._greet(number, request)
            case Ping():
                self._answer(number, Done())
            case Cancel():
                pass
            case AppendBatches():
                self._append(number, request, attachment)
            case Describe():
                self._answer(number, self._describe(request.topic))
            case CreateTopic():
                self._create(number, request)
            case ReadPage():
                self.node.on_read()
                task = asyncio.get_running_loop().create_task(self._read(number, request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Get():
                self._answer(number, Page((), 0, 0, 0, 0))
            case GetPosition():
                self._answer(number, self._position(request.name))
            case SetPosition():
                self._set_position(number, request)
            case _:
                raise AssertionError(f"not scripted: {request}")

    def _answer(self, number: int, answer: Answer, attachments: list[Buffer] | None = None) -> None:
        self.connection.send(encode_message(answer), request=number, attachments=attachments or [])

    def _greet(self, number: int, hello: Hello) -> None:
        if hello.token != self.node.token:
            raise Unauthorized("the token is not known here")
        if hello.log_id and hello.log_id != self.node.log_id:
            raise WrongLog("this node serves another log")
        self.connection.open_up()
        self._answer(number, Welcome(self.node.log_id, "fake", 64))

    # -- appends ------------------------------------------------------------------------------

    def _append(self, number: int, request: AppendBatches, attachment: memoryview) -> None:
        self.node.appends.append(request)
        act = self.node.script.popleft() if self.node.script else Take()
        if isinstance(act, MoveLeader):
            self.cluster.lead(act.node)
        if isinstance(act, Refuse):
            raise act.error
        if not isinstance(act, HangUp | Silence) or act.took:
            answer = self._take(request, attachment)
        if isinstance(act, HangUp):
            self.connection.abort()
        elif isinstance(act, Hold):
            self._held.append((number, answer))
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._release)
        elif not isinstance(act, Silence):
            self._answer(number, answer)
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for number, answer in reversed(held):
            self._answer(number, answer)

    def _take(self, request: AppendBatches, attachment: memoryview) -> Answer:
        """The answer of a node that appends, passes on, or sends away."""
        first = self.cluster.streams[request.streams[0]]
        leader = self.cluster.leader_address(first.number)
        if first.leader != self.node.number:
            hint = leader if self.node.hints else ""
            if first.leader < 0 or not self.node.passes_on:
                return refused(NotLeader(f"somebody else leads {first.number}", leader=hint))
            try:
                return Receipts(self.cluster.take(request, attachment), hint)
            except LogError as error:
                return refused(error)
        try:
            return Receipts(self.cluster.take(request, attachment))
        except LogError as error:
            return refused(error)

    # -- reading ------------------------------------------------------------------------------

    def _end(self) -> int:
        reach = self.node.reach
        return len(self.cluster.entries) if reach is None else min(reach, len(self.cluster.entries))

    async def _read(self, number: int, request: ReadPage) -> None:
        deadline = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while self._end() < request.glsn_begin:
            self.node.woken.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self.node.woken.wait()
            except TimeoutError:
                break
        begin, high = request.glsn_begin, self._end()
        end = max(min(request.glsn_end or high + 1, high + 1), begin)
        pieces, data = [], []
        for glsn in range(begin, end):
            stream, llsn, value = self.cluster.entries[glsn - 1]
            if request.streams and stream not in request.streams:
                continue
            body = encode_values([value], timestamp_us=1)
            batch = seal_batch(body, stream=stream, term=1, first_llsn=llsn) + body.data
            pieces.append(PieceHeader(stream, 0, 1, len(batch), ((llsn, glsn, 1),)))
            data.append(batch)
        page = Page(tuple(pieces), begin, end, 1, high)
        self._answer(number, page, [b"".join(data)] if data else [])

    # -- topics -------------------------------------------------------------------------------

    def _describe(self, topic: str) -> TopicDescription:
        if topic in self.cluster.made:
            return self.cluster.made[topic]
        if topic not in ("", TOPIC):
            raise UnknownTopic(f"there is no topic {topic!r}")
        return self.cluster.describe()

    def _create(self, number: int, request: CreateTopic) -> None:
        act = self.node.script.popleft() if self.node.script else Take()
        if request.topic in self.cluster.made:
            raise TopicExists(f"there is a topic {request.topic!r}")
        streams = tuple(range(10, 10 + request.streams))
        made = TopicDescription(
            2, request.topic, streams, request.streams, request.versions, 1, 0, ()
        )
        self.cluster.made[request.topic] = made
        if isinstance(act, HangUp):
            self.connection.abort()
        else:
            self._answer(number, made)

    # -- positions ----------------------------------------------------------------------------

    def _position(self, name: str) -> NamedPosition:
        return self.cluster.positions.get(name, NamedPosition(0, 0))

    def _set_position(self, number: int, request: SetPosition) -> None:
        act = self.node.script.popleft() if self.node.script else Take()
        if isinstance(act, Refuse):
            raise act.error
        if self._position(request.name).revision != request.expected:
            raise RevisionConflict("somebody was faster")
        stored = NamedPosition(request.glsn, request.expected + 1)
        self.cluster.positions[request.name] = stored
        if isinstance(act, HangUp):
            self.connection.abort()
        elif isinstance(act, Hold):
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._answer, number, stored)
        else:
            self._answer(number, stored)


@asynccontextmanager
async def fake_cluster(
    nodes: int = 2,
    streams: int = 1,
    *,
    placed: bool = True,
    prepare: Callable[[FakeCluster], None] = lambda _: None,
) -> AsyncIterator[FakeCluster]:
    """Started nodes; the first one leads."""
    cluster = FakeCluster(nodes, streams, placed=placed)
    prepare(cluster)
    try:
        for node in cluster.nodes:
            await node.start()
        yield cluster
    finally:
        for node in cluster.nodes:
            await node.stop()
