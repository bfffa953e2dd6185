"""What reports would lead to, before they are in the log.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.core.order.commands import Report
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.quorum import durable_end
from tidelog.core.order.reports import is_of_term
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.types import Llsn, StreamId


def would_order(order: OrderMachine, reports: Iterable[Report]) -> bool:
    """Whether a cut may order more with these reports.

    They are not weighed, so yes may turn out to be no; no is never yes.
    """
    by_stream: dict[StreamId, list[Report]] = {}
    for report in reports:
        by_stream.setdefault(report.stream, []).append(report)
    return any(_would_order(order, *one) for one in by_stream.items())


def _would_order(order: OrderMachine, stream: StreamId, reports: Sequence[Report]) -> bool:
    known = order.streams.get(stream)
    if known is None:
        return False
    if order.is_backlogged(known):
        return True  # Versions may be what it waits for.
    counted = [report for report in reports if is_of_term(report, known)]
    if any(report.committed_end > known.llsn_end for report in counted):
        return True
    replicas = _reported(known, counted)
    return durable_end(replicas, order.topic(known.topic).quorum) > known.llsn_end


def _reported(known: StreamOrder, reports: Iterable[Report]) -> list[ReplicaOrder]:
    """The replicas as they are if all reports count."""
    ends = {one.node: one.llsn_end for one in reports}
    return [
        ReplicaOrder(one.node, one.version, Llsn(max(one.end, ends.get(one.node, 0))))
        for one in known.replicas
    ]
