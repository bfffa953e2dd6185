"""The shell of an operator: gives the core time, signs of life and the metadata, and acts for it.

H1  the core is told the outcome of each write once, and it is never guessed: no error only if the
    repository said that this very write was applied
H2  a view that is older than the last one is not taken
H3  a node lives that is heard and answers: one that hears nobody leads nobody
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from prometheus_client.core import Metric

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.output import OperatorOutput, Refused, Result, Update
from tidelog.core.operator.steering import Draw
from tidelog.errors import BadFrame, LogError
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    NodeToOperator,
    OperatorOutcome,
    OperatorRequest,
    Ping,
    Pong,
    for_node,
    of_node,
)
from tidelog.runtime.events import tell
from tidelog.runtime.operator_node.asking import Askers
from tidelog.runtime.operator_node.counters import OperatorCounters, operator_metrics
from tidelog.runtime.operator_node.steps import Step, step_of
from tidelog.runtime.operator_node.timing import OperatorTiming
from tidelog.runtime.ticks import next_tick
from tidelog.types import NodeId, StreamId

_logger: Final = logging.getLogger(__name__)
_VALIDATE_EVERY: Final = 256
"""Ticks between two checks of all invariants."""
_WRITE_SECONDS: Final = 5.0
"""What a write of metadata may take before its outcome counts as unknown."""


class Messenger(Protocol):
    """What an operator needs of ``Post``."""

    def send(self, target: NodeId, message: ClusterMessage) -> None: ...

    def on(
        self, kinds: tuple[type, ...], receive: Callable[[NodeId, ClusterMessage], None]
    ) -> None: ...

    def silent_seconds(self, node: NodeId) -> float: ...


class Repository(Protocol):
    """What an operator needs of ``MetadataClient``."""

    @property
    def view(self) -> MetadataView | None: ...

    def on_view(self, told: Callable[[MetadataView], None]) -> None: ...

    async def ask(self, change: Change, *, seconds: float) -> None: ...


class OperatorNode:
    """Belongs to one event loop.  It keeps nothing: all that it knows it reads again."""

    def __init__(
        self,
        *,
        node: NodeId,
        post: Messenger,
        metadata: Repository,
        timing: OperatorTiming | None = None,
        on_failure: Callable[[BaseException], None],
        draw: Draw = secrets.randbelow,
    ) -> None:
        self.timing = timing or OperatorTiming()
        self.counters = OperatorCounters()
        self.operator = Operator(node, self.timing.options(), draw)
        self._node = node
        self._post = post
        self._metadata = metadata
        self._on_failure = on_failure
        self._askers = Askers()
        self._nodes: tuple[NodeId, ...] = ()
        self._streams: dict[StreamId, None] = {}
        self._told: dict[StreamId, tuple[Step, int]] = {}
        self._suspected: dict[NodeId, None] = {}
        self._seen = -1
        self._pinged: dict[NodeId, int] = {}
        """When each node may be asked again, in ticks."""
        self._answered: dict[NodeId, int] = {}
        """When each node answered last, in ticks."""
        self.ticks = 0
        """Since the start."""
        self._due = 0.0
        self._ticking: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def start(self) -> None:
        """Begin to watch."""
        self._post.on((Pong,), self._on_pong)
        self._post.on((NodeToOperator,), self._on_answer)
        self._post.on((OperatorRequest,), self._on_request)
        self._metadata.on_view(self._on_view)
        if self._metadata.view is not None:
            self._on_view(self._metadata.view)
        self._plan_tick()

    async def stop(self) -> None:
        """Leave everything as it is: whoever comes next acts on what it finds."""
        self._is_stopped = True
        if self._ticking is not None:
            self._ticking.cancel()
        for write in self._writes:
            write.cancel()
        if self._writes:
            await asyncio.wait(self._writes)

    def metrics(self) -> Iterator[Metric]:
        """For /metrics."""
        counters, operator = self.counters, self.operator
        counters.streams = len(self._streams)
        counters.suspected = sum(map(operator.is_suspected, self._nodes))
        counters.at_work = sum(map(operator.is_at_work, self._streams))
        return operator_metrics(operator, counters)

    # -- time -----------------------------------------------------------------------------------

    def _plan_tick(self) -> None:
        """From now on if this one is late: who was held up itself suspects nobody for it."""
        loop = asyncio.get_running_loop()
        self._due = next_tick(max(self._due, loop.time()), self.timing.tick, self._node)
        self._ticking = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._plan_tick()
        self.ticks += 1
        self._look_for_life()
        self.operator.tick()
        if self.ticks % _VALIDATE_EVERY == 0:
            self.operator.validate()
        self._tell_suspects()
        self._settle()

    def _look_for_life(self) -> None:
        """Note who was heard since the last tick (H3), and ask who is silent to answer."""
        tick, ticks = self.timing.tick, self.ticks
        for node in self._nodes:
            silent = self._post.silent_seconds(node)
            unanswered = ticks - self._answered.setdefault(node, ticks)
            if silent <= tick and unanswered <= self.timing.answer_ticks:
                self.operator.heard(node)
            is_due = silent >= self._patience(node) or 2 * unanswered >= self.timing.answer_ticks
            if is_due and self._pinged.get(node, 0) <= ticks:
                self._pinged[node] = ticks + self.timing.ping_ticks
                self._post.send(node, Ping(ticks))

    def _patience(self, node: NodeId) -> float:
        """How long a node may be silent.  Of two operators one asks: a question is a sign, too."""
        ping, tick = self.timing.ping, self.timing.tick
        return ping - tick / 2 if self._node < node else ping + tick / 2

    def _tell_suspects(self) -> None:
        for node in self._nodes:
            is_suspected = self.operator.is_suspected(node)
            if is_suspected and node not in self._suspected:
                self._suspected[node] = None
                tell(_logger, "node lost", logging.WARNING, storage=node)
            elif not is_suspected and node in self._suspected:
                del self._suspected[node]
                tell(_logger, "node found", storage=node)

    # -- what comes in --------------------------------------------------------------------------

    def _on_view(self, view: MetadataView) -> None:
        if self._is_stopped or not self._is_news(view):
            return
        self._seen = view.number
        operator = self.operator
        if view.is_paused != self.counters.is_paused:
            tell(_logger, "operator paused" if view.is_paused else "operator goes on")
        self.counters.is_paused = view.is_paused
        operator.pause(view.is_paused)
        self._nodes = tuple(each.node for each in view.nodes)
        self._suspected = {node: None for node in self._suspected if node in self._nodes}
        self._pinged = {node: due for node, due in self._pinged.items() if node in self._nodes}
        self._answered = {node: at for node, at in self._answered.items() if node in self._nodes}
        operator.nodes(self._nodes)
        quorums = {topic.topic: topic.quorum for topic in view.topics}
        for order in view.streams:
            operator.view(order, quorums[order.topic])
        streams = {order.stream: None for order in view.streams}
        for stream in self._streams:
            if stream not in streams:
                operator.gone(stream)
                self._told.pop(stream, None)
        self._streams = streams
        self._settle()

    def _is_news(self, view: MetadataView) -> bool:
        """Whether a view is newer than what was seen (H2)."""
        return view.number > self._seen

    def _on_pong(self, source: NodeId, _: ClusterMessage) -> None:
        self._answered[source] = self.ticks
        self.operator.heard(source)

    def _on_answer(self, source: NodeId, wrapped: ClusterMessage) -> None:
        if self._is_stopped or not isinstance(wrapped, NodeToOperator):
            return
        try:
            message = of_node(wrapped)
        except (BadFrame, LogError):
            self.counters.refused_messages += 1
            return
        if message.source != source:
            self.counters.refused_messages += 1
            return
        self.operator.step(message)
        self._settle()

    def _on_request(self, source: NodeId, request: ClusterMessage) -> None:
        if self._is_stopped or not isinstance(request, OperatorRequest):
            return
        if self._askers.is_known(source, request.number):
            answer = self._askers.answer_of(source, request.number)
            if answer is not None:
                self._post.send(source, answer)
            return
        number = self._carry_on(request)
        if number is None:
            self._post.send(source, _malformed(request.number))
            return
        self._askers.begin(number, source, request.number)
        self._settle()

    def _carry_on(self, request: OperatorRequest) -> int | None:
        """Let the core do what a person wants; return the core's number, None if it is nonsense."""
        operator, stream = self.operator, request.stream
        if request.action == "elect":
            return operator.elect(stream, request.prefer)
        if request.action == "abort":
            return operator.abort(stream)
        if request.kind is None:
            return None
        return operator.change(stream, request.kind, request.old, request.new)

    # -- what goes out --------------------------------------------------------------------------

    def _settle(self) -> None:
        while self.operator.has_output:
            self._carry_out(self.operator.take())

    def _carry_out(self, output: OperatorOutput) -> None:
        for message in output.messages:
            self._post.send(message.target, for_node(message))
        for update in output.updates:
            write = asyncio.get_running_loop().create_task(self._write(update))
            self._writes.add(write)
            write.add_done_callback(self._on_written)
        for outcome in output.outcomes:
            self.counters.requests[outcome.result.name.lower()] += 1
            answer = self._askers.end(outcome)
            if answer is not None:
                self._post.send(*answer)

    async def _write(self, update: Update) -> None:
        error: LogError | None = None
        try:
            await self._metadata.ask(update.command, seconds=_WRITE_SECONDS)
        except LogError as raised:
            error = raised
        self.counters.writes["applied" if error is None else type(error).__name__] += 1
        if error is None:
            self._tell_step(update)
        self.operator.answered(update.number, error)
        self._settle()

    def _tell_step(self, update: Update) -> None:
        """An election may write more than once in its term; that is told once."""
        command, stepped = update.command, step_of(update.command)
        if stepped is None or self._told.get(command.stream) == (stepped.step, command.term):
            return
        self._told[command.stream] = stepped.step, command.term
        self.counters.steps[stepped.step.value] += 1
        tell(_logger, stepped.step.value, **stepped.fields)

    def _on_written(self, write: asyncio.Task[None]) -> None:
        self._writes.discard(write)
        if not write.cancelled() and (error := write.exception()) is not None:
            self._on_failure(error)


def _malformed(number: int) -> OperatorOutcome:
    return OperatorOutcome(number, Result.REFUSED, Refused.MALFORMED)
