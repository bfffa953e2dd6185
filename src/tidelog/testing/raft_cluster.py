"""A simulated Raft group with its clients: proposals, reads, membership changes, handovers."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

import msgspec

from tidelog.core.raft.entries import Entry, EntryKind, Index, Snapshot
from tidelog.core.raft.membership import AddLearner, Change, Promote, Remove
from tidelog.core.raft.messages import Message
from tidelog.core.raft.options import RaftOptions, Refused
from tidelog.testing.checkers.acked_present import AckedPresent
from tidelog.testing.checkers.liveness import check_liveness
from tidelog.testing.checkers.reads import Reads
from tidelog.testing.cluster import Cluster
from tidelog.testing.faults import Fault, FaultClass, Plan
from tidelog.testing.journal import Happened
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.network import Network
from tidelog.testing.raft_process import Chain, RaftProcess, beginning
from tidelog.testing.raft_witness import RaftGroup
from tidelog.testing.sometimes import Rare
from tidelog.testing.violation import Violation
from tidelog.testing.world import MILLISECOND, SECOND, State
from tidelog.types import NodeId

CLIENT_PAUSE_MEAN: Final = 30 * MILLISECOND
HEALING: Final = 30 * SECOND
"""A healed group that has not converged after this has lost its liveness."""
SPARES: Final = 2

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class RaftCluster(Cluster):
    """Everything of one seed."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        shape = self.chance.stream("shape")
        self.options = draw_options(shape)
        self.compact_every = shape.choice((5, 20, 60)) if plan.compacts else 0
        self.group = RaftGroup(self.journal, self.sometimes, self.on_campaign, self._on_committed)
        self.acked = AckedPresent()
        self.reads = Reads()
        self.network: Network[Message] = Network(
            self.world, self.chance, plan.weather, self.sometimes, self._receive, _through_bytes
        )
        self._values: list[int] = []
        self._clients = self.chance.stream("clients")
        self._proposed = 0
        voters = shape.choice((1, 2, 3, 3, 3, 5))
        self._voters = tuple(NodeId(node) for node in range(1, voters + 1))
        self._nodes: dict[NodeId, RaftProcess] = {}
        for node in self._voters:
            self._new_node(node)
        self.world.plan(self._clients.randrange(50 * MILLISECOND), self._ask_something)

    # What the processes need.

    def new_disk(self, node: NodeId) -> MachineDisk:
        """Return an empty disk."""
        return MachineDisk(self.chance.stream("disk", node), self.sometimes)

    def first_snapshot(self, node: NodeId) -> Snapshot:
        """Return what a node begins with: only the first voters know the group."""
        return beginning(self._voters if node in self._voters else ())

    def on_apply(self, node: NodeId, entry: Entry, value: int) -> None:
        """Hold a node's machine against those of the others."""
        self.journal.note(Happened.APPLY, node, entry.index, entry.term)
        if entry.index > len(self._values):
            self._values.append(value)
        elif self._values[entry.index - 1] != value:
            raise Violation("raft_safety", f"node {node} has another state at {entry.index}")

    def _on_committed(self, entry: Entry) -> None:
        self.journal.absorb(entry.data)
        if entry.kind is EntryKind.MEMBERSHIP:
            self.sometimes.count(Rare.MEMBERSHIP_CHANGED)

    def check_machine(self, node: NodeId, machine: Chain) -> None:
        """Check a state that came as a snapshot."""
        if machine.index and self._values[machine.index - 1] != machine.value:
            raise Violation("raft_safety", f"node {node} got another state at {machine.index}")

    def on_acknowledge(self, node: NodeId, entry: Entry) -> None:
        """Tell a client that its command is committed."""
        self.journal.note(Happened.ACKNOWLEDGE, node, entry.index, entry.term)
        self.acked.on_acknowledge(entry)

    # Clients.

    def _ask_something(self) -> None:
        draws = self._clients
        self.world.plan(1 + int(draws.expovariate(1.0) * CLIENT_PAUSE_MEAN), self._ask_something)
        nodes = sorted(self._nodes)
        node = draws.choice(nodes)
        leader = self.group.leader
        if leader is not None and draws.random() < 0.7:
            node = leader
        process = self._nodes[node]
        if draws.random() < 0.3:
            self.world.let(process, partial(self._read, process))
        else:
            count = draws.choice((1, 1, 1, 4))
            self.world.let(process, partial(self._propose, process, count))

    def _propose(self, process: RaftProcess, count: int) -> None:
        for _ in range(count):
            self._proposed += 1
            process.propose(b"command %d" % self._proposed)

    def _read(self, process: RaftProcess) -> None:
        process.read(self.reads.begin(self.group.safety.committed))

    # Control.

    def carry_out(self, fault: Fault) -> None:
        leader = self.leader()
        if leader is None:
            return
        process = self._nodes[leader]
        match fault.what:
            case FaultClass.TRANSFER:
                self.world.let(process, partial(self._transfer, process, fault.target))
            case FaultClass.MEMBERSHIP:
                self.world.let(process, partial(self._change_membership, process, fault))
            case FaultClass.WIPE:
                self._wipe(process, fault)
            case _:
                raise AssertionError(fault)

    def _transfer(self, process: RaftProcess, target: int) -> None:
        voters = process.raft.membership.voters
        result = process.raft.transfer_leadership(voters[target % len(voters)])
        if not isinstance(result, Refused):
            self.sometimes.count(Rare.LEADERSHIP_TRANSFERRED)
        process.settle()

    def _change_membership(self, process: RaftProcess, fault: Fault) -> None:
        membership = process.raft.membership
        changes: list[Change] = []
        for node in membership.learners:
            changes += [Promote(node), Promote(node), Remove(node)]
        if len(membership.voters) > 1 and not self._lost_voters(process):
            changes += [Remove(node) for node in membership.voters]
        changes += [AddLearner(node) for node in self._outsiders(process)]
        self._change(process, changes[fault.strength % len(changes)])

    def _outsiders(self, process: RaftProcess) -> list[NodeId]:
        """Nodes that could join: those that left, and one that was never there."""
        membership = process.raft.membership
        inside = (*membership.voters, *membership.learners)
        outside = [
            node
            for node, other in sorted(self._nodes.items())
            if node not in inside and other.state is not State.GONE
        ]
        if len(self._nodes) < len(self._voters) + SPARES:
            outside.append(NodeId(len(self._nodes) + 1))
        return outside

    def _change(self, process: RaftProcess, change: Change) -> None:
        if isinstance(change, AddLearner) and change.node not in self._nodes:
            self.world.start(self._new_node(change.node))
        self.journal.note(Happened.CHANGE, process.node, change.node, 0, change)
        process.raft.change_membership(change)
        process.settle()

    def _new_node(self, node: NodeId) -> RaftProcess:
        process = RaftProcess(self, node)
        self._nodes[node] = process
        self.network.connect(process)
        return process

    def _wipe(self, leader: RaftProcess, fault: Fault) -> None:
        """Destroy a voter for good, if what is committed survives that, and replace it."""
        membership = leader.witness.log.membership
        is_settled = leader.witness.log.membership_index <= self.group.safety.committed
        if len(membership.voters) < 3 or self._lost_voters(leader) or not is_settled:
            return
        # The leader may be one of the past: in a later term a change may need just this voter.
        if any(
            self._nodes[node].witness.log.membership != membership for node in membership.voters
        ):
            return
        victim = membership.voters[fault.target % len(membership.voters)]
        if not self._nodes[victim].is_up:
            return
        self.sometimes.count(Rare.WIPED)
        self.world.wipe(self._nodes[victim])
        fresh = NodeId(len(self._nodes) + 1)
        self.world.start(self._new_node(fresh))
        self._repair(victim, fresh)

    def _lost_voters(self, leader: RaftProcess) -> list[NodeId]:
        """Voters whose disks are gone: until they are replaced no other one may leave."""
        voters = leader.witness.log.membership.voters
        return [node for node in voters if self._nodes[node].state is State.GONE]

    def _repair(self, lost: NodeId, fresh: NodeId) -> None:
        """Replace a lost voter, one change at a time, until it is done."""
        leader = self.leader()
        if leader is not None:
            process = self._nodes[leader]
            membership = process.raft.membership
            change: Change
            if lost in membership.voters or lost in membership.learners:
                change = Remove(lost)
            elif fresh in membership.learners:
                change = Promote(fresh)
            elif fresh in membership.voters:
                return
            else:
                change = AddLearner(fresh)
            self.world.let(process, partial(self._change, process, change))
        self.world.plan(100 * MILLISECOND, partial(self._repair, lost, fresh))

    # Network.

    def leader(self) -> NodeId | None:
        return self.group.leader

    def _receive(self, target: NodeId, message: Message) -> None:
        self._nodes[target].receive(message)

    # The run.

    def run(self) -> None:
        """Live through all faults, heal, converge, and check what can be checked at the end."""
        for node in self._voters:
            self.world.start(self.processes[node])
        self.world.run_until(self.plan.duration)
        self.heal()
        goal = self.group.safety.committed + 5
        self.world.run_until(self.world.now + HEALING, lambda: self._has_converged(Index(goal)))
        check_liveness(self._has_converged(Index(goal)), self._status())
        self.acked.check(self.group.safety)

    def _has_converged(self, goal: Index) -> bool:
        """Whether something new was committed and every member has all of it."""
        leader = self.leader()
        if leader is None or self.group.safety.committed < goal:
            return False
        membership = self._nodes[leader].raft.membership
        return all(
            self._nodes[node].machine.index >= goal
            for node in (*membership.voters, *membership.learners)
            if self._nodes[node].state is not State.GONE
        )

    def _status(self) -> str:
        lines = [f"committed {self.group.safety.committed}"]
        for node, process in sorted(self._nodes.items()):
            status = f"{process.raft.status()}" if process.is_up else process.state.value
            lines.append(f"node {node} applied {process.machine.index}: {status}")
        return "; ".join(lines)


def draw_options(draws: Random) -> RaftOptions:
    """Draw how the nodes are tuned; small sizes make much happen with little data."""
    return RaftOptions(
        heartbeat_ticks=draws.choice((1, 2, 3)),
        append_bytes_max=draws.choice((60, 300, 65_536)),
        inflight_count_max=draws.choice((1, 4, 64)),
        snapshot_chunk_bytes=draws.choice((150, 600, 65_536)),
        promote_lag_max=draws.choice((0, 5, 1_000)),
    )


def _through_bytes(message: Message) -> Message:
    back: Message = _decoder.decode(_encoder.encode(message))
    return back
