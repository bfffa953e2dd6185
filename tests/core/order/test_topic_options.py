"""What a topic is made with, and what of it need not be kept (O7, S8)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.order.orders import T1, T2, cut, machine_of, new, report
from tidelog import limits
from tidelog.core.order.commands import AddStreams, CreateTopic, RetainTopic
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.state import TopicOrder
from tidelog.errors import BadOption, CorruptData, OutOfRange, UnknownTopic
from tidelog.types import Glsn

WORD_MAX = limits.WORD_END - 1


def ordered_machine(entries: int = 10) -> OrderMachine:
    machine = machine_of(1)
    cut(machine, report(1, 1, entries))
    return machine


def retained(machine: OrderMachine) -> tuple[int, int]:
    topic = machine.topic(T1)
    return topic.trim_glsn_end, topic.boundary


def test_the_options_of_a_topic_survive_a_restart() -> None:
    machine = OrderMachine()
    machine.step(CreateTopic(T1, new(1, 2, 3), "events", versions="explicit", key_streams=2))
    topic = OrderMachine.restore(machine.state).topic(T1)
    assert (topic.versions, topic.key_streams) == ("explicit", 2)


def test_keys_go_to_all_streams_that_a_topic_begins_with_and_to_none_that_come_later() -> None:
    machine = machine_of(1, 2)
    machine.step(AddStreams(T1, new(3, 4)))
    assert machine.topic(T1).key_streams == 2


@pytest.mark.parametrize("count", [-1, 3])
def test_keys_cannot_go_to_streams_that_are_not_there(count: int) -> None:
    with pytest.raises(BadOption, match="streams for keys"):
        OrderMachine().step(CreateTopic(T1, new(1, 2), key_streams=count))


def test_retention_only_rises_and_each_part_by_itself() -> None:
    machine = ordered_machine()
    assert retained(machine) == (1, 0)
    assert machine.step(RetainTopic(T1, Glsn(5), 0, 7)) == []
    assert retained(machine) == (5, 7)
    machine.step(RetainTopic(T1, Glsn(3), 0, 9))
    assert retained(machine) == (5, 9)
    machine.step(RetainTopic(T1, Glsn(6), 0, 2))
    assert retained(machine) == (6, 9)


def test_the_high_word_of_a_boundary_counts_first() -> None:
    machine = ordered_machine()
    machine.step(RetainTopic(T1, boundary_high=0, boundary_low=WORD_MAX))
    machine.step(RetainTopic(T1, boundary_high=1, boundary_low=0))
    assert machine.topic(T1).boundary == 1 << 64
    machine.step(RetainTopic(T1, boundary_high=0, boundary_low=WORD_MAX))
    assert machine.topic(T1).boundary == 1 << 64
    assert OrderMachine.restore(machine.state).topic(T1).boundary == 1 << 64


def test_everything_that_is_ordered_may_be_trimmed_and_nothing_more() -> None:
    machine = ordered_machine(10)
    before = machine.state
    for end in (0, 12):
        with pytest.raises(OutOfRange, match="between 1 and 11"):
            machine.step(RetainTopic(T1, Glsn(end)))
    assert machine.state == before
    machine.step(RetainTopic(T1, Glsn(11)))
    assert retained(machine) == (11, 0)
    machine.validate()


@pytest.mark.parametrize("words", [(0, -1), (-1, 0), (limits.WORD_END, 0), (0, limits.WORD_END)])
def test_a_boundary_of_more_than_two_words_is_refused(words: tuple[int, int]) -> None:
    machine = ordered_machine()
    with pytest.raises(BadOption, match="128 bits"):
        machine.step(RetainTopic(T1, Glsn(1), *words))
    assert retained(machine) == (1, 0)


def test_the_retention_of_an_unknown_topic_is_refused() -> None:
    with pytest.raises(UnknownTopic):
        ordered_machine().step(RetainTopic(T2, Glsn(1)))


def test_a_cut_leaves_the_options_of_its_topic_alone() -> None:
    machine = ordered_machine(10)
    machine.step(RetainTopic(T1, Glsn(5), 1, 2))
    cut(machine, report(1, 11, 3, version=1))
    assert machine.topic(T1).high_watermark == 13
    assert retained(machine) == (5, (1 << 64) + 2)


@pytest.mark.parametrize(
    "flaw",
    [
        {"trim_glsn_end": 0},
        {"trim_glsn_end": 12},
        {"boundary_high": limits.WORD_END},
        {"boundary_high": -1},
        {"boundary_low": -1},
        {"key_streams": -1},
        {"key_streams": limits.STREAMS_PER_TOPIC_MAX + 1},
    ],
)
def test_a_stored_state_with_options_out_of_range_is_corrupt(flaw: dict[str, int]) -> None:
    state = ordered_machine(10).state
    topic: TopicOrder = replace(state.topics[0], **flaw)
    with pytest.raises(CorruptData, match="S8"):
        OrderMachine.restore(replace(state, topics=(topic,)))
