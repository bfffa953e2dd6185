"""Whatever is reported and written: the cuts follow the rules, on every node alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.order.cut_flaws import flaw_in_cut
from tests.core.order.model import Model
from tests.core.order.orders import T1, T2, THREE, new, report, update
from tidelog import limits
from tidelog.core.order.commands import (
    AddStreams,
    Command,
    CreateTopic,
    Cut,
    Quorum,
    RemoveStream,
    Report,
    StreamStatus,
)
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.reports import Ignored
from tidelog.errors import Rejected
from tidelog.types import StreamId, Version

NODES = (1, 2, 3, 4)


Step = tuple[str, int, int, int]
"""What happens, to which stream, on which node, how much of it."""

WORDS = (
    *("grow", "grow", "grow_all", "grow_all", "learn", "learn", "learn_all"),
    *("claim", "claim", "cut", "cut", "cut", "cut", "stale", "garbage", "metadata"),
)

steps = st.tuples(
    st.sampled_from(WORDS),
    st.integers(1, 4),
    st.sampled_from(NODES),
    st.integers(0, 5),
)


class Story:
    """Turns steps into commands that mostly make sense for the machine as it stands."""

    def __init__(self, machine: OrderMachine) -> None:
        self.machine = machine
        self.known: dict[tuple[int, int], int] = {}
        self.ends: dict[tuple[int, int], int] = {}
        self.said: list[Report] = []
        self.next_stream = 5

    def commands(self, step: Step) -> Iterator[Command]:
        what, number, node, amount = step
        if what == "cut":
            yield Cut()
        elif what == "garbage":
            yield report(number, amount, node - 2, node=node, version=amount, term=amount)
        elif what == "stale" and self.said:
            yield self.said[amount % len(self.said)]
        elif StreamId(number) in self.machine.streams:
            yield from self._about_stream(what, number, node, amount)

    def _about_stream(self, what: str, number: int, node: int, amount: int) -> Iterator[Command]:
        machine = self.machine
        order = machine.stream(StreamId(number))
        one = order.ensemble[node % len(order.ensemble)]
        match what:
            case "grow":
                yield self._grow(number, one, amount)
            case "grow_all":
                for each in order.ensemble:
                    yield self._grow(number, each, amount)
            case "claim":
                yield self._claim(number, one, amount)
            case "learn":
                yield self._learn(number, one)
            case "learn_all":
                for each in order.ensemble:
                    yield self._learn(number, each)
            case "metadata":
                yield from self._metadata(number, node, amount)

    def _metadata(self, number: int, node: int, amount: int) -> Iterator[Command]:
        machine = self.machine
        order = machine.stream(StreamId(number))
        match amount:
            case 0:
                yield update(machine, number, term=order.term + 1, leader=node)
            case 1:
                on = [each for each in NODES if each == node or each % 3 != number % 3]
                yield update(machine, number, on=on)
            case 2:
                yield update(machine, number, status=StreamStatus.SEALING)
                yield Cut()
                yield update(machine, number, status=StreamStatus.SEALED)
                yield Cut()
                yield update(machine, number, status=StreamStatus.RUNNING, term=order.term + 1)
            case 3:
                yield update(machine, number, revision=order.revision + 1, term=99)
            case 4 if node == 1:
                yield RemoveStream(StreamId(number), order.revision)
            case 5:
                yield AddStreams(T1, new(self.next_stream, on=THREE))
                self.next_stream += 1

    def _grow(self, number: int, node: int, amount: int) -> Report:
        order = self.machine.stream(StreamId(number))
        end = max(self.ends.get((number, node), 1), self._begin(number, node)) + amount
        self.ends[number, node] = end
        return self._say(number, node, end, order.term)

    def _claim(self, number: int, node: int, amount: int) -> Report:
        """A leader says that more is committed, perhaps more than it has durable itself."""
        order = self.machine.stream(StreamId(number))
        end = max(self.ends.get((number, node), 1), self._begin(number, node))
        self.ends[number, node] = end
        return self._say(number, node, end, order.term, committed=order.llsn_end + amount)

    def _learn(self, number: int, node: int) -> Report:
        order = self.machine.stream(StreamId(number))
        self.known[number, node] = self.machine.version
        end = max(self.ends.get((number, node), 1), order.llsn_end)
        self.ends[number, node] = end
        return self._say(number, node, end, order.term)

    def _begin(self, number: int, node: int) -> int:
        known = Version(self.known.get((number, node), 0))
        missed = self.machine.commits_after(StreamId(number), known)
        if missed:
            return missed[0].commit.llsn_begin
        return self.machine.stream(StreamId(number)).llsn_end

    def _say(self, number: int, node: int, end: int, term: int, committed: int = 0) -> Report:
        known = self.known.get((number, node), 0)
        begin = self._begin(number, node)
        said = report(
            number,
            begin,
            max(0, end - begin),
            node=node,
            version=known,
            term=term,
            committed=committed,
        )
        self.said.append(said)
        return said


def first_commands() -> Iterator[Command]:
    yield CreateTopic(T2, (*new(1, on=(1,)), *new(3, on=THREE)), "second")
    yield CreateTopic(T1, (*new(2, on=(2, 3)), *new(4, on=THREE)), "first", Quorum.ALL)


def run_both(machine: OrderMachine, model: Model, command: Command) -> None:
    """Step machine and model; they must agree on what was decided."""
    version = machine.version
    streams, topics = dict(machine.streams), dict(machine.topics)
    try:
        effects = machine.step(command)
    except Rejected:
        return
    expected = model.step(command)
    assert len(effects) == (expected is not None)
    for cut in effects:
        assert flaw_in_cut(cut, version, streams, topics) is None
        found = tuple((c.stream, c.glsn_begin, c.llsn_begin, c.length) for c in cut.commits)
        assert found == expected


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ORDER_HISTORY_CUTS_MAX", 5)
    monkeypatch.setattr(limits, "ORDER_HISTORY_COMMITS_MAX", 8)
    monkeypatch.setattr(limits, "ORDER_UNAPPLIED_CUTS_MAX", 3)


@settings(max_examples=250, deadline=None)
@given(st.lists(steps, max_size=60))
def test_the_machine_decides_what_the_rules_say(history: list[Step]) -> None:
    machine, model = OrderMachine(), Model()
    story = Story(machine)
    for command in first_commands():
        run_both(machine, model, command)
    for step in history:
        for command in story.commands(step):
            run_both(machine, model, command)
            assert machine.first_version == model.first
            for number, stream in model.streams.items():
                for known in range(machine.version + 1):
                    missed = machine.commits_after(StreamId(number), Version(known))
                    kept = [v for v, _ in stream.commits if v > known]
                    if missed is None:
                        assert known < stream.forgotten
                    else:
                        assert [each.version for each in missed] == kept
        machine.validate()


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=60), st.sets(st.integers(0, 60), max_size=6))
def test_a_machine_that_is_restored_again_and_again_does_the_same(
    history: list[Step], restarts: set[int]
) -> None:
    steady, restarted = OrderMachine(), OrderMachine()
    story = Story(steady)
    for command in first_commands():
        assert steady.step(command) == restarted.step(command)
    for position, step in enumerate(history):
        if position in restarts:
            restarted = OrderMachine.restore(restarted.state)
        for command in story.commands(step):
            assert outcome(steady, command) == outcome(restarted, command)
            assert steady.has_pending == restarted.has_pending
    assert steady.state == restarted.state
    assert steady.cuts_after(Version(0)) == restarted.cuts_after(Version(0))


def outcome(machine: OrderMachine, command: Command) -> object:
    try:
        return machine.step(command)
    except Rejected as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=60))
def test_glsns_are_dense_and_unique_whatever_happens(history: list[Step]) -> None:
    """LLSNs too; and a node that applies every cut comes to the same high watermarks."""
    machine = OrderMachine()
    story = Story(machine)
    issued: dict[int, list[int]] = {T1: [], T2: []}
    ordered: dict[int, list[int]] = {}
    for command in first_commands():
        machine.step(command)
    for step in (*history, ("cut", 1, 1, 1)):
        for command in story.commands(step):
            try:
                effects = machine.step(command)
            except Rejected:
                continue
            for cut in effects:
                for commit in cut.commits:
                    issued[commit.topic].extend(range(commit.glsn_begin, commit.glsn_end))
                    lsns = ordered.setdefault(commit.stream, [])
                    lsns.extend(range(commit.llsn_begin, commit.llsn_end))
    for sequence in (*issued.values(), *ordered.values()):
        assert sequence == list(range(1, len(sequence) + 1))
    for topic in (T1, T2):
        assert machine.topic(topic).high_watermark == len(issued[topic])


@given(
    st.lists(
        st.builds(
            report,
            st.integers(-1, 6),
            st.integers(-2, 1 << 64),
            st.integers(-2, 1 << 64),
            node=st.integers(-1, 5),
            version=st.integers(-1, 1 << 64),
            term=st.integers(-1, 3),
            committed=st.integers(-2, 1 << 64),
        ),
        max_size=20,
    )
)
def test_no_report_raises_or_breaks_an_invariant(reports: list[Report]) -> None:
    machine = OrderMachine()
    for command in (*first_commands(), *reports, Cut(), *reports):
        machine.step(command)
    machine.validate()


def test_stories_reach_the_rare_cases() -> None:
    """Else the properties above would hold of nothing."""
    chance = Random(1)
    reached: Counter[str] = Counter()
    for _ in range(300):
        machine = OrderMachine()
        story = Story(machine)
        for command in first_commands():
            machine.step(command)
        for _ in range(60):
            step = (chance.choice(WORDS), chance.randint(1, 4), chance.choice(NODES))
            for command in story.commands((*step, chance.randint(0, 5))):
                outcome(machine, command)
            kept = machine.state.histories
            reached["kept for a majority"] += any(each.older for each in kept)
            reached["waits for a majority"] += any(
                machine._history.is_backlogged(order) for order in machine.streams.values()
            )
        reached.update(reason.name for reason in machine.ignored)
    wanted = [*(reason.name for reason in Ignored), "kept for a majority", "waits for a majority"]
    assert [each for each in wanted if not reached[each]] == []
