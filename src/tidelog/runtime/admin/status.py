"""Puts a cluster's status together from the metadata and what its processes told.  No state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.plan import StreamPlan, decode_plan
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.errors import CorruptData, UnknownStream
from tidelog.interface.cluster_figures import (
    ClusterChange,
    ClusterMetadata,
    ClusterNode,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    ClusterTopic,
    MemberFacts,
    NodeFacts,
    ReplicaFacts,
)
from tidelog.interface.readers import lagging
from tidelog.types import NO_NODE, NodeId, StreamId


@dataclass(frozen=True, slots=True)
class Heard:
    """What a process told, and how long the question was under way."""

    facts: NodeFacts
    clock_offset_seconds: float = 0.0
    round_trip_seconds: float = 0.0


def cluster_status(
    *, cluster_id: bytes, asked: NodeId, view: MetadataView, heard: Mapping[NodeId, Heard]
) -> ClusterStatus:
    """The cluster as these processes see it; those that are missing did not answer."""
    facts = {node: one.facts for node, one in heard.items()}
    names = {topic.topic: topic.name for topic in view.topics}
    return ClusterStatus(
        cluster_id=cluster_id.hex(),
        asked=asked,
        metadata=_metadata(view, facts),
        nodes=_nodes(view, heard),
        topics=tuple([_topic(topic) for topic in view.topics]),
        streams=tuple([_stream(order, names[order.topic], facts) for order in view.streams]),
        operators_paused=view.is_paused,
        view_number=view.number,
        readers=lagging(
            [reader for _, one in sorted(facts.items()) for reader in one.readers],
            {topic.name: topic.high_watermark for topic in view.topics},
        ),
    )


def known_nodes(view: MetadataView) -> tuple[NodeId, ...]:
    """All processes that the metadata tells of."""
    return tuple(sorted({node.node for node in view.nodes}.union(view.members)))


def addresses_of(address: str) -> tuple[str, str]:
    """Where a registered node listens for others, and for clients."""
    peers, _, clients = address.partition(" ")
    return peers, clients


# -- parts ---------------------------------------------------------------------------------------


def _metadata(view: MetadataView, facts: Mapping[NodeId, NodeFacts]) -> ClusterMetadata:
    told = {node: one.member for node, one in facts.items() if one.member is not None}
    members = {node: fact for node, fact in told.items() if fact is not None}
    newest = max(members.values(), key=_is_newer, default=None)
    learners = () if newest is None else newest.learners
    voters = newest.voters if newest is not None and newest.voters else view.members
    return ClusterMetadata(
        members=tuple(voters),
        learners=learners,
        leader=view.leader if newest is None else newest.leader,
        term=0 if newest is None else newest.term,
        applied=max((fact.applied for fact in members.values()), default=0),
        version=view.version,
        answering=tuple([node for node in voters if node in members]),
    )


def _is_newer(member: MemberFacts) -> tuple[int, bool, int]:
    return member.term, member.leader != NO_NODE, member.applied


def _nodes(view: MetadataView, heard: Mapping[NodeId, Heard]) -> tuple[ClusterNode, ...]:
    addresses = {node: (address, "") for node, address in view.member_addresses}
    addresses |= {node.node: addresses_of(node.address) for node in view.nodes}
    leads = Counter(order.leader for order in view.streams)
    replicas = Counter(node for order in view.streams for node in order.ensemble)
    made = []
    for node in sorted({*known_nodes(view), *heard}):
        one = heard.get(node)
        peers, clients = addresses.get(node, ("", ""))
        made.append(
            ClusterNode(
                node=node,
                roles=_roles(node, view) if one is None else one.facts.roles,
                peers=peers,
                clients=clients,
                # Readers are told of once, for the whole cluster.
                facts=None if one is None else replace(one.facts, readers=()),
                clock_offset_seconds=0.0 if one is None else one.clock_offset_seconds,
                round_trip_seconds=0.0 if one is None else one.round_trip_seconds,
                leads=leads[node],
                replicas=replicas[node],
            )
        )
    return tuple(made)


def _roles(node: NodeId, view: MetadataView) -> tuple[str, ...]:
    """What is known of a process that does not answer."""
    stores = ("storage",) if any(one.node == node for one in view.nodes) else ()
    return (*stores, "metadata") if node in view.members else stores


def _topic(topic: TopicOrder) -> ClusterTopic:
    return ClusterTopic(
        name=topic.name,
        topic=topic.topic,
        streams=topic.streams,
        quorum=topic.quorum.value,
        high_watermark=topic.high_watermark,
        versions=topic.versions,
        first_available=topic.trim_glsn_end,
        has_removed_streams=topic.removed_entries > 0,
    )


def _stream(order: StreamOrder, topic: str, facts: Mapping[NodeId, NodeFacts]) -> ClusterStream:
    told = {
        node: replica
        for node, one in facts.items()
        for replica in one.replicas
        if replica.stream == order.stream
    }
    end = _leader_end(order, told)
    plan = _plan(order)
    return ClusterStream(
        stream=order.stream,
        topic=topic,
        term=order.term,
        revision=order.revision,
        status=order.status.value,
        plan="unreadable" if plan is None else plan.status.name.lower(),
        leader=order.leader,
        ordered_end_llsn=order.llsn_end,
        glsn_end=order.glsn_end,
        replicas=tuple([_replica(node, told.get(node), end) for node in order.ensemble]),
        change=None if plan is None else _change(plan, told, end),
    )


def _replica(node: NodeId, facts: ReplicaFacts | None, end: int | None) -> ClusterReplica:
    lag = None if facts is None or end is None else max(end - facts.end_llsn, 0)
    return ClusterReplica(node, facts, lag)


def _leader_end(order: StreamOrder, told: Mapping[NodeId, ReplicaFacts]) -> int | None:
    """Where the leader's log ends, if it told so."""
    leader = told.get(order.leader)
    return None if leader is None else leader.end_llsn


def _plan(order: StreamOrder) -> StreamPlan | None:
    try:
        return decode_plan(order.plan)
    except CorruptData:
        return None


def _change(
    plan: StreamPlan, told: Mapping[NodeId, ReplicaFacts], end: int | None
) -> ClusterChange | None:
    change = plan.change
    if change is None:
        return None
    new = told.get(change.new)
    return ClusterChange(
        kind=change.kind.value,
        phase=change.phase.name.lower(),
        old=change.old,
        new=change.new,
        copied=0 if new is None else new.end_llsn - 1,
        to_copy=None if end is None or change.new == NO_NODE else end - 1,
    )


def involved(order: StreamOrder) -> tuple[NodeId, ...]:
    """Who holds a replica of a stream, or is about to; all that is known if the plan is bad."""
    plan = _plan(order)
    if plan is None or plan.change is None or plan.change.new == NO_NODE:
        return order.ensemble
    return (*order.ensemble, plan.change.new)


def stream_order(view: MetadataView, stream: StreamId) -> StreamOrder | None:
    """What the metadata has of a log stream."""
    return next((order for order in view.streams if order.stream == stream), None)


def order_of(view: MetadataView, stream: StreamId) -> StreamOrder:
    """The same; UnknownStream if there is none."""
    order = stream_order(view, stream)
    if order is None:
        raise UnknownStream(f"there is no log stream {stream}")
    return order
