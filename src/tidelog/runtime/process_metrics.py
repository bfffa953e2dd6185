"""What every process tells Prometheus of itself.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from tidelog.runtime.config import Role

_collector = ProcessCollector(registry=None)
"""Memory, processor time and open files, as the system has them."""


def process_metrics(roles: Iterable[str]) -> Iterator[Metric]:
    """``tidelog_up`` for each role, 1 if it is ready; and the figures of the system."""
    up = GaugeMetricFamily("tidelog_up", "1 if the role is ready.", labels=["role"])
    ready = set(roles)
    for role in Role:
        up.add_metric([role.value], 1.0 if role.value in ready else 0.0)
    yield up
    yield from _collector.collect()
