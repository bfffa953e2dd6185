"""The people who operate a simulated master and its replicas.

When replication has failed they start the master again; when machines have different histories
they stop all, copy one side over the others, and start again; sometimes they make a replica the
master, and sometimes that one runs for a while without the former master.

Invariants:
  O1  a master begins sessions with all machines that are in use, so no epoch is called PROPAGATED
      that one of them lacks
  O2  a machine that lacks such an epoch is not made the master, and its data is never copied
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.session.messages import ErrorCode
from tidelog.errors import LogError, ReplicaRefused
from tidelog.testing.faults import Fault
from tidelog.testing.journal import Happened
from tidelog.testing.session_image import Cut, EpochImage
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.session_cluster import SessionCluster
    from tidelog.testing.session_machine import SessionMachine

PAUSE: Final = 20 * MILLISECOND
LEFT_OUT: Final = 500 * MILLISECOND
"""A former master is used again after this at the latest."""
GIVEN_UP: Final = 0.3
"""How often a master is given up whose history is not that of its replicas."""
HISTORIES_DIFFER: Final = (ErrorCode.WRONG_POSITION, ErrorCode.WRONG_CONFIGURATION)


class Operators:
    """Which machine is what, and what is done about it."""

    __slots__ = (
        "_cluster",
        "_draws",
        "_is_repairing",
        "_is_tempted",
        "_preferred",
        "master",
        "propagated",
        "unused",
    )

    def __init__(self, cluster: SessionCluster) -> None:
        self._cluster = cluster
        self._draws = cluster.chance.stream("operators")
        self.master = NodeId(1)
        self.unused: dict[NodeId, None] = {}
        """Machines that the present master does without."""
        self.propagated: Cut | None = None
        """The last that an application was told to be PROPAGATED."""
        self._preferred: NodeId | None = None
        """Whose data counts, if the newest does not."""
        self._is_repairing = False
        self._is_tempted = False
        """Whether the master is given up as soon as it is ahead."""

    def replicas(self) -> tuple[NodeId, ...]:
        """The machines that the master begins sessions with (O1)."""
        others = (node for node in sorted(self._cluster.machines) if node != self.master)
        return tuple(node for node in others if node not in self.unused)

    def is_fit(self, node: NodeId) -> bool:
        """Whether a machine may be the master (O2)."""
        durable = self._cluster.machines[node].disk.durable
        return durable.configuration_id is not None and (
            self.propagated is None or durable.holds(self.propagated)
        )

    def on_propagated(self, cut: Cut | None) -> None:
        """An application was told; it may be that of a master that was given up."""
        if cut is not None and (self.propagated is None or cut.epoch > self.propagated.epoch):
            self.propagated = cut

    # After a failure.

    def master_left(self, machine: SessionMachine, failure: LogError | None) -> None:
        """A master has stopped: because it was told to, or because replication failed."""
        self._cluster.world.kill(machine)
        code = failure.code if isinstance(failure, ReplicaRefused) else 0
        if code in HISTORIES_DIFFER:
            self._resolve()
        else:
            self._start(machine)

    def service_left(self, machine: SessionMachine) -> None:
        """A replica service has stopped since its disk failed."""
        self._cluster.world.kill(machine)
        self._start(machine)

    def _resolve(self) -> None:
        """Histories differ: copy one side, or go on with a replica and without the master."""
        gives_up = self._cluster.may_promote and self._draws.random() < GIVEN_UP
        if gives_up and self._promote(self._draws.randrange(1 << 30), is_left_out=True):
            return
        if not self._is_repairing:
            self._is_repairing = True
            self._repair()

    def _repair(self) -> None:
        """Bring all machines to the same history, as soon as all can be reached."""
        cluster = self._cluster
        used = [cluster.machines[node] for node in (self.master, *self.replicas())]
        if not all(machine.is_up for machine in used if machine.node != self.master):
            cluster.world.plan(PAUSE, self._repair)
            return
        self._is_repairing = False
        for machine in used:
            cluster.world.kill(machine)
        source = self._source(used)
        for machine in used:
            if not machine.disk.durable.is_same(source.disk.durable):
                cluster.sometimes.count(Rare.DATA_COPIED)
                cluster.journal.note(Happened.INSTALL, machine.node, source.node)
                machine.replace(source.disk.durable)
        self._preferred = None
        for machine in used:
            self._start(machine)

    def _source(self, used: list[SessionMachine]) -> SessionMachine:
        """The newest side; or the new master's, if the old one was given up."""
        if self._preferred is not None:
            return self._cluster.machines[self._preferred]
        fit = [machine for machine in used if self.is_fit(machine.node)]
        return max(fit, key=lambda machine: machine.disk.durable.epoch)

    def _start(self, machine: SessionMachine) -> None:
        delay = 1 + self._draws.randrange(PAUSE)
        self._cluster.world.plan(delay, partial(self._cluster.world.start, machine))

    # Changes.

    def promote(self, fault: Fault) -> None:
        """Make another machine the master; or do so when the master is ahead, and leave it out."""
        if fault.strength % 2:
            self._promote(fault.target, is_left_out=fault.strength % 3 == 0)
        else:
            self._is_tempted = True

    def _promote(self, draw: int, *, is_left_out: bool) -> bool:
        """Stop all and start with another master; what only the old one has may go.

        False if no machine is fit for that.
        """
        cluster = self._cluster
        fit = [node for node in self.replicas() if self.is_fit(node)]
        if not fit:
            return False
        cluster.sometimes.count(Rare.PROMOTED)
        former, self.master = self.master, fit[draw % len(fit)]
        self._preferred = self.master if draw // 8 % 2 else None
        cluster.journal.note(Happened.CHANGE, self.master, former)
        if is_left_out and not self.unused:
            cluster.sometimes.count(Rare.FORMER_MASTER_LEFT_OUT)
            self.unused[former] = None
            cluster.world.plan(LEFT_OUT, partial(self.take_back, former))
        for node, machine in cluster.machines.items():
            # Who is given up may still run: it finds out by itself.
            if node not in self.unused or draw // 16 % 2:
                cluster.world.kill(machine)
        for machine in cluster.machines.values():
            self._start(machine)
        return True

    def _give_up(self, draw: int) -> None:
        self._promote(draw, is_left_out=True)

    def on_recorded(self, machine: SessionMachine) -> None:
        """Strike when an epoch was recorded that makes a difference."""
        cluster, epoch = self._cluster, machine.disk.durable.epoch
        if machine.node != self.master:
            return
        for node in self.unused:
            if cluster.machines[node].disk.durable.epoch == epoch:
                # Their last epochs have the same number, and are not the same.
                cluster.world.plan(0, partial(self.take_back, node))
        if self._is_tempted and not cluster.is_healed:
            self._is_tempted = False
            cluster.world.plan(0, partial(self._give_up, epoch))

    def take_back(self, node: NodeId) -> None:
        """Let the master use a machine again: it has to begin new sessions."""
        if node not in self.unused:
            return
        cluster = self._cluster
        del self.unused[node]
        # Whatever it has beyond what the others have, nobody was told that it is safe.
        self._preferred = self.master
        cluster.world.kill(cluster.machines[self.master])
        self._start(cluster.machines[self.master])

    def wipe(self, fault: Fault) -> None:
        """Destroy the disk of a machine, if all others have what was promised (O2)."""
        cluster = self._cluster
        nodes = (self.master, *self.replicas())
        victim = cluster.machines[nodes[fault.target % len(nodes)]]
        others = [node for node in nodes if node != victim.node]
        if not others or not all(map(self.is_fit, others)):
            return
        cluster.sometimes.count(Rare.WIPED)
        cluster.world.kill(victim)
        victim.replace(EpochImage())
        if victim.node == self.master:
            self._promote(fault.target, is_left_out=False)
        else:
            cluster.world.plan(fault.duration, partial(cluster.world.start, victim))
