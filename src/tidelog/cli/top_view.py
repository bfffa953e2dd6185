"""What ``tidelog top`` shows of a cluster, given two looks at it.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog.cli.cluster_tables import (
    finding_line,
    metadata_line,
    ordered_end,
    plan_text,
    replica_text,
)
from tidelog.cli.output import Id, Size, table_lines
from tidelog.interface.cluster_figures import ClusterNode, ClusterStatus, ClusterStream
from tidelog.interface.cluster_health import health_of

_NODES: Final = ("node", "state", "leads", "replicas", "lag", "disk free", "WAL backlog", "ping ms")
_STREAMS: Final = (
    "stream",
    "topic",
    "plan",
    "term",
    "entries/s",
    "ordered",
    "unordered",
    "replicas",
)


@dataclass(frozen=True, slots=True)
class Glance:
    """One look, and when it was taken."""

    seconds: float
    status: ClusterStatus


def top_lines(now: Glance, before: Glance | None) -> Iterator[str]:
    """The whole picture; rates need a look before this one."""
    status = now.status
    rates = {one.stream: _rate(one, now, before) for one in status.streams}
    known = [rate for rate in rates.values() if rate is not None]
    total = f"{sum(known):,.0f} entries/s" if known else "rates follow"
    yield f"cluster {status.cluster_id[:12]}: {len(status.nodes)} nodes, {total}"
    yield metadata_line(status.metadata)
    yield ""
    yield from table_lines(_NODES, [_node_row(node, status) for node in status.nodes])
    yield ""
    yield from table_lines(
        _STREAMS, [_stream_row(one, rates[one.stream]) for one in status.streams]
    )
    findings = health_of(status)
    if findings:
        yield ""
    for finding in findings:
        yield finding_line(finding).split("\n", 1)[0]


def _rate(stream: ClusterStream, now: Glance, before: Glance | None) -> float | None:
    if before is None or now.seconds <= before.seconds:
        return None
    older = before.status.stream(stream.stream)
    if older is None:
        return None
    grown = max(ordered_end(stream) - ordered_end(older), 0)
    return grown / (now.seconds - before.seconds)


def _node_row(node: ClusterNode, status: ClusterStatus) -> tuple[object, ...]:
    lags = [
        replica.lag
        for stream in status.streams
        for replica in stream.replicas
        if replica.node == node.node and replica.lag is not None
    ]
    facts = node.facts
    return (
        Id(node.node),
        "silent" if facts is None else "ok",
        node.leads,
        node.replicas,
        max(lags, default=None),
        None if facts is None else Size(facts.data_bytes_free),
        None if facts is None else facts.wal_backlog_files,
        "-" if facts is None else f"{1000 * node.round_trip_seconds:.1f}",
    )


def _stream_row(stream: ClusterStream, rate: float | None) -> tuple[object, ...]:
    ends = [
        replica.facts.end_llsn
        for replica in stream.replicas
        if replica.facts is not None and replica.node == stream.leader
    ]
    ordered = ordered_end(stream)
    return (
        Id(stream.stream),
        stream.topic,
        plan_text(stream),
        stream.term,
        None if rate is None else round(rate),
        ordered - 1,
        max(ends[0] - ordered, 0) if ends else None,
        ", ".join(replica_text(replica, stream.leader) for replica in stream.replicas),
    )
