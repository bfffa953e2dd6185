"""What is wrong with a cluster, and what to do about it.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.interface.cluster_figures import (
    ClusterFinding,
    ClusterNode,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    NodeFacts,
    Severity,
)
from tidelog.limits import WAL_BACKLOG_FILES_MAX

LAG_ENTRIES: Final = 100_000
"""A replica that lacks more than this is worth a look."""
CLOCK_SECONDS: Final = 0.5
DISK_SHARE_LOW: Final = 0.10
DISK_SHARE_EMPTY: Final = 0.02
SYNC_SECONDS: Final = 0.02
"""A group commit takes one sync: slower disks show in every append."""
OPEN_FILES: Final = 4096
"""Segments, WAL files and connections of a busy node need about so many."""


def health_of(status: ClusterStatus) -> tuple[ClusterFinding, ...]:
    """What keeps the cluster from being whole; nothing but notes if all is well."""
    return (
        *_metadata(status),
        *(finding for node in status.nodes for finding in _silent(node)),
        *(finding for node in status.nodes for finding in _full(node)),
        *(finding for stream in status.streams for finding in _stream(stream)),
        *_operators(status),
    )


def checkup_of(status: ClusterStatus) -> tuple[ClusterFinding, ...]:
    """What may become trouble: clocks, disks, limits, lag, releases."""
    return (
        *(finding for node in status.nodes for finding in _node(node)),
        *(finding for stream in status.streams for finding in _lag(stream)),
        *_releases(status),
    )


def worst_of(findings: tuple[ClusterFinding, ...]) -> Severity | None:
    """The severity that counts; None if there is no finding."""
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
        if any(finding.severity is severity for finding in findings):
            return severity
    return None


# -- whole or not --------------------------------------------------------------------------------


def _metadata(status: ClusterStatus) -> Iterator[ClusterFinding]:
    metadata = status.metadata
    if not metadata.has_quorum:
        silent = [node for node in metadata.members if node not in metadata.answering]
        yield ClusterFinding(
            Severity.ERROR,
            f"the metadata repository has no quorum: {len(metadata.answering)} of "
            f"{len(metadata.members)} members answer, {_nodes(silent)} not",
            f"start {_nodes(silent)} again; nothing is ordered and no leader elected meanwhile",
        )
    elif metadata.leader == 0:
        yield ClusterFinding(
            Severity.ERROR,
            "the metadata repository has no leader",
            "wait some seconds; if it stays so, look whether its members reach one another",
        )
    if len(metadata.members) in (2, 4):
        yield ClusterFinding(
            Severity.NOTE,
            f"{len(metadata.members)} members of the metadata repository bear no more failures "
            f"than {len(metadata.members) - 1}",
            "`tidelog mr add` one, or `tidelog mr remove` one",
        )


def _full(node: ClusterNode) -> Iterator[ClusterFinding]:
    if node.facts is not None and node.facts.is_disk_full:
        yield ClusterFinding(
            Severity.ERROR,
            f"the disk of node {node.node} is full: appends to streams that it leads are refused",
            "make room; it goes on by itself. Or let others lead: `tidelog stream move-leader`",
        )


def _silent(node: ClusterNode) -> Iterator[ClusterFinding]:
    if node.answers or not node.roles:
        return
    yield ClusterFinding(
        Severity.WARNING,
        f"node {node.node} ({node.peers or 'address unknown'}) does not answer",
        f"look at its log and start it again; if it is gone for good, `tidelog node drain "
        f"{node.node}` and `tidelog node remove {node.node}`",
    )


def _stream(stream: ClusterStream) -> Iterator[ClusterFinding]:
    name = f"log stream {stream.stream} of topic {stream.topic}"
    answering = [replica.node for replica in stream.replicas if replica.facts is not None]
    missing = [node for node in stream.ensemble if node not in answering]
    incomplete = [replica.node for replica in stream.replicas if _is_incomplete(replica)]
    if not stream.has_quorum:
        yield ClusterFinding(
            Severity.ERROR,
            f"{name} has no quorum: {_nodes(missing)} of {_nodes(stream.ensemble)} do not answer",
            f"start {_nodes(missing)} again; appends wait meanwhile",
        )
    elif missing or incomplete:
        yield ClusterFinding(
            Severity.WARNING,
            f"{name} is under-replicated: {_nodes(missing or incomplete)} "
            + ("does not answer" if missing else "is being filled up"),
            "start the node again, or swap the replica: "
            f"`tidelog stream swap {stream.stream} --from {(missing or incomplete)[0]} --to NODE`",
        )
    if stream.plan == "reconfiguration" and stream.change is not None:
        change = stream.change
        yield ClusterFinding(
            Severity.NOTE,
            f"{name}: {change.kind} is in {change.phase}",
            f"it goes on by itself; `tidelog stream abort {stream.stream}` undoes it in prepare",
        )
    elif stream.leader == 0 or stream.plan != "steady":
        yield ClusterFinding(
            Severity.ERROR,
            f"{name} has no leader ({stream.plan})",
            "an operator elects one when a majority of its nodes is there and none is paused: "
            "`tidelog operator list`",
        )


def _is_incomplete(replica: ClusterReplica) -> bool:
    return replica.facts is not None and not replica.facts.is_complete


def _operators(status: ClusterStatus) -> Iterator[ClusterFinding]:
    if not status.operators:
        yield ClusterFinding(
            Severity.WARNING,
            "no operator answers: no leader is elected when one dies",
            "start a node with the role `operator`",
        )
    if status.operators_paused:
        yield ClusterFinding(
            Severity.WARNING,
            "operators are paused: no leader is elected when one dies",
            "`tidelog operator resume`",
        )


# -- what may become trouble ---------------------------------------------------------------------


def _node(node: ClusterNode) -> Iterator[ClusterFinding]:
    facts = node.facts
    if facts is None:
        return
    if abs(node.clock_offset_seconds) - node.round_trip_seconds / 2 > CLOCK_SECONDS:
        yield ClusterFinding(
            Severity.WARNING,
            f"the clock of node {node.node} is {node.clock_offset_seconds:+.2f} s off",
            "let NTP or chrony set it: timestamps of records come from it (the order does not)",
        )
    yield from _disk(facts)
    yield from _files(facts)


def _disk(facts: NodeFacts) -> Iterator[ClusterFinding]:
    share = facts.data_bytes_free / facts.data_bytes_total if facts.data_bytes_total else 1.0
    if share < DISK_SHARE_LOW:
        yield ClusterFinding(
            Severity.ERROR if share < DISK_SHARE_EMPTY else Severity.WARNING,
            f"the disk of node {facts.node} has {100 * share:.1f} % left",
            "trim or compact topics, add room, or move replicas away: `tidelog stream swap`",
        )
    if facts.sync_seconds > SYNC_SECONDS:
        yield ClusterFinding(
            Severity.WARNING,
            f"syncs of node {facts.node} take {1000 * facts.sync_seconds:.0f} ms on average",
            "use a faster disk, or one that nobody else uses: every append waits for one",
        )
    if facts.wal_backlog_files >= WAL_BACKLOG_FILES_MAX - 1:
        yield ClusterFinding(
            Severity.WARNING,
            f"{facts.wal_backlog_files} WAL files of node {facts.node} wait to become segments",
            "its disk is too slow for what is appended: spread streams over more nodes",
        )
    if facts.damaged_files:
        yield ClusterFinding(
            Severity.ERROR,
            f"{len(facts.damaged_files)} files of node {facts.node} are damaged, "
            f"among them {facts.damaged_files[0]}",
            "stop the node and start it again: damaged replicas are filled up by their leaders; "
            "look after the disk",
        )


def _files(facts: NodeFacts) -> Iterator[ClusterFinding]:
    if 0 < facts.open_files_max < OPEN_FILES or (
        facts.open_files_max and facts.open_files > 0.8 * facts.open_files_max
    ):
        yield ClusterFinding(
            Severity.WARNING,
            f"node {facts.node} may open {facts.open_files_max} files and has "
            f"{facts.open_files} open",
            f"raise the limit to {OPEN_FILES} at least (`ulimit -n`, LimitNOFILE= of systemd)",
        )


def _lag(stream: ClusterStream) -> Iterator[ClusterFinding]:
    for replica in stream.replicas:
        if replica.lag is not None and replica.lag > LAG_ENTRIES:
            yield ClusterFinding(
                Severity.WARNING,
                f"the replica of log stream {stream.stream} on node {replica.node} lacks "
                f"{replica.lag:,} entries",
                "look whether its disk or its network is slower than the others'",
            )


def _releases(status: ClusterStatus) -> Iterator[ClusterFinding]:
    releases = sorted({node.facts.release for node in status.nodes if node.facts is not None})
    if len(releases) > 1:
        yield ClusterFinding(
            Severity.NOTE,
            f"nodes run different releases: {', '.join(releases)}",
            "finish the upgrade: restart the others one by one",
        )


def _nodes(nodes: tuple[int, ...] | list[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
