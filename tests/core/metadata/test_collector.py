"""Reports wait at a metadata node until the Raft log has them, and idle ones cost nothing."""

from __future__ import annotations

from tidelog.core.metadata.collector import Collector
from tidelog.core.order.commands import Report
from tidelog.types import Llsn, NodeId, StreamId, Term, Version


def report(
    length: int, *, node: int = 11, stream: int = 1, term: int = 1, version: int = 0, begin: int = 1
) -> Report:
    return Report(NodeId(node), StreamId(stream), Term(term), Version(version), Llsn(begin), length)


def collected(*reports: Report) -> Collector:
    collector = Collector()
    for one in reports:
        collector.collect(one)
    return collector


def test_only_the_newest_report_of_a_replica_is_handed_over() -> None:
    collector = collected(report(1), report(3), report(2))
    assert collector.take(10) == (report(3),)
    assert not collector.is_waiting


def test_a_report_is_handed_over_once_and_again_until_the_log_has_it() -> None:
    collector = collected(report(3))
    assert collector.take(10) == (report(3),)
    assert collector.take(10) == ()
    collector.offer_again()
    assert collector.take(10) == (report(3),)
    collector.applied(report(3))
    collector.offer_again()
    assert not collector.is_waiting


def test_a_report_that_grew_meanwhile_is_not_done_when_the_log_has_the_smaller_one() -> None:
    collector = collected(report(3))
    collector.take(10)
    collector.collect(report(5))
    collector.applied(report(3))
    assert collector.take(10) == (report(5),)


def test_a_version_that_came_while_its_report_was_on_its_way_makes_no_batch() -> None:
    collector = collected(report(3))
    collector.take(10)
    collector.collect(report(0, version=1, begin=4))
    collector.applied(report(3))
    collector.offer_again()
    assert not collector.is_waiting


def test_a_newer_version_alone_makes_no_batch_but_rides_along() -> None:
    collector = collected(report(3))
    collector.take(10)
    collector.applied(report(3))
    knows_more = report(0, version=1, begin=4)
    collector.collect(knows_more)
    assert not collector.is_waiting
    assert collector.take(10) == ()
    other = report(1, stream=2)
    collector.collect(other)
    assert collector.take(10) == (other, knows_more)


def test_a_newer_version_makes_a_batch_while_entries_wait_to_be_ordered() -> None:
    collector = collected(report(3))
    collector.take(10)
    collector.applied(report(3))
    still_waits = report(1, version=1, begin=3)
    collector.collect(still_waits)
    assert collector.take(10) == (still_waits,)


def test_a_replica_with_nothing_to_order_makes_no_batch() -> None:
    assert not collected(report(0)).is_waiting


def test_a_report_of_an_older_term_does_not_replace_a_newer_one() -> None:
    collector = collected(report(2, term=2), report(9, term=1))
    assert collector.take(10) == (report(2, term=2),)


def test_a_new_term_may_report_less() -> None:
    collector = collected(report(9, term=1), report(2, term=2))
    assert collector.take(10) == (report(2, term=2),)


def test_reports_of_a_changed_stream_are_offered_again() -> None:
    collector = collected(report(3), report(4, stream=2))
    for one in collector.take(10):
        collector.applied(one)
    collector.streams_changed(frozenset({StreamId(2)}))
    assert collector.take(10) == (report(4, stream=2),)


def test_a_batch_has_a_limit_and_the_rest_waits() -> None:
    collector = collected(report(1), report(2, stream=2), report(3, stream=3))
    assert collector.take(2) == (report(1), report(2, stream=2))
    assert collector.take(2) == (report(3, stream=3),)


def test_what_came_from_a_storage_node_of_another_collector_is_dropped() -> None:
    collector = collected(report(1), report(2, node=12))
    collector.take(1)
    collector.forget(NodeId(11))
    collector.offer_again()
    assert collector.take(10) == (report(2, node=12),)
