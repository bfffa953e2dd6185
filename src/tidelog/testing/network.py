"""The network between the processes: it loses, delays, repeats, reorders and breaks.

Messages are objects; a sample of them goes through bytes and back, to prove that they survive
the wire.

Invariants:
  K1  a message arrives at no process but its target, unchanged
  K2  without reordering, what one process sends to another arrives in the order it was sent
  K3  nothing passes a path while it is severed, in flight or not
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from tidelog.invariants import check
from tidelog.testing.chance import Chance
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.testing.world import Process, State, World
from tidelog.types import NodeId

M = TypeVar("M")
Path: TypeAlias = tuple[NodeId, NodeId]

WIRE_SAMPLE: Final = 16
"""One of so many messages is encoded and decoded."""
REPEAT_DELAY_FACTOR: Final = 8
"""A repeated message comes this much later than one that is only delayed."""


class Weather(msgspec.Struct, frozen=True):
    """How bad the network is all the time; times in microseconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_min: int = 200
    delay_mean: int = 300
    reordering: bool = False


FAIR: Final = Weather()


class BreakablePaths:
    """The paths between processes, and what is wrong with them."""

    __slots__ = ("_held", "_severed", "_world", "weather")

    def __init__(self, world: World, weather: Weather) -> None:
        self.weather = weather
        self._world = world
        self._severed: dict[Path, int] = {}
        self._held: dict[Path, int] = {}

    def sever(self, paths: tuple[Path, ...]) -> None:
        """Let nothing pass these ways, until each of them is mended."""
        for path in paths:
            self._severed[path] = self._severed.get(path, 0) + 1

    def mend(self, paths: tuple[Path, ...]) -> None:
        """Take back one ``sever`` of these ways."""
        for path in paths:
            left = self._severed.get(path, 0) - 1
            check(left >= 0, "K3: a path was mended that was not severed")
            if left:
                self._severed[path] = left
            else:
                del self._severed[path]

    def clog(self, path: Path, duration: int) -> None:
        """Hold back all that is sent on a path; it arrives in one go afterwards."""
        self._held[path] = max(self._held.get(path, 0), self._world.now + duration)

    def clear(self) -> None:
        """Mend everything, and let the weather be fair."""
        self._severed.clear()
        self._held.clear()
        self.weather = FAIR


class Network(BreakablePaths, Generic[M]):
    """Carries messages of one type; ``receive`` hands one to a process that runs."""

    __slots__ = (
        "_delays",
        "_losses",
        "_processes",
        "_receive",
        "_repeats",
        "_sent",
        "_sometimes",
        "_soonest",
        "_wire",
        "held_until",
    )

    def __init__(
        self,
        world: World,
        chance: Chance,
        weather: Weather,
        sometimes: Sometimes,
        receive: Callable[[NodeId, M], None],
        wire: Callable[[M], M],
    ) -> None:
        super().__init__(world, weather)
        self._sometimes = sometimes
        self._receive = receive
        self._wire = wire
        self._processes: dict[NodeId, Process] = {}
        self._losses = chance.stream("network", "loss")
        self._repeats = chance.stream("network", "duplication")
        self._delays = chance.stream("network", "delay")
        self._sent = 0
        self._soonest: dict[Path, int] = {}
        self.held_until = 0
        """No message that a clogged path held back arrives later than this."""

    def connect(self, process: Process) -> None:
        """Let messages reach a process."""
        self._processes[process.node] = process

    def send(self, source: NodeId, target: NodeId, message: M) -> None:
        """Take a message; whether and when it arrives is a matter of luck."""
        self._sent += 1
        if self._sent % WIRE_SAMPLE == 0:
            message = self._through_bytes(message)
        weather = self.weather
        if weather.loss and self._losses.random() < weather.loss:
            self._lose(source, target, message)
            return
        self._carry((source, target), message, 1)
        if weather.duplication and self._repeats.random() < weather.duplication:
            self._sometimes.count(Rare.MESSAGE_REPEATED)
            self._carry((source, target), message, REPEAT_DELAY_FACTOR)

    def _carry(self, path: Path, message: M, slowness: int) -> None:
        weather = self.weather
        delay = weather.delay_min + int(self._delays.expovariate(1.0) * weather.delay_mean)
        arrival = self._world.now + delay * slowness
        arrival = max(arrival, self._held.get(path, 0))
        if not weather.reordering and slowness == 1:
            arrival = max(arrival, self._soonest.get(path, 0))
            self._soonest[path] = arrival
        self._world.plan(arrival - self._world.now, partial(self._arrive, path, message))

    def _arrive(self, path: Path, message: M) -> None:
        source, target = path
        process = self._processes.get(target)
        if process is None or not process.is_up or path in self._severed:
            self._lose(source, target, message)
            return
        if process.state is State.PAUSED:
            self._sometimes.count(Rare.MESSAGE_FOR_A_PAUSED_PROCESS)
        self._world.let(process, partial(self._hand_over, source, target, message))

    def _hand_over(self, source: NodeId, target: NodeId, message: M) -> None:
        self._world.journal.note(Happened.DELIVER, target, source, 0, message)
        self._receive(target, message)

    def _lose(self, source: NodeId, target: NodeId, message: M) -> None:
        self._world.journal.note(Happened.LOSE, target, source, 0, message)

    def _through_bytes(self, message: M) -> M:
        back = self._wire(message)
        if back != message:
            raise Violation("wire", f"{message} came back as {back}")
        return back

    def clog(self, path: Path, duration: int) -> None:
        super().clog(path, duration)
        self.held_until = max(self.held_until, self._held[path])
