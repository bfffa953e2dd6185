"""What a node tells Prometheus: its own counters and the figures of its log.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidelog.embedded.stats import log_stats
from tidelog.interface.figures import LogStats
from tidelog.server.counters import APPEND_SECONDS_BOUNDS, Counters
from tidelog.server.parts import NodeParts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(parts: NodeParts) -> bytes:
    """All metrics as text; looks at files' indexes, so it belongs into a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_NodeCollector(parts.counters, log_stats(parts.engine)))
    return generate_latest(registry)


class _NodeCollector(Collector):
    def __init__(self, counters: Counters, stats: LogStats) -> None:
        self._counters = counters
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        yield from _requests(self._counters)
        yield from _log(self._stats)
        yield from _topics(self._stats)


def _requests(counters: Counters) -> Iterator[Metric]:
    yield _gauge("tidelog_open_connections", "Connections now.", counters.connections)
    yield _gauge("tidelog_in_flight_requests", "Requests not answered yet.", counters.in_flight)
    total = counters.connections_total
    yield _counter("tidelog_connections", "Connections since the start.", total)
    yield _counter("tidelog_appends", "Appends that were committed.", counters.appends)
    yield _counter("tidelog_append_entries", "Entries appended.", counters.append_entries)
    yield _counter("tidelog_append_bytes", "Bytes of committed appends.", counters.append_bytes)
    yield _counter("tidelog_read_pages", "Pages of entries sent.", counters.read_pages)
    yield _counter("tidelog_read_bytes", "Bytes of batches sent.", counters.read_bytes)
    by_name = CounterMetricFamily("tidelog_requests", "Requests.", labels=["message"])
    for name, count in sorted(counters.requests.items()):
        by_name.add_metric([name], count)
    yield by_name
    refused = CounterMetricFamily("tidelog_refused", "Requests refused.", labels=["error"])
    for name, count in sorted(counters.refused.items()):
        refused.add_metric([name], count)
    yield refused
    bounds = [*map(str, APPEND_SECONDS_BOUNDS), "+Inf"]
    seconds = HistogramMetricFamily("tidelog_append_seconds", "From arrival to outcome.")
    buckets = list(zip(bounds, accumulate(counters.append_buckets), strict=True))
    seconds.add_metric([], buckets, sum_value=counters.append_seconds)
    yield seconds


def _log(stats: LogStats) -> Iterator[Metric]:
    yield _counter("tidelog_wal_frames", "Frames written, each with an fsync.", stats.wal_frames)
    yield _counter("tidelog_wal_bytes", "Bytes written to the WAL.", stats.wal_bytes)
    yield _gauge("tidelog_wal_backlog_files", "Files not in segments.", stats.wal_backlog_files)
    yield _counter("tidelog_flushes", "WAL files moved into segments.", stats.flushes)
    yield _counter("tidelog_snapshots", "Snapshots taken.", stats.snapshots)
    runs = CounterMetricFamily("tidelog_compactions", "Compaction runs.", labels=["kind"])
    runs.add_metric(["minor"], stats.minor_compactions)
    runs.add_metric(["major"], stats.major_compactions)
    yield runs
    failures = stats.compaction_failures
    yield _counter("tidelog_compaction_failures", "Compactions that failed.", failures)
    seconds = stats.compaction_seconds
    yield _counter("tidelog_compaction_seconds", "Time spent on compaction.", seconds)
    reclaimed = stats.reclaimed_bytes
    yield _counter("tidelog_reclaimed_bytes", "Bytes that compaction freed.", reclaimed)
    yield _gauge("tidelog_damaged_files", "Files found damaged.", len(stats.damaged_files))


def _topics(stats: LogStats) -> Iterator[Metric]:
    labels = ["topic"]
    high = GaugeMetricFamily("tidelog_high_watermark", "Last GLSN issued.", labels=labels)
    first = GaugeMetricFamily("tidelog_first_available", "First GLSN kept.", labels=labels)
    size = GaugeMetricFamily("tidelog_segment_bytes", "Bytes in segments.", labels=labels)
    dead = GaugeMetricFamily("tidelog_dead_bytes", "Of these, dead.", labels=labels)
    memory = GaugeMetricFamily("tidelog_memtable_bytes", "Bytes not in segments.", labels=labels)
    for topic in stats.topics:
        name = [topic.topic]
        high.add_metric(name, topic.high_watermark)
        first.add_metric(name, topic.first_available)
        size.add_metric(name, topic.segment_bytes)
        dead.add_metric(name, topic.dead_bytes)
        memory.add_metric(name, sum(stream.memtable_bytes for stream in topic.streams))
    yield from (high, first, size, dead, memory)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
