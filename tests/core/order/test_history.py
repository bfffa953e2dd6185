"""Who has missed a cut is told again, in order; what nobody needs is forgotten (H1 to H4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import pytest

from tests.core.order.orders import (
    S1,
    S2,
    T1,
    THREE,
    acknowledge,
    cut,
    cut_all,
    feed,
    glsns,
    machine_of,
    missed,
    new,
    now,
    report,
    update,
)
from tidelog import limits
from tidelog.core.order.commands import AddStreams, CutDecided, StreamStatus
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.reports import Ignored
from tidelog.core.order.state import StreamOrder
from tidelog.errors import UnknownStream
from tidelog.types import StreamId, Version

CUTS_MAX = 8
UNAPPLIED_MAX = 4


@pytest.fixture
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ORDER_HISTORY_CUTS_MAX", CUTS_MAX)
    monkeypatch.setattr(limits, "ORDER_UNAPPLIED_CUTS_MAX", UNAPPLIED_MAX)


def machine_of_the_table(knows: int = 1) -> OrderMachine:
    """The document's three cuts; the first replica of stream 1 stays at the version it knows."""
    machine = machine_of(1, 2, 3, on=THREE)
    for lengths in ((2, 1, 1), (1, 2, 3), (2, 1, 3)):
        reports = [
            now(machine, stream, length, node=node)
            for stream, length in enumerate(lengths, 1)
            for node in THREE
            if stream > 1 or node > 1 or machine.version <= knows
        ]
        cut(machine, *reports)
    return machine


def cut_without_news(machine: OrderMachine, stream: int) -> CutDecided:
    """Order one more entry of a stream whose replicas never learn of a cut."""
    length = machine.stream(StreamId(stream)).llsn_end
    found = cut(machine, *(report(stream, 1, length, node=node) for node in THREE))
    assert found is not None
    return found


# -- the document's examples ---------------------------------------------------------------------


def test_a_report_that_is_two_cuts_old_is_answered_with_two_commits() -> None:
    """HighestGLSN 4, 3 uncommitted: [5], then [11, 12]; not in one answer as the text has it."""
    machine = machine_of_the_table()
    feed(machine, report(1, 3, 3, version=1))
    assert missed(machine, 1, 1) == [(2, 5, 5), (3, 11, 12)]
    assert cut(machine) is None, "nothing is issued twice"


def test_a_report_that_is_one_cut_old_is_answered_with_one_commit() -> None:
    """HighestGLSN 10, 2 uncommitted: [11, 12]."""
    machine = machine_of_the_table(knows=2)
    feed(machine, report(1, 4, 2, version=2))
    assert missed(machine, 1, 2) == [(3, 11, 12)]
    assert cut(machine) is None


def test_the_same_report_gets_the_same_answer_from_every_node() -> None:
    first, second = machine_of_the_table(), machine_of_the_table()
    second = OrderMachine.restore(second.state)
    for machine in (first, second, first):
        feed(machine, report(1, 3, 3, version=1))
        assert missed(machine, 1, 1) == [(2, 5, 5), (3, 11, 12)]


# -- asking --------------------------------------------------------------------------------------


def test_cuts_that_ordered_nothing_of_a_stream_are_not_missed_by_it() -> None:
    machine = machine_of(1, 2, on=THREE)
    for stream in (1, 2, 2, 1):
        cut_without_news(machine, stream)
    assert missed(machine, 1, 0) == [(1, 1, 1), (4, 4, 4)]
    assert missed(machine, 1, 1) == missed(machine, 1, 3) == [(4, 4, 4)]
    assert missed(machine, 1, 4) == []
    with pytest.raises(UnknownStream):
        missed(machine, 9, 0)


def test_a_node_is_told_whole_cuts() -> None:
    machine = machine_of(1, 2, on=THREE)
    cuts = tuple(cut_without_news(machine, stream) for stream in (1, 2, 1))
    assert (machine.first_version, machine.version) == (1, 3)
    assert [machine.cuts_after(Version(known)) for known in range(4)] == [
        cuts,
        cuts[1:],
        cuts[2:],
        (),
    ]


def test_a_new_stream_has_missed_nothing() -> None:
    machine = machine_of(1)
    cut_all(machine, 1, 3)
    machine.step(AddStreams(T1, new(2)))
    assert missed(machine, 2, 0) == []
    assert cut(machine, report(2, 1, 1)) is not None


# -- trimming ------------------------------------------------------------------------------------


def test_what_all_replicas_know_is_forgotten_with_the_next_cut() -> None:
    machine = machine_of(1, on=THREE)
    for _ in range(5):
        cut_all(machine, 1, 1)
        assert machine.first_version == machine.version, "each report before it knew the last one"
    acknowledge(machine, 1, *THREE)
    cut_all(machine, 1, 1)
    assert machine.first_version == machine.version
    assert machine.cuts_after(Version(4)) is None
    assert missed(machine, 1, 4) is None
    assert missed(machine, 1, 5) == [(6, 6, 6)]


def test_history_reaches_back_to_what_a_slow_replica_in_sync_misses() -> None:
    machine = machine_of(1, on=THREE)
    cut_all(machine, 1, 1)
    acknowledge(machine, 1, *THREE)
    for _ in range(5):
        cut(machine, now(machine, 1, 1, node=1), now(machine, 1, 1, node=2))
    assert machine.first_version == 2
    assert missed(machine, 1, 1) == [(version, version, version) for version in range(2, 7)]
    feed(machine, report(1, 4, 0, node=3, version=3))
    cut(machine, now(machine, 1, 1, node=1), now(machine, 1, 1, node=2))
    assert machine.first_version == 4


def test_a_replica_of_an_idle_stream_holds_no_history() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 1)
    acknowledge(machine, 1, *THREE)
    for _ in range(5):
        cut_all(machine, 2, 1)
    assert machine.first_version == 6
    assert missed(machine, 1, 1) == []


@pytest.mark.usefixtures("_small_limits")
def test_a_dead_replica_never_blocks_trimming() -> None:
    """It reported in this term and died: it holds what it misses, but no more than the limit."""
    machine = machine_of(1, on=THREE)
    cut_all(machine, 1, 1)
    for _ in range(CUTS_MAX - 1):
        cut(machine, now(machine, 1, 1, node=1), now(machine, 1, 1, node=2))
    assert machine.first_version == 1
    cut(machine, now(machine, 1, 1, node=1), now(machine, 1, 1, node=2))
    assert machine.first_version == machine.version, "all others know the rest"


@pytest.mark.usefixtures("_small_limits")
def test_a_replica_that_fell_behind_history_synchronises_and_goes_on() -> None:
    machine = machine_of(1, on=THREE)
    cut_all(machine, 1, 1)
    for _ in range(CUTS_MAX):
        cut(machine, now(machine, 1, 1, node=1), now(machine, 1, 1, node=2))
    assert missed(machine, 1, 0) is None
    feed(machine, report(1, 1, 99, node=3))
    assert machine.ignored == {Ignored.BEHIND_HISTORY: 1}
    found = cut(machine, now(machine, 1, 1, node=3), now(machine, 1, 1, node=2))
    assert glsns(found) == {1: (CUTS_MAX + 2, CUTS_MAX + 2)}


def test_a_replica_that_is_silent_in_the_new_term_holds_nothing() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 1)
    acknowledge(machine, 1, 1, 2)
    machine.step(update(machine, 1, term=2))
    cut_all(machine, 2, 1)
    assert machine.first_version == 2
    assert missed(machine, 1, 0) is None


def test_a_replica_that_reports_in_the_new_term_holds_what_it_misses() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 1)
    acknowledge(machine, 1, 1, 2)
    machine.step(update(machine, 1, term=2))
    feed(machine, report(1, 1, 1, node=3, term=2))
    cut_all(machine, 2, 1)
    assert machine.first_version == 1
    assert missed(machine, 1, 0) == [(1, 1, 1)]


def test_a_replica_that_left_the_ensemble_holds_nothing() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 1)
    acknowledge(machine, 1, 1, 2)
    machine.step(update(machine, 1, on=(1, 2)))
    cut_all(machine, 2, 1)
    assert machine.first_version == 2


def test_a_sealed_stream_holds_nothing_that_its_replicas_know() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 1)
    machine.step(update(machine, 1, status=StreamStatus.SEALED))
    acknowledge(machine, 1, *THREE)
    cut_all(machine, 2, 1)
    assert machine.first_version == 2


def test_history_is_bounded_by_what_it_says_about_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ORDER_HISTORY_COMMITS_MAX", 6)
    machine = machine_of(1, 2, on=THREE)

    def both(replicas: Iterable[int]) -> None:
        reports = [now(machine, s, 1, node=node) for s in (1, 2) for node in replicas]
        cut(machine, *reports)

    both(THREE)
    for _ in range(2):
        both((1, 2))
    assert machine.first_version == 1
    both((1, 2))
    assert machine.first_version == machine.version


# -- cuts that nobody has learnt -----------------------------------------------------------------


def test_a_cut_that_no_majority_has_learnt_is_never_forgotten() -> None:
    """Known bad schedule: decided, not delivered, new term, other streams go on.

    If it was forgotten, the entries would have GLSNs that nobody could ever find out.
    """
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 2)
    acknowledge(machine, 1, 3)
    machine.step(update(machine, 1, term=2))
    for _ in range(5):
        cut_all(machine, 2, 1)
    assert machine.first_version == 6
    assert machine.cuts_after(Version(0)) is None
    assert missed(machine, 1, 0) == [(1, 1, 2)]
    machine = OrderMachine.restore(machine.state)
    assert missed(machine, 1, 0) == [(1, 1, 2)]
    acknowledge(machine, 1, 1)
    machine.validate()
    assert missed(machine, 1, 0) is None, "a majority knows it: the others can ask there"


def test_a_smaller_ensemble_may_let_a_kept_cut_go() -> None:
    machine = machine_of(1, 2, on=THREE)
    cut_all(machine, 1, 2)
    acknowledge(machine, 1, 3)
    machine.step(update(machine, 1, term=2))
    cut_all(machine, 2, 1)
    assert missed(machine, 1, 0) == [(1, 1, 2)]
    machine.step(update(machine, 1, on=(3,)))
    machine.validate()
    assert missed(machine, 1, 0) is None


def backlogged_machine() -> OrderMachine:
    """Replicas report more and more durable entries, but apply no cut."""
    machine = machine_of(1, 2, on=THREE)
    for count in range(1, UNAPPLIED_MAX + 1):
        cut(machine, *(report(1, 1, count, node=node) for node in THREE))
    return machine


@pytest.mark.usefixtures("_small_limits")
def test_a_stream_whose_majority_applies_nothing_has_to_wait() -> None:
    machine = backlogged_machine()
    assert machine.version == UNAPPLIED_MAX
    assert cut(machine, *(report(1, 1, 9, node=node) for node in THREE)) is None
    assert cut_all(machine, 2, 1), "the others go on"


@pytest.mark.usefixtures("_small_limits")
def test_a_stream_that_had_to_wait_goes_on_when_a_majority_has_caught_up() -> None:
    machine = backlogged_machine()
    feed(machine, *(report(1, 1, 9, node=node) for node in THREE))
    feed(machine, report(1, 2, 8, node=1, version=1))
    assert not machine.has_pending
    feed(machine, report(1, 2, 8, node=2, version=1))
    assert glsns(cut(machine)) == {1: (UNAPPLIED_MAX + 1, 9)}


@pytest.mark.usefixtures("_small_limits")
def test_history_stays_bounded_whatever_the_replicas_do() -> None:
    machine = machine_of(1, 2, on=THREE)
    for count in range(1, 10 * CUTS_MAX):
        cut(machine, *(report(stream, 1, count, node=node) for stream in (1, 2) for node in THREE))
        state = machine.state
        assert len(state.cuts) <= CUTS_MAX
        assert all(len(kept.older) <= UNAPPLIED_MAX for kept in state.histories)


# -- cost ----------------------------------------------------------------------------------------


def test_a_report_costs_the_same_whatever_the_number_of_streams() -> None:
    """Counted in accesses to streams, not in seconds."""
    touched: list[StreamId] = []

    class Watched(dict[StreamId, StreamOrder]):
        def __getitem__(self, key: StreamId) -> StreamOrder:
            touched.append(key)
            return super().__getitem__(key)

        def values(self) -> NoReturn:
            raise AssertionError("all streams were visited")

    machine = machine_of(*range(1, 1001), on=THREE)
    machine._streams = Watched(machine._streams)
    reports = [report(stream, 1, 1, node=node) for stream in (1, 500) for node in THREE]
    feed(machine, *reports)
    assert set(touched) == {1, 500}
    assert len(touched) <= 2 * len(reports)
    assert S1 in machine.streams
    assert S2 in machine.streams
