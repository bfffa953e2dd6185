"""One operator: the real core, which reads the metadata now and then, and may die at any step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.operator.operator import Operator
from tidelog.core.operator.output import OperatorOutput, Result
from tidelog.core.replica.messages import ChangeKind, ToOperator
from tidelog.errors import LogError, RevisionConflict
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND, Process
from tidelog.types import NO_NODE, NodeId, StreamId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster

TICK: Final = 10 * MILLISECOND
READ_EVERY: Final = 4
"""The metadata is read every so many ticks."""
VALIDATE_EVERY: Final = 16


class OperatorProcess(Process):
    """What it knows it knows from the metadata, so it starts with nothing."""

    __slots__ = ("_cluster", "_draws", "_ticks", "operator")

    def __init__(self, cluster: LogCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        self._cluster = cluster
        self._draws = cluster.chance.stream("operator", node)
        self._ticks = 0
        self.operator: Operator

    def on_start(self) -> None:
        self.operator = Operator(self.node, self._cluster.operator_options, self._draws.randrange)
        self.after(self._draws.randrange(TICK), self._tick)

    def on_stop(self, *, power_lost: bool) -> None:
        self._cluster.sometimes.count(Rare.OPERATOR_STOPPED)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way."""
        return not any(self.operator.is_at_work(stream) for stream in self._cluster.streams)

    def receive(self, message: ToOperator) -> None:
        """Take the answer of a storage node."""
        self.operator.step(message)
        self._settle()

    # What a person asks for.

    def elect(self, stream: StreamId) -> None:
        """Begin a new term, whatever the state of the present one is."""
        self.operator.elect(stream)
        self._settle()

    def abort(self, stream: StreamId) -> None:
        """Undo the reconfiguration that is under way."""
        self.operator.abort(stream)
        self._settle()

    def change(self, stream: StreamId, draw: int) -> None:
        """Swap, expand or contract an ensemble."""
        row = self.operator.row(stream)
        if row is None:
            return
        kind = (ChangeKind.SWAP, ChangeKind.EXPAND, ChangeKind.CONTRACT)[draw % 3]
        inside = [node for node in row.ensemble if node != row.leader]
        outside = [node for node in self._cluster.storage if node not in row.ensemble]
        old = new = NO_NODE
        if kind is not ChangeKind.EXPAND:
            if not inside:
                return
            old = inside[draw // 3 % len(inside)]
        if kind is not ChangeKind.CONTRACT:
            if not outside:
                return
            new = outside[draw // 3 % len(outside)]
        self.operator.change(stream, kind, old, new)
        self._settle()

    # The host's duties.

    def _tick(self) -> None:
        self.after(TICK, self._tick)
        self._ticks += 1
        if self._ticks % READ_EVERY == 0:
            self._read()
        self.operator.tick()
        if self._ticks % VALIDATE_EVERY == 0:
            self.operator.validate()
        self._settle()

    def _read(self) -> None:
        """Look at what one of the metadata nodes knows: perhaps not the newest."""
        machine = self._cluster.some_machine(self._draws.randrange(1 << 30))
        if machine is None:
            return
        self.operator.nodes(tuple(sorted(machine.nodes)))
        self.operator.pause(machine.is_paused)
        for node in self._cluster.heard_lately():
            if node in machine.nodes:
                self.operator.heard(node)
        for order in machine.order.streams.values():
            self.operator.view(order, machine.order.topic(order.topic).quorum)

    def _settle(self) -> None:
        while self.operator.has_output:
            self._carry_out(self.operator.take())

    def _carry_out(self, output: OperatorOutput) -> None:
        cluster = self._cluster
        for message in output.messages:
            cluster.network.send(self.node, message.target, message)
        life = self.incarnation
        for update in output.updates:
            cluster.ask(update.command, partial(self._on_answer, life, update.number))
        for outcome in output.outcomes:
            if outcome.result is Result.REFUSED:
                cluster.sometimes.count(Rare.REQUEST_REFUSED)

    def _on_answer(self, life: int, number: int, error: LogError | None) -> None:
        if isinstance(error, RevisionConflict):
            self._cluster.sometimes.count(Rare.UPDATE_CONFLICTED)
        if self.incarnation == life:
            self.world.let(self, partial(self._answered, number, error))

    def _answered(self, number: int, error: LogError | None) -> None:
        self.operator.answered(number, error)
        self._settle()
