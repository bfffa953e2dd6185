"""Two operators, six nodes, a network that loses, delays and repeats: rules hold, work goes on."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.core.operator.cluster import OPERATOR, OTHER_OPERATOR, Cluster, unknown
from tests.core.order.orders import S1
from tidelog.core.operator.operator import Operator
from tidelog.core.operator.output import Result, Update
from tidelog.core.replica.messages import ChangeKind, FromOperator
from tidelog.types import NO_NODE, NodeId

BOTH = (OPERATOR, OTHER_OPERATOR)
STEPS = 1_500


class Storm(Cluster):
    """Messages and updates lie about until chance carries them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loss = self.random.choice((0.01, 0.05, 0.2))
        self.repeats = self.random.choice((0.05, 0.3))
        self.falls = self.random.choice((0.5, 2, 6))
        self.messages: list[FromOperator] = []
        self.updates: list[tuple[Operator, Update]] = []
        size = self.random.choice((1, 2, 3, 3, 4, 5))
        super().__init__(on=range(1, size + 1), spare=range(size + 1, 7), operators=())
        for node in BOTH:
            self.start_operator(node, self.draw)

    def draw(self, count: int) -> int:
        return self.random.randrange(count)

    def carry(self, operator: Operator) -> bool:
        """Put what an operator wants done where chance finds it."""
        output = operator.take()
        self.outcomes += output.outcomes
        for message in output.messages:
            self.note(message)
            self.messages.append(message)
        self.updates += [(operator, update) for update in output.updates]
        operator.validate()
        return False

    def step(self) -> None:
        """Let one thing happen."""
        act = self.random.choices(
            [
                self.deliver_one,
                self.write_one,
                self.let_time_pass,
                self.show,
                self.replicate,
                self.write_entry,
                self.fell_node,
                self.ask_for_something,
                self.replace_operator,
                self.lose_disk,
                self.fall_behind,
            ],
            [120, 40, 40, 20, 20, 10, self.falls, 3, 0.5, 0.5, 2],
        )[0]
        act()
        self.settle()

    def deliver_one(self) -> None:
        if not self.messages:
            return
        at = self.random.randrange(len(self.messages))
        repeats = self.random.random() < self.repeats
        message = self.messages[at] if repeats else self.messages.pop(at)
        if self.is_lost():
            return
        node, operator = self.nodes[message.target], self.operators[message.source]
        if node.is_up:
            answer = node.step(message)
            self.check()
            if answer is not None and not self.is_lost():
                operator.step(answer)

    def write_one(self) -> None:
        if not self.updates:
            return
        operator, update = self.updates.pop(self.random.randrange(len(self.updates)))
        error = unknown() if self.is_lost() else self.write(update.command)
        if not self.is_lost():
            operator.answered(update.number, unknown() if self.is_lost() else error)

    def is_lost(self) -> bool:
        return self.random.random() < self.loss

    def let_time_pass(self) -> None:
        self.hear()
        for operator in self.operators.values():
            operator.tick()
        for node in self.nodes.values():
            node.synchronise(self.nodes)

    def write_entry(self) -> None:
        leaders = [node for node in self.nodes.values() if node.leads]
        if leaders:
            self.random.choice(leaders).append()

    def fell_node(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.is_up and sum(not each.is_up for each in self.nodes.values()) < 2:
            node.is_up = False
            self.cut_off(node.node)
        elif not node.is_up:
            node.restart()
            node.is_up = True

    def cut_off(self, node: NodeId) -> None:
        """A node that dies takes its connections with it."""
        self.messages = [each for each in self.messages if each.target != node]

    def lose_disk(self) -> None:
        if self.is_whole() and len(self.row.ensemble) > 2:
            node = self.nodes[self.random.choice(self.row.ensemble)]
            had = node.head if self.random.random() < 0.5 else None
            node.forget_all()
            node.had = had
            self.cut_off(node.node)

    def fall_behind(self) -> None:
        self.are_behind = self.random.random() < 0.3

    def replace_operator(self) -> None:
        self.start_operator(self.random.choice(BOTH), self.draw)

    def ask_for_something(self) -> None:
        operator = self.operators[self.random.choice(BOTH)]
        chance = self.random.random()
        if chance < 0.25:
            operator.abort(S1)
        elif chance < 0.35:
            operator.elect(S1)
        else:
            kind = self.random.choice(list(ChangeKind))
            old, new = self.random.choice(self.row.ensemble), self.random.choice(list(self.nodes))
            operator.change(
                S1,
                kind,
                NO_NODE if kind is ChangeKind.EXPAND else old,
                NO_NODE if kind is ChangeKind.CONTRACT else new,
            )

    def calm_down(self) -> None:
        """From now on everything arrives, and everybody is up."""
        self.are_behind = False
        for node in self.nodes.values():
            if not node.is_up:
                node.restart()
                node.is_up = True
        for _ in range(600):
            if self.is_whole() and not any(each.is_at_work(S1) for each in self.operators.values()):
                return
            self.let_time_pass()
            self.replicate()
            for _ in range(20):
                self.show()
                self.settle()
                while self.messages:
                    message = self.messages.pop(0)
                    answer = self.nodes[message.target].step(message)
                    self.check()
                    if answer is not None:
                        self.operators[message.source].step(answer)
                for operator, update in self.updates:
                    operator.answered(update.number, self.write(update.command))
                self.updates = []
        raise AssertionError(f"no rest: {self.row}")


def run_storm(seed: int) -> Storm:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    storm.calm_down()
    committed = len(storm.committed)
    storm.append()
    storm.replicate()
    storm.replicate()
    assert len(storm.committed) > committed
    return storm


@pytest.mark.parametrize("seed", range(40))
def test_operators_in_a_storm_lose_nothing_and_come_to_rest(seed: int) -> None:
    storm = run_storm(seed)
    assert all(operator.row(S1) is not None for operator in storm.operators.values())


def test_storms_reach_what_they_are_for() -> None:
    storms = [run_storm(seed) for seed in range(100, 160)]
    results = Counter(outcome.result for storm in storms for outcome in storm.outcomes)
    assert all(results[result] for result in Result)
    assert sum(len(storm.led) for storm in storms) > 5 * len(storms)
    assert sum(len(storm.committed) for storm in storms) > 10 * len(storms)
    assert any(len(storm.row.ensemble) > 4 for storm in storms)
