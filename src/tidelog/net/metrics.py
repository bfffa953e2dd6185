"""Metrics as Prometheus reads them.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def render(metrics: Iterable[Metric]) -> bytes:
    """All of them as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(list(metrics)))
    return generate_latest(registry)


def gauge(name: str, text: str, value: float) -> Metric:
    """What goes up and down."""
    return GaugeMetricFamily(name, text, value=value)


def counter(name: str, text: str, value: float) -> Metric:
    """What only goes up."""
    return CounterMetricFamily(name, text, value=value)


def labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """What only goes up, one for each value of a label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family


class _Given(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
