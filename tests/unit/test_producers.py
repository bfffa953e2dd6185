"""Idempotent producers (invariants P1 to P3)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.core.replica.producers import Duplicate, ProducerState, ProducerTable
from tidelog.errors import CorruptData, ProducerConflict
from tidelog.invariants import InvariantViolation
from tidelog.types import Llsn


def table_of(*appends: tuple[int, int, int, int], producers_max: int = 4) -> ProducerTable:
    """A small table (window 3) after these (producer, sequence, LLSN begin, count)."""
    table = ProducerTable(producers_max=producers_max, window=3)
    for append in appends:
        table.record(*append)
    return table


def test_a_repeated_append_is_answered_with_its_place() -> None:
    table = table_of((1, 1, 1, 5), (1, 2, 6, 2))
    assert table.lookup(1, 1) == Duplicate(Llsn(1), 5)
    assert table.lookup(1, 2) == Duplicate(Llsn(6), 2)


def test_a_higher_sequence_and_an_unknown_producer_are_new() -> None:
    table = table_of((1, 1, 1, 5))
    assert table.lookup(1, 2) is None
    assert table.lookup(1, 90) is None
    assert table.lookup(2, 1) is None
    assert table.is_new(1, 2)
    assert not table.is_new(1, 1)


def test_an_append_that_left_the_window_is_a_conflict() -> None:
    table = table_of(*((1, n, n, 1) for n in range(1, 5)))
    assert table.lookup(1, 2) == Duplicate(Llsn(2), 1)
    with pytest.raises(ProducerConflict, match="at sequence 4"):
        table.lookup(1, 1)


def test_a_sequence_that_was_skipped_is_a_conflict() -> None:
    table = table_of((1, 3, 1, 1), (1, 7, 2, 1))
    for sequence in (1, 2, 4, 6):
        with pytest.raises(ProducerConflict):
            table.lookup(1, sequence)


def test_producers_do_not_know_one_another() -> None:
    table = table_of((1, 5, 1, 1), (2, 2, 2, 1))
    assert table.lookup(2, 5) is None
    assert table.lookup(1, 5) == Duplicate(Llsn(1), 1)


def test_the_producer_that_recorded_least_recently_is_evicted() -> None:
    table = table_of((1, 1, 1, 1), (2, 1, 2, 1), (1, 2, 3, 1), (3, 1, 4, 1), producers_max=2)
    assert [state.producer for state in table.freeze()] == [1, 3]
    assert table.lookup(2, 1) is None


def test_asking_does_not_keep_a_producer_in_the_table() -> None:
    """Only records count: replicas that answer no retries hold the same table."""
    table = table_of((1, 1, 1, 1), (2, 1, 2, 1), producers_max=2)
    assert table.lookup(1, 1) is not None
    table.record(3, 1, 3, 1)
    assert [state.producer for state in table.freeze()] == [2, 3]


def test_truncation_forgets_so_that_the_append_may_come_again() -> None:
    table = table_of((1, 1, 1, 2), (1, 4, 3, 2), (2, 9, 5, 1))
    table.truncate(3)
    assert table.lookup(1, 1) == Duplicate(Llsn(1), 2)
    assert table.lookup(1, 4) is None
    assert table.lookup(2, 9) is None
    table.record(1, 4, 3, 2)


def test_truncation_at_the_end_of_an_append_keeps_it() -> None:
    table = table_of((1, 1, 1, 2))
    table.truncate(3)
    assert table.lookup(1, 1) == Duplicate(Llsn(1), 2)


def test_an_append_that_truncation_cuts_in_two_is_forgotten() -> None:
    table = table_of((1, 1, 1, 4))
    table.truncate(3)
    assert table.lookup(1, 1) is None
    assert len(table) == 0


def test_truncation_of_a_whole_window_still_refuses_what_came_before_it() -> None:
    table = table_of(*((1, n, n, 1) for n in range(1, 7)))
    table.truncate(2)
    assert table.lookup(1, 4) is None
    with pytest.raises(ProducerConflict):
        table.lookup(1, 3)


def test_a_frozen_table_thaws_to_the_same() -> None:
    table = table_of((1, 1, 1, 1), (2, 1, 2, 1), (1, 2, 3, 4))
    frozen = table.freeze()
    assert frozen[1] == ProducerState(1, 2, ((1, 1, 1), (2, 3, 4)))
    data = msgspec.msgpack.encode(frozen)
    decoded = msgspec.msgpack.decode(data, type=tuple[ProducerState, ...])
    assert ProducerTable.thaw(decoded).freeze() == frozen


def test_thawing_into_narrower_bounds_drops_what_is_oldest() -> None:
    frozen = table_of((1, 1, 1, 1), (2, 1, 2, 1), (2, 2, 3, 1)).freeze()
    table = ProducerTable.thaw(frozen, producers_max=1, window=1)
    assert table.freeze() == (ProducerState(2, 2, ((2, 3, 1),)),)


@pytest.mark.parametrize(
    "states",
    [
        (ProducerState(0, 1),),
        (ProducerState(1, 0),),
        (ProducerState(1, 1), ProducerState(1, 2)),
        (ProducerState(1, 1, ((2, 1, 1),)),),
        (ProducerState(1, 2, ((1, 0, 1),)),),
        (ProducerState(1, 2, ((1, 1, 0),)),),
        (ProducerState(1, 2, ((2, 1, 1), (1, 2, 1))),),
        (ProducerState(1, 2, ((1, 1, 2), (2, 2, 1))),),
    ],
)
def test_values_that_are_not_sound_are_corruption(states: tuple[ProducerState, ...]) -> None:
    with pytest.raises(CorruptData):
        ProducerTable.thaw(states)


@pytest.mark.parametrize(
    "append", [(0, 1, 9, 1), (1, 0, 9, 1), (1, 5, 9, 1), (1, 6, 0, 1), (1, 6, 9, 0), (1, 6, 5, 1)]
)
def test_a_record_that_breaks_the_rules_is_a_bug(append: tuple[int, int, int, int]) -> None:
    table = table_of((1, 5, 5, 2))
    with pytest.raises(InvariantViolation, match="P1"):
        table.record(*append)


def test_the_default_bounds_are_the_limits() -> None:
    table = ProducerTable()
    for n in range(1, limits.PRODUCERS_PER_STREAM_MAX + 2):
        table.record(n, 1, n, 1)
    assert len(table) == limits.PRODUCERS_PER_STREAM_MAX
    for n in range(2, limits.PRODUCER_WINDOW + 3):
        table.record(9, n, 10_000 + n, 1)
    assert len(table.freeze()[-1].appends) == limits.PRODUCER_WINDOW


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3)), max_size=40))
def test_no_producer_and_sequence_is_ever_appended_twice(
    requests: list[tuple[int, int, int]],
) -> None:
    table = ProducerTable(producers_max=4, window=2)
    written: dict[tuple[int, int], Duplicate] = {}
    end = 1
    for producer, sequence, count in requests:
        try:
            found = table.lookup(producer, sequence)
        except ProducerConflict:
            continue
        if found is not None:
            assert written[producer, sequence] == found
            continue
        assert (producer, sequence) not in written
        table.record(producer, sequence, end, count)
        written[producer, sequence] = Duplicate(Llsn(end), count)
        end += count
        assert ProducerTable.thaw(table.freeze(), producers_max=4, window=2).freeze() == (
            table.freeze()
        )
