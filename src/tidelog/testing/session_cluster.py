"""A simulated master with its replicas, and what happens to them.

Machines are alike; which one is the master is up to the operators.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.session.messages import Answer, LogEntryWrite, Request
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import Durability, Notice
from tidelog.testing.checkers.liveness import check_liveness
from tidelog.testing.cluster import Cluster
from tidelog.testing.faults import Fault, FaultClass, Plan
from tidelog.testing.journal import Happened
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.session_checks import SessionChecks
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.session_machine import SessionMachine
from tidelog.testing.session_master import MasterShell
from tidelog.testing.session_operators import Operators
from tidelog.testing.session_replica import ReplicaShell
from tidelog.testing.session_stranger import Stranger
from tidelog.testing.session_wires import Wires
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND, SECOND
from tidelog.types import NodeId

HEALING: Final = 30 * SECOND
"""A healed pair whose epochs do not propagate after this has lost its liveness."""
COMMITS_AFTER_HEALING: Final = 5
RESET_AHEAD: Final = 0.2
"""How often connections break when a replica is ahead of its master."""


class SessionCluster(Cluster):
    """Everything of one seed."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        shape = self.chance.stream("shape")
        self.options = MasterOptions(
            parallel_append=shape.random() < 0.7,
            parallel_flush=shape.random() < 0.7,
            parallel_commit=shape.random() < 0.7,
            flush_at=shape.choice((FlushAt.SESSION_END, FlushAt.SESSION_END, FlushAt.GROUP_COMMIT)),
        )
        self.channel_count = 1 + shape.randrange(1, 5)
        """With that of the master's own entries."""
        self.epoch_length = shape.choice((3, 10, 40)) * MILLISECOND
        self.pace = shape.choice((1, 3, 10)) * MILLISECOND
        """How fast users of a log channel are."""
        self.listens_always = shape.random() < 0.5
        """Whether a master knows at once that a connection is lost."""
        self.may_promote = plan.has(FaultClass.PROMOTION)
        self._may_reset = plan.has(FaultClass.RESET)
        self._resets = self.chance.stream("resets")
        self.checks = SessionChecks(self)
        self.operators = Operators(self)
        self.network = self.wires = Wires(
            self.world, self.chance, plan.weather, self.sometimes, self._on_stray
        )
        self.lives = 0
        """How many masters there were, one after the other."""
        self.boundary = 0
        self._blobs = 0
        self._configurations = 0
        self._propagated_since_healing: dict[int, None] = {}
        """The group commits by which epochs have propagated."""
        self.machines: dict[NodeId, SessionMachine] = {}
        for number in range(1, shape.choice((2, 2, 3, 4)) + 1):
            node = NodeId(number)
            self.machines[node] = SessionMachine(self, node)
            self.add(self.machines[node], MachineDisk(self.chance.stream("unused"), self.sometimes))
        self.stranger = Stranger(self)

    # What the processes need.

    def new_ledger(self, machine: SessionMachine) -> Ledger:
        """Begin the ledger of a life of a master."""
        self.lives += 1
        machine.ledger = Ledger(self.lives, machine.disk.seen)
        machine.is_in_session = True
        return machine.ledger

    def new_configuration_id(self) -> str:
        """Name a store that is made."""
        self._configurations += 1
        return f"configuration {self._configurations}"

    def new_blob(self) -> int:
        """Name a BLOB."""
        self._blobs += 1
        return self._blobs

    def on_session_open(self, shell: MasterShell) -> None:
        """All sessions of a master are open."""
        self.sometimes.count(Rare.SESSION_OPENED)
        self.journal.note(Happened.LEADER, shell.machine.node, shell.ledger.number)

    def on_notice(self, shell: MasterShell, notice: Notice) -> None:
        """Tell the application how safe an epoch is."""
        self.journal.note(Happened.ACKNOWLEDGE, shell.machine.node, notice.epoch, 0, notice)
        self.checks.on_notice(shell, notice)
        if self.is_healed and notice.durability is Durability.PROPAGATED:
            # Not every epoch has entries.
            self._propagated_since_healing[shell.machine.disk.durable.epoch] = None

    def on_remote_commit_first(self, shell: MasterShell) -> None:
        """A replica has an epoch that its master has not: a bad time to lose one another."""
        if self._may_reset and self._resets.random() < RESET_AHEAD:
            for wire in self.wires.open_wires(shell.machine):
                self.wires.reset(wire)

    def on_recorded(self, machine: SessionMachine) -> None:
        """An epoch has become durable somewhere."""
        self.checks.on_recorded(machine)
        self.operators.on_recorded(machine)

    def _on_stray(self, message: Request | Answer) -> None:
        if isinstance(message, LogEntryWrite):
            self.sometimes.count(Rare.LATE_WRITE)

    # Faults.

    def carry_out(self, fault: Fault) -> None:
        master = self.machines[self.operators.master]
        match fault.what:
            case FaultClass.RESET:
                self._reset(fault)
            case FaultClass.PROMOTION:
                self.operators.promote(fault)
            case FaultClass.WIPE:
                self.operators.wipe(fault)
            case FaultClass.STRANGER:
                self.stranger.visit(fault)
            case FaultClass.DISK_FAILURE:
                nodes = sorted(self.machines)
                self.machines[nodes[fault.target % len(nodes)]].fail_next()
            case FaultClass.CLOSE:
                if isinstance(master.shell, MasterShell):
                    self.world.let(master, master.shell.application.close)
            case _:
                raise AssertionError(fault)

    def _reset(self, fault: Fault) -> None:
        """Break one connection of a replica, or all."""
        nodes = sorted(self.machines)
        wires = self.wires.open_wires(self.machines[nodes[fault.target % len(nodes)]])
        if wires and fault.strength % 3:
            wires = [wires[fault.strength // 3 % len(wires)]]
        for wire in wires:
            self.sometimes.count(Rare.CONNECTION_RESET)
            self.wires.reset(wire)

    def heal(self) -> None:
        """End every fault, and let the master use all machines."""
        super().heal()
        for node in list(self.operators.unused):
            self.operators.take_back(node)

    # Network.

    def leader(self) -> NodeId | None:
        return self.operators.master

    # The run.

    def run(self) -> None:
        """Live through all faults, heal, and see epochs propagate again."""
        self.world.start(self.stranger)
        for node in sorted(self.machines):
            self.world.start(self.machines[node])
        self.world.run_until(self.plan.duration)
        self.heal()
        self.world.run_until(self.world.now + HEALING, self._has_converged)
        check_liveness(self._has_converged(), self._status())
        for machine in self.machines.values():
            if isinstance(machine.shell, ReplicaShell):
                machine.shell.check_answered()

    def _has_converged(self) -> bool:
        """Whether the sessions of all machines open, and epochs propagate."""
        is_complete = not self.operators.unused
        return is_complete and len(self._propagated_since_healing) >= COMMITS_AFTER_HEALING

    def _status(self) -> str:
        lines = []
        for node, machine in sorted(self.machines.items()):
            shell, what = machine.shell, machine.state.value
            if isinstance(shell, MasterShell):
                core = shell.core
                what = f"master {core.epoch} open {core.is_open} failure {core.failure!r}"
            elif isinstance(shell, ReplicaShell):
                what = f"replica {shell.core.state.value}"
            lines.append(f"node {node} at {machine.disk.durable.epoch}: {what}")
        return "; ".join(lines)
