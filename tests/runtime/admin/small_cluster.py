"""Agents of a few processes over a post in memory and a real metadata machine.

The operator is a stand-in: it writes the rows that a real one would, without asking any replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from tidelog.core.metadata.commands import Batch, Change, RegisterNode, Request
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.output import Refused, Result
from tidelog.core.operator.plan import Change as EnsembleChange
from tidelog.core.operator.plan import Phase
from tidelog.core.operator.row import (
    Row,
    read_row,
    update_to,
    with_aborted,
    with_change_undone,
    with_changed_ensemble,
    with_committed,
    with_leader,
    with_new_term,
    with_prepared,
)
from tidelog.core.order.commands import CreateTopic, NewStream, StreamStatus
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.errors import DeadlineExceeded, LogError, NotLeader
from tidelog.formats.cluster_messages import ClusterMessage, OperatorOutcome, OperatorRequest
from tidelog.interface.cluster_figures import (
    DigestFacts,
    GlsnFacts,
    MemberFacts,
    NodeFacts,
    ReplicaFacts,
)
from tidelog.runtime.admin.agent import AdminAgent
from tidelog.types import NO_NODE, Glsn, Llsn, NodeId, StreamId, TopicId, Version

CLUSTER_ID = bytes(range(16))
TOPIC = TopicId(1)


class Mailboxes:
    """The post of all processes; nodes in ``silent`` hear and say nothing."""

    def __init__(self) -> None:
        self.receivers: dict[tuple[NodeId, type], Callable[[NodeId, ClusterMessage], None]] = {}
        self.silent: set[NodeId] = set()
        self.sent: list[tuple[NodeId, NodeId, ClusterMessage]] = []

    def of(self, node: NodeId) -> Mailbox:
        return Mailbox(self, node)

    def carry(self, source: NodeId, target: NodeId, message: ClusterMessage) -> None:
        self.sent.append((source, target, message))
        receive = self.receivers.get((target, type(message)))
        if receive is not None and not {source, target} & self.silent:
            asyncio.get_running_loop().call_soon(receive, source, message)


@dataclass
class Mailbox:
    """What one process has of it."""

    boxes: Mailboxes
    node: NodeId
    learnt: dict[NodeId, str] = field(default_factory=dict)

    def send(self, target: NodeId, message: ClusterMessage) -> None:
        self.boxes.carry(self.node, target, message)

    def on(
        self, kinds: tuple[type, ...], receive: Callable[[NodeId, ClusterMessage], None]
    ) -> None:
        for kind in kinds:
            self.boxes.receivers[self.node, kind] = receive

    def learn(self, node: NodeId, address: str) -> None:
        self.learnt[node] = address


class MetadataInMemory:
    """A repository that answers at once, unless it lost its quorum."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.machine = MetadataMachine()
        self.members = tuple(NodeId(node) for node in members)
        self.leader = self.members[0]
        self.leader_told = NO_NODE
        """Who is said to lead, if that is not so."""
        self.has_quorum = True
        self.before_ask: list[Callable[[], None]] = []
        """What happens right before a change is asked for, once each."""
        self.view: MetadataView | None = None

    async def ask(self, change: Change, *, seconds: float) -> None:
        if self.before_ask:
            self.before_ask.pop(0)()
        self.apply(change)

    def apply(self, change: Change) -> None:
        outcome = self.machine.apply(Batch((Request(NodeId(1), 1, change),)))
        error = outcome.answers[0].error
        self.look()
        if error is not None:
            raise error

    async def read(self, *, seconds: float) -> MetadataView:
        if not self.has_quorum:
            raise DeadlineExceeded("nobody answers")
        return self.look()

    def look(self) -> MetadataView:
        order = self.machine.order
        self.view = MetadataView(
            number=self.machine.changes,
            version=order.version,
            topics=tuple(order.topics[topic] for topic in sorted(order.topics)),
            streams=tuple(order.streams[stream] for stream in sorted(order.streams)),
            nodes=tuple(self.machine.nodes[node] for node in sorted(self.machine.nodes)),
            members=self.members,
            leader=self.leader_told or self.leader,
            is_paused=self.machine.is_paused,
            paused_revision=self.machine.paused_revision,
            next_topic=TopicId(max(order.topics, default=0) + 1),
            next_stream=order.next_stream,
            absent_revision=self.machine.absent_revision,
        )
        return self.view

    def order(self, stream: int) -> StreamOrder:
        return self.machine.order.streams[StreamId(stream)]

    def row(self, stream: int) -> Row:
        order = self.order(stream)
        return read_row(order, self.machine.order.topic(order.topic).quorum)

    def write(self, stream: int, step: Callable[[Row], Row]) -> None:
        row = self.row(stream)
        known = {node: Version(0) for node in self.machine.nodes}
        self.apply(update_to(row, step(row), known))

    def elect(self, stream: int, leader: int) -> None:
        self.write(stream, lambda row: with_new_term(row, row.term))
        self.write(stream, lambda row: with_leader(row, NodeId(leader)))


class StandInOperator:
    """Answers requests the way ``script`` says; by default it does what it is asked for."""

    def __init__(self, metadata: MetadataInMemory, box: Mailbox) -> None:
        self.metadata = metadata
        self.requests: list[OperatorRequest] = []
        self.refuses: Refused | None = None
        self.finishes = True
        """Whether changes are carried through, or stay in *prepare*."""
        self._box = box
        box.on((OperatorRequest,), self._on_request)

    def _on_request(self, source: NodeId, message: ClusterMessage) -> None:
        assert isinstance(message, OperatorRequest)
        self.requests.append(replace(message, number=0))
        if self.refuses is not None:
            outcome = OperatorOutcome(message.number, Result.REFUSED, self.refuses)
        elif self._carry_out(message):
            outcome = OperatorOutcome(message.number, Result.DONE)
        else:
            return  # It goes on; the row tells.
        self._box.send(source, outcome)

    def _carry_out(self, message: OperatorRequest) -> bool:
        stream, metadata = message.stream, self.metadata
        if message.action == "elect":
            metadata.elect(stream, message.prefer)
        elif message.action == "abort":
            metadata.write(stream, with_aborted)
            metadata.write(stream, with_change_undone)
        else:
            assert message.kind is not None
            change = EnsembleChange(message.kind, Phase.PREPARE, message.old, message.new)
            metadata.write(stream, lambda row: with_prepared(row, change, row.term))
            if not self.finishes:
                return False
            self.finish(stream)
        return True

    def finish(self, stream: int) -> None:
        self.metadata.write(stream, lambda row: with_committed(row, NO_ENTRY, Version(0)))
        self.metadata.write(stream, with_changed_ensemble)


class StoresInMemory:
    """Replicas that only have numbers."""

    def __init__(self, node: NodeId, metadata: MetadataInMemory) -> None:
        self._node = node
        self._metadata = metadata
        self.ends: dict[int, int] = {}
        self.ordered_ends: dict[int, int] = {}
        self.told_term: int | None = None
        """The term that it tells of, if it is not the one of the row."""
        self.told_seal: bool | None = None
        """What it says of seals, if it is not what the row says."""
        self.told_revision: int | None = None
        """The revision of the row that it knows, if it is not that of the row."""
        self.is_disk_full = False
        self.sync_seconds = 0.0
        self.wal_backlog_files = 0
        self.damaged_files: tuple[str, ...] = ()

    def replicas(self) -> tuple[ReplicaFacts, ...]:
        orders = self._metadata.machine.order.streams.values()
        return tuple(
            ReplicaFacts(
                stream=order.stream,
                role="leader" if order.leader == self._node else "follower",
                term=order.term if self.told_term is None else self.told_term,
                leader=order.leader,
                end_llsn=self.ends.get(order.stream, 1),
                ordered_end_llsn=self.ordered_ends.get(order.stream, 1),
                is_sealed=self._is_sealed(order),
                revision=order.revision if self.told_revision is None else self.told_revision,
            )
            for order in orders
            if self._node in order.ensemble or order.stream in self.ends
        )

    def _is_sealed(self, order: StreamOrder) -> bool:
        if self.told_seal is not None:
            return self.told_seal
        return order.status is not StreamStatus.RUNNING

    async def digest(self, stream: StreamId, begin: Llsn, end: Llsn) -> DigestFacts:
        return DigestFacts(self._node, stream, begin, end, "d1", 1, (0, 0, 0, 0, 0))

    async def glsns(self, stream: StreamId, begin: Glsn, end: Glsn) -> GlsnFacts:
        return GlsnFacts(self._node, stream, begin, end, 0, "0", "0")


class MemberInMemory:
    """A member of the metadata repository."""

    def __init__(self, node: NodeId, metadata: MetadataInMemory) -> None:
        self._node = node
        self._metadata = metadata
        self.changes: list[tuple[str, int, str]] = []
        self.failure: LogError | None = None

    def facts(self) -> MemberFacts:
        metadata = self._metadata
        role = "leader" if metadata.leader == self._node else "follower"
        return MemberFacts(role, 3, metadata.leader, 9, 9, metadata.members)

    async def add(self, node: NodeId, address: str, *, seconds: float) -> None:
        self._change("add", node, address)

    async def remove(self, node: NodeId, *, seconds: float) -> None:
        self._change("remove", node, "")

    async def transfer(self, node: NodeId, *, seconds: float) -> None:
        self._change("transfer", node, "")

    def _change(self, kind: str, node: NodeId, address: str) -> None:
        if self._metadata.leader != self._node:
            raise NotLeader(f"node {self._metadata.leader} leads")
        self.changes.append((kind, node, address))


class SmallCluster:
    """Nodes 1 to ``nodes`` with all roles; topic ``t`` has stream 1 on nodes 1 to ``replicas``."""

    def __init__(self, nodes: int = 3, replicas: int = 3) -> None:
        numbers = tuple(NodeId(node) for node in range(1, nodes + 1))
        self.boxes = Mailboxes()
        self.metadata = MetadataInMemory(numbers[:3])
        for node in numbers:
            address = f"tcp://127.0.0.1:{7000 + node} tcp://127.0.0.1:{8000 + node}"
            self.metadata.apply(RegisterNode(node, address))
        first = NewStream(StreamId(1), numbers[:replicas])
        self.metadata.apply(CreateTopic(TOPIC, (first,), "t"))
        self.metadata.elect(1, 1)
        self.stores = {node: StoresInMemory(node, self.metadata) for node in numbers}
        self.members = {node: MemberInMemory(node, self.metadata) for node in numbers[:3]}
        self.operators: dict[NodeId, StandInOperator] = {}
        self.agents: dict[NodeId, AdminAgent] = {}
        for node in numbers:
            self.agents[node] = self._agent(node)

    @property
    def agent(self) -> AdminAgent:
        """The one that clients ask."""
        return self.agents[NodeId(1)]

    def _agent(self, node: NodeId) -> AdminAgent:
        box = self.boxes.of(node)
        self.operators[node] = StandInOperator(self.metadata, box)
        stores, member = self.stores[node], self.members.get(node)

        def facts() -> NodeFacts:
            return NodeFacts(
                node=node,
                roles=("storage", "metadata", "operator") if member else ("storage", "operator"),
                release="1.0",
                clock_us=0,
                uptime_seconds=1.0,
                replicas=stores.replicas(),
                member=None if member is None else member.facts(),
            )

        return AdminAgent(
            node=node,
            roles=("storage", "metadata", "operator"),
            cluster_id=CLUSTER_ID,
            post=box,
            metadata=self.metadata,
            facts=facts,
            stores=stores,
            member=member,
        )
