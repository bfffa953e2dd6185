"""What an operator counts, and what it tells Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric

from tidelog.core.operator.operator import Operator
from tidelog.net.metrics import counter, gauge, labelled


@dataclass(slots=True)
class OperatorCounters:
    """Since the start, but for the last ones."""

    steps: Counter[str] = field(default_factory=Counter)
    """Writes that were applied, by what they mean."""
    writes: Counter[str] = field(default_factory=Counter)
    """Writes by outcome: ``applied``, or the name of an error."""
    requests: Counter[str] = field(default_factory=Counter)
    """What people asked for, by outcome."""
    refused_messages: int = 0
    """Messages of nodes that make no sense."""
    streams: int = 0
    suspected: int = 0
    at_work: int = 0
    is_paused: bool = False


def operator_metrics(operator: Operator, counters: OperatorCounters) -> Iterator[Metric]:
    """For /metrics."""
    yield gauge("tidelog_operator_streams", "Log streams in view.", counters.streams)
    yield gauge(
        "tidelog_operator_suspected_nodes",
        "Storage nodes that are taken for dead.",
        counters.suspected,
    )
    yield gauge(
        "tidelog_operator_procedures", "Elections and reconfigurations under way.", counters.at_work
    )
    yield gauge("tidelog_operator_paused", "1 while operators are paused.", counters.is_paused)
    yield labelled(
        "tidelog_operator_steps", "Steps that were written down.", "step", counters.steps
    )
    yield labelled("tidelog_operator_writes", "Writes of metadata.", "outcome", counters.writes)
    yield labelled(
        "tidelog_operator_requests", "What people asked for.", "outcome", counters.requests
    )
    refused = counters.refused_messages
    yield counter(
        "tidelog_operator_refused_messages", "Messages of nodes that make no sense.", refused
    )
    ignored = {reason.name.lower(): float(count) for reason, count in operator.ignored.items()}
    yield labelled("tidelog_operator_ignored", "What had no effect.", "reason", ignored)
