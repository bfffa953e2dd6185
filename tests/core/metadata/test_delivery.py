"""What a storage node is told that knows less than the history reaches back to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog import limits
from tidelog.core.metadata.commands import Batch, Change, RegisterNode, Request
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import Behind, CommitResult, NodeReport
from tidelog.core.order.commands import CreateTopic, Cut, NewStream, Report
from tidelog.types import FIRST_TERM, Llsn, NodeId, StreamId, TopicId, Version

ME, LATE = NodeId(1), NodeId(13)
NODES = (NodeId(11), NodeId(12), LATE)
BUSY, IDLE = StreamId(1), StreamId(2)


def report(node: NodeId, stream: StreamId, version: int, begin: int, length: int) -> Report:
    return Report(node, stream, FIRST_TERM, Version(version), Llsn(begin), length)


def machine_with_cuts() -> MetadataMachine:
    """Stream 2 was ordered in cut 1, stream 1 in cuts 2 to 4; two of three nodes know it all."""
    machine = MetadataMachine()
    streams = tuple(NewStream(stream, NODES) for stream in (BUSY, IDLE))
    changes: tuple[Change, ...] = (
        *(RegisterNode(node) for node in NODES),
        CreateTopic(TopicId(1), streams),
    )
    machine.apply(Batch(tuple(Request(ME, number, one) for number, one in enumerate(changes))))
    first = NODES[:2]
    machine.apply(Batch((*(report(node, IDLE, 0, 1, 2) for node in NODES), Cut())))
    for version in (1, 2, 3):
        reports = [report(node, BUSY, version, version, 1) for node in first]
        machine.apply(Batch((*reports, Cut())))
    known = [
        report(node, stream, 4, end, 0) for node in first for stream, end in ((BUSY, 4), (IDLE, 3))
    ]
    machine.apply(Batch((*known, report(LATE, IDLE, 1, 3, 0), Cut())))
    # One more cut lets the order layer forget what nobody in sync misses.
    machine.apply(Batch((*(report(node, BUSY, 4, 4, 1) for node in first), Cut())))
    assert machine.order.first_version > 4
    return machine


def told(version: int, ahead: Mapping[StreamId, Version] | None = None) -> CommitResult:
    machine = machine_with_cuts()
    delivery = Delivery(ME, machine, 5)
    placements = machine.nodes[LATE].placements
    pairs = tuple((ahead or {}).items())
    (result,) = delivery.reported(NodeReport(LATE, ME, Version(version), placements, (), pairs))
    return result


def test_only_streams_that_missed_something_have_to_ask_others() -> None:
    result = told(1)
    assert (result.previous, result.version) == (1, 5)
    assert result.behind == (Behind(BUSY, Version(5), Llsn(5)),)
    assert result.commits == ()


def test_a_replica_that_is_ahead_of_its_node_gets_what_it_misses_itself() -> None:
    result = told(1, {BUSY: Version(4)})
    assert result.behind == ()
    assert [one.version for one in result.commits] == [5]
    assert result.ahead == ((BUSY, 4),), "the node can tell whether that is still so"


def test_a_node_that_knows_all_but_the_latest_cut_gets_it_as_ever() -> None:
    result = told(4)
    assert [one.version for one in result.commits] == [5]
    assert (result.behind, result.ahead) == ((), ())


def test_reports_that_come_in_parts_keep_what_the_first_part_said() -> None:
    machine = machine_with_cuts()
    delivery = Delivery(ME, machine, 5)
    placements = machine.nodes[LATE].placements
    ahead = ((BUSY, Version(4)),)
    delivery.reported(NodeReport(LATE, ME, Version(1), placements - 1, (), ahead))
    (result,) = delivery.reported(NodeReport(LATE, ME, Version(1), placements, (), None))
    assert result.ahead == ahead


def machine_nobody_hears(monkeypatch: pytest.MonkeyPatch) -> MetadataMachine:
    """Both streams are ordered in each of eight cuts, and nobody is told of any."""
    monkeypatch.setattr(limits, "ORDER_HISTORY_CUTS_MAX", 2)
    machine = MetadataMachine()
    streams = tuple(NewStream(stream, NODES) for stream in (BUSY, IDLE))
    changes: tuple[Change, ...] = (
        *(RegisterNode(node) for node in NODES),
        CreateTopic(TopicId(1), streams),
    )
    machine.apply(Batch(tuple(Request(ME, number, one) for number, one in enumerate(changes))))
    for length in range(1, 9):
        reports = [report(node, one, 0, 1, length) for node in NODES[:2] for one in (BUSY, IDLE)]
        machine.apply(Batch((*reports, Cut())))
    assert (machine.order.version, machine.order.first_version) == (8, 9), "no cut is kept whole"
    return machine


@pytest.mark.parametrize(("most", "parts"), [(1, 8), (3, 8), (4, 4), (7, 3), (16, 1)])
def test_what_is_too_large_for_a_message_comes_in_parts_that_end_at_cuts(
    most: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V4: what a majority has not applied is kept for each stream, however many there are."""
    machine = machine_nobody_hears(monkeypatch)
    monkeypatch.setattr(limits, "DELIVERY_COMMITS_MAX", most)
    delivery = Delivery(ME, machine, 5)
    placements = machine.nodes[LATE].placements
    results = delivery.reported(NodeReport(LATE, ME, Version(0), placements, ()))
    commits = [one for result in results for one in result.commits]
    assert len(results) == parts
    assert [one.version for one in commits] == [1 + place // 2 for place in range(16)]
    known = 0
    for result in results:
        assert result.previous == known
        assert result.behind == ()
        assert [one.version for one in result.commits][-1] == result.version
        assert [one.glsn for one in result.watermarks] == [2 * result.version]
        known = result.version
    assert known == machine.order.version
