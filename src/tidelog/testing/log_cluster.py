"""A whole simulated cluster: metadata repository, storage nodes, operators and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias, cast

import msgspec

from tidelog.core.metadata.commands import Change, RegisterNode
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, Share
from tidelog.core.metadata.repository import RepositoryOptions
from tidelog.core.operator.options import OperatorOptions
from tidelog.core.operator.plan import counted_ensembles, decode_plan
from tidelog.core.order.commands import AddStreams, CreateTopic, CutDecided, NewStream, Quorum
from tidelog.core.order.state import StreamOrder
from tidelog.core.raft import messages as raft_messages
from tidelog.core.raft.entries import Entry
from tidelog.core.raft.options import Refused
from tidelog.core.replica import messages as replica_messages
from tidelog.core.replica.options import ReplicaOptions
from tidelog.errors import LogError, RevisionConflict, TopicExists
from tidelog.testing.checkers.acked_durable import check_ordered_durable
from tidelog.testing.checkers.answers import Answers
from tidelog.testing.checkers.bounded import Bounded
from tidelog.testing.checkers.commit_context import CommitContexts
from tidelog.testing.checkers.one_value_per_glsn import OneValuePerGlsn
from tidelog.testing.checkers.order_agreement import OrderAgreement
from tidelog.testing.checkers.reads import Reads
from tidelog.testing.checkers.rows import Rows
from tidelog.testing.checkers.stream_safety import StreamSafety
from tidelog.testing.clients import Clients
from tidelog.testing.cluster import Cluster, severed_paths
from tidelog.testing.convergence import Convergence
from tidelog.testing.faults import Fault, FaultClass, Plan
from tidelog.testing.journal import Happened
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.metadata_faults import MetadataFaults
from tidelog.testing.metadata_process import MetadataProcess
from tidelog.testing.network import Network, Path
from tidelog.testing.operator_process import OperatorProcess
from tidelog.testing.raft_cluster import draw_options
from tidelog.testing.raft_witness import RaftGroup
from tidelog.testing.sometimes import Rare
from tidelog.testing.storage_process import StorageProcess
from tidelog.testing.stream_faults import StreamFaults
from tidelog.testing.world import MILLISECOND, Process
from tidelog.types import NodeId, StreamId, TopicId

ToMetadataNode: TypeAlias = raft_messages.Message | Share | NodeReport
ToStorageNode: TypeAlias = Collect | CommitResult | replica_messages.ToReplica
Message: TypeAlias = ToMetadataNode | ToStorageNode | replica_messages.ToOperator

FIRST_STORAGE_NODE: Final = 101
FIRST_OPERATOR: Final = 901
LATELY: Final = 200 * MILLISECOND
"""A storage node that reported within this time counts as heard."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class LogCluster(Cluster):
    """Everything of one seed."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        shape, bounds = self.chance.stream("shape"), self.chance.stream("bounds")
        self.options = RepositoryOptions(
            raft=draw_options(shape),
            snapshot_entries=shape.choice((8, 40)) if plan.compacts else 10_000,
            leader_collects=shape.choice((0, 16)),
        )
        self.quorum = shape.choice((Quorum.MAJORITY, Quorum.MAJORITY, Quorum.ALL))
        self.replica_options = ReplicaOptions(
            message_bytes_max=shape.choice((100, 4_000)),
            inflight_bytes_max=shape.choice((1, 500, 100_000)),
            recent_bytes_max=shape.choice((1, 1_000, 100_000)),
            uncommitted_bytes_max=bounds.choice((300, 100_000)),
            promises_max=bounds.choice((2, 1_024)),
            gather_bytes=bounds.choice((1, 200, 100_000)),
        )
        self.operator_options = OperatorOptions(
            snapshot_ticks=200,
            replace_ticks=shape.choice((60, 100, 100 if plan.has(FaultClass.WIPE) else 3_000)),
            balance_ticks=shape.choice((0, 50)),
        )
        self._set_up_checkers()
        self.network: Network[Message] = Network(
            self.world, self.chance, plan.weather, self.sometimes, self._receive, _through_bytes
        )
        self._views = self.chance.stream("views")
        self._collectors: dict[NodeId, tuple[int, NodeId]] = {}
        self._heard_at: dict[NodeId, int] = {}
        self.asked = 0
        """How many changes operators and people have asked for."""
        self.streams: dict[StreamId, TopicId] = {}
        self._set_up_processes(
            shape.choice((1, 3, 3, 5)), shape.randrange(3, 7), shape.choice((1, 2))
        )
        self.clients = Clients(self)
        self.stream_faults = StreamFaults(self)
        self.metadata_faults = MetadataFaults(self)
        self.convergence = Convergence(self)
        self._setup: list[Change] = [*map(RegisterNode, self.storage), *self._draw_topics()]

    def _set_up_checkers(self) -> None:
        self.group = RaftGroup(self.journal, self.sometimes, self.on_campaign, self._on_committed)
        self.agreement = OrderAgreement()
        self.safety = StreamSafety(self.quorum)
        self.values = OneValuePerGlsn()
        self.contexts = CommitContexts()
        self.rows = Rows(self.sometimes)
        self.answers = Answers()
        self.bounded = Bounded()
        self.reads = Reads()

    def _set_up_processes(self, metadata: int, storage: int, operators: int) -> None:
        self.metadata_nodes = tuple(NodeId(node) for node in range(1, metadata + 1))
        self.metadata = {node: MetadataProcess(self, node) for node in self.metadata_nodes}
        self.storage: dict[NodeId, StorageProcess] = {}
        for _ in range(storage):
            self._add_storage_node()
        self.operators: dict[NodeId, OperatorProcess] = {}
        for number in range(FIRST_OPERATOR, FIRST_OPERATOR + operators):
            node = NodeId(number)
            self.operators[node] = OperatorProcess(self, node)
            self.add(self.operators[node], self.new_disk(node))
        for process in (*self.metadata.values(), *self.operators.values()):
            self.network.connect(process)

    def _add_storage_node(self) -> StorageProcess:
        node = NodeId(FIRST_STORAGE_NODE + len(self.storage))
        process = self.storage[node] = StorageProcess(self, node)
        self.add(process, self.new_disk(node))
        self.network.connect(process)
        return process

    def _all(self) -> Iterable[Process]:
        return (*self.metadata.values(), *self.storage.values(), *self.operators.values())

    def _draw_topics(self) -> list[CreateTopic]:
        shape = self.chance.stream("topics")
        nodes = list(self.storage)
        replicas = shape.choice((1, 2, 3, 3, 3))
        merged: dict[TopicId, CreateTopic] = {}
        for number in range(1, shape.randrange(1, 5) + 1):
            stream, topic = StreamId(number), TopicId(shape.randrange(1, 3))
            self.streams[stream] = topic
            new = NewStream(stream, tuple(sorted(shape.sample(nodes, replicas))))
            known = merged.get(topic)
            streams = (new,) if known is None else (*known.streams, new)
            merged[topic] = CreateTopic(topic, streams, f"topic {topic}", self.quorum)
        return list(merged.values())

    # What the processes need.

    def new_disk(self, node: NodeId) -> MachineDisk:
        """Return an empty disk."""
        return MachineDisk(self.chance.stream("machine disk", node), self.sometimes)

    def some_machine(self, draw: int) -> MetadataMachine | None:
        """Return the metadata as one of the nodes knows it: perhaps not the newest."""
        running = [process for process in self.metadata.values() if process.is_up]
        return running[draw % len(running)].repository.machine if running else None

    def view(self, stream: StreamId) -> StreamOrder | None:
        """Return a stream as one of the metadata nodes knows it."""
        machine = self.some_machine(self._views.randrange(1 << 30))
        return None if machine is None else machine.order.streams.get(stream)

    def heard_lately(self) -> list[NodeId]:
        """Return the storage nodes that reported to some metadata node not long ago."""
        oldest = self.world.now - LATELY
        return [node for node, at in sorted(self._heard_at.items()) if at >= oldest]

    def ask(self, change: Change, answered: Callable[[LogError | None], None]) -> None:
        """Ask some metadata node for a change."""
        running = [process for process in self.metadata.values() if process.is_up]
        self.asked += 1
        if running:
            process = self._views.choice(running)
            self.journal.note(Happened.CHANGE, process.node, 0, 0, change)
            self.world.let(process, partial(process.ask, change, answered))

    def read_somewhere(self, draw: int) -> None:
        """Make a linearizable read at some metadata node."""
        process = self.metadata[self.metadata_nodes[draw % len(self.metadata_nodes)]]
        self.world.let(process, partial(self._read, process))

    def _read(self, process: MetadataProcess) -> None:
        process.read(self.reads.begin(self.group.safety.committed))

    # What checkers need.

    def _on_committed(self, entry: Entry) -> None:
        """Check every cut and every row at the moment that it is decided."""
        self.journal.absorb(entry.data)
        self.answers.on_committed(entry)
        for cut in self.agreement.on_committed(entry):
            self._check_cut(cut)
        for order in self.agreement.order.streams.values():
            self.rows.on_row(order)
            self.stream_faults.on_row(order)

    def _check_cut(self, cut: CutDecided) -> None:
        self.sometimes.count(Rare.CUT_DECIDED)
        self.journal.note(Happened.CUT, 0, cut.version, 0, cut)
        self.contexts.on_cut(cut)
        for commit in cut.commits:
            last = commit.llsn_end - 1
            row = self.agreement.order.stream(commit.stream)
            now = counted_ensembles(row.ensemble, decode_plan(row.plan).change)
            ensembles = (*now, *self.safety.counted(commit.stream, last))
            nodes = sorted({node for ensemble in ensembles for node in ensemble})
            holders = [self.storage[node].holder(commit.stream) for node in nodes]
            terms = {one.node: one.durable.term_at(last) for one in holders}
            forgiven = [one.node for one in holders if one.is_forgiven]
            check_ordered_durable(commit, terms, ensembles, self.quorum, forgiven)
            others = (one.holder(commit.stream) for one in self.storage.values())
            self.safety.on_cut(commit, holders, others)

    def look_at_replica(self, stream: StreamId, process: StorageProcess) -> None:
        """Check a replica that something was done with."""
        others = (one.holder(stream) for one in self.storage.values())
        if self.safety.look(stream, process.holder(stream), others):
            self.stream_faults.on_new_leader(process, stream)

    def look_at_collectors(self, machine: MetadataMachine) -> None:
        """Notice storage nodes that another metadata node collects from now."""
        for node in machine.nodes.values():
            assignment, collector = self._collectors.get(node.node, (0, node.collector))
            if node.assignment > assignment:
                self._collectors[node.node] = (node.assignment, node.collector)
                if collector in self.metadata and not self.metadata[collector].is_up:
                    self.sometimes.count(Rare.COLLECTOR_TAKEN_OVER)

    # Faults.

    def carry_out(self, fault: Fault) -> None:
        match fault.what:
            case FaultClass.TERM | FaultClass.ENSEMBLE:
                self.stream_faults.ask_operator(fault)
            case FaultClass.METADATA:
                self.metadata_faults.ask(fault)
            case FaultClass.WIPE:
                self._wipe(fault)
            case FaultClass.TRANSFER:
                leader = self.group.leader
                if leader is not None:
                    process = self.metadata[leader]
                    self.world.let(process, partial(self._transfer, process, fault.target))
            case _:
                raise AssertionError(fault)

    def isolate(self, node: NodeId, duration: int) -> None:
        """Cut a storage node off from all others, and from operators."""
        others = [other for other in (*self.storage, *self.operators) if other != node]
        paths = tuple(path for other in others for path in ((node, other), (other, node)))
        self.network.sever(paths)
        self.world.plan(duration, partial(self._mend, paths))

    def _transfer(self, process: MetadataProcess, target: int) -> None:
        voters = process.repository.raft.membership.voters
        result = process.repository.raft.transfer_leadership(voters[target % len(voters)])
        if not isinstance(result, Refused):
            self.sometimes.count(Rare.LEADERSHIP_TRANSFERRED)
        process.settle()

    def _wipe(self, fault: Fault) -> None:
        """Destroy a storage node that the streams can do without; another one takes its place.

        Its number lives on its disk, so the new one is nobody's replica.
        """
        victim = self.stream_faults.find_victim(fault.target)
        if victim is not None:
            self.sometimes.count(Rare.STORAGE_WIPED)
            self.world.wipe(victim)
            self._start_after(self._add_spare(), fault.duration)

    def _add_spare(self) -> StorageProcess:
        """Add a storage node that has no replica yet; it is registered, but not started."""
        new = self._add_storage_node()
        self.set_up_also(RegisterNode(new.node))
        return new

    def set_up_also(self, change: Change) -> None:
        """Ask for one more change as often as it takes."""
        self._setup.append(change)
        if len(self._setup) == 1:
            self._set_up()

    def heal(self) -> None:
        """End every fault, start what is down, and see that what is lost can be replaced."""
        super().heal()
        for _ in range(self.stream_faults.lost_members()):
            self.world.start(self._add_spare())

    # Network.

    def severed_paths(self, fault: Fault) -> tuple[Path, ...]:
        """Divide all nodes, or only those that replicate streams, or cut one off from the cuts."""
        nodes = [*sorted(self.storage), *sorted(self.operators)]
        match fault.strength // 11 % 3:
            case 0:
                return severed_paths(fault, [*sorted(self.metadata), *nodes])
            case 1:
                return severed_paths(fault, nodes)
            case _:
                return self._paths_of_cuts(fault)

    def _paths_of_cuts(self, fault: Fault) -> tuple[Path, ...]:
        """Let a storage node, a leader as a rule, hear of no cut, while the others reach it."""
        leaders = [order.leader for order in self.agreement.order.streams.values() if order.leader]
        nodes = leaders if leaders and fault.target % 4 else sorted(self.storage)
        node = nodes[fault.target // 4 % len(nodes)]
        self.sometimes.count(Rare.CUT_OFF_FROM_CUTS)
        paths = tuple((one, node) for one in self.metadata)
        if fault.what is FaultClass.PARTITION:
            paths += tuple((node, one) for one in self.metadata)
        return paths

    def leader(self) -> NodeId | None:
        """Return the leader of the metadata repository, or of some stream."""
        leaders = [order.leader for order in self.agreement.order.streams.values() if order.leader]
        if leaders and self.world.happened % 2:
            return leaders[self.world.happened // 2 % len(leaders)]
        return self.group.leader

    def _receive(self, target: NodeId, message: Message) -> None:
        if target in self.metadata:
            if isinstance(message, NodeReport):
                self._heard_at[message.source] = self.world.now
            self.metadata[target].receive(cast("ToMetadataNode", message))
        elif target in self.storage:
            self.storage[target].receive(cast("ToStorageNode", message))
        else:
            self.operators[target].receive(cast("replica_messages.ToOperator", message))

    # The run.

    def run(self) -> None:
        """Live through all faults, heal, converge, fall idle, and check what is left to check."""
        for process in self._all():
            self.world.start(process)
        self._set_up()
        self.clients.start()
        self.world.run_until(self.plan.duration)
        self.heal()
        self.convergence.wait_for_progress(self.agreement.version + 5)
        self.clients.stop()
        self.convergence.wait_for_rest()
        self.convergence.check_idle()
        self.clients.check_real_time()

    def _set_up(self) -> None:
        """Register the storage nodes and create the topics, as often as it takes."""
        if self._setup:
            change = self._setup[0]
            self.ask(change, partial(self._on_set_up, change))
            self.world.plan(300 * MILLISECOND, self._set_up)

    def _on_set_up(self, change: Change, error: LogError | None) -> None:
        """A conflict, like a topic that exists, is an earlier try that was made after all."""
        is_made = error is None or isinstance(error, TopicExists | RevisionConflict)
        if isinstance(change, AddStreams):
            is_made = is_made or change.streams[0].stream in self.agreement.order.streams
        if self._setup and self._setup[0] is change and is_made:
            self._setup.pop(0)
            if self._setup:
                following = self._setup[0]
                self.ask(following, partial(self._on_set_up, following))


def _through_bytes(message: Message) -> Message:
    back: Message = _decoder.decode(_encoder.encode(message))
    return back
