"""How reports become cuts: the examples of the order-layer document, and its rules one by one."""

from __future__ import annotations

import pytest

from tests.core.order.orders import (
    S1,
    T1,
    T2,
    THREE,
    commit,
    cut,
    decided,
    glsns,
    machine_of,
    new,
    now,
    report,
)
from tidelog.core.order import machine as machine_module
from tidelog.core.order.commands import AddStreams, Command, CreateTopic, Cut, CutDecided, Quorum
from tidelog.core.order.decide import decide
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.types import Llsn, StreamId, TopicId, Version

# -- the document's examples ---------------------------------------------------------------------


def test_streams_get_their_glsns_in_the_order_of_their_numbers() -> None:
    """High watermark 10; LS1 has 3, 3, 3 on its replicas and LS2 2, 4, 3; all must have it."""
    machine = OrderMachine()
    streams = (*new(1, on=(1, 2, 3)), *new(2, on=(4, 5, 6)))
    machine.step(CreateTopic(T1, streams, quorum=Quorum.ALL))
    cut(machine, *(report(1, 1, 6, node=node) for node in (1, 2, 3)))
    cut(machine, *(report(2, 1, 4, node=node) for node in (4, 5, 6)))
    assert machine.topic(T1).high_watermark == 10
    first = [now(machine, 1, 3, node=node) for node in (1, 2, 3)]
    second = [
        now(machine, 2, length, node=node)
        for node, length in zip((4, 5, 6), (2, 4, 3), strict=True)
    ]
    found = cut(machine, *second, *first)
    assert found == decided(3, commit(1, 15, 11, 7, 3), commit(2, 15, 14, 5, 2))
    assert glsns(found) == {1: (11, 13), 2: (14, 15)}


def test_three_cuts_over_three_streams_leave_no_gap() -> None:
    """The document's table, repaired: the second cut gives 5, 6 to 7 and 8 to 10."""
    machine = machine_of(1, 2, 3)
    table = [
        glsns(cut(machine, *(now(machine, i + 1, n) for i, n in enumerate(lengths))))
        for lengths in ((2, 1, 1), (1, 2, 3), (2, 1, 3))
    ]
    assert table == [
        {1: (1, 2), 2: (3, 3), 3: (4, 4)},
        {1: (5, 5), 2: (6, 7), 3: (8, 10)},
        {1: (11, 12), 2: (13, 13), 3: (14, 16)},
    ]
    assert machine.version == 3


def test_the_overview_orders_two_entries_of_each_stream() -> None:
    """Three nodes report (3, 2, 2), (2, 4, 2) and (2, 3, 2); the cut is (2, 2, 2)."""
    machine = machine_of(1, 2, 3, on=THREE, quorum=Quorum.ALL)
    lengths = {1: (3, 2, 2), 2: (2, 4, 2), 3: (2, 3, 2)}
    found = cut(
        machine,
        *(
            report(stream, 1, length, node=node)
            for node, reported in lengths.items()
            for stream, length in enumerate(reported, 1)
        ),
    )
    assert glsns(found) == {1: (1, 2), 2: (3, 4), 3: (5, 6)}


# -- write quorums -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "quorum", "ordered"),
    [
        ((5,), Quorum.MAJORITY, 5),
        ((5,), Quorum.ALL, 5),
        ((5, 3), Quorum.MAJORITY, 3),
        ((5, 3, 1), Quorum.MAJORITY, 3),
        ((1, 3, 5), Quorum.MAJORITY, 3),
        ((5, 3, 1), Quorum.ALL, 1),
        ((5, 4, 3, 2), Quorum.MAJORITY, 3),
        ((5, 4, 3, 2, 1), Quorum.MAJORITY, 3),
        ((5, 4, 3, 2, 1), Quorum.ALL, 1),
        ((5, 4, 0), Quorum.MAJORITY, 4),
        ((5, 0, 0), Quorum.MAJORITY, 0),
        ((5, 4, 0), Quorum.ALL, 0),
    ],
)
def test_a_cut_takes_what_the_write_quorum_has(
    lengths: tuple[int, ...], quorum: Quorum, ordered: int
) -> None:
    on = range(1, len(lengths) + 1)
    machine = machine_of(1, on=on, quorum=quorum)
    reports = [report(1, 1, length, node=node) for node, length in zip(on, lengths, strict=True)]
    found = cut(machine, *reports)
    assert glsns(found) == ({1: (1, ordered)} if ordered else {})


def test_a_silent_replica_counts_as_one_that_has_nothing() -> None:
    machine = machine_of(1, on=THREE)
    assert cut(machine, report(1, 1, 5, node=1)) is None
    assert glsns(cut(machine, report(1, 1, 4, node=3))) == {1: (1, 4)}


def test_one_silent_replica_stops_a_stream_that_needs_all() -> None:
    machine = machine_of(1, on=THREE, quorum=Quorum.ALL)
    assert cut(machine, report(1, 1, 5, node=1), report(1, 1, 5, node=2)) is None
    assert glsns(cut(machine, report(1, 1, 1, node=3))) == {1: (1, 1)}


def test_a_stream_that_stands_still_does_not_hold_up_the_others() -> None:
    machine = machine_of(1, 2, on=THREE)
    found = cut(machine, report(1, 1, 9, node=1), *(report(2, 1, 1, node=n) for n in THREE))
    assert glsns(found) == {2: (1, 1)}


def test_what_a_slow_majority_adds_later_is_ordered_later() -> None:
    machine = machine_of(1, on=THREE)
    cut(machine, report(1, 1, 5, node=1), report(1, 1, 2, node=2))
    found = cut(machine, report(1, 3, 2, node=2, version=1))
    assert found == decided(2, commit(1, 4, 3, 3, 2))


# -- versions, topics, empty commits -------------------------------------------------------------


def test_an_idle_cut_decides_nothing() -> None:
    machine = machine_of(1, 2)
    assert not machine.has_pending
    assert machine.step(Cut()) == []
    assert cut(machine, report(1, 1, 0), report(2, 1, 0)) is None
    assert cut(machine, report(1, 1, 2)) is not None
    before = machine.state
    assert machine.step(Cut()) == []
    assert machine.state == before


def test_a_stream_without_entries_learns_the_cut_from_an_empty_commit() -> None:
    """It carries the stream's own last GLSN + 1, and ends where the stream's ordered part ends."""
    machine = machine_of(1, 2)
    assert machine.empty_commit(S1).commit == commit(1, 0, 1, 1, 0)
    cut(machine, report(1, 1, 1), report(2, 1, 1))
    assert cut(machine, now(machine, 1, 0), now(machine, 2, 1)) == decided(2, commit(2, 3, 3, 2, 1))
    empty = machine.empty_commit(S1)
    assert (empty.version, empty.commit) == (2, commit(1, 3, 2, 2, 0))
    assert empty.commit.llsn_begin + empty.commit.length == machine.stream(S1).llsn_end


def test_topics_count_their_glsns_apart_but_share_one_version() -> None:
    machine = machine_of(3, topic=T2)
    machine.step(CreateTopic(T1, new(5)))
    found = cut(machine, report(3, 1, 2), report(5, 1, 4))
    assert found == decided(1, commit(5, 4, 1, 1, 4), commit(3, 2, 1, 1, 2, topic=2))


def test_added_streams_continue_the_glsns_of_their_topic() -> None:
    machine = machine_of(2)
    cut(machine, report(2, 1, 7))
    machine.step(AddStreams(T1, new(1)))
    found = cut(machine, report(1, 1, 1), now(machine, 2, 1))
    assert found == decided(2, commit(1, 9, 8, 1, 1), commit(2, 9, 9, 8, 1))


def test_a_cut_visits_only_the_streams_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[int] = []

    def counting_decide(
        version: Version,
        ends: dict[StreamId, Llsn],
        streams: dict[StreamId, StreamOrder],
        topics: dict[TopicId, TopicOrder],
    ) -> CutDecided | None:
        visited.append(len(ends))
        return decide(version, ends, streams, topics)

    monkeypatch.setattr(machine_module, "decide", counting_decide)
    machine = machine_of(*range(1, 2001))
    cut(machine, report(1500, 1, 1), report(7, 1, 1), report(8, 1, 0))
    cut(machine)
    assert visited == [2, 0]


# -- the leader of the metadata repository fails -------------------------------------------------


def test_every_node_answers_the_same_when_the_leader_fails() -> None:
    """Cuts are decided from the log alone: whoever leads next has nothing to recover."""
    first, second = machine_of(1, 2, on=THREE), machine_of(1, 2, on=THREE)
    log: list[Command] = [
        *(report(1, 1, 2, node=node) for node in THREE),
        Cut(),
        *(report(1, 3, 1, node=node, version=1) for node in THREE),
        *(report(2, 1, 2, node=node) for node in THREE),
        Cut(),
    ]
    for command in log:
        assert first.step(command) == second.step(command)
    assert second.commits_after(S1, Version(0)) == first.commits_after(S1, Version(0))
    assert second.cuts_after(Version(1)) == first.cuts_after(Version(1))
    goes_on = report(2, 3, 1, node=1, version=2), report(2, 3, 1, node=2, version=2)
    assert glsns(cut(second, *goes_on)) == {2: (6, 6)}
