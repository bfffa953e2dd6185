"""Figures of a small cluster in which all is well, and what it looks like without some nodes."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.interface.cluster_figures import (
    ClusterMetadata,
    ClusterNode,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    ClusterTopic,
    NodeFacts,
    ReplicaFacts,
)


def facts(node: int) -> NodeFacts:
    return NodeFacts(
        node=node,
        roles=("storage", "metadata", "operator"),
        release="1.0",
        clock_us=0,
        uptime_seconds=1.0,
        data_bytes_free=50,
        data_bytes_total=100,
        open_files=10,
        open_files_max=65536,
    )


def replica(node: int) -> ClusterReplica:
    return ClusterReplica(node, ReplicaFacts(1, "follower", 1, 1, 10, 10), 0)


def node(number: int) -> ClusterNode:
    return ClusterNode(
        number, ("storage", "metadata", "operator"), "tcp://p:1", "tcp://c:1", facts(number)
    )


STREAM = ClusterStream(
    1, "t", 1, 1, "running", "steady", 1, 10, 10, tuple(replica(one) for one in (1, 2, 3))
)
WHOLE = ClusterStatus(
    "id",
    1,
    ClusterMetadata((1, 2, 3), (), 1, 4, 100, 9, (1, 2, 3)),
    tuple(node(number) for number in (1, 2, 3)),
    (ClusterTopic("t", 1, (1,), "majority", 9),),
    (STREAM,),
    operators_paused=False,
)


def lost(status: ClusterStatus, *numbers: int) -> ClusterStatus:
    """The cluster without these nodes."""
    return replace(
        status,
        metadata=replace(
            status.metadata,
            answering=tuple(one for one in status.metadata.answering if one not in numbers),
        ),
        nodes=tuple(
            replace(one, facts=None) if one.node in numbers else one for one in status.nodes
        ),
        streams=tuple(
            replace(
                stream,
                replicas=tuple(
                    ClusterReplica(one.node, None, None) if one.node in numbers else one
                    for one in stream.replicas
                ),
            )
            for stream in status.streams
        ),
    )
