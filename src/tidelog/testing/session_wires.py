"""Connections between a master and its replicas.

Invariants:
  V1  what one end of a connection says arrives at the other in its order, or not at all and then
      nothing that was said later does; connections overtake one another freely
  V2  a connection belongs to one life of each process; an end that is closed gets nothing more
  V3  while a path is severed nothing passes it; what was under way waits there
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from tidelog.core.session.messages import Answer, Request
from tidelog.core.session.output import ChannelBatch
from tidelog.formats.session_messages import (
    decode_session_answer,
    decode_session_request,
    encode_session_message,
)
from tidelog.testing.chance import Chance
from tidelog.testing.journal import Happened
from tidelog.testing.network import WIRE_SAMPLE, BreakablePaths, Path, Weather
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.testing.world import MILLISECOND, Action, Process, State, World

CLIENT: Final = 0
SERVER: Final = 1
M = TypeVar("M", Request, Answer)

KEEPALIVE: Final = 300 * MILLISECOND
"""It takes at most so long until somebody knows that the other machine has lost its power."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request with what is attached to it."""

    message: Request
    batches: tuple[ChannelBatch, ...] = ()
    data: bytes = b""


class Wire:
    """One connection; ``number`` names it."""

    __slots__ = ("closed", "ends", "lives", "number", "soonest", "stalled")

    def __init__(self, number: int, client: Endpoint, server: Endpoint) -> None:
        self.number = number
        self.ends = (client, server)
        self.lives = [client.incarnation, 0]
        self.closed = [False, False]
        self.soonest = [0, 0]
        """When the next thing may arrive at each end."""
        self.stalled: tuple[list[Action], list[Action]] = ([], [])
        """What waits for its path, by the end that it goes to."""

    def path_to(self, end: int) -> Path:
        """The way of what is said to an end."""
        return self.ends[1 - end].node, self.ends[end].node

    def end_of(self, process: Process) -> int:
        """Which end a process has."""
        return CLIENT if self.ends[CLIENT] is process else SERVER


class Endpoint(Process):
    """A process that has connections."""

    __slots__ = ()

    def on_connected(self, wire: Wire) -> None:
        """Somebody has connected."""

    def on_asked(self, wire: Wire, asked: Asked) -> None:
        """A client asks for something."""

    def on_answered(self, wire: Wire, answer: Answer) -> None:
        """A server has answered."""

    def on_lost(self, wire: Wire) -> None:
        """The other end is gone."""


class Wires(BreakablePaths):
    """All connections of a simulation."""

    __slots__ = (
        "_chance",
        "_on_stray",
        "_opened",
        "_sent",
        "_sometimes",
        "_wires",
    )

    def __init__(
        self,
        world: World,
        chance: Chance,
        weather: Weather,
        sometimes: Sometimes,
        on_stray: Callable[[Request | Answer], None],
    ) -> None:
        super().__init__(world, weather)
        self._sometimes = sometimes
        self._chance = chance.stream("wires")
        self._wires: dict[int, Wire] = {}
        self._opened = 0
        self._sent = 0
        self._on_stray = on_stray

    # What processes do.

    def connect(self, client: Endpoint, server: Endpoint) -> Wire:
        """Connect; the client may speak at once, and learns later if nobody listens."""
        self._opened += 1
        wire = self._wires[self._opened] = Wire(self._opened, client, server)
        self._plan(wire, SERVER, partial(self._accept, wire))
        return wire

    def ask(self, wire: Wire, asked: Asked) -> None:
        """Say something as the client."""
        if self._is_sample():
            _check_bytes(asked.message, decode_session_request)
        if not wire.closed[CLIENT]:
            hand_over = partial(wire.ends[SERVER].on_asked, wire, asked)
            self._plan(wire, SERVER, partial(self._deliver, wire, SERVER, asked.message, hand_over))

    def answer(self, wire: Wire, answer: Answer) -> None:
        """Say something as the server."""
        if self._is_sample():
            _check_bytes(answer, decode_session_answer)
        if not wire.closed[SERVER]:
            hand_over = partial(wire.ends[CLIENT].on_answered, wire, answer)
            self._plan(wire, CLIENT, partial(self._deliver, wire, CLIENT, answer, hand_over))

    def _is_sample(self) -> bool:
        self._sent += 1
        return self._sent % WIRE_SAMPLE == 0

    def hang(self, wire: Wire, closer: int) -> None:
        """Close one's own end, behind all that was said."""
        if not wire.closed[closer]:
            self._close(wire, closer)
            self._plan(wire, 1 - closer, partial(self._lose, wire, 1 - closer))

    # What happens to them.

    def open_wires(self, process: Process) -> list[Wire]:
        """The connections of a process that are open at its end, oldest first."""
        return [
            wire
            for wire in self._wires.values()
            if process in wire.ends and not wire.closed[wire.end_of(process)]
        ]

    def reset(self, wire: Wire) -> None:
        """Break a connection: each end learns it on its own, and what is under way may be lost."""
        for end in (CLIENT, SERVER):
            delay = int(self._chance.expovariate(1.0) * MILLISECOND)
            self._world.plan(delay, partial(self._lose, wire, end))

    def stopped(self, process: Process, *, power_lost: bool) -> None:
        """A process has ended; its machine says so, if it still can."""
        for wire in self.open_wires(process):
            end = wire.end_of(process)
            self._close(wire, end)
            tell = partial(self._lose, wire, 1 - end)
            if power_lost:
                self._world.plan(self._chance.randrange(KEEPALIVE), tell)
            else:
                self._plan(wire, 1 - end, tell)

    def mend(self, paths: tuple[Path, ...]) -> None:
        super().mend(paths)
        self._release()

    def clear(self) -> None:
        super().clear()
        self._release()

    # On the way.

    def _plan(self, wire: Wire, target: int, action: Action) -> None:
        """Let something arrive, behind all that was said before (V1)."""
        weather = self.weather
        delay = weather.delay_min + int(self._chance.expovariate(1.0) * weather.delay_mean)
        arrival = max(self._world.now + delay, wire.soonest[target])
        if self._held:
            arrival = max(arrival, self._held.get(wire.path_to(target), 0))
        wire.soonest[target] = arrival
        self._world.plan(arrival - self._world.now, partial(self._arrive, wire, target, action))

    def _arrive(self, wire: Wire, target: int, action: Action) -> None:
        if self._severed and wire.path_to(target) in self._severed:
            wire.stalled[target].append(action)
        else:
            action()

    def _release(self) -> None:
        """Let go what waited for paths that are whole again, before anything that comes later."""
        for wire in list(self._wires.values()):
            for target in (CLIENT, SERVER):
                if wire.stalled[target] and wire.path_to(target) not in self._severed:
                    waiting = list(wire.stalled[target])
                    wire.stalled[target].clear()
                    for action in waiting:
                        action()

    # Arrivals.

    def _accept(self, wire: Wire) -> None:
        server = wire.ends[SERVER]
        wire.lives[SERVER] = server.incarnation
        if wire.closed[SERVER]:
            return
        if server.is_up:
            self._world.let(server, partial(server.on_connected, wire))
        else:
            self._close(wire, SERVER)
            self._plan(wire, CLIENT, partial(self._lose, wire, CLIENT))

    def _deliver(
        self, wire: Wire, target: int, message: Request | Answer, hand_over: Action
    ) -> None:
        process = wire.ends[target]
        if wire.closed[target]:
            self._on_stray(message)
            # The machine says that nobody is there any more.
            self._plan(wire, 1 - target, partial(self._lose, wire, 1 - target))
            return
        if process.state is State.PAUSED:
            self._sometimes.count(Rare.MESSAGE_FOR_A_PAUSED_PROCESS)
        self._world.let(process, partial(self._hand_over, wire, target, message, hand_over))

    def _hand_over(
        self, wire: Wire, target: int, message: Request | Answer, hand_over: Action
    ) -> None:
        if not wire.closed[target]:
            source, node = wire.path_to(target)
            self._world.journal.note(Happened.DELIVER, node, source, wire.number, message)
            hand_over()

    def _lose(self, wire: Wire, target: int) -> None:
        process = wire.ends[target]
        if wire.closed[target]:
            return
        if process.incarnation != wire.lives[target]:
            self._close(wire, target)  # It was never accepted.
        else:
            self._world.let(process, partial(self._hand_over_loss, wire, target))

    def _hand_over_loss(self, wire: Wire, target: int) -> None:
        if not wire.closed[target]:
            self._close(wire, target)
            source, node = wire.path_to(target)
            self._world.journal.note(Happened.LOSE, node, source, wire.number)
            wire.ends[target].on_lost(wire)

    def _close(self, wire: Wire, end: int) -> None:
        wire.closed[end] = True
        if all(wire.closed):
            self._wires.pop(wire.number, None)


def _check_bytes(message: M, decode: Callable[[bytes], M]) -> None:
    """Check that a message survives its way through bytes."""
    back = decode(encode_session_message(message))
    if back != message:
        raise Violation("wire", f"{message} came back as {back}")
