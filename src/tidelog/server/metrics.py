"""What a node tells Prometheus: its own counters and the figures of its log.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from tidelog.embedded.stats import log_stats
from tidelog.interface.figures import LogStats
from tidelog.net.metrics import counter, gauge, labelled, render
from tidelog.server.counters import APPEND_SECONDS_BOUNDS, Counters
from tidelog.server.parts import NodeParts


def render_metrics(parts: NodeParts) -> bytes:
    """All metrics as text; looks at files' indexes, so it belongs into a thread."""
    stats = log_stats(parts.engine)
    return render(chain(request_metrics(parts.counters), _log(stats), _topics(stats)))


def request_metrics(counters: Counters) -> Iterator[Metric]:
    yield gauge("tidelog_open_connections", "Connections now.", counters.connections)
    yield gauge("tidelog_in_flight_requests", "Requests not answered yet.", counters.in_flight)
    total = counters.connections_total
    yield counter("tidelog_connections", "Connections since the start.", total)
    yield counter("tidelog_appends", "Appends that were committed.", counters.appends)
    yield counter("tidelog_append_entries", "Entries appended.", counters.append_entries)
    yield counter("tidelog_append_bytes", "Bytes of committed appends.", counters.append_bytes)
    yield counter("tidelog_read_pages", "Pages of entries sent.", counters.read_pages)
    yield counter("tidelog_read_bytes", "Bytes of batches sent.", counters.read_bytes)
    yield labelled("tidelog_requests", "Requests.", "message", counters.requests)
    yield labelled("tidelog_refused", "Requests refused.", "error", counters.refused)
    bounds = [*map(str, APPEND_SECONDS_BOUNDS), "+Inf"]
    seconds = HistogramMetricFamily("tidelog_append_seconds", "From arrival to outcome.")
    buckets = list(zip(bounds, accumulate(counters.append_buckets), strict=True))
    seconds.add_metric([], buckets, sum_value=counters.append_seconds)
    yield seconds


def _log(stats: LogStats) -> Iterator[Metric]:
    yield counter("tidelog_wal_frames", "Frames written, each with an fsync.", stats.wal_frames)
    yield counter("tidelog_wal_bytes", "Bytes written to the WAL.", stats.wal_bytes)
    yield gauge("tidelog_wal_backlog_files", "Files not in segments.", stats.wal_backlog_files)
    yield counter("tidelog_flushes", "WAL files moved into segments.", stats.flushes)
    yield counter("tidelog_snapshots", "Snapshots taken.", stats.snapshots)
    runs = {"minor": stats.minor_compactions, "major": stats.major_compactions}
    yield labelled("tidelog_compactions", "Compaction runs.", "kind", runs)
    failures = stats.compaction_failures
    yield counter("tidelog_compaction_failures", "Compactions that failed.", failures)
    seconds = stats.compaction_seconds
    yield counter("tidelog_compaction_seconds", "Time spent on compaction.", seconds)
    reclaimed = stats.reclaimed_bytes
    yield counter("tidelog_reclaimed_bytes", "Bytes that compaction freed.", reclaimed)
    yield gauge("tidelog_damaged_files", "Files found damaged.", len(stats.damaged_files))


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
