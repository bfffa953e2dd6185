"""What a replica service tells Prometheus.  No state."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from tidelog.core.session.replica import ReplicaSessions
from tidelog.core.session.replica_session import ReplicaState
from tidelog.net.metrics import counter, gauge, labelled, render
from tidelog.replica_service.counters import Counters


def render_metrics(
    core: ReplicaSessions, counters: Counters, *, channels: int, held_bytes: int
) -> bytes:
    """All metrics as text."""
    return render([*_session(core, channels), *_work(core, counters, held_bytes)])


def _session(core: ReplicaSessions, channels: int) -> Iterator[Metric]:
    yield gauge("tidelog_replica_epoch", "Last epoch that was group-committed.", core.epoch)
    yield gauge("tidelog_replica_boundary", "GC boundary.", core.boundary)
    yield gauge("tidelog_replica_channels", "Log channels now.", channels)
    state = GaugeMetricFamily(
        "tidelog_replica_session", "1 for the state of the session.", labels=["state"]
    )
    for one in ReplicaState:
        state.add_metric([one.value], core.state is one)
    yield state


def _work(core: ReplicaSessions, counters: Counters, held_bytes: int) -> Iterator[Metric]:
    yield gauge("tidelog_replica_open_connections", "Connections now.", counters.connections)
    yield gauge("tidelog_replica_held_bytes", "Of large frames not answered yet.", held_bytes)
    done = core.counters
    for name, text, value in (
        ("connections", "Connections since the start.", counters.connections_total),
        ("sessions", "Sessions begun.", done.sessions),
        ("sessions_broken", "Sessions that broke.", done.broken),
        ("group_commits", "Group commits.", done.group_commits),
        ("entries", "Entries taken.", done.entries),
        ("entry_bytes", "Bytes of batches taken.", done.bytes),
        ("blobs", "BLOBs stored.", counters.blobs),
        ("blob_bytes", "Bytes of BLOBs taken.", done.blob_bytes),
        ("appends", "Steps that wrote.", counters.appends),
        ("append_seconds", "Time spent on writing.", counters.append_seconds),
        ("fsyncs", "Steps that waited for a sync.", counters.syncs),
        ("fsync_seconds", "Time spent on syncing.", counters.sync_seconds),
        ("compactions", "Compaction runs.", counters.compactions),
        ("compaction_failures", "Compactions that failed.", counters.compaction_failures),
    ):
        yield counter(f"tidelog_replica_{name}", text, value)
    yield labelled("tidelog_replica_requests", "Requests.", "message", counters.requests)
    errors = {code.name: count for code, count in done.errors.items()}
    yield labelled("tidelog_replica_refused", "Requests refused.", "code", errors)
    yield labelled(
        "tidelog_replica_turned_away", "Connections refused.", "error", counters.turned_away
    )
