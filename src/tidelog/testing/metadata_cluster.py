"""A simulated metadata repository with modelled storage nodes, an operator and clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, cast

import msgspec

from tidelog.core.metadata.commands import Change, RegisterNode
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, Share
from tidelog.core.metadata.repository import RepositoryOptions
from tidelog.core.order.commands import CreateTopic, NewStream, Quorum, VersionedCommit
from tidelog.core.order.state import StreamOrder
from tidelog.core.raft import messages as raft_messages
from tidelog.core.raft.entries import Entry
from tidelog.core.raft.options import Refused
from tidelog.errors import LogError, TopicExists
from tidelog.testing.checkers.acked_durable import check_ordered_durable
from tidelog.testing.checkers.answers import Answers
from tidelog.testing.checkers.bounded import Bounded
from tidelog.testing.checkers.commit_context import CommitContexts
from tidelog.testing.checkers.idle import check_idle
from tidelog.testing.checkers.liveness import check_liveness
from tidelog.testing.checkers.one_value_per_glsn import OneValuePerGlsn
from tidelog.testing.checkers.order_agreement import OrderAgreement
from tidelog.testing.checkers.reads import Reads
from tidelog.testing.checkers.real_time import AckedAppend, check_real_time
from tidelog.testing.cluster import Cluster
from tidelog.testing.faults import Fault, FaultClass, Plan
from tidelog.testing.journal import Happened
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.metadata_process import MetadataProcess
from tidelog.testing.network import Network, Path
from tidelog.testing.raft_cluster import draw_options
from tidelog.testing.raft_witness import RaftGroup
from tidelog.testing.sometimes import Rare
from tidelog.testing.storage_messages import StorageMessage, ToOperator
from tidelog.testing.storage_process import StorageProcess
from tidelog.testing.storage_replica import Replica
from tidelog.testing.stream_operator import Operator
from tidelog.testing.world import MILLISECOND, SECOND
from tidelog.types import NO_NODE, NO_VERSION, NodeId, StreamId, TopicId

ToMetadataNode: TypeAlias = raft_messages.Message | Share | NodeReport
ToStorageNode: TypeAlias = Collect | CommitResult | StorageMessage
Message: TypeAlias = ToMetadataNode | ToStorageNode | ToOperator

FIRST_STORAGE_NODE: Final = 101
OPERATOR: Final = NodeId(901)
CLIENT_PAUSE_MEAN: Final = 30 * MILLISECOND
HEALING: Final = 20 * SECOND
"""A healed cluster that has not converged after this has lost its liveness."""
QUIET: Final = 1 * SECOND
"""Within this time after the last append, all that was under way has ended."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class MetadataCluster(Cluster):
    """Everything of one seed."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        shape = self.chance.stream("shape")
        self.options = RepositoryOptions(
            raft=draw_options(shape),
            snapshot_entries=shape.choice((8, 40)) if plan.compacts else 10_000,
        )
        self.quorum = shape.choice((Quorum.MAJORITY, Quorum.MAJORITY, Quorum.ALL))
        self.group = RaftGroup(self.journal, self.sometimes, self.on_campaign, self._on_committed)
        self.agreement = OrderAgreement()
        self.values = OneValuePerGlsn()
        self.contexts = CommitContexts()
        self.answers = Answers()
        self.bounded = Bounded()
        self.reads = Reads()
        self.network: Network[Message] = Network(
            self.world, self.chance, plan.weather, self.sometimes, self._receive, _through_bytes
        )
        self._clients = self.chance.stream("clients")
        self._is_idle = False
        self._appended = 0
        self._invoked: dict[int, tuple[int, TopicId]] = {}
        self._acked: dict[TopicId, list[AckedAppend]] = {}
        self._probed: dict[StreamId, int] = {}
        self._routes: dict[StreamId, NodeId] = {}
        self._ensembles: dict[StreamId, tuple[NodeId, ...]] = {}
        self._collectors: dict[NodeId, tuple[int, NodeId]] = {}
        count = shape.choice((1, 3, 3, 5))
        self.metadata_nodes = tuple(NodeId(node) for node in range(1, count + 1))
        self.metadata = {node: MetadataProcess(self, node) for node in self.metadata_nodes}
        self.storage: dict[NodeId, StorageProcess] = {}
        for node in range(FIRST_STORAGE_NODE, FIRST_STORAGE_NODE + shape.randrange(3, 7)):
            self.storage[NodeId(node)] = StorageProcess(self, NodeId(node))
            self.add(self.storage[NodeId(node)], self.new_disk(NodeId(node)))
        self.operator = Operator(self, OPERATOR)
        for process in (*self.metadata.values(), *self.storage.values(), self.operator):
            self.network.connect(process)
        self.streams: dict[StreamId, TopicId] = {}
        self._topics = self._draw_topics()
        self._setup: list[Change] = [
            *(RegisterNode(node) for node in self.storage),
            *self._topics,
        ]

    def _draw_topics(self) -> list[CreateTopic]:
        shape = self.chance.stream("topics")
        nodes = list(self.storage)
        replicas = shape.choice((1, 2, 3, 3))
        topics: list[CreateTopic] = []
        for stream in range(1, shape.randrange(1, 5) + 1):
            topic = TopicId(shape.randrange(1, 3))
            self.streams[StreamId(stream)] = topic
            ensemble = tuple(sorted(shape.sample(nodes, replicas)))
            new = NewStream(StreamId(stream), ensemble)
            topics.append(CreateTopic(topic, (new,), name=f"topic {topic}", quorum=self.quorum))
        merged: dict[TopicId, CreateTopic] = {}
        for one in topics:
            known = merged.get(one.topic)
            streams = one.streams if known is None else known.streams + one.streams
            merged[one.topic] = msgspec.structs.replace(one, streams=streams)
        return list(merged.values())

    # What the processes need.

    def new_disk(self, node: NodeId) -> MachineDisk:
        """Return an empty disk."""
        return MachineDisk(self.chance.stream("machine disk", node), self.sometimes)

    def view(self, stream: StreamId) -> StreamOrder | None:
        """Return a stream as one of the metadata nodes knows it: perhaps not the newest."""
        running = [process for process in self.metadata.values() if process.is_up]
        if not running:
            return None
        process = self._clients.choice(running)
        return process.repository.machine.order.streams.get(stream)

    def is_newest(self, order: StreamOrder) -> bool:
        """Whether no metadata node knows a later revision."""
        return all(
            known is None or known.revision <= order.revision
            for known in (
                process.repository.machine.order.streams.get(order.stream)
                for process in self.metadata.values()
                if process.is_up
            )
        )

    def ask(self, change: Change, answered: Callable[[LogError | None], None]) -> None:
        """Ask some metadata node for a change."""
        running = [process for process in self.metadata.values() if process.is_up]
        if running:
            process = self._clients.choice(running)
            self.journal.note(Happened.CHANGE, process.node, 0, 0, change)
            self.world.let(process, partial(process.ask, change, answered))

    def _on_committed(self, entry: Entry) -> None:
        """Check every cut at the moment that it is decided, and tell nodes of their replicas."""
        self.journal.absorb(entry.data)
        self.answers.on_committed(entry)
        before = self._ensembles
        for cut in self.agreement.on_committed(entry):
            self.sometimes.count(Rare.CUT_DECIDED)
            self.journal.note(Happened.CUT, 0, cut.version, 0, cut)
            for commit in cut.commits:
                ensemble = self.agreement.order.stream(commit.stream).ensemble
                last = [
                    self.storage[node].durable_record(commit.stream, commit.llsn_end - 1)
                    for node in ensemble
                ]
                check_ordered_durable(commit, last, self.quorum)
        self._ensembles = {
            stream: order.ensemble for stream, order in self.agreement.order.streams.items()
        }
        if before != self._ensembles:
            self._place_replicas(before)

    def _place_replicas(self, before: dict[StreamId, tuple[NodeId, ...]]) -> None:
        """Let storage nodes have the replicas that the metadata gives them, and no others."""
        for stream, ensemble in self._ensembles.items():
            old = before.get(stream, ())
            for node in ensemble:
                if node not in old:
                    version = self.agreement.version if stream in before else NO_VERSION
                    self.storage[node].host(stream, version=version)
            for node in old:
                if node not in ensemble:
                    self.storage[node].drop(stream)
                elif old != ensemble:
                    self.storage[node].replicas[stream].learn_ensemble(ensemble)

    def on_applied(self, replica: Replica, versioned: VersionedCommit) -> None:
        """Check a commit that a replica applies."""
        commit = versioned.commit
        self.journal.note(
            Happened.COMMIT, replica.node, versioned.version, commit.glsn_begin, commit
        )
        self.contexts.on_applied(replica, versioned)
        self.values.on_applied(replica.node, commit, replica.records)

    def look_at_collectors(self, machine: MetadataMachine) -> None:
        """Notice storage nodes that another metadata node collects from now."""
        for node in machine.nodes.values():
            assignment, collector = self._collectors.get(node.node, (0, node.collector))
            if node.assignment > assignment:
                self._collectors[node.node] = (node.assignment, node.collector)
                if collector in self.metadata and not self.metadata[collector].is_up:
                    self.sometimes.count(Rare.COLLECTOR_TAKEN_OVER)

    # Clients.

    def _ask_something(self) -> None:
        if self._is_idle:
            return
        draws = self._clients
        self.world.plan(1 + int(draws.expovariate(1.0) * CLIENT_PAUSE_MEAN), self._ask_something)
        if draws.random() < 0.1:
            process = draws.choice(list(self.metadata.values()))
            self.world.let(process, partial(self._read, process))
        stream = draws.choice(list(self.streams))
        leader = self.storage.get(self._route(stream))
        if leader is not None:
            self.world.let(leader, partial(self._append, leader, stream, draws.choice((1, 1, 5))))

    def _route(self, stream: StreamId) -> NodeId:
        """Return who leads a stream, as far as clients know: often who led it before."""
        if self._clients.random() < 0.3 or stream not in self._routes:
            order = self.view(stream)
            if order is not None and order.leader != NO_NODE:
                self._routes[stream] = order.leader
        return self._routes.get(stream, NO_NODE)

    def _append(self, process: StorageProcess, stream: StreamId, count: int) -> None:
        for _ in range(count):
            self._appended += 1
            self._invoked[self._appended] = (self.world.now, self.streams[stream])
            if not process.append(stream, self._appended):
                del self._invoked[self._appended]

    def _read(self, process: MetadataProcess) -> None:
        process.read(self.reads.begin(self.group.safety.committed))

    def on_append_acknowledged(self, replica: Replica, llsn: int, glsn: int, payload: int) -> None:
        """Tell a client the GLSN of its append."""
        self.sometimes.count(Rare.APPEND_ACKNOWLEDGED)
        self.journal.note(Happened.ACKNOWLEDGE, replica.node, glsn, payload)
        invoked_at, topic = self._invoked.pop(payload)
        append = AckedAppend(glsn, invoked_at, self.world.now)
        self._acked.setdefault(topic, []).append(append)
        if self.is_healed:
            self._probed[replica.stream] = llsn

    # Control.

    def carry_out(self, fault: Fault) -> None:
        streams = list(self.streams)
        match fault.what:
            case FaultClass.TERM:
                self.operator.begin_term(streams[fault.target % len(streams)])
            case FaultClass.ENSEMBLE:
                stream = streams[fault.target % len(streams)]
                self.operator.change_ensemble(stream, fault.strength)
            case FaultClass.TRANSFER:
                leader = self.group.leader
                if leader is not None:
                    process = self.metadata[leader]
                    self.world.let(process, partial(self._transfer, process, fault.target))
            case _:
                raise AssertionError(fault)

    def _transfer(self, process: MetadataProcess, target: int) -> None:
        voters = process.repository.raft.membership.voters
        result = process.repository.raft.transfer_leadership(voters[target % len(voters)])
        if not isinstance(result, Refused):
            self.sometimes.count(Rare.LEADERSHIP_TRANSFERRED)
        process.settle()

    def is_safe_without(self, order: StreamOrder, removed: NodeId) -> bool:
        """Whether a majority of the ensemble, perhaps without a node, has applied all cuts.

        The history of cuts is kept only as long as a majority misses it: the GLSNs that only who
        leaves has learnt would be lost with it.
        """
        ordered = self.agreement.llsn_end(order.stream) - 1
        left = [self.storage[node] for node in order.ensemble if node != removed]
        replicas = [process.replicas.get(order.stream) for process in left]
        holders = sum(
            r is not None and not r.is_behind and r.synced_ordered >= ordered for r in replicas
        )
        return 2 * holders > len(left)

    # Network.

    def partitioned_nodes(self, fault: Fault) -> list[NodeId]:
        """Divide all nodes, or only those that replicate streams: then all reach the metadata."""
        nodes = [*sorted(self.storage), OPERATOR]
        return nodes if fault.strength // 11 % 2 else [*sorted(self.metadata), *nodes]

    def leader(self) -> NodeId | None:
        return self.group.leader

    def sever(self, paths: tuple[Path, ...]) -> None:
        self.network.sever(paths)

    def mend(self, paths: tuple[Path, ...]) -> None:
        self.network.mend(paths)

    def clog(self, path: Path, duration: int) -> None:
        self.network.clog(path, duration)

    def clear_network(self) -> None:
        self.network.clear()

    def _receive(self, target: NodeId, message: Message) -> None:
        if target in self.metadata:
            self.metadata[target].receive(cast("ToMetadataNode", message))
        elif target in self.storage:
            self.storage[target].receive(cast("ToStorageNode", message))
        else:
            self.operator.receive(cast("ToOperator", message))

    # The run.

    def run(self) -> None:
        """Live through all faults, heal, converge, fall idle, and check what is left to check."""
        for process in (*self.metadata.values(), *self.storage.values(), self.operator):
            self.world.start(process)
        self._set_up()
        self.world.plan(self._clients.randrange(50 * MILLISECOND), self._ask_something)
        self.world.run_until(self.plan.duration)
        self.heal()
        self._probed.clear()
        goal = self.agreement.version + 5
        self.world.run_until(self.world.now + HEALING, lambda: self._has_moved_on(goal))
        check_liveness(self._has_moved_on(goal), self._status())
        self._is_idle = True
        self.world.run_until(self.world.now + HEALING, self._has_converged)
        check_liveness(self._has_converged(), self._status())
        self._check_idle()
        for appends in self._acked.values():
            check_real_time(appends)

    def _set_up(self) -> None:
        """Register the storage nodes and create the topics, as often as it takes."""
        if self._setup:
            change = self._setup[0]
            self.ask(change, partial(self._on_set_up, change))
            self.world.plan(300 * MILLISECOND, self._set_up)

    def _on_set_up(self, change: Change, error: LogError | None) -> None:
        if (
            self._setup
            and self._setup[0] is change
            and (error is None or isinstance(error, TopicExists))
        ):
            self._setup.pop(0)
            if self._setup:
                following = self._setup[0]
                self.ask(following, partial(self._on_set_up, following))

    def _has_moved_on(self, goal: int) -> bool:
        """Whether every stream has ordered something new since the healing."""
        return self.agreement.version >= goal and len(self._probed) == len(self.streams)

    def _has_converged(self) -> bool:
        """Whether every metadata node and every replica knows all that was decided."""
        version = self.agreement.version
        if not self.operator.is_at_rest:
            return False
        if any(p.repository.machine.order.version != version for p in self.metadata.values()):
            return False
        order = next(iter(self.metadata.values())).repository.machine.order
        for stream in self.streams:
            ordered = self.agreement.llsn_end(stream) - 1
            for node in order.stream(stream).ensemble:
                replica = self.storage[node].replicas.get(stream)
                if replica is None or replica.synced_ordered != ordered or replica.is_dirty():
                    return False
                if replica.leads and len(replica.records) != ordered:
                    return False
        return True

    def _check_idle(self) -> None:
        # A change that somebody asked for may still be held up on its way.
        self.world.run_until(max(self.world.now, self.network.held_until) + QUIET)
        before = self._entries_written()
        self.world.run_until(self.world.now + QUIET)
        check_idle(before, self._entries_written())

    def _entries_written(self) -> int:
        return sum(process.writes for process in self.metadata.values())

    def _status(self) -> str:
        lines = [f"version {self.agreement.version}, acknowledged since {self._probed}"]
        for node, process in sorted(self.metadata.items()):
            raft = process.repository.raft
            order = process.repository.machine.order
            lines.append(f"node {node} {raft.role.name} term {raft.term} version {order.version}")
        for node, storage in sorted(self.storage.items()):
            for stream, replica in sorted(storage.replicas.items()):
                lines.append(
                    f"node {node} stream {stream} term {replica.term} leader {replica.leader}"
                    f" records {len(replica.records)} ordered {replica.ordered}"
                    f" version {replica.version} behind {replica.behind_until}"
                    f" pending {len(replica.pending)} propagated {replica.propagated}"
                )
        view = {stream: self.view(stream) for stream in self.streams}
        return "; ".join(lines) + f"; {view}"


def _through_bytes(message: Message) -> Message:
    back: Message = _decoder.decode(_encoder.encode(message))
    return back
