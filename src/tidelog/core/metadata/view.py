"""The metadata at one position of its log, as it is told to all processes.  No state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.state import StorageNode
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.core.raft.membership import members
from tidelog.core.raft.node import Raft
from tidelog.types import NO_NODE, NO_REVISION, NodeId, Revision, StreamId, TopicId, Version


class MetadataView(
    msgspec.Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True
):
    """A view is newer than another if its ``number``, or else its ``version``, is higher."""

    number: int
    """Rises with every change of topics, streams and storage nodes that is not a cut."""
    version: Version
    """The last cut."""
    topics: tuple[TopicOrder, ...]
    streams: tuple[StreamOrder, ...]
    nodes: tuple[StorageNode, ...]
    members: tuple[NodeId, ...]
    """The nodes of the metadata repository."""
    leader: NodeId = NO_NODE
    """Which of them leads, as far as the one knows that tells."""
    is_paused: bool = False
    paused_revision: Revision = NO_REVISION
    next_topic: TopicId = TopicId(1)
    """The lowest number that a new topic may have."""
    next_stream: StreamId = StreamId(1)
    member_addresses: tuple[tuple[NodeId, str], ...] = ()
    """Where nodes of the metadata repository listen for their peers."""
    absent_revision: Revision = NO_REVISION
    """The revision of every storage node that is not there."""

    @property
    def age(self) -> tuple[int, Version]:
        """What grows from view to view."""
        return self.number, self.version

    def topics_by_name(self) -> Mapping[str, TopicOrder]:
        """All topics that have a name."""
        return {topic.name: topic for topic in self.topics if topic.name}


def view_of(machine: MetadataMachine, raft: Raft) -> MetadataView:
    """Return what a metadata node has applied, in the order of numbers."""
    order = machine.order
    return MetadataView(
        number=machine.changes,
        version=order.version,
        topics=tuple([order.topics[topic] for topic in sorted(order.topics)]),
        streams=tuple([order.streams[stream] for stream in sorted(order.streams)]),
        nodes=tuple([machine.nodes[node] for node in sorted(machine.nodes)]),
        members=tuple(members(raft.membership)),
        leader=raft.leader,
        is_paused=machine.is_paused,
        paused_revision=machine.paused_revision,
        next_topic=TopicId(max(order.topics, default=0) + 1),
        next_stream=order.next_stream,
        member_addresses=tuple(
            [(node, machine.members[node].address) for node in sorted(machine.members)]
        ),
        absent_revision=machine.absent_revision,
    )
