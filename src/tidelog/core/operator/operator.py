"""One operator, as a deterministic machine: it finds streams their leaders and their ensembles.

Input: rows of the metadata repository, answers of nodes, signs of life, ticks, what a person asks
for.  Output: ``take``; see ``output`` for what the host owes in return.  Any number of operators
may run: they meet in the compare-and-set of the rows, and cost one another time, never data.
No state of its own: ``steering`` has it, with its invariants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.output import OperatorOutput, Refused, Result
from tidelog.core.operator.plan import Change, Phase
from tidelog.core.operator.reconfiguration import Reconfiguration
from tidelog.core.operator.refusals import refuse_abort, refuse_change
from tidelog.core.operator.row import Row, read_row
from tidelog.core.operator.steering import Draw, Steering
from tidelog.core.operator.tending import take_answer
from tidelog.core.order.commands import Quorum
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import ChangeKind, ToOperator
from tidelog.errors import CorruptData, LogError
from tidelog.types import NO_NODE, NodeId, StreamId

__all__ = ["Draw", "Operator"]


class Operator:
    """One operator; see the module's text."""

    __slots__ = ("_ignored", "_steering")

    def __init__(self, node: NodeId, options: OperatorOptions, draw: Draw) -> None:
        self._steering = Steering(node, options, draw)
        self._ignored: dict[Ignored, int] = {}

    # -- what comes in --------------------------------------------------------------------------

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._steering.tick()

    def step(self, message: ToOperator) -> None:
        """Take the answer of a storage node; one that makes no sense is ignored and counted."""
        self._count(self._step(message))

    def view(self, order: StreamOrder, quorum: Quorum) -> None:
        """Take the newest row of a stream that the host has read."""
        known = self.row(order.stream)
        if known is not None and order.revision < known.revision:
            self._count(Ignored.OLD_REVISION)
        elif known is None or order.revision > known.revision:
            try:
                row = read_row(order, quorum)
            except CorruptData:
                self._count(Ignored.UNREADABLE)
                self._steering.forget(order.stream)
            else:
                self._steering.see(row)
        self._steering.note_cut(order.stream, order.revision, order.version)

    def gone(self, stream: StreamId) -> None:
        """The stream was removed."""
        self._steering.forget(stream)

    def nodes(self, nodes: Sequence[NodeId]) -> None:
        """These are the registered storage nodes, all of them."""
        self._steering.detection.register(nodes)

    def pause(self, is_paused: bool) -> None:
        """Begin nothing unasked in a pause: no election, no replacement, no move of a leadership.

        What is under way goes on, and so does what a person asks for.
        """
        self._steering.is_paused = is_paused

    def heard(self, node: NodeId) -> None:
        """A storage node gave a sign of life."""
        if not self._steering.detection.heard(node):
            self._count(Ignored.UNKNOWN_NODE)

    def answered(self, number: int, error: LogError | None) -> None:
        """An update was applied, or was not, or may have been: as the error says."""
        self._count(self._steering.answered(number, error))

    # -- what a person asks for -------------------------------------------------------------------

    def change(
        self, stream: StreamId, kind: ChangeKind, old: NodeId = NO_NODE, new: NodeId = NO_NODE
    ) -> int:
        """Change the ensemble of a stream; ``Output.outcomes`` has what becomes of it."""
        steering, request = self._steering, self._steering.next_request()
        change = Change(kind, Phase.PREPARE, old, new)
        watch = steering.watches.get(stream)
        if watch is None:
            refused: Refused | None = Refused.UNKNOWN_STREAM
        elif stream in steering.procedures:
            refused = Refused.BUSY
        else:
            refused = refuse_change(watch.row, change, steering.detection)
            if refused is None:
                steering.reconfigure(watch, change, request)
        return self._answer(request, stream, refused)

    def abort(self, stream: StreamId) -> int:
        """Undo the reconfiguration of a stream, whoever began it, while it is in *prepare*."""
        steering, request = self._steering, self._steering.next_request()
        watch = steering.watches.get(stream)
        procedure = steering.procedures.get(stream)
        if watch is None:
            return self._answer(request, stream, Refused.UNKNOWN_STREAM)
        refused = refuse_abort(watch.row)
        if refused is None and procedure is None:
            procedure = steering.resume(watch)
        if refused is None and not (
            isinstance(procedure, Reconfiguration) and procedure.abort(request)
        ):
            refused = Refused.BUSY
        return self._answer(request, stream, refused)

    def elect(self, stream: StreamId, prefer: NodeId = NO_NODE) -> int:
        """Elect the leader of a stream anew, whatever its state is.

        Of those that may lead with equal logs it is ``prefer``, if that is one of them.
        """
        steering, request = self._steering, self._steering.next_request()
        watch = steering.watches.get(stream)
        procedure = steering.procedures.get(stream)
        if watch is None:
            return self._answer(request, stream, Refused.UNKNOWN_STREAM)
        if procedure is not None and not steering.interrupt(watch, procedure):
            return self._answer(request, stream, Refused.BUSY)
        steering.elect(watch, request, prefer)
        return request

    def _answer(self, request: int, stream: StreamId, refused: Refused | None) -> int:
        if refused is not None:
            self._steering.tell(request, stream, Result.REFUSED, refused)
        return request

    # -- what comes out -------------------------------------------------------------------------

    @property
    def has_output(self) -> bool:
        """Whether ``take`` has something."""
        return self._steering.has_output

    def take(self) -> OperatorOutput:
        """Hand over what has to be done; see ``OperatorOutput``."""
        return self._steering.take()

    # -- what it looks like -----------------------------------------------------------------------

    def row(self, stream: StreamId) -> Row | None:
        """Return what is known of a stream's row."""
        watch = self._steering.watches.get(stream)
        return None if watch is None else watch.row

    def is_at_work(self, stream: StreamId) -> bool:
        """Whether this operator elects a leader for the stream, or changes its ensemble."""
        return stream in self._steering.procedures

    def is_suspected(self, node: NodeId) -> bool:
        """Whether a storage node is taken for dead."""
        return self._steering.detection.is_suspected(node)

    @property
    def ignored(self) -> Mapping[Ignored, int]:
        """How much was left without effect, by reason, since the start."""
        return MappingProxyType(self._ignored)

    def validate(self) -> None:
        """Check every invariant, at the cost of looking at all streams."""
        self._steering.validate()

    # -- messages -------------------------------------------------------------------------------

    def _step(self, message: ToOperator) -> Ignored | None:
        steering = self._steering
        if message.target != steering.node:
            return Ignored.WRONG_TARGET
        watch = steering.watches.get(message.stream)
        if watch is None:
            return Ignored.UNKNOWN_STREAM
        if not steering.detection.heard(message.source):
            return Ignored.UNKNOWN_NODE
        procedure = steering.procedures.get(message.stream)
        if procedure is not None:
            ignored = procedure.step(message)
            steering.settle(watch, procedure)
            return ignored
        suspects = steering.detection.is_suspected
        ignored = take_answer(watch, message, steering.now, suspects, steering.outbox)
        if watch.is_unled:
            steering.look_at(message.stream)
        return ignored

    def _count(self, ignored: Ignored | None) -> None:
        if ignored is not None:
            self._ignored[ignored] = self._ignored.get(ignored, 0) + 1
