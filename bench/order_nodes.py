"""The order layer with many storage nodes: a model of its work, and the real core beside it.

Metadata nodes are those of ``core.metadata.repository``; storage nodes are made up, and only report
and take results.  All messages are encoded and decoded as on the wire, nothing is sent, nothing is
synced.  What is timed is the processor time of the node that leads, per cut: taking reports in,
proposing, applying, and making results for the storage nodes that it answers; the fastest of some
cuts counts.

The model says of a cut over ``A`` streams with ``r`` replicas, ``N`` storage nodes and ``m``
metadata nodes what the leader takes in, sends and writes, and what that costs it:

    messages in     N / m + 2 (m - 1): reports, shares, Raft's answers
    messages out    N / m + 2 (m - 1): results, Raft's entries and commits
    entry bytes     e0 + e1 r A
    bytes out       f0 N / m + f1 r A / m + (m - 1) entry bytes
    processor time  a + b r A + c N / m + d N A / m

The constants are fitted to runs with few storage nodes; those with many are foretold by them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Final

import numpy as np

from bench.peers.processes import HOST
from tidelog.core.metadata.commands import RegisterNode
from tidelog.core.metadata.messages import CommitResult, NodeReport
from tidelog.core.metadata.repository import PeerMessage, Repository, RepositoryOptions
from tidelog.core.order.commands import CreateTopic, NewStream, Report
from tidelog.core.raft.entries import (
    NO_INDEX,
    NO_TERM,
    HardState,
    Membership,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    Ping,
    Pong,
    decode_cluster_message,
    encode_cluster_message,
)
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.loops import loop_factory
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.post import Post
from tidelog.types import FIRST_LLSN, FIRST_TERM, Llsn, NodeId, StreamId, TopicId, Version

REPLICAS: Final = 3
MESSAGES_TO_OTHERS: Final = 2
"""To each other metadata node, in a cut: the entry, then that it is committed."""
MESSAGES_OF_OTHERS: Final = 2
"""Of each of them: its share of the reports, and that it has the entry."""
STREAMS_PER_TOPIC: Final = 1_000
FIRST_STORAGE: Final = 1_000
"""Numbers of storage nodes; those of metadata nodes are below."""
WARM_ROUNDS: Final = 3
POSTS: Final = 16
ANSWER_SECONDS: Final = 30.0
CLUSTER: Final = bytes(16)
OPTIONS: Final = RepositoryOptions(leader_collects=0)
"""As if there were many storage nodes, however many there are."""
STREAMS_PER_NODE: Final = 10

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Size:
    """Of a cluster, and of what one of its cuts orders."""

    storage: int
    active: int
    """Streams with something to order."""
    metadata: int = 3

    @property
    def streams(self) -> int:
        return max(STREAMS_PER_NODE * self.storage, self.active)

    @property
    def share(self) -> float:
        """Storage nodes of each metadata node."""
        return self.storage / self.metadata

    @property
    def name(self) -> str:
        return f"{self.storage} × {self.active} × {self.metadata}"


FITTED: Final = (
    *(Size(storage, active) for storage in (10, 30, 100, 300) for active in (10, 100)),
    *(Size(storage, 1_000) for storage in (10, 100, 300)),
)
FORETOLD: Final = (
    Size(1_000, 10),
    Size(1_000, 100),
    Size(1_000, 1_000),
    Size(1_000, 100, 5),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """What is run."""

    fitted: tuple[Size, ...] = FITTED
    foretold: tuple[Size, ...] = FORETOLD
    rounds: int = 30
    messages: int = 20_000


QUICK = Scale(
    fitted=tuple(Size(storage, active) for storage in (10, 30) for active in (10, 30)),
    foretold=(Size(100, 30),),
    rounds=5,
    messages=500,
)


def measure_nodes(scale: Scale) -> Iterator[tuple[str, Figures]]:
    """Each size as measured and as the model has it; the model; what carrying a message costs."""
    found = {size: _run(size, scale.rounds) for size in (*scale.fitted, *scale.foretold)}
    model = Model.of({size: found[size] for size in scale.fitted})
    for size, figures in found.items():
        told = {f"model_{name}": value for name, value in model.figures(size).items()}
        yield f"nodes, {size.name}", figures | told | {"foretold": size in scale.foretold}
    yield "nodes: model", model.constants()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        yield "nodes: message", {"microseconds": runner.run(_carried(scale.messages))}


# -- the model -------------------------------------------------------------------------------------


def _entry_terms(size: Size) -> tuple[float, ...]:
    return 1.0, REPLICAS * size.active


def _result_terms(size: Size) -> tuple[float, ...]:
    return size.share, REPLICAS * size.active / size.metadata


def _time_terms(size: Size) -> tuple[float, ...]:
    return 1.0, REPLICAS * size.active, size.share, size.share * size.active


@dataclass(frozen=True, slots=True)
class Model:
    """The constants of the module's text."""

    entry: Sequence[float]
    results: Sequence[float]
    time: Sequence[float]

    @classmethod
    def of(cls, found: Mapping[Size, Figures]) -> Model:
        """Fitted to what was measured."""
        return cls(
            _fit({_entry_terms(size): one["entry_bytes"] for size, one in found.items()}),
            _fit({_result_terms(size): one["result_bytes"] for size, one in found.items()}),
            _fit({_time_terms(size): one["leader_us"] for size, one in found.items()}),
        )

    def figures(self, size: Size) -> Figures:
        """What it says of a cut."""
        others = size.metadata - 1
        entry = _sum(self.entry, _entry_terms(size))
        return {
            "messages_in": size.share + MESSAGES_OF_OTHERS * others,
            "messages_out": size.share + MESSAGES_TO_OTHERS * others,
            "entry_bytes": entry,
            "bytes_out": _sum(self.results, _result_terms(size)) + others * entry,
            "leader_us": _sum(self.time, _time_terms(size)),
        }

    def constants(self) -> Figures:
        names = ("e0", "e1", "f0", "f1", "a", "b", "c", "d")
        return dict(zip(names, (*self.entry, *self.results, *self.time), strict=True))


def _fit(measured: Mapping[tuple[float, ...], float]) -> Sequence[float]:
    """Least squares of the relative errors."""
    rows = [[term / value for term in terms] for terms, value in measured.items()]
    found: list[float] = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0].tolist()
    return found


def _sum(weights: Sequence[float], terms: Sequence[float]) -> float:
    return sum(weight * term for weight, term in zip(weights, terms, strict=True))


# -- the core --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Tally:
    """What the leader did."""

    seconds: float = 0.0
    messages_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    result_bytes: int = 0
    entry_bytes: int = 0
    entries: int = 0


class _Cluster:
    """Metadata nodes whose messages arrive at once, and storage nodes that are made up."""

    def __init__(self, size: Size) -> None:
        self.size = size
        members = tuple(NodeId(number + 1) for number in range(size.metadata))
        head = SnapshotHead(NO_INDEX, NO_TERM, Membership(members))
        stored = Stored(HardState(), Snapshot(head, b""), ())
        self.nodes = {node: Repository(node, stored, OPTIONS, _chance(node)) for node in members}
        self.storage = [NodeId(FIRST_STORAGE + number) for number in range(size.storage)]
        self.ends = dict.fromkeys(map(StreamId, range(1, size.streams + 1)), FIRST_LLSN)
        self.version = Version(0)
        self.tally = _Tally()
        self._next = 0
        self._set_up()

    @property
    def leader(self) -> Repository:
        return next(node for node in self.nodes.values() if node.raft.leader == node.node)

    def _set_up(self) -> None:
        while not any(node.raft.leader == node.node for node in self.nodes.values()):
            self._tick()
        leader = self.leader
        for node in self.storage:
            leader.ask(RegisterNode(node))
            self.settle()
        for first in range(1, self.size.streams + 1, STREAMS_PER_TOPIC):
            numbers = range(first, min(first + STREAMS_PER_TOPIC, self.size.streams + 1))
            streams = tuple(NewStream(StreamId(one), self.ensemble(one)) for one in numbers)
            leader.ask(CreateTopic(TopicId(first), streams, name=f"topic-{first}"))
            self.settle()
        self._tick()
        self.nodes[leader.node] = self.nodes.pop(leader.node)  # The last one, see ``settle``.

    def ensemble(self, stream: int) -> tuple[NodeId, ...]:
        """Replicas are spread evenly."""
        return tuple(
            sorted(self.storage[(stream + one) % len(self.storage)] for one in range(REPLICAS))
        )

    def _tick(self) -> None:
        for node in self.nodes.values():
            node.tick()
        self.settle()

    def round(self) -> None:
        """Every storage node reports, one entry more of each replica of the active streams."""
        streams = [(self._next + one) % self.size.streams + 1 for one in range(self.size.active)]
        self._next += self.size.active
        reports: dict[NodeId, list[Report]] = {node: [] for node in self.storage}
        for number in streams:
            stream = StreamId(number)
            for node in self.ensemble(number):
                reports[node].append(
                    Report(node, stream, FIRST_TERM, self.version, self.ends[stream], 1)
                )
            self.ends[stream] = Llsn(self.ends[stream] + 1)
        known = self.leader.machine.nodes
        messages = [
            NodeReport(node, known[node].collector, self.version, known[node].placements, (*of,))
            for node, of in reports.items()
        ]
        for message in messages:
            self._take_in(message.target, encode_cluster_message(message))
        self.settle()

    def report_all(self) -> None:
        """Every storage node reports all of its replicas, and there is nothing new: as when all is
        quiet and it is asked."""
        known = self.leader.machine.nodes
        reports: dict[NodeId, list[Report]] = {node: [] for node in self.storage}
        for stream, end in self.ends.items():
            for node in self.ensemble(stream):
                reports[node].append(Report(node, stream, FIRST_TERM, self.version, end, 0))
        for node, of in reports.items():
            collector, placements = known[node].collector, known[node].placements
            message = NodeReport(node, collector, self.version, placements, (*of,))
            self._take_in(collector, encode_cluster_message(message))
        self.settle()

    def settle(self) -> None:
        """Run until no metadata node has anything to do.

        The leader waits for what the others share, so that one cut takes all that was reported.
        """
        queue: deque[tuple[NodeId, bytes]] = deque()
        while True:
            for node in self.nodes.values():
                while node.has_output and not (queue and node.raft.leader == node.node):
                    queue.extend(self._take(node))
            if not queue:
                return
            while queue:
                self._take_in(*queue.popleft())

    def _take_in(self, target: NodeId, data: bytes) -> None:
        node, begin = self.nodes[target], thread_time()
        message = decode_cluster_message(data)
        if isinstance(message, NodeReport):
            node.report(message)
        elif isinstance(message, PeerMessage):
            node.step(message)
        if node.raft.leader == target:
            self.tally.seconds += thread_time() - begin
            self.tally.messages_in += 1

    def _take(self, node: Repository) -> list[tuple[NodeId, bytes]]:
        begin = thread_time()
        output = node.take()
        to_peers = [(one.target, encode_cluster_message(one)) for one in output.to_peers]
        to_storage = [encode_cluster_message(one) for one in output.to_storage]
        if output.write is not None:
            node.written(output.write.sequence)
        if node.raft.leader == node.node:
            tally = self.tally
            tally.seconds += thread_time() - begin
            tally.messages_out += len(to_peers) + len(to_storage)
            tally.result_bytes += sum(map(len, to_storage))
            tally.bytes_out += sum(map(len, to_storage)) + sum(len(data) for _, data in to_peers)
            entries = () if output.write is None else output.write.entries
            tally.entry_bytes += sum(len(entry.data) for entry in entries)
            tally.entries += len(entries)
        for told in output.to_storage:
            if isinstance(told, CommitResult):
                self.version = max(self.version, told.version)
        return to_peers


def _chance(node: NodeId) -> Callable[[int], int]:
    """The nodes never campaign together."""
    return lambda bound: node * 3 % bound


def _run(size: Size, rounds: int) -> Figures:
    cluster = _Cluster(size)
    for _ in range(WARM_ROUNDS):
        cluster.round()
    before = cluster.version
    seconds: list[float] = []
    cluster.tally = tally = _Tally()
    for _ in range(rounds):
        begin = tally.seconds
        cluster.round()
        seconds.append(tally.seconds - begin)
    cuts = cluster.version - before
    cluster.tally = _Tally()
    cluster.report_all()  # Who has applied the last cut is news.
    cluster.tally = quiet = _Tally()
    cluster.report_all()
    begin = thread_time()
    snapshot = cluster.leader.machine.snapshot()
    return {
        "cuts_per_round": cuts / rounds,
        "messages_in": tally.messages_in / cuts,
        "messages_out": tally.messages_out / cuts,
        "entry_bytes": tally.entry_bytes / cuts,
        "result_bytes": tally.result_bytes / cuts,
        "bytes_out": tally.bytes_out / cuts,
        "leader_us": 1e6 * min(seconds),
        "quiet_us": 1e6 * quiet.seconds,
        "snapshot_bytes": len(snapshot),
        "snapshot_ms": 1e3 * (thread_time() - begin),
    }


# -- what is not in the core -----------------------------------------------------------------------


async def _carried(count: int) -> float:
    """Processor µs of one end for a message that is alone in its write, as a result to a storage
    node is, and the report that comes back."""
    async with _posts(POSTS + 1) as (hub, *others):
        back: asyncio.Queue[None] = asyncio.Queue()
        hub.on((Pong,), lambda *_: back.put_nowait(None))
        for post in others:
            post.on((Ping,), partial(_answer, post))
        rounds = max(count // len(others) // 2, 2)
        for number in range(rounds):
            if number == 1:  # Everybody is connected now.
                begin = thread_time()
            for post in others:
                hub.send(post.node, Ping(number))
            for _ in others:
                await asyncio.wait_for(back.get(), ANSWER_SECONDS)
        ends = 2 * 2 * len(others) * (rounds - 1)
        return 1e6 * (thread_time() - begin) / ends


def _answer(post: Post, asker: NodeId, _: ClusterMessage) -> None:
    post.send(asker, Pong(1))


@asynccontextmanager
async def _posts(count: int) -> AsyncIterator[list[Post]]:
    """The posts of some processes, which know one another."""
    posts = [_post(NodeId(number + 1)) for number in range(count)]
    try:
        addresses = {post.node: str((await post.start())[0]) for post in posts}
        for post in posts:
            for node, address in addresses.items():
                post.learn(node, address)
        yield posts
    finally:
        for post in posts:
            await post.stop()


def _post(node: NodeId) -> Post:
    return Post(
        cluster_id=CLUSTER,
        node=node,
        endpoints=[TcpEndpoint(HOST, 0)],
        advertise="",
        server_security=ServerSecurity(),
        client_security=ClientSecurity(),
    )
