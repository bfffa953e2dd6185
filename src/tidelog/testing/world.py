"""Virtual time, and the processes that live in it.

One heap of events orders everything; two events of the same time happen in the order in which
they were planned.  A process is told nothing of the world: it gets ticks and messages, and plans
what it waits for.

Invariants:
  W1  time never goes back
  W2  what a process planned dies with it: a restarted process meets no event of its former life
  W3  while a process is paused nothing happens to it; what came for it in the meantime happens
      when it goes on, in its order.  Ticks are missed, since a tick plans the next one
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import Enum
from typing import Final, TypeAlias

from tidelog.invariants import check
from tidelog.testing.disk_faults import SimulatedCrash
from tidelog.testing.journal import Happened, Journal
from tidelog.types import NodeId

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000

Action: TypeAlias = Callable[[], None]


class State(Enum):
    """Whether a process runs."""

    DOWN = "down"
    UP = "up"
    PAUSED = "paused"
    GONE = "gone"
    """Its disk is lost: it never comes back under this number."""


class Process:
    """One program on one machine; subclasses say what it does."""

    __slots__ = ("backlog", "clock_percent", "incarnation", "node", "state", "world")

    def __init__(self, world: World, node: NodeId) -> None:
        self.world = world
        self.node = node
        self.state = State.DOWN
        self.incarnation = 0
        self.backlog: list[Action] = []
        self.clock_percent = 100
        """How long this machine takes for what its clock calls 100."""

    @property
    def is_up(self) -> bool:
        """Whether it runs, paused or not."""
        return self.state is State.UP or self.state is State.PAUSED

    def after(self, delay: int, action: Action) -> None:
        """Plan something for this life of the process, by its own clock."""
        self.world.plan(delay * self.clock_percent // 100, action, self)

    def on_start(self) -> None:
        """Begin a life, from what is on the disk."""

    def on_stop(self, *, power_lost: bool) -> None:
        """End a life: all but the disk is gone, and of the disk what was not synced."""


class World:
    """The clock and the heap of what is to come."""

    __slots__ = ("_heap", "_planned", "happened", "journal", "on_disk_crash")

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.happened = 0
        """How many events there were."""
        self.on_disk_crash: Callable[[Process], None] = self.crash
        """Called when a process dies by a crash point of its disk."""
        self._heap: list[tuple[int, int, Process | None, int, Action]] = []
        self._planned = 0

    @property
    def now(self) -> int:
        """Microseconds since the begin."""
        return self.journal.now

    # Time.

    def plan(self, delay: int, action: Action, process: Process | None = None) -> None:
        """Let something happen ``delay`` from now: to the world, or to a life of a process."""
        self._planned += 1
        life = 0 if process is None else process.incarnation
        heapq.heappush(self._heap, (self.journal.now + delay, self._planned, process, life, action))

    def run_until(self, time: int, stop: Callable[[], bool] | None = None) -> bool:
        """Let everything happen that is planned up to ``time``; True if ``stop`` ended it."""
        check(time >= self.journal.now, "W1: time went back")
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.step()
            if stop is not None and stop():
                return True
        self.journal.now = time
        return False

    def step(self) -> None:
        """Let the next event happen."""
        time, _, process, life, action = heapq.heappop(self._heap)
        check(time >= self.journal.now, "W1: time went back")
        self.journal.now = time
        if process is None:
            self.happened += 1
            action()
        elif process.incarnation == life:
            self.let(process, action)

    def let(self, process: Process, action: Action) -> None:
        """Let something happen to a process now, or when it goes on."""
        if process.state is State.PAUSED:
            process.backlog.append(action)
        elif process.state is State.UP:
            self.happened += 1
            try:
                action()
            except SimulatedCrash:
                self.on_disk_crash(process)

    # Lives.

    def start(self, process: Process) -> None:
        """Begin a life of a process that is down."""
        if process.state is not State.DOWN:
            return
        process.state = State.UP
        process.incarnation += 1
        self.journal.note(Happened.START, process.node, process.incarnation)
        self.let(process, process.on_start)

    def crash(self, process: Process) -> None:
        """Cut the power of a machine: what was not synced may be lost."""
        self._stop(process, Happened.CRASH)

    def kill(self, process: Process) -> None:
        """Kill a process; its machine goes on, so the disk keeps what was written."""
        self._stop(process, Happened.KILL)

    def wipe(self, process: Process) -> None:
        """Destroy a machine with its disk."""
        self._stop(process, Happened.WIPE)
        process.state = State.GONE

    def _stop(self, process: Process, how: Happened) -> None:
        if not process.is_up:
            return
        process.state = State.DOWN
        process.incarnation += 1
        process.backlog.clear()
        self.journal.note(how, process.node, process.incarnation)
        process.on_stop(power_lost=how is Happened.CRASH)

    def pause(self, process: Process) -> None:
        """Let a process stand still."""
        if process.state is State.UP:
            process.state = State.PAUSED
            self.journal.note(Happened.PAUSE, process.node)

    def resume(self, process: Process) -> None:
        """Let a paused process go on with all that came meanwhile."""
        if process.state is not State.PAUSED:
            return
        process.state = State.UP
        waiting, process.backlog = process.backlog, []
        self.journal.note(Happened.RESUME, process.node, len(waiting))
        life = process.incarnation
        for action in waiting:
            if process.incarnation == life:
                self.let(process, action)
