"""What a metadata node tells Prometheus.  No state."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from tidelog.core.metadata.repository import Repository
from tidelog.core.raft.options import Role
from tidelog.net.metrics import counter, gauge, labelled
from tidelog.runtime.metadata_node.disk import MetadataDisk
from tidelog.runtime.metadata_node.rounds import Rounds


def metrics_of(
    repository: Repository, disk: MetadataDisk, rounds: Rounds, elections: int
) -> Iterator[Metric]:
    """All of them, as they stand."""
    yield from _raft(repository, elections)
    yield from _order(repository)
    for name, text, value in (
        ("rounds", "Batches proposed and applied here.", rounds.count),
        ("round_seconds", "From the proposal of these to their application.", rounds.seconds),
        ("fsyncs", "Syncs of the Raft log.", disk.groups),
        ("fsync_seconds", "Time spent on writing and syncing it.", disk.seconds),
    ):
        yield counter(f"tidelog_raft_{name}", text, value)
    yield gauge("tidelog_raft_disk_full", "1 while writes wait for room.", disk.is_full)


def _raft(repository: Repository, elections: int) -> Iterator[Metric]:
    raft = repository.raft
    for name, text, value in (
        ("leader", "1 on the node that leads.", raft.role is Role.LEADER),
        ("term", "Term of the Raft group.", raft.term),
        ("commit_index", "Entries that stay.", raft.commit),
        ("applied_index", "Entries that are applied here.", raft.applied),
        ("last_index", "Where the log ends here.", raft.last_index),
        ("members", "Nodes that vote.", len(raft.membership.voters)),
    ):
        yield gauge(f"tidelog_raft_{name}", text, value)
    yield counter("tidelog_raft_elections", "Leaders seen since the start.", elections)
    ignored = {reason.name.lower(): count for reason, count in raft.ignored.items()}
    yield labelled("tidelog_raft_ignored", "Messages without effect.", "reason", ignored)


def _order(repository: Repository) -> Iterator[Metric]:
    machine = repository.machine
    yield counter(
        "tidelog_metadata_cuts", "Cuts; their rate tells the interval.", machine.order.version
    )
    for name, text, value in (
        ("topics", "Topics.", len(machine.order.topics)),
        ("streams", "Log streams.", len(machine.order.streams)),
        ("nodes", "Registered storage nodes.", len(machine.nodes)),
        (
            "collected_nodes",
            "Storage nodes collected from here.",
            len(repository.assigned),
        ),
        ("paused", "1 while operators are paused.", machine.is_paused),
    ):
        yield gauge(f"tidelog_metadata_{name}", text, value)
    ignored = {reason.name.lower(): count for reason, count in machine.order.ignored.items()}
    yield labelled("tidelog_metadata_reports_ignored", "Reports without effect.", "reason", ignored)
    unheeded = {reason.name.lower(): count for reason, count in repository.unheeded.items()}
    yield labelled("tidelog_metadata_unheeded", "What was left without effect.", "reason", unheeded)
