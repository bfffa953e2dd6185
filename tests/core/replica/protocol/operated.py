"""A group of replicas with real operators: elections and reconfigurations happen by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.replica.protocol.harness import STREAM, Group
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.options import OperatorOptions
from tidelog.core.operator.output import Outcome, Result, Update
from tidelog.core.operator.plan import Phase, Status, StreamPlan, decode_plan
from tidelog.core.order.commands import Quorum
from tidelog.core.replica.messages import ChangeKind, Message, Role, ToOperator
from tidelog.core.replica.options import ReplicaOptions
from tidelog.errors import LogError
from tidelog.types import NO_NODE, NodeId

OPERATORS_FROM = 91
"""Nodes from here on are operators."""
HASTY = OperatorOptions(
    resend_ticks=2,
    patience_ticks=8,
    grace_ticks=0,
    snapshot_ticks=40,
    status_ticks=3,
    start_ticks=1,
    suspect_ticks=4,
    replace_ticks=1_000,
    election_pause_ticks=2,
    balance_ticks=0,
    replacements_max=0,
)


class OperatedGroup(Group):
    """Replicas and operators; ``run`` lets time pass for all of them."""

    def __init__(
        self,
        *ensemble: int,
        spares: Sequence[int] = (),
        operators: int = 1,
        quorum: Quorum = Quorum.MAJORITY,
        options: OperatorOptions = HASTY,
        replica_options: ReplicaOptions | None = None,
    ) -> None:
        super().__init__(*ensemble, spares=spares, quorum=quorum, options=replica_options)
        self.operator_options = options
        self.operators: dict[int, Operator] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.blind: set[int] = set()
        """Operators that read no rows: they act on what they saw last."""
        self.dies_in: Phase | None = None
        """An operator dies when it has written this phase of a reconfiguration."""
        for number in range(operators):
            self.start_operator(OPERATORS_FROM + number)

    # -- operators ---------------------------------------------------------------------------

    def start_operator(self, number: int) -> None:
        """Start an operator that knows nothing; one of that number ends."""
        self.operators[number] = Operator(NodeId(number), self.operator_options, lambda n: n - 1)

    def stop_operator(self, number: int) -> None:
        del self.operators[number]

    def step(self, message: Message) -> None:
        operator = self.operators.get(message.target)
        if operator is None:
            super().step(message)
        elif (message.source, message.target) not in self._cut:
            assert isinstance(message, ToOperator)
            operator.step(message)
            self.carry_out(message.target)

    def carry_out(self, number: int) -> None:
        """Send what an operator wants sent, and write what it wants written."""
        while number in self.operators:
            output = self.operators[number].take()
            self.outcomes |= {outcome.request: outcome for outcome in output.outcomes}
            self.put(*output.messages)
            for update in output.updates:
                self.write(number, update)
            if not output.updates:
                return

    def write(self, number: int, update: Update) -> None:
        """Give an operator's write to the metadata repository, and tell it the outcome."""
        error: LogError | None = None
        try:
            self.order.step(update.command)
        except LogError as refused:
            error = refused
        self.order.validate()
        change = self.plan.change
        if error is None and change is not None and change.phase is self.dies_in:
            self.stop_operator(number)
        else:
            self.operators[number].answered(update.number, error)

    @property
    def plan(self) -> StreamPlan:
        """What operators wrote down of the stream."""
        return decode_plan(self.row.plan)

    def tick_operator(self, number: int) -> None:
        operator = self.operators[number]
        operator.nodes(tuple(NodeId(each) for each in sorted(self.members)))
        for node in self.alive:
            operator.heard(NodeId(node))
        if number not in self.blind:
            operator.view(self.row, self.quorum)
        operator.tick()
        self.carry_out(number)

    # -- what happens ------------------------------------------------------------------------

    def run(self, ticks: int = 1) -> None:
        """Let time pass for all: messages are delivered, and what is durable is ordered."""
        for _ in range(ticks):
            for number in list(self.operators):
                self.tick_operator(number)
            self.tick()
            self.deliver()
            self.report()
            self.cut()
            self.tell_cuts()
            self.deliver()

    def run_until_steady(self, ticks: int = 200) -> int:
        """Let time pass until the stream has a leader that leads; return it."""
        for _ in range(ticks):
            self.run()
            if self.is_steady:
                return self.row.leader
        raise AssertionError(f"the stream does not settle: {self.row}")

    @property
    def is_steady(self) -> bool:
        row = self.row
        if self.plan.status is not Status.STEADY or row.leader not in self.alive:
            return False
        leader = self[row.leader]
        return leader.role is Role.LEADER and leader.term == row.term

    def change(
        self, kind: ChangeKind, *, old: int = NO_NODE, new: int = NO_NODE, operator: int = 91
    ) -> int:
        """Ask an operator for a reconfiguration; return the number of the request."""
        request = self.operators[operator].change(STREAM, kind, NodeId(old), NodeId(new))
        self.carry_out(operator)
        return request

    def elect_by(self, operator: int) -> int:
        """Ask an operator for an election; return the number of the request."""
        request = self.operators[operator].elect(STREAM)
        self.carry_out(operator)
        return request

    def is_done(self, request: int) -> bool:
        outcome = self.outcomes.get(request)
        return outcome is not None and outcome.result is Result.DONE

    def check_that_it_works(self, *expected: bytes) -> None:
        """Append once more: it gets ordered, and all members have all that was acknowledged."""
        leader = self.run_until_steady()
        llsn = self.append(leader, b"in the end")
        for _ in range(300):
            self.run()
            if self.is_steady and all(
                number not in self.alive or self.image(number).context.llsn_end > llsn
                for number in self.row.ensemble
            ):
                break
        else:
            raise AssertionError(f"the stream does not work: {self.row}")
        for number in self.row.ensemble:
            if number in self.alive:
                found = self.data(number)
                assert found == [*expected, b"in the end"], f"node {number} has {found}"
