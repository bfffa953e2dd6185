"""A metadata group in one place: messages arrive at once, in order, unless a test cuts the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidelog.core.metadata.commands import Change, RegisterNode
from tidelog.core.metadata.messages import Behind, Collect, CommitResult, NodeReport, ToStorage
from tidelog.core.metadata.repository import PeerMessage, Repository, RepositoryOptions
from tidelog.core.metadata.waiting import Answer
from tidelog.core.order.commands import CreateTopic, NewStream, Quorum, Report, VersionedCommit
from tidelog.core.raft.entries import (
    NO_INDEX,
    NO_TERM,
    Entry,
    HardState,
    Membership,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.output import Write
from tidelog.types import (
    FIRST_LLSN,
    FIRST_TERM,
    NO_NODE,
    NO_VERSION,
    Glsn,
    Llsn,
    NodeId,
    StreamId,
    TopicId,
    Version,
)

TOPIC = TopicId(1)
NO_GLSN = Glsn(0)


def first_state(nodes: Iterable[NodeId]) -> Stored:
    head = SnapshotHead(NO_INDEX, NO_TERM, Membership(tuple(sorted(nodes))))
    return Stored(HardState(), Snapshot(head, b""), ())


@dataclass
class Disk:
    """What a metadata node has written; every write is durable at once."""

    stored: Stored

    def write(self, write: Write) -> None:
        hard_state = write.hard_state or self.stored.hard_state
        snapshot, entries = self.stored.snapshot, list(self.stored.entries)
        if write.snapshot is not None:
            snapshot = write.snapshot
            kept = [] if write.replaces_log else entries
            entries = [entry for entry in kept if entry.index > snapshot.head.index]
        if write.entries:
            first = write.entries[0].index
            entries = [entry for entry in entries if entry.index < first]
            entries.extend(write.entries)
        self.stored = Stored(hard_state, snapshot, tuple(entries))


@dataclass
class Storage:
    """A storage node that has what a test says, and applies the commits that it is sent."""

    node: NodeId
    collector: NodeId = NO_NODE
    assignment: int = 0
    version: Version = NO_VERSION
    placements: int = 0
    hosted: dict[StreamId, Llsn] = field(default_factory=dict)
    commits: dict[StreamId, list[VersionedCommit]] = field(default_factory=dict)
    ends: dict[StreamId, Llsn] = field(default_factory=dict)
    term: dict[StreamId, int] = field(default_factory=dict)
    behind: list[Behind] = field(default_factory=list)
    watermark: Glsn = NO_GLSN

    def llsn_begin(self, stream: StreamId) -> Llsn:
        commits = self.commits.get(stream)
        return commits[-1].commit.llsn_end if commits else FIRST_LLSN

    def report(self) -> NodeReport:
        reports = tuple(
            Report(
                self.node,
                stream,
                FIRST_TERM,
                self.version,
                self.llsn_begin(stream),
                end - self.llsn_begin(stream),
            )
            for stream, end in sorted(self.ends.items())
        )
        return NodeReport(self.node, self.collector, self.version, self.placements, reports)

    def take(self, message: ToStorage) -> NodeReport | None:
        match message:
            case Collect(source=source, assignment=assignment):
                if assignment < self.assignment:
                    return None
                self.collector, self.assignment = source, assignment
                self.learn(message)
                return self.report()
            case CommitResult():
                return self.apply(message)

    def learn(self, collect: Collect) -> None:
        if collect.hosted is not None and collect.placements > self.placements:
            self.placements = collect.placements
            self.hosted = {one.stream: one.llsn_end for one in collect.hosted}

    def apply(self, result: CommitResult) -> NodeReport | None:
        if result.placements != self.placements:
            return self.report()
        if not result.previous <= self.version < result.version:
            return None
        for one in result.commits:
            if one.version > self.version:
                assert one.commit.llsn_begin == self.llsn_begin(one.commit.stream)
                self.commits.setdefault(one.commit.stream, []).append(one)
        for mark in result.watermarks:
            if mark.topic == TOPIC:
                assert mark.glsn >= self.watermark
                self.watermark = mark.glsn
        self.behind.extend(result.behind)
        self.version = result.version
        return self.report()

    def glsns(self, stream: int) -> list[int]:
        found: list[int] = []
        for one in self.commits.get(StreamId(stream), []):
            found.extend(range(one.commit.glsn_begin, one.commit.glsn_end))
        return found


def everything(_: PeerMessage | ToStorage | NodeReport) -> bool:
    return True


class Cluster:
    """Metadata nodes 1.. and storage nodes 11.., all told what they tell one another."""

    def __init__(
        self, metadata: int = 3, storage: int = 3, options: RepositoryOptions | None = None
    ) -> None:
        self.options = options or RepositoryOptions(leader_collects=0)
        numbers = [NodeId(number) for number in range(1, metadata + 1)]
        self.disks = {number: Disk(first_state(numbers)) for number in numbers}
        self.nodes: dict[NodeId, Repository] = {}
        self.storage = {
            NodeId(10 + number): Storage(NodeId(10 + number)) for number in range(1, storage + 1)
        }
        self.arrives: Callable[[PeerMessage | ToStorage | NodeReport], bool] = everything
        self.answers: dict[tuple[NodeId, int], Answer] = {}
        self.reads: list[tuple[NodeId, int]] = []
        self.lost_reads: list[tuple[NodeId, int]] = []
        self.proposed: list[Entry] = []
        self._lives = 0
        for number in numbers:
            self.start(number)

    def start(self, node: NodeId) -> None:
        # The chance of each node is its number: they never campaign together.  What is drawn from
        # very many is another number in each of its lives.
        self._lives += 1
        chance = node * 3 + self._lives * 1_000_000
        self.nodes[node] = Repository(
            node,
            self.disks[node].stored,
            self.options,
            lambda bound: (chance if bound > 1_000_000 else node * 3) % bound,
        )

    def crash(self, node: NodeId) -> None:
        del self.nodes[node]

    @property
    def leader(self) -> Repository:
        leaders = [node for node in self.nodes.values() if node.raft.leader == node.node]
        assert leaders, "nobody leads"
        return max(leaders, key=lambda node: node.raft.term)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            for node in list(self.nodes.values()):
                node.tick()
            self.settle()

    def elect(self) -> Repository:
        for _ in range(100):
            self.tick()
            if any(node.raft.leader == node.node for node in self.nodes.values()):
                self.tick(2)
                return self.leader
        raise AssertionError("no leader after 100 ticks")

    def settle(self) -> None:
        """Deliver until nobody has anything to say."""
        queue: deque[PeerMessage | ToStorage | NodeReport] = deque()
        for _ in range(2_000):
            if not queue and not self._outputs(queue):
                return
            while queue:
                message = queue.popleft()
                if self.arrives(message):
                    self._deliver(message, queue)
        raise AssertionError("the cluster never falls silent")

    def _outputs(self, queue: deque[PeerMessage | ToStorage | NodeReport]) -> bool:
        some = False
        for node in list(self.nodes.values()):
            while node.has_output:
                some = True
                output = node.take()
                queue.extend(output.to_peers)
                queue.extend(output.to_storage)
                if output.write is not None:
                    self.proposed.extend(output.write.entries)
                    self.disks[node.node].write(output.write)
                    node.written(output.write.sequence)
                for answer in output.answers:
                    self.answers[node.node, answer.number] = answer
                self.reads.extend((node.node, context) for context in output.reads)
                self.lost_reads.extend((node.node, context) for context in output.lost_reads)
        return some

    def _deliver(
        self,
        message: PeerMessage | ToStorage | NodeReport,
        queue: deque[PeerMessage | ToStorage | NodeReport],
    ) -> None:
        if isinstance(message, NodeReport):
            if message.target in self.nodes:
                self.nodes[message.target].report(message)
        elif isinstance(message, (Collect, CommitResult)):
            answer = self.storage[message.target].take(message)
            if answer is not None:
                queue.append(answer)
        elif message.target in self.nodes:
            self.nodes[message.target].step(message)

    def ask(self, change: Change, node: NodeId | None = None) -> Answer:
        """Ask for a change at a node, the leader if none is named, and wait for its answer."""
        asked = self.nodes[node] if node is not None else self.leader
        number = asked.ask(change)
        self.settle()
        for _ in range(200):
            answer = self.answers.pop((asked.node, number), None)
            if answer is not None:
                return answer
            self.tick()
        raise AssertionError("a change was never answered")

    def with_streams(self, streams: int = 2, quorum: Quorum = Quorum.ALL) -> Cluster:
        """Elect a leader, register all storage nodes, make streams with a replica on each."""
        self.elect()
        for node in self.storage:
            assert self.ask(RegisterNode(node)).error is None
        ensemble = tuple(sorted(self.storage))
        new = tuple(NewStream(StreamId(number), ensemble) for number in range(1, streams + 1))
        assert self.ask(CreateTopic(TOPIC, new, quorum=quorum)).error is None
        self.tick(2)
        return self

    def append(self, stream: int, length: int, nodes: Iterable[NodeId] | None = None) -> None:
        """Let replicas have more entries, and report them."""
        for node in self.storage if nodes is None else nodes:
            storage = self.storage[node]
            end = storage.ends.get(StreamId(stream), FIRST_LLSN)
            storage.ends[StreamId(stream)] = Llsn(end + length)
        self.report(nodes)

    def report(self, nodes: Iterable[NodeId] | None = None) -> None:
        """Let storage nodes report to whom they know."""
        for node in self.storage if nodes is None else nodes:
            report = self.storage[node].report()
            if report.target in self.nodes and self.arrives(report):
                self.nodes[report.target].report(report)
        self.settle()
