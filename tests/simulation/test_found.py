"""What the simulator found, told as short stories."""

from __future__ import annotations

from tidelog.core.metadata.collector import Collector
from tidelog.core.order.commands import Report
from tidelog.types import FIRST_LLSN, NodeId, StreamId, Term, Version


def test_a_report_that_was_offered_again_is_not_proposed_once_the_log_has_it() -> None:
    """A log that is slower than the patience of the collector must not make it propose for ever."""
    collector = Collector()
    report = Report(NodeId(101), StreamId(1), Term(1), Version(0), FIRST_LLSN, 1)
    collector.collect(report)
    assert collector.take(10) == (report,)
    collector.offer_again()
    collector.applied(report)
    assert not collector.is_waiting
    assert collector.take(10) == ()
