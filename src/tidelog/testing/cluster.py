"""Machines in a world, and the faults that strike them; what they run is for subclasses to say.

Invariants:
  B1  every fault ends: a crashed process is started again, a severed path is mended
  B2  after ``heal`` there are no faults, and every machine that still has its disk runs
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Final

from tidelog.testing.faults import Fault, FaultClass, Plan
from tidelog.testing.journal import Happened, Journal
from tidelog.testing.machine_disk import MachineDisk
from tidelog.testing.network import BreakablePaths, Path
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.world import MILLISECOND, Process, State, World
from tidelog.types import NodeId

DISK_CALLS_MAX: Final = 12
"""A crash inside a disk call strikes one of the next so many."""
RESTART_AFTER_DISK_CRASH: Final = 5 * MILLISECOND


class Cluster(ABC):
    """The processes of one simulation."""

    network: BreakablePaths
    """Made by the subclass."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = plan.chance
        self.journal = Journal()
        self.sometimes = Sometimes()
        self.world = World(self.journal)
        self.world.on_disk_crash = self._crashed_in_disk_call
        self.processes: dict[NodeId, Process] = {}
        self.disks: dict[NodeId, MachineDisk] = {}
        self.is_healed = False
        self._clocks = self.chance.stream("clocks")
        self._around_campaigns = [
            fault for fault in plan.faults if fault.what is FaultClass.SHORT_RESTART
        ]
        for fault in plan.faults:
            if fault.what is not FaultClass.SHORT_RESTART:
                self.world.plan(fault.at, partial(self._strike, fault))

    # For subclasses.

    @abstractmethod
    def run(self) -> None:
        """Live through all faults, heal, converge; raise ``Violation`` if a promise is broken."""

    @abstractmethod
    def leader(self) -> NodeId | None:
        """Return the node that is worth most as a victim."""

    @abstractmethod
    def carry_out(self, fault: Fault) -> None:
        """Do what only this kind of cluster can do."""

    def severed_paths(self, fault: Fault) -> tuple[Path, ...]:
        """Return what a partition severs, or a fault of one direction."""
        return severed_paths(fault, sorted(self.processes))

    def add(self, process: Process, disk: MachineDisk) -> None:
        """Put a machine into the world; it is not started."""
        spread = self.plan.clock_spread_percent
        if spread:
            # From half to double speed.
            process.clock_percent = self._clocks.randrange(100 - spread, 101 + 2 * spread)
        self.processes[process.node] = process
        self.disks[process.node] = disk

    # Faults.

    def on_campaign(self, node: NodeId, campaigns: int) -> None:
        """Plan the restarts around the ``campaigns``-th campaign, which is that of ``node``."""
        if self.is_healed:
            return
        for fault in self._around_campaigns:
            if fault.at == campaigns:
                delay = fault.strength % (20 * MILLISECOND)
                self.world.plan(delay, partial(self._restart_shortly, fault, node))

    def _restart_shortly(self, fault: Fault, candidate: NodeId) -> None:
        victim = self.processes[candidate] if fault.target % 3 == 0 else self._victim(fault)
        if self.is_healed or victim is None or not victim.is_up:
            return
        self._note(fault)
        self.sometimes.count(Rare.CRASHED_AROUND_CAMPAIGN)
        self._crash(victim, fault.duration)

    def _strike(self, fault: Fault) -> None:
        if self.is_healed:
            return
        self._note(fault)
        match fault.what:
            case FaultClass.PARTITION | FaultClass.ONE_WAY:
                self._sever(fault)
            case FaultClass.CLOG:
                self._clog(fault)
            case FaultClass.POWER_LOSS:
                self._lose_all_power(fault)
            case FaultClass.CRASH | FaultClass.KILL | FaultClass.PAUSE | FaultClass.DISK_CRASH:
                victim = self._victim(fault)
                if victim is not None:
                    self._strike_process(fault, victim)
            case _:
                self.carry_out(fault)

    def _strike_process(self, fault: Fault, victim: Process) -> None:
        match fault.what:
            case FaultClass.CRASH:
                self._crash(victim, fault.duration)
            case FaultClass.KILL:
                self.sometimes.count(Rare.KILLED)
                self.world.kill(victim)
                self._start_after(victim, fault.duration)
            case FaultClass.PAUSE:
                self.world.pause(victim)
                self.world.plan(fault.duration, partial(self.world.resume, victim))
            case _:
                calls = 1 + fault.strength % DISK_CALLS_MAX
                self.disks[victim.node].crash_after(calls, cut=fault.target % 2 == 0)

    def _victim(self, fault: Fault) -> Process | None:
        """Return a process that runs: the leader more often than others."""
        running = [process for _, process in sorted(self.processes.items()) if process.is_up]
        if not running:
            return None
        leader = self.leader()
        if leader is not None and fault.target % 4 == 0 and self.processes[leader].is_up:
            return self.processes[leader]
        return running[fault.target // 4 % len(running)]

    def _crash(self, process: Process, duration: int) -> None:
        self.sometimes.count(Rare.POWER_LOST)
        self.world.crash(process)
        self._start_after(process, duration)

    def _crashed_in_disk_call(self, process: Process) -> None:
        self.sometimes.count(Rare.CRASHED_IN_A_DISK_CALL)
        self._crash(process, RESTART_AFTER_DISK_CRASH)

    def _lose_all_power(self, fault: Fault) -> None:
        self.sometimes.count(Rare.EVERY_MACHINE_LOST_POWER)
        for number, (_, process) in enumerate(sorted(self.processes.items())):
            if process.is_up:
                self._crash(process, fault.duration * (1 + fault.strength % (2 + number)))

    def _start_after(self, process: Process, duration: int) -> None:
        self.world.plan(duration, partial(self.world.start, process))

    def _sever(self, fault: Fault) -> None:
        paths = self.severed_paths(fault)
        rare = Rare.PARTITIONED if fault.what is FaultClass.PARTITION else Rare.SEVERED_ONE_WAY
        self.sometimes.count(rare)
        self.network.sever(paths)
        self.world.plan(fault.duration, partial(self._mend, paths))

    def _mend(self, paths: tuple[Path, ...]) -> None:
        if not self.is_healed:
            self.network.mend(paths)

    def _clog(self, fault: Fault) -> None:
        nodes = sorted(self.processes)
        source = nodes[fault.target % len(nodes)]
        for number, target in enumerate(nodes):
            if fault.strength >> number & 1 and target != source:
                self.network.clog((source, target), fault.duration)

    def _note(self, fault: Fault) -> None:
        self.journal.note(Happened.FAULT, 0, fault.number, fault.duration, fault)

    # The end of all faults.

    def heal(self) -> None:
        """End every fault and start what is down."""
        self.is_healed = True
        self.journal.note(Happened.HEAL, 0)
        self.network.clear()
        for node, process in sorted(self.processes.items()):
            self.disks[node].crash_no_more()
            if process.state is State.PAUSED:
                self.world.resume(process)
            elif process.incarnation:
                self.world.start(process)


def severed_paths(fault: Fault, nodes: list[NodeId]) -> tuple[Path, ...]:
    """Return the paths that a partition severs: isolate one, split, or split with a bridge.

    A one-way fault severs what one side says to the other.
    """
    if len(nodes) < 2:
        return ()
    if fault.strength % 3 == 0:
        left = [nodes[fault.target % len(nodes)]]
    else:
        left = [node for place, node in enumerate(nodes) if fault.target >> place & 1]
    right = [node for node in nodes if node not in left]
    if fault.strength % 3 == 2 and len(nodes) > 2:
        # The bridge is on neither side: both reach it.
        bridge = nodes[fault.strength // 3 % len(nodes)]
        left = [node for node in left if node != bridge]
        right = [node for node in right if node != bridge]
    paths = [(a, b) for a in left for b in right]
    if fault.what is FaultClass.PARTITION:
        paths += [(b, a) for a, b in paths]
    elif fault.strength // 7 % 2:
        paths = [(b, a) for a, b in paths]
    return tuple(paths)
