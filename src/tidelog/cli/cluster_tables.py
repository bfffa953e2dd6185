"""The status of a cluster as tables and JSON fields.  No state."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tidelog.cli.output import Id, Size
from tidelog.interface.cluster_figures import (
    ClusterFinding,
    ClusterMetadata,
    ClusterNode,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    Severity,
)

NODE_HEADERS: Final = (
    "node", "roles", "clients", "release", "up", "disk free", "leads", "replicas", "state",
)  # fmt: skip
STREAM_HEADERS: Final = (
    "stream", "topic", "term", "status", "plan", "leader", "ordered", "replicas",
)  # fmt: skip


def node_row(node: ClusterNode) -> tuple[object, ...]:
    """One line about a node."""
    facts = node.facts
    return (
        Id(node.node),
        ",".join(node.roles),
        node.clients or "-",
        None if facts is None else facts.release,
        None if facts is None else span_text(facts.uptime_seconds),
        None if facts is None else Size(facts.data_bytes_free),
        node.leads,
        node.replicas,
        "does not answer" if facts is None else "ok",
    )


def stream_row(stream: ClusterStream) -> tuple[object, ...]:
    """One line about a log stream."""
    return (
        Id(stream.stream),
        stream.topic,
        stream.term,
        stream.status,
        plan_text(stream),
        Id(stream.leader) if stream.leader else None,
        ordered_end(stream) - 1,
        ", ".join(replica_text(replica, stream.leader) for replica in stream.replicas),
    )


def ordered_end(stream: ClusterStream) -> int:
    """The end of what is ordered, as the best informed replica knows it."""
    told = [one.facts.ordered_end_llsn for one in stream.replicas if one.facts is not None]
    return max([stream.ordered_end_llsn, *told])


def plan_text(stream: ClusterStream) -> str:
    """What is under way about a stream, in a word or two."""
    change = stream.change
    return stream.plan if change is None else f"{change.kind} {change.phase}"


def replica_text(replica: ClusterReplica, leader: int) -> str:
    """``3``, ``1*`` for the leader, ``2 (12 behind)``, ``4 (silent)``."""
    name = f"{replica.node}{'*' if replica.node == leader else ''}"
    if replica.facts is None:
        return f"{name} (silent)"
    if not replica.facts.is_complete:
        return f"{name} (being filled up)"
    return f"{name} ({replica.lag:,} behind)" if replica.lag else name


def metadata_line(metadata: ClusterMetadata) -> str:
    """One line about the metadata repository."""
    members = [
        f"{node}{'*' if node == metadata.leader else ''}"
        + ("" if node in metadata.answering else " (silent)")
        for node in metadata.members
    ]
    learners = f", learners {', '.join(map(str, metadata.learners))}" if metadata.learners else ""
    return (
        f"metadata repository: nodes {', '.join(members)}{learners}; term {metadata.term}, "
        f"applied {metadata.applied:,}, cut {metadata.version:,}"
    )


def finding_line(finding: ClusterFinding) -> str:
    """``warning: what (remedy)``."""
    remedy = f"\n  → {finding.remedy}" if finding.remedy else ""
    return f"{finding.severity.value}: {finding.what}{remedy}"


def status_fields(status: ClusterStatus, findings: tuple[ClusterFinding, ...]) -> dict[str, Any]:
    """All of it as JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {
        "healthy": not any(one.severity is not Severity.NOTE for one in findings),
        "findings": msgspec.to_builtins(findings),
        **fields,
    }


def span_text(seconds: float) -> str:
    """A span of time in its largest unit: ``45 s``, ``3 min``, ``7 h``, ``12 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
