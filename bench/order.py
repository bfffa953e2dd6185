"""The order layer alone: what a cut costs, and how long a report takes to become a commit.

*Cut*: the machine by itself, reports of three replicas of each changed stream and the cut over
them.  *Group*: three metadata nodes in this process, every message and write encoded and decoded
as on the wire, each Raft write synced to this disk; one round of reports at a time.  *Nodes*: see
``order_nodes``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, TypeAlias

import msgspec

from bench import order_nodes
from tidelog.core.metadata.commands import Change, RegisterNode
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, Share, ToStorage
from tidelog.core.metadata.repository import Repository, RepositoryOptions
from tidelog.core.order.commands import CreateTopic, Cut, NewStream, Report
from tidelog.core.order.machine import OrderMachine
from tidelog.core.raft.entries import NO_INDEX, NO_TERM, Membership, Snapshot, SnapshotHead
from tidelog.core.raft.messages import Message
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.raft_store import RaftStore
from tidelog.types import FIRST_LLSN, FIRST_TERM, NodeId, StreamId, TopicId, Version

REPLICAS: Final = 3
CHANGED: Final = 10
STREAMS_PER_TOPIC: Final = 1_000
METADATA: Final = tuple(NodeId(number) for number in (1, 2, 3))
STORAGE: Final = tuple(NodeId(number) for number in (11, 12, 13))

Traffic: TypeAlias = Message | Share | ToStorage


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    streams: tuple[int, ...] = (10, 100, 1_000, 10_000)
    cuts: int = 2_000
    rounds: int = 500
    nodes: order_nodes.Scale = field(default_factory=order_nodes.Scale)


QUICK = Scale(streams=(10, 100), cuts=50, rounds=10, nodes=order_nodes.QUICK)


def measure_order(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    for streams in scale.streams:
        changed = min(CHANGED, streams)
        yield f"cut, {changed} of {streams} streams", _cuts(streams, changed, scale.cuts)
        every = max(20, scale.cuts * CHANGED // streams // 4)
        yield f"cut, all {streams} streams", _cuts(streams, streams, every)
    for streams in scale.streams:
        yield f"group, {streams} streams", _group(directory / f"group-{streams}", streams, scale)
    yield from order_nodes.measure_nodes(scale.nodes)


def _topics(streams: int) -> Iterator[CreateTopic]:
    for first in range(0, streams, STREAMS_PER_TOPIC):
        numbers = range(first + 1, min(first + STREAMS_PER_TOPIC, streams) + 1)
        new = tuple(NewStream(StreamId(number), STORAGE) for number in numbers)
        yield CreateTopic(TopicId(first // STREAMS_PER_TOPIC + 1), new, name=f"topic-{first}")


class _Ends:
    """Where each stream is ordered to, so that the next report is a good one."""

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.ends = dict.fromkeys((StreamId(one + 1) for one in range(streams)), FIRST_LLSN)
        self.version = Version(0)
        self.cursor = 0

    def reports(self, node: NodeId, changed: range) -> tuple[Report, ...]:
        """One more entry in each of the streams at these positions."""
        streams = [StreamId(position % self.streams + 1) for position in changed]
        return tuple(
            Report(node, stream, FIRST_TERM, self.version, self.ends[stream], 1)
            for stream in streams
        )

    def next(self, changed: int) -> range:
        """The streams of the next round, one after the other through all of them."""
        first, self.cursor = self.cursor, self.cursor + changed
        return range(first, first + changed)


def _cuts(streams: int, changed: int, rounds: int) -> dict[str, float]:
    machine = OrderMachine()
    for topic in _topics(streams):
        machine.step(topic)
    ends = _Ends(streams)
    seconds: list[float] = []
    for _ in range(rounds):
        positions = ends.next(changed)
        reports = [report for node in STORAGE for report in ends.reports(node, positions)]
        started = perf_counter()
        for report in reports:
            machine.step(report)
        (cut,) = machine.step(Cut())
        seconds.append(perf_counter() - started)
        ends.version = cut.version
        for commit in cut.commits:
            ends.ends[commit.stream] = commit.llsn_end
    found = median(seconds)
    return {
        "microseconds": 1e6 * found,
        "microseconds_per_stream": 1e6 * found / changed,
        "cuts_per_second": 1 / found,
        "replica_reports_per_second": changed * REPLICAS / found,
    }


class _Group:
    """Three metadata nodes whose messages arrive at once, each with its store on disk."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        head = SnapshotHead(NO_INDEX, NO_TERM, Membership(METADATA))
        self.nodes: dict[NodeId, Repository] = {}
        self.stores: dict[NodeId, RaftStore] = {}
        for node in METADATA:
            store, stored = RaftStore.open(
                OsVfs(),
                str(directory / str(node)),
                node=node,
                group=bytes(16),
                first=Snapshot(head, b""),
            )
            self.stores[node] = store
            self.nodes[node] = Repository(node, stored, RepositoryOptions(), _chance(node))
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(Traffic).decode
        self.results: list[CommitResult] = []
        self.answers = 0

    def settle(self) -> None:
        """Run until nobody has anything to do."""
        queue: deque[bytes] = deque()
        while True:
            self._collect_outputs(queue)
            if not queue:
                return
            while queue:
                self._deliver(self.decode(queue.popleft()))

    def _collect_outputs(self, queue: deque[bytes]) -> None:
        for number, node in self.nodes.items():
            while node.has_output:
                output = node.take()
                queue.extend(map(self.encode, output.to_peers))
                queue.extend(map(self.encode, output.to_storage))
                self.answers += len(output.answers)
                if output.write is not None:
                    store = self.stores[number]
                    store.write(output.write)
                    store.sync()
                    node.written(output.write.sequence)

    def _deliver(self, message: Traffic) -> None:
        if isinstance(message, CommitResult):
            self.results.append(message)
        elif not isinstance(message, Collect):
            self.nodes[message.target].step(message)

    def tick(self) -> None:
        for node in self.nodes.values():
            node.tick()
        self.settle()

    def ask(self, change: Change) -> None:
        leader = next(node for node in self.nodes.values() if node.raft.leader == node.node)
        leader.ask(change)
        self.settle()

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


def _chance(node: NodeId) -> Callable[[int], int]:
    """The nodes never campaign together."""
    return lambda bound: node * 3 % bound


def _group(directory: Path, streams: int, scale: Scale) -> dict[str, float]:
    group = _Group(directory)
    while not any(node.raft.leader == node.node for node in group.nodes.values()):
        group.tick()
    for node in STORAGE:
        group.ask(RegisterNode(node))
    for topic in _topics(streams):
        group.ask(topic)
    group.tick()
    ends = _Ends(streams)
    registered = group.nodes[METADATA[0]].machine.nodes
    seconds: list[float] = []
    for _ in range(scale.rounds):
        positions = ends.next(min(CHANGED, streams))
        messages = [
            NodeReport(
                node,
                registered[node].collector,
                ends.version,
                registered[node].placements,
                ends.reports(node, positions),
            )
            for node in STORAGE
        ]
        group.results.clear()
        started = perf_counter()
        for message in messages:
            group.nodes[message.target].report(message)
        group.settle()
        seconds.append(perf_counter() - started)
        for one in group.results[0].commits:
            ends.ends[one.commit.stream] = one.commit.llsn_end
        ends.version = group.results[-1].version
    group.close()
    return {
        "p50_ms": 1e3 * median(seconds),
        "p99_ms": 1e3 * sorted(seconds)[len(seconds) * 99 // 100],
        "rounds_per_second": 1 / median(seconds),
    }
