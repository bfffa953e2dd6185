"""Which reports count, and why the others do not (R1 to R3)."""

from __future__ import annotations

import pytest

from tests.core.order.orders import (
    S1,
    THREE,
    commit,
    cut,
    decided,
    feed,
    glsns,
    machine_of,
    report,
    update,
)
from tidelog import limits
from tidelog.core.order.commands import Report
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.reports import Ignored


def machine_in_term_two() -> OrderMachine:
    """Cuts: 1 gave LLSNs 1 to 3, 2 gave another stream's, 3 gave 4 to 5; node 3 knows none."""
    machine = machine_of(1, 2, on=THREE)
    cut(machine, *(report(1, 1, 3, node=node) for node in THREE))
    cut(machine, *(report(2, 1, 1, node=node) for node in THREE))
    late = report(1, 1, 5, node=3)
    cut(machine, late, *(report(1, 4, 2, node=node, version=2) for node in (1, 2)))
    machine.step(update(machine, 1, term=2))
    feed(machine, report(1, 6, 2, version=3, term=2))
    return machine


@pytest.mark.parametrize(
    ("ignored", "reason"),
    [
        (report(9, 1, 1), Ignored.UNKNOWN_STREAM),
        (report(1, 6, 3, version=3, term=1), Ignored.OLD_TERM),
        (report(1, 6, 3, version=3, term=3), Ignored.UNKNOWN_TERM),
        (report(1, 6, 3, version=3, term=2, node=4), Ignored.NOT_IN_ENSEMBLE),
        (report(1, 0, 9, version=3, term=2), Ignored.INVALID),
        (report(1, 6, -1, version=3, term=2), Ignored.INVALID),
        (report(1, 6, limits.REPORT_ENTRIES_MAX + 1, version=3, term=2), Ignored.INVALID),
        (report(1, 6, 3, version=-1, term=2), Ignored.INVALID),
        (report(1, 6, 3, version=3, term=2, committed=-1), Ignored.INVALID),
        (report(1, 6, 3, version=3, term=2, committed=8 << 40), Ignored.INVALID),
        (report(1, 6, 3, version=3, term=1, committed=9), Ignored.OLD_TERM),
        (report(1, 6, 3, version=3, term=2, committed=9, node=4), Ignored.NOT_IN_ENSEMBLE),
        (report(1, 6, 3, version=4, term=2), Ignored.UNKNOWN_VERSION),
        (report(1, 7, 3, version=3, term=2), Ignored.GAP),
        (report(1, 5, 9, version=3, term=2), Ignored.CONTRADICTION),
        (report(1, 6, 9, version=2, term=2), Ignored.CONTRADICTION),
        (report(1, 5, 9, version=2, term=2), Ignored.CONTRADICTION),
        (report(1, 3, 9, version=1, term=2), Ignored.CONTRADICTION),
        (report(1, 2, 9, version=0, term=2), Ignored.CONTRADICTION),
        (report(1, 6, 1, version=3, term=2), Ignored.SMALLER_END),
        (report(1, 1, 6, version=0, term=2), Ignored.SMALLER_END),
        (report(1, 6, 2, version=3, term=2), Ignored.REPEATED),
        (report(1, 4, 4, version=2, term=2), Ignored.REPEATED),
    ],
)
def test_a_report_that_does_not_count_is_ignored_for_a_named_reason(
    ignored: Report, reason: Ignored
) -> None:
    machine = machine_in_term_two()
    before = machine.state
    assert machine.step(ignored) == []
    assert machine.state == before
    assert machine.ignored == {reason: 1}


@pytest.mark.parametrize(
    "counted",
    [
        report(1, 6, 3, version=3, term=2, node=2),
        report(1, 4, 5, version=2, term=2, node=2),  # Version 2 ordered nothing of the stream.
        report(1, 4, 5, version=1, term=2, node=2),
        report(1, 1, 8, version=0, term=2, node=2),
    ],
)
def test_a_report_counts_if_it_begins_where_its_version_ended(counted: Report) -> None:
    machine = machine_in_term_two()
    found = cut(machine, counted)
    assert found == decided(4, commit(1, 8, 7, 6, 2, term=2)), "no more than the two that both have"
    assert not machine.ignored


def test_a_repeated_report_is_ordered_once() -> None:
    machine = machine_of(1)
    found = cut(machine, report(1, 1, 2), report(1, 1, 2))
    assert found == decided(1, commit(1, 2, 1, 1, 2))
    assert cut(machine, report(1, 1, 2)) is None
    assert machine.ignored == {Ignored.REPEATED: 2}


def test_an_old_report_with_more_entries_orders_only_the_excess() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 2))
    cut(machine, report(1, 1, 5))
    found = cut(machine, report(1, 1, 9, version=0))
    assert found == decided(3, commit(1, 9, 6, 6, 4))


def test_a_report_that_shrinks_takes_nothing_back() -> None:
    machine = machine_of(1)
    found = cut(machine, report(1, 1, 5), report(1, 1, 3))
    assert found == decided(1, commit(1, 5, 1, 1, 5))


def test_a_report_that_was_overtaken_does_not_make_the_replica_forget_a_cut() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 2))
    feed(machine, report(1, 3, 0, version=1), report(1, 1, 3, version=0))
    (replica,) = machine.stream(S1).replicas
    assert (replica.version, replica.end) == (1, 4)


def test_a_replica_that_has_less_than_is_ordered_neither_helps_nor_harms() -> None:
    machine = machine_of(1, on=THREE)
    cut(machine, report(1, 1, 9, node=1), report(1, 1, 9, node=2))
    assert cut(machine, report(1, 1, 4, node=3)) is None
    assert glsns(cut(machine, report(1, 1, 11, node=3), report(1, 1, 10, node=1))) == {1: (10, 10)}
    assert not machine.ignored


def test_what_its_leader_knows_to_be_committed_is_ordered_by_its_word_alone() -> None:
    machine = machine_of(1, on=THREE)
    found = cut(machine, report(1, 1, 4, committed=3))
    assert found == decided(1, commit(1, 2, 1, 1, 2)), "two of the four are on a quorum"
    assert glsns(cut(machine, report(1, 1, 4, committed=6))) == {1: (3, 5)}, "it has fewer itself"
    assert not machine.ignored


def test_the_word_of_a_leader_takes_nothing_back() -> None:
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 4, committed=5), report(1, 1, 5, committed=2))
    assert machine.stream(S1).committed_end == 5


def test_the_word_of_a_leader_is_void_in_the_next_term() -> None:
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 4, committed=5))
    machine.step(update(machine, 1, term=2))
    assert cut(machine) is None


def test_the_word_of_a_leader_counts_on_while_only_the_ensemble_changes() -> None:
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 4, committed=5))
    machine.step(update(machine, 1, on=(1, 2)))
    assert glsns(cut(machine)) == {1: (1, 4)}


def test_no_report_makes_a_number_that_cannot_be_stored() -> None:
    machine = machine_of(1, 2)
    begin = 1
    for version in range(4):
        largest = report(1, begin, limits.REPORT_ENTRIES_MAX, version=version)
        found = cut(machine, largest)
        assert found is not None
        begin += limits.REPORT_ENTRIES_MAX
    assert machine.topic(machine.stream(S1).topic).high_watermark < limits.ORDER_NUMBER_END
