"""Where the replicas of new log streams go: from a view to a change to ask for.  No state.

Who plans may have an old view: the metadata repository refuses a number that was given meanwhile,
and whoever asked plans again with a newer one.

Invariants of a plan:
  P1  every ensemble has as many nodes as was asked for, each once
  P2  the nodes that hold the fewest replicas come first, so the loads even out
  P3  the same view gives the same plan
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import (
    AddStreams,
    CreateTopic,
    NewStream,
    Quorum,
    TopicVersions,
)
from tidelog.errors import BadOption, TopicExists, UnknownTopic
from tidelog.types import NodeId, StreamId

USUAL_REPLICAS: Final = 3
"""How many nodes hold a stream if nobody says how many, and there are as many."""


def plan_topic(
    view: MetadataView,
    name: str,
    *,
    streams: int,
    replicas: int = 0,
    versions: TopicVersions = "log",
    quorum: Quorum = Quorum.MAJORITY,
) -> CreateTopic:
    """Plan a topic with its first streams; ``replicas`` 0: the usual number."""
    if name in view.topics_by_name():
        raise TopicExists(f"there is a topic named {name!r} already")
    new = _plan_ensembles(view, streams, replicas)
    return CreateTopic(view.next_topic, new, name, quorum, versions, streams)


def plan_streams(
    view: MetadataView,
    name: str,
    *,
    streams: int,
    replicas: int = 0,
) -> AddStreams:
    """Plan more streams for a topic; ``replicas`` 0: as many as its first stream has."""
    topic = view.topics_by_name().get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic named {name!r}")
    present = {order.stream: len(order.replicas) for order in view.streams}
    usual = present[topic.streams[0]] if topic.streams else 0
    return AddStreams(topic.topic, _plan_ensembles(view, streams, replicas or usual))


def _plan_ensembles(view: MetadataView, streams: int, replicas: int) -> tuple[NewStream, ...]:
    """Plan so many streams with so many replicas each, 0 for the usual number."""
    if not 1 <= streams <= limits.STREAMS_PER_TOPIC_MAX:
        raise BadOption(f"1 to {limits.STREAMS_PER_TOPIC_MAX} streams can be made, not {streams}")
    loads = _loads(view)
    size = replicas or min(USUAL_REPLICAS, len(loads)) or 1
    if not 1 <= size <= limits.ENSEMBLE_NODES_MAX:
        raise BadOption(f"a stream has 1 to {limits.ENSEMBLE_NODES_MAX} replicas, not {replicas}")
    if size > len(loads):
        raise BadOption(
            f"{size} replicas need {size} storage nodes, and there are {len(loads)}: start more,"
            " or ask for fewer replicas"
        )
    return tuple(
        NewStream(StreamId(view.next_stream + number), _choose(loads, size))
        for number in range(streams)
    )


def _loads(view: MetadataView) -> dict[NodeId, int]:
    """How many replicas each node holds."""
    loads = {one.node: 0 for one in view.nodes}
    for order in view.streams:
        for node in order.ensemble:
            if node in loads:
                loads[node] += 1
    return loads


def _choose(loads: dict[NodeId, int], size: int) -> tuple[NodeId, ...]:
    """Take the nodes with the fewest replicas (P2), and count them as placed."""
    chosen = sorted(loads, key=lambda node: (loads[node], node))[:size]
    for node in chosen:
        loads[node] += 1
    return tuple(sorted(chosen))
