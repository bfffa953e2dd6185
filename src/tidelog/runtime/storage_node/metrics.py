"""What a storage node tells Prometheus.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from tidelog.core.replica.hosting import Unheard
from tidelog.core.replica.messages import Role
from tidelog.core.replica.options import Ignored
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_output import FollowerCounters
from tidelog.embedded.maintenance import Maintenance
from tidelog.net.metrics import counter, gauge, labelled
from tidelog.runtime.storage_node.counters import Counters, Histogram
from tidelog.runtime.storage_node.status import ReplicaStatus


class NodeFigures(msgspec.Struct, frozen=True):
    """Figures of a storage node at one moment."""

    counters: Counters
    sync_seconds: Histogram
    replicas: Sequence[ReplicaStatus]
    leaders: Sequence[NodeLeader]
    follower: FollowerCounters
    followed: int
    """Sessions in which the node follows."""
    unheard: Mapping[Unheard, int]
    ignored: Mapping[Ignored, int]
    """By replicas."""
    maintenance: Maintenance
    waiting_appends: int
    begun_writes: int
    is_full: bool
    is_backlogged: bool


def storage_metrics(figures: NodeFigures) -> Iterator[Metric]:
    """All families."""
    yield from _appends(figures)
    yield from _disk(figures)
    yield from _replicas(figures.replicas)
    yield from _cluster(figures)
    yield from _sessions(figures)
    yield from _compaction(figures.maintenance)


def _appends(figures: NodeFigures) -> Iterator[Metric]:
    counters = figures.counters
    yield counter("tidelog_node_appends", "Appends taken as leader.", counters.appends)
    yield counter("tidelog_node_append_entries", "Entries of these.", counters.append_entries)
    yield counter("tidelog_node_append_bytes", "Bytes of these.", counters.append_bytes)
    text = "Appends answered with the place of an earlier one."
    yield counter("tidelog_node_duplicate_appends", text, counters.duplicates)
    text = "Appends refused, by error."
    yield labelled("tidelog_node_refused_appends", text, "error", counters.refused)
    text = "Appends whose leader was deposed while they were under way."
    yield counter("tidelog_node_lost_appends", text, counters.lost)
    text = "Appends that somebody waits for."
    yield gauge("tidelog_node_waiting_appends", text, figures.waiting_appends)
    yield _histograms(
        "tidelog_node_append_seconds",
        "How long appends took to be stored, propagated and ordered.",
        "stage",
        ((ack.value, histogram) for ack, histogram in counters.stages.items()),
    )


def _disk(figures: NodeFigures) -> Iterator[Metric]:
    text = "How long a group commit of the WAL took."
    yield _histogram("tidelog_node_sync_seconds", text, figures.sync_seconds)
    text = "Writes of replicas in one group commit."
    yield _histogram("tidelog_node_group_writes", text, figures.counters.group_writes)
    yield gauge("tidelog_node_begun_writes", "Writes not durable yet.", figures.begun_writes)
    yield gauge("tidelog_node_disk_full", "1 while the disk has no room.", figures.is_full)
    text = "1 while segments are written too slowly."
    yield gauge("tidelog_node_backlogged", text, figures.is_backlogged)


def _replicas(replicas: Iterable[ReplicaStatus]) -> Iterator[Metric]:
    labels = ["topic", "stream"]
    roles = GaugeMetricFamily(
        "tidelog_replica_role", "1 for the role it has.", labels=[*labels, "role"]
    )
    terms = GaugeMetricFamily("tidelog_replica_term", "Its term.", labels=labels)
    text = "Entries that are not durable on it, by its own log."
    unsynced = GaugeMetricFamily("tidelog_replica_unsynced_entries", text, labels=labels)
    text = "Durable entries that have no GLSN here yet."
    unordered = GaugeMetricFamily("tidelog_replica_unordered_entries", text, labels=labels)
    text = "0 while it is being filled up."
    complete = GaugeMetricFamily("tidelog_replica_complete", text, labels=labels)
    text = "Entries of the leader that a follower is not known to have."
    lag = GaugeMetricFamily("tidelog_follower_lag_entries", text, labels=[*labels, "node"])
    for one in replicas:
        name = [str(one.topic), str(one.stream)]
        for role in Role:
            roles.add_metric([*name, role.value], one.role is role)
        terms.add_metric(name, one.term)
        unsynced.add_metric(name, one.end - one.durable_end)
        unordered.add_metric(name, max(0, one.durable_end - one.ordered_end))
        complete.add_metric(name, one.is_complete)
        for follower in one.followers:
            lag.add_metric([*name, str(follower.node)], follower.lag)
    yield from (roles, terms, unsynced, unordered, complete, lag)


def _cluster(figures: NodeFigures) -> Iterator[Metric]:
    counters = figures.counters
    yield counter("tidelog_node_terms", "Terms that replicas went to.", counters.terms)
    yield counter("tidelog_node_led", "How often a replica began to lead.", counters.led)
    yield counter("tidelog_node_deposed", "How often a leader was deposed.", counters.deposed)
    yield counter("tidelog_node_filled", "How often a replica was filled up.", counters.filled)
    yield counter("tidelog_node_turns", "Turns of the host.", counters.turns)
    text = "Time between two cuts that the node was told of."
    yield _histogram("tidelog_node_cut_seconds", text, counters.cut_seconds)
    text = "From the first report after a cut to the next cut."
    yield _histogram("tidelog_node_order_seconds", text, counters.order_seconds)
    text = "Messages that nobody could take, by reason."
    yield labelled("tidelog_node_dropped_messages", text, "reason", counters.dropped)
    unheard = {reason.name.lower(): count for reason, count in figures.unheard.items()}
    ignored = {reason.name.lower(): count for reason, count in figures.ignored.items()}
    text = "Messages and cuts that replicas left without effect, by reason."
    yield labelled("tidelog_node_ignored_messages", text, "reason", ignored)
    text = "Messages of metadata nodes without effect, by reason."
    yield labelled("tidelog_node_unheard_messages", text, "reason", unheard)


def _sessions(figures: NodeFigures) -> Iterator[Metric]:
    labels = ["node"]
    text = "1 while this node can carry messages to that one."
    is_open = GaugeMetricFamily("tidelog_session_open", text, labels=labels)
    for leader in figures.leaders:
        is_open.add_metric([str(leader.follower)], leader.is_open)
    yield is_open
    yield gauge("tidelog_sessions_followed", "Nodes that carry to this one.", figures.followed)
    for name, text in (
        ("sessions", "Sessions opened."),
        ("lost", "Sessions lost."),
        ("carries", "Messages carried."),
        ("group_commits", "Group commits asked for."),
        ("heard", "Messages heard with answers."),
        ("not_taken", "Messages for which there was no session or no room."),
    ):
        counts = {str(one.follower): getattr(one.counters, name) for one in figures.leaders}
        yield labelled(f"tidelog_session_{name}", text, "node", counts)
    errors = {code.name.lower(): count for code, count in figures.follower.errors.items()}
    text = "Requests of sessions that broke the protocol, by error."
    yield labelled("tidelog_session_errors", text, "error", errors)


def _compaction(maintenance: Maintenance) -> Iterator[Metric]:
    counters, node = maintenance.counters, maintenance.node
    yield gauge("tidelog_wal_backlog_files", "Files not in segments.", node.backlog)
    yield counter("tidelog_flushes", "WAL files moved into segments.", maintenance.flushes)
    yield counter("tidelog_snapshots", "Snapshots taken.", maintenance.snapshots)
    runs = {"minor": counters.minor_runs, "major": counters.major_runs}
    yield labelled("tidelog_compactions", "Compaction runs.", "kind", runs)
    yield counter("tidelog_compaction_failures", "Compactions that failed.", counters.failures)
    yield counter("tidelog_compaction_seconds", "Time spent on compaction.", counters.seconds)
    text = "Bytes that compaction freed."
    yield counter("tidelog_reclaimed_bytes", text, counters.reclaimed_bytes)
    yield gauge("tidelog_damaged_files", "Files found damaged.", len(maintenance.damage))


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], list(histogram.buckets()), sum_value=histogram.total)
    return family


def _histograms(
    name: str, text: str, label: str, histograms: Iterable[tuple[str, Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, histogram in histograms:
        family.add_metric([value], list(histogram.buckets()), sum_value=histogram.total)
    return family
