"""The short way of a log whose only replica sits beside the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.order.orders import S1, T1, T2, THREE, machine_of, new, now, report
from tidelog.core.order.commands import CreateTopic, Cut
from tidelog.core.order.machine import OrderMachine
from tidelog.invariants import InvariantViolation
from tidelog.types import Llsn, StreamId


def four_streams() -> OrderMachine:
    machine = OrderMachine()
    machine.step(CreateTopic(T1, new(1, 2)))
    machine.step(CreateTopic(T2, new(3, 4)))
    return machine


@given(
    st.lists(
        st.dictionaries(st.integers(1, 4), st.integers(1, 50), min_size=1, max_size=4), max_size=8
    )
)
def test_ordering_at_once_is_the_same_as_reporting_and_cutting(
    rounds: list[dict[int, int]],
) -> None:
    reporting, at_once = four_streams(), four_streams()
    for added in rounds:
        ends: dict[StreamId, Llsn] = {}
        for stream, length in added.items():
            ends[StreamId(stream)] = Llsn(reporting.stream(StreamId(stream)).llsn_end + length)
            reporting.step(now(reporting, stream, length))
        assert [at_once.order(ends)] == reporting.step(Cut())
        for stream in added:
            reporting.step(now(reporting, stream, 0))
        assert at_once.topics == reporting.topics
        assert at_once.streams == reporting.streams
        at_once.validate()
    assert at_once.order({}) is None


def test_ordering_at_once_keeps_no_history() -> None:
    machine = machine_of(1)
    for end in (5, 9):
        machine.order({S1: Llsn(end)})
    assert machine.state.cuts == ()
    assert machine.state.histories == ()
    assert machine.first_version == 3


def test_ordering_at_once_goes_on_after_a_restart() -> None:
    machine = machine_of(1)
    machine.order({S1: Llsn(5)})
    restored = OrderMachine.restore(machine.state)
    assert restored.order({S1: Llsn(9)}) == machine.order({S1: Llsn(9)})
    assert restored.state == machine.state


def test_ordering_at_once_refuses_to_go_back() -> None:
    machine = machine_of(1)
    machine.order({S1: Llsn(5)})
    with pytest.raises(InvariantViolation, match="R3"):
        machine.order({S1: Llsn(4)})


def test_ordering_at_once_is_refused_where_somebody_may_miss_it() -> None:
    with pytest.raises(InvariantViolation, match="O2"):
        machine_of(1, on=THREE).order({S1: Llsn(5)})
    machine = machine_of(1, 2)
    machine.step(report(2, 1, 1))
    machine.step(Cut())
    with pytest.raises(InvariantViolation, match="H3"):
        machine.order({S1: Llsn(5)})
