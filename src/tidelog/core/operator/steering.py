"""The streams in view and what is under way about each.

Invariants:
  S1  a stream has at most one procedure, and that at most one write under way
  S2  what is kept is about streams in view and registered nodes
  S3  a procedure is based on the newest row that is known, unless the outcome of its write is
      still to come
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tidelog.core.operator.agenda import Agenda
from tidelog.core.operator.balance import Burden, node_to_replace, spare_node, stream_to_move
from tidelog.core.operator.detection import Detection
from tidelog.core.operator.election import Election
from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.output import OperatorOutput, Outbox, Outcome, Refused, Result
from tidelog.core.operator.plan import Change, Phase
from tidelog.core.operator.procedure import Ending, Procedure
from tidelog.core.operator.reconfiguration import Reconfiguration
from tidelog.core.operator.requests import ask_status
from tidelog.core.operator.row import Row
from tidelog.core.operator.tending import drop_replicas
from tidelog.core.operator.watching import Next, Watch, decide, may_elect
from tidelog.core.replica.messages import ChangeKind
from tidelog.errors import LogError
from tidelog.invariants import check
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Version

Draw: TypeAlias = Callable[[int], int]
"""``draw(n)`` is a number from 0 to n - 1: all the chance that an operator knows."""

RESULTS = {
    Ending.DONE: Result.DONE,
    Ending.ABORTED: Result.ABORTED,
    Ending.REFUSED: Result.REFUSED,
}
"""What a person is told; any other ending is unknown to who asked."""


class Steering:
    """Watches streams; begins, drives and ends procedures."""

    __slots__ = (
        "_agenda",
        "_balance_at",
        "_burden",
        "_draw",
        "_options",
        "_requests",
        "_wakes_at",
        "detection",
        "is_paused",
        "now",
        "outbox",
        "procedures",
        "watches",
    )

    def __init__(self, node: NodeId, options: OperatorOptions, draw: Draw) -> None:
        self.now = 0
        self.outbox = Outbox(node)
        self.detection = Detection(options)
        self.watches: dict[StreamId, Watch] = {}
        self.procedures: dict[StreamId, Procedure] = {}
        self._options = options
        self._draw = draw
        self._burden = Burden()
        self._agenda = Agenda()
        self._requests = 0
        self.is_paused = False
        """Whether nothing is begun that nobody asked for; what is under way goes on."""
        # Operators that start together should not all do the same at once.
        self._wakes_at = draw(options.start_ticks)
        self._balance_at = options.balance_ticks + self._wakes_at

    @property
    def node(self) -> NodeId:
        """Which node this operator runs on."""
        return self.outbox.node

    @property
    def has_output(self) -> bool:
        """Whether something waits to be taken."""
        return not self.outbox.is_empty

    def take(self) -> OperatorOutput:
        """Hand over all that waits."""
        return self.outbox.take()

    # -- time -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let one unit of time pass."""
        self.now += 1
        self._look_at_streams_of(self.detection.tick())
        for stream, procedure in list(self.procedures.items()):
            procedure.tick()
            self.settle(self.watches[stream], procedure)
        for stream in self._agenda.take(self.now):
            self._look(self.watches[stream])
        if self._options.balance_ticks and self.now >= self._balance_at:
            self._balance_at = self.now + self._options.balance_ticks
            self._balance()

    def _look_at_streams_of(self, suspects: tuple[NodeId, ...]) -> None:
        if suspects:
            for stream, watch in self.watches.items():
                if watch.row.leader in suspects:
                    self.look_at(stream)

    def look_at(self, stream: StreamId, in_ticks: int = 0) -> None:
        """Decide about a stream, in this tick or the next one, or later."""
        self._agenda.put(stream, max(self.now + in_ticks, self._wakes_at))

    def _look(self, watch: Watch) -> None:
        stream = watch.row.stream
        if stream in self.procedures:
            return
        wanted = decide(watch, self.now, self.detection, self._options)
        pause = self._options.resend_ticks
        match wanted:
            case Next.TEND:
                pause = self._tend(watch)
            case Next.ELECT if self._has_room and self._may_elect(watch):
                self.elect(watch)
            case Next.RESUME if self._has_room:
                self.resume(watch)
        self.look_at(stream, pause)

    @property
    def _has_room(self) -> bool:
        return len(self.procedures) < self._options.procedures_max

    def _may_elect(self, watch: Watch) -> bool:
        """Whether to elect unasked: in a pause only the first leader of a stream that was made."""
        return not self.is_paused or watch.row.is_first

    def _tend(self, watch: Watch) -> int:
        """Look after a steady stream; return when to do that again."""
        self.outbox.send(ask_status(self.node, watch.row, watch.row.leader))
        drop_replicas(watch, self.now, self.outbox)
        self._replace_lost(watch)
        return self._options.resend_ticks if watch.drops else self._options.status_ticks

    # -- rows -----------------------------------------------------------------------------------

    def see(self, row: Row) -> None:
        """Know a row that is newer than what was known of its stream."""
        watch = self.watches.get(row.stream)
        if watch is None:
            self.watches[row.stream] = Watch(row, self.now, self._patience())
            self._burden.add(row)
            self.look_at(row.stream, self._draw(self._options.start_ticks))
            return
        self._replace_row(watch, row)
        self.look_at(row.stream, 1)
        procedure = self.procedures.get(row.stream)
        if procedure is not None:
            procedure.overtake()
            self.settle(watch, procedure)

    def note_cut(self, stream: StreamId, revision: Revision, version: Version) -> None:
        """Know that a stream was ordered up to this cut as of this revision of its row."""
        watch, procedure = self.watches.get(stream), self.procedures.get(stream)
        if watch is not None:
            watch.version = max(watch.version, version)
        if isinstance(procedure, Reconfiguration):
            procedure.note_cut(revision, version)

    def forget(self, stream: StreamId) -> None:
        """Know nothing of a stream any more (S2)."""
        watch = self.watches.get(stream)
        if watch is None:
            return
        procedure = self.procedures.get(stream)
        if procedure is not None:
            procedure.end(Ending.OVERTAKEN)
            self.settle(watch, procedure)
        self._burden.remove(watch.row)
        self._agenda.drop(stream)
        del self.watches[stream]

    def _replace_row(self, watch: Watch, row: Row) -> None:
        self._burden.remove(watch.row)
        self._burden.add(row)
        watch.replace_row(row, self.now, self._patience())

    def _patience(self) -> int:
        """Return how long to leave alone what others should be at work on; not the same for all."""
        ticks = self._options.patience_ticks
        return ticks + self._draw(ticks)

    # -- procedures -----------------------------------------------------------------------------

    def elect(self, watch: Watch, request: int | None = None, prefer: NodeId = NO_NODE) -> None:
        """Begin an election."""
        watch.elect_from = self.now + self._options.election_pause_ticks
        self._begin(
            Election(
                watch.row,
                self._options,
                self.outbox,
                known=watch.known,
                burden=partial(self._burden_of, watch.row, prefer),
                suspects=self.detection.is_suspected,
                request=request,
            )
        )

    def _burden_of(self, row: Row, prefer: NodeId, node: NodeId) -> int:
        """Return what a node has to do; one that is preferred has nothing.

        Of nodes that lead equally many, each stream has another one first: streams that are made
        together should not all get the same leader.
        """
        if node == prefer:
            return -1
        size = len(row.final)
        turn = (row.final.index(node) - row.stream + 1) % size if node in row.final else size
        return self._burden.leads(node) * (size + 1) + turn

    def reconfigure(self, watch: Watch, change: Change, request: int | None = None) -> None:
        """Begin a change of the ensemble."""
        procedure = self._reconfiguration(watch, change, request)
        procedure.begin()
        self._begin(procedure)

    def resume(self, watch: Watch) -> Reconfiguration | None:
        """Go on with the reconfiguration that a row has."""
        change = watch.row.plan.change
        if change is None:
            return None
        procedure = self._reconfiguration(watch, change, None)
        procedure.resume()
        procedure.note_cut(watch.row.revision, watch.version)
        self._begin(procedure)
        return procedure

    def _reconfiguration(
        self, watch: Watch, change: Change, request: int | None
    ) -> Reconfiguration:
        return Reconfiguration(
            watch.row,
            change,
            self._options,
            self.outbox,
            known=watch.known,
            suspects=self.detection.is_suspected,
            request=request,
        )

    def _begin(self, procedure: Procedure) -> None:
        check(procedure.row.stream not in self.procedures, "S1: a second procedure")
        self.procedures[procedure.row.stream] = procedure

    def interrupt(self, watch: Watch, procedure: Procedure) -> bool:
        """End a procedure for an election that a person wants; not amid a write (S1)."""
        if procedure.is_writing:
            return False
        procedure.overtake()
        self.settle(watch, procedure)
        return True

    def answered(self, number: int, error: LogError | None) -> Ignored | None:
        """Take the outcome of a write; return why it had no effect, if so."""
        stream = self.outbox.writer(number)
        if stream is None:
            return Ignored.UNKNOWN_UPDATE
        watch, procedure = self.watches[stream], self.procedures[stream]
        ignored = procedure.answered(number, error, watch.row.revision)
        if procedure.row.revision > watch.row.revision:
            self._replace_row(watch, procedure.row)
        self.settle(watch, procedure)
        return ignored

    def settle(self, watch: Watch, procedure: Procedure) -> None:
        """Draw the consequences if a procedure has ended."""
        ending = procedure.ending
        if ending is None:
            return
        stream = watch.row.stream
        del self.procedures[stream]
        watch.note_term(procedure.known, self.now)
        match ending:
            case Ending.DONE | Ending.ABORTED:
                until = self.now + self._options.patience_ticks
                watch.drops |= {node: until for node in procedure.leaving if watch.may_drop(node)}
            case Ending.UNLED:
                watch.is_unled = True
            case _:
                watch.wait_again(self.now, self._patience())
                back_off = self._draw(self._options.election_pause_ticks)
                watch.elect_from = max(watch.elect_from, self.now + back_off)
        self._tell_ending(procedure, ending)
        self.look_at(stream, 1)

    # -- people ---------------------------------------------------------------------------------

    def next_request(self) -> int:
        """Return a number for something that a person asks for."""
        self._requests += 1
        return self._requests

    def tell(
        self, request: int, stream: StreamId, result: Result, reason: Refused | None = None
    ) -> None:
        """Answer a person."""
        self.outbox.tell(Outcome(request, stream, result, reason))

    def _tell_ending(self, procedure: Procedure, ending: Ending) -> None:
        stream = procedure.row.stream
        if procedure.request is not None:
            result = RESULTS.get(ending, Result.UNKNOWN)
            reason = Refused.OVERTAKEN if result is Result.REFUSED else None
            self.tell(procedure.request, stream, result, reason)
        if isinstance(procedure, Reconfiguration) and procedure.abort_request is not None:
            is_undone = ending is Ending.ABORTED
            self.tell(procedure.abort_request, stream, Result.DONE if is_undone else Result.UNKNOWN)

    # -- what nobody asks for -------------------------------------------------------------------

    def _replace_lost(self, watch: Watch) -> None:
        """Swap a member that is dead for long for a spare node."""
        if self.is_paused or not self._has_news(watch):
            return
        old = node_to_replace(watch, self.detection)
        if old == NO_NODE or self._replacements >= self._options.replacements_max:
            return
        new = spare_node(watch.row, self._burden, self.detection)
        if new != NO_NODE:
            self.reconfigure(watch, Change(ChangeKind.SWAP, Phase.PREPARE, old, new))

    @property
    def _replacements(self) -> int:
        return sum(
            1
            for procedure in self.procedures.values()
            if isinstance(procedure, Reconfiguration) and procedure.is_automatic
        )

    def _balance(self) -> None:
        """Move one leadership to a node that has less to do, if all is well."""
        if self.is_paused or self.procedures:
            return
        if not all(self._is_well(watch) for watch in self.watches.values()):
            return
        period = self._options.balance_ticks
        watch = stream_to_move(
            self.watches.values(), self._burden, self.detection, self.now, period
        )
        if watch is not None and may_elect(watch, self.now, self.detection):
            watch.moved_at = self.now
            self.elect(watch)

    def _is_well(self, watch: Watch) -> bool:
        return watch.row.is_steady and self._has_news(watch) and not watch.missing

    def _has_news(self, watch: Watch) -> bool:
        return watch.is_fresh(self.now, 2 * self._options.status_ticks)

    def validate(self) -> None:
        """Check the invariants."""
        for stream, procedure in self.procedures.items():
            check(stream in self.watches, "S2: a procedure without a stream in view")
            check(procedure.ending is None, "P3: a procedure that has ended is still there")
            newest = self.watches[stream].row.revision
            check(
                procedure.is_writing or procedure.row.revision == newest,
                "S3: a procedure goes on from an old row",
            )
        check(len(self._agenda) <= len(self.watches), "S2: a stream on the agenda is not in view")
