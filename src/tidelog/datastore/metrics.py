"""What a datastore tells Prometheus.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client.core import HistogramMetricFamily, Metric

from tidelog.datastore.spans import Spans, Timer
from tidelog.net.metrics import gauge, render

_BOUNDS_US: Final = tuple(1 << power for power in range(2, 24, 2))
"""From 4 µs to 4 s, each four times the one before."""


class Gauges(msgspec.Struct, frozen=True):
    """Figures of a datastore at one moment."""

    epoch: int
    stored: int
    propagated: int
    replicas: int
    failed: bool


def render_metrics(gauges: Gauges, spans: Spans) -> str:
    """All metrics as text."""
    return render([*_gauges(gauges), _spans(spans)]).decode()


def _gauges(gauges: Gauges) -> Iterator[Metric]:
    yield gauge("tidelog_datastore_epoch", "The current epoch.", gauges.epoch)
    yield gauge("tidelog_datastore_stored_epoch", "Durable here up to it.", gauges.stored)
    text = "Durable on every replica up to it."
    yield gauge("tidelog_datastore_propagated_epoch", text, gauges.propagated)
    yield gauge("tidelog_datastore_replicas", "Replicas of this master.", gauges.replicas)
    yield gauge("tidelog_datastore_failed", "1 once it has stopped.", gauges.failed)


def _spans(spans: Spans) -> Metric:
    seconds = HistogramMetricFamily(
        "tidelog_datastore_span_seconds", "How long the steps of commits took.", labels=["span"]
    )
    for span, timer in spans.timers().items():
        name = span.value.replace(" ", "_")
        seconds.add_metric([name], list(_buckets(timer)), sum_value=timer.total_ns / 1e9)
    return seconds


def _buckets(timer: Timer) -> Iterator[tuple[str, float]]:
    """Cumulative, as Prometheus wants them."""
    counts = timer.counts()
    for bound in _BOUNDS_US:
        yield str(bound / 1e6), sum(count for end, count in counts if end <= bound * 1000)
    yield "+Inf", sum(count for _, count in counts)
