"""Finds out what there is to be looked at: nodes, replicas, topics.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.client.blocking_admin import connect_admin
from tidelog.client.replica_reading import connect_node
from tidelog.errors import LogError, UnknownTopic, WrongState
from tidelog.interface.audit_figures import AuditedNode, AuditedReplica
from tidelog.interface.cluster_figures import ClusterStatus, ClusterStream
from tidelog.net.endpoint import parse_endpoint, parse_url
from tidelog.pipeline.auditing.findings import LeftOut
from tidelog.pipeline.auditing.identity import told_by
from tidelog.pipeline.auditing.tasks import AuditReplica, AuditTopic

SINGLE: Final = "single"
"""The role of a replica that is the only one."""
SILENT_SECONDS: Final = 3.0
"""How long a node is asked that did not tell of itself in time."""


@dataclass(slots=True)
class Targets:
    """What an audit looks at."""

    log_id: bytes
    endpoints: dict[int, str]
    """Where each node is, by its number."""
    topics: list[AuditTopic] = field(default_factory=list)
    replicas: list[AuditReplica] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    ordered_ends: dict[int, int] = field(default_factory=dict)
    """The first LLSN of each log stream that had no GLSN when the audit began."""

    def topic_of(self) -> dict[int, str]:
        """Which topic each log stream belongs to."""
        return {stream: topic.name for topic in self.topics for stream in topic.streams}


def find_targets(url: str, topics: Sequence[str] | None, timeout: float) -> Targets:
    """Ask a log what it is made of: it may be a cluster, or a node by itself."""
    try:
        with connect_admin(url, timeout=timeout) as admin:
            status = admin.status()
    except WrongState:
        endpoint = str(parse_url(url).endpoints[0])
        found = single_node(endpoint, _ask_single(endpoint, timeout))
    else:
        found = cluster(status, _ask_all(status, timeout))
    return found if topics is None else only_topics(found, topics)


def ask(number: int, endpoint: str, timeout: float, log_id: bytes) -> AuditedNode:
    """What a node says of itself, if it is the one that is at this address."""
    with connect_node(parse_endpoint(endpoint), timeout=timeout, log_id=log_id) as node:
        return told_by(node, number, endpoint)


def _ask_single(endpoint: str, timeout: float) -> AuditedNode:
    with connect_node(parse_endpoint(endpoint), timeout=timeout) as node:
        return node.replicas()


def ask_again(targets: Targets, timeout: float) -> dict[tuple[int, int], AuditedReplica]:
    """What replicas say of themselves now, by node and log stream, as far as they answer."""
    found: dict[tuple[int, int], AuditedReplica] = {}
    for number, endpoint in targets.endpoints.items():
        try:
            told = ask(number, endpoint, timeout, targets.log_id)
        except LogError:
            continue
        found |= {(number, one.stream): one for one in told.replicas}
    return found


# -- a node by itself ----------------------------------------------------------------------------


def single_node(endpoint: str, told: AuditedNode) -> Targets:
    """All streams of a node, each up to where it was ordered."""
    targets = Targets(bytes.fromhex(told.log_id), {told.node: endpoint})
    names = sorted({one.topic for one in told.replicas})
    for name in names:
        streams = [one for one in told.replicas if one.topic == name]
        high = max(one.context[1] for one in streams)
        targets.topics.append(AuditTopic(name, tuple([one.stream for one in streams]), high))
    targets.replicas = [
        AuditReplica(one.topic, told.node, SINGLE, one, one.ordered_end_llsn)
        for one in told.replicas
    ]
    targets.ordered_ends = {one.stream: one.ordered_end_llsn for one in told.replicas}
    return targets


# -- a cluster -----------------------------------------------------------------------------------


def _ask_all(status: ClusterStatus, timeout: float) -> dict[int, AuditedNode | str]:
    """What each node with replicas says, or why it says nothing."""
    told: dict[int, AuditedNode | str] = {}
    log_id = bytes.fromhex(status.cluster_id)
    for node in status.nodes:
        if node.facts is not None and "storage" not in node.roles:
            continue
        # One that was too slow to be in the status is asked once more, but not for long.
        patience = timeout if node.answers else min(timeout, SILENT_SECONDS)
        try:
            told[node.node] = ask(node.node, node.clients, patience, log_id)
        except LogError as error:
            told[node.node] = str(error) if node.answers else "its node does not answer"
    return told


def cluster(status: ClusterStatus, told: dict[int, AuditedNode | str]) -> Targets:
    """All replicas that the metadata repository knows of and whose nodes answer."""
    answering = {number: one for number, one in told.items() if isinstance(one, AuditedNode)}
    targets = Targets(
        bytes.fromhex(status.cluster_id),
        {node.node: node.clients for node in status.nodes if node.node in answering},
    )
    targets.topics = [
        AuditTopic(one.name, one.streams, one.high_watermark, one.has_removed_streams)
        for one in status.topics
    ]
    targets.ordered_ends = {one.stream: one.ordered_end_llsn for one in status.streams}
    for stream in status.streams:
        for replica in stream.replicas:
            node = told.get(replica.node, "nobody knows where it is")
            found = node if isinstance(node, str) else _in(node, stream.stream)
            role = "" if replica.facts is None else replica.facts.role
            _add(targets, stream, replica.node, role, found)
    return targets


def _in(node: AuditedNode, stream: int) -> AuditedReplica | str:
    found = next((one for one in node.replicas if one.stream == stream), None)
    if found is None:
        return "its node holds no replica of this log stream"
    return found if found.is_complete else "it is being filled up"


def _add(
    targets: Targets, stream: ClusterStream, node: int, role: str, found: AuditedReplica | str
) -> None:
    if isinstance(found, str):
        targets.left_out.append(LeftOut(stream.topic, stream.stream, node, found))
        return
    end = min(found.ordered_end_llsn, stream.ordered_end_llsn)
    lag = stream.ordered_end_llsn - end
    targets.replicas.append(AuditReplica(stream.topic, node, role, found, end, lag))


def only_topics(targets: Targets, names: Iterable[str]) -> Targets:
    """The same for some topics alone; UnknownTopic if there is none of a name."""
    wanted, known = list(names), [topic.name for topic in targets.topics]
    for name in wanted:
        if name not in known:
            raise UnknownTopic(f"there is no topic {name!r}; known: {sorted(known)}")
    return Targets(
        targets.log_id,
        targets.endpoints,
        [topic for topic in targets.topics if topic.name in wanted],
        [one for one in targets.replicas if one.topic in wanted],
        [one for one in targets.left_out if one.topic in wanted],
        targets.ordered_ends,
    )
