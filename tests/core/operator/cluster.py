"""Operators, nodes and the metadata repository of one stream, driven by hand.

A message or an update is carried by ``deliver`` or ``run``; ``cut`` decides what is lost.  After
every delivery the rules that no operator may break are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tests.core.operator.nodes import Node
from tests.core.order.orders import S1, machine_of, nodes
from tidelog.core.operator.operator import Draw, Operator
from tidelog.core.operator.options import OperatorOptions
from tidelog.core.operator.output import Outcome, Update
from tidelog.core.operator.plan import StreamPlan, encode_plan
from tidelog.core.operator.row import Row, read_row
from tidelog.core.order.commands import Quorum, UpdateStream
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    FromOperator,
    ToOperator,
)
from tidelog.errors import DeadlineExceeded, LogError, Rejected, ReplicasBehind
from tidelog.types import NodeId, Term

OPERATOR, OTHER_OPERATOR = NodeId(101), NodeId(102)

QUICK = OperatorOptions(
    resend_ticks=2,
    patience_ticks=10,
    grace_ticks=0,
    snapshot_ticks=100,
    status_ticks=4,
    start_ticks=1,
    suspect_ticks=8,
    replace_ticks=40,
    election_pause_ticks=10,
    balance_ticks=0,
)

Message = FromOperator | ToOperator
Lost = Callable[[Message], bool]
Sent = TypeVar("Sent", bound=FromOperator)


def never(_: Message) -> bool:
    return False


def lowest(_: int) -> int:
    """No chance at all."""
    return 0


class Cluster:
    """One stream on a few nodes, and operators over it."""

    def __init__(
        self,
        on: Sequence[int] = (1, 2, 3),
        spare: Sequence[int] = (),
        options: OperatorOptions = QUICK,
        operators: Sequence[NodeId] = (OPERATOR,),
    ) -> None:
        self.machine = machine_of(1, on=on)
        self.nodes = {node: Node(node, S1) for node in nodes((*on, *spare))}
        self.options = options
        self.operators: dict[NodeId, Operator] = {}
        self.lost: Lost = never
        self.loses_updates = False
        """Updates reach nobody, and nobody learns what became of them."""
        self.loses_outcomes = False
        """Updates are applied, and nobody learns it."""
        self.are_behind = False
        """Too few replicas of any other ensemble know the stream's cuts."""
        self.shows_rows = True
        self.acts_left: int | None = None
        """After so many messages, writes and outcomes the first operator dies."""
        self.sent: list[FromOperator] = []
        self.commands: list[UpdateStream] = []
        self.outcomes: list[Outcome] = []
        self.asked_to_lead: dict[Term, NodeId] = {}
        self.led: dict[Term, NodeId] = {}
        self.committed: list[EntryId] = []
        for node in operators:
            self.start_operator(node)

    def start_operator(self, node: NodeId = OPERATOR, draw: Draw = lowest) -> Operator:
        """Begin the life of an operator, or a new life."""
        operator = Operator(node, self.options, draw)
        operator.nodes(tuple(self.nodes))
        self.operators[node] = operator
        self.show()
        return operator

    @property
    def operator(self) -> Operator:
        return self.operators[OPERATOR]

    @property
    def order(self) -> StreamOrder:
        return self.machine.stream(S1)

    @property
    def row(self) -> Row:
        return read_row(self.order, Quorum.MAJORITY)

    @property
    def leader(self) -> Node:
        assert self.row.is_steady
        return self.nodes[self.row.leader]

    @property
    def leader_now(self) -> Node:
        """Who leads, whatever the row says."""
        return max((node for node in self.nodes.values() if node.leads), key=lambda one: one.term)

    @property
    def leader_or_first(self) -> Node:
        """Whom the row names as leader, or else node 1."""
        return self.nodes.get(self.row.leader, self.node(1))

    def node(self, number: int) -> Node:
        return self.nodes[NodeId(number)]

    # -- time -----------------------------------------------------------------------------------

    def show(self) -> None:
        if self.shows_rows:
            for operator in self.operators.values():
                operator.view(self.order, Quorum.MAJORITY)

    def hear(self) -> None:
        for operator in self.operators.values():
            for node in self.nodes.values():
                if node.is_up:
                    operator.heard(node.node)

    def run(self, ticks: int = 1) -> None:
        """Let time pass; everything that is sent arrives at once, unless it is lost."""
        for _ in range(ticks):
            self.hear()
            for operator in list(self.operators.values()):
                operator.tick()
            self.replicate()
            self.settle()

    def run_until(self, condition: Callable[[], bool], ticks: int = 300) -> None:
        for _ in range(ticks):
            if condition():
                return
            self.run()
        assert condition(), f"not within {ticks} ticks: {self.row}"

    def replicate(self) -> None:
        for node in self.nodes.values():
            if node.leads:
                node.replicate(self.nodes)
            node.synchronise(self.nodes)
        self.check()

    def settle(self) -> None:
        """Carry everything to where it goes until nothing is under way."""
        while True:
            self.show()
            busy = [self.carry(operator) for operator in list(self.operators.values())]
            if not any(busy):
                return

    def carry(self, operator: Operator) -> bool:
        """Take what an operator wants done and do it."""
        had_output = operator.has_output
        output = operator.take()
        self.outcomes += output.outcomes
        for message in output.messages:
            if self.lives(operator):
                self.deliver(operator, message)
        for update in output.updates:
            if self.lives(operator):
                self.apply(operator, update)
        operator.validate()
        self.check()
        return had_output

    def lives(self, operator: Operator) -> bool:
        """Count the operator's acts down, if it is to die after some; whether it lives yet."""
        if self.acts_left is None or operator is not self.operators.get(OPERATOR):
            return operator in self.operators.values()
        self.acts_left -= 1
        if self.acts_left < 0:
            del self.operators[OPERATOR]
        return self.acts_left >= 0

    def deliver(self, operator: Operator, message: FromOperator) -> None:
        self.sent.append(message)
        self.note(message)
        node = self.nodes[message.target]
        if self.lost(message) or not node.is_up:
            return
        answer = node.step(message)
        self.check()
        if answer is not None and not self.lost(answer):
            operator.step(answer)

    def apply(self, operator: Operator, update: Update) -> None:
        if self.loses_updates:
            return
        error = self.write(update.command)
        if not self.loses_outcomes and self.lives(operator):
            operator.answered(update.number, error)

    def write(self, command: UpdateStream) -> LogError | None:
        self.commands.append(command)
        if self.are_behind and command.ensemble != self.order.ensemble:
            return ReplicasBehind("one more has to catch up")
        try:
            # The repository of these tests has decided no cut, so nobody could know one.
            self.machine.step(replace(command, joining_versions=()))
        except Rejected as error:
            return error
        return None

    def put(self, plan: StreamPlan, term: int, leader: int = 0) -> None:
        """Somebody else writes this, and all operators read it."""
        order = self.order
        command = UpdateStream(
            S1,
            order.revision,
            Term(term),
            order.ensemble,
            NodeId(leader),
            order.status,
            encode_plan(plan),
        )
        assert self.write(command) is None
        self.show()

    # -- rules ----------------------------------------------------------------------------------

    def note(self, message: FromOperator) -> None:
        """One node is asked to lead a term, whoever asks."""
        if isinstance(message, BecomeLeaderRequest):
            asked = self.asked_to_lead.setdefault(message.term, message.target)
            assert asked == message.target, f"two nodes are asked to lead term {message.term}"

    def check(self) -> None:
        """One leader per term; what was committed stays."""
        for node in self.nodes.values():
            if node.leads:
                led = self.led.setdefault(node.term, node.node)
                assert led == node.node, f"two leaders in term {node.term}"
                self.check_committed(node)

    def check_committed(self, leader: Node) -> None:
        if any(term > leader.term for term in self.led):
            # It is deposed, whether it knows or not: it must not commit any more.
            assert leader.log[: leader.commit] == self.committed[: leader.commit]
            return
        assert leader.log[: len(self.committed)] == self.committed, "a committed entry is lost"
        self.committed = leader.log[: max(leader.commit, len(self.committed))]

    # -- what tests ask for -----------------------------------------------------------------------

    def sent_of(self, kind: type[Sent]) -> list[Sent]:
        return [message for message in self.sent if isinstance(message, kind)]

    def forget_sent(self) -> None:
        self.sent.clear()

    def steady(self) -> None:
        """Run until the stream has its leader and all its followers."""
        self.run_until(self.is_whole)

    def steady_without(self, *down: int) -> None:
        """Run until the stream has its leader and all followers but these."""
        self.run_until(lambda: self.row.is_steady and self.leader.leads)
        assert self.leader.node not in down

    def is_whole(self) -> bool:
        if not self.row.is_steady or not self.leader.leads:
            return False
        leader = self.leader
        followers = [node for node in self.row.ensemble if node != leader.node]
        return (
            leader.term == self.row.term
            and leader.ensemble == self.row.ensemble
            and all(leader.confirmed.get(node) == len(leader.log) for node in followers)
            and all(self.nodes[node].log == leader.log for node in followers)
            and all(self.nodes[node].is_complete for node in self.row.ensemble)
        )

    def ask(self, request: int, ticks: int = 100) -> Outcome:
        """Run until it is told what became of a request."""
        self.run_until(lambda: any(each.request == request for each in self.outcomes), ticks)
        (outcome,) = [each for each in self.outcomes if each.request == request]
        return outcome

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.leader.append()


def unknown() -> DeadlineExceeded:
    return DeadlineExceeded("the answer did not come in time")


def restored(cluster: Cluster, term: int) -> None:
    """The metadata repository is restored from a backup that has this term."""
    order = replace(cluster.order, term=Term(term))
    cluster.machine._streams[S1] = order
