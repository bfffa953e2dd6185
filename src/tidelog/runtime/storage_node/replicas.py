"""The replicas of a node, and which of them have something to be carried out.

Invariants:
  R1  there is a replica of every stream that the disk knows, and of those that somebody spoke to
  R2  a replica that was given anything is settled in the same turn
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import StreamStatus
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import Role
from tidelog.core.replica.options import Ignored, ReplicaOptions
from tidelog.core.replica.replica import Replica
from tidelog.runtime.storage_node.guarded_reader import GuardedReader
from tidelog.runtime.storage_node.ports import Disk
from tidelog.types import NO_NODE, NodeId, StreamId, Term, TopicId


class Replicas:
    """All replicas of one node."""

    def __init__(
        self,
        node: NodeId,
        disk: Disk,
        options: ReplicaOptions,
        on_made: Callable[[StreamId, Replica], None],
    ) -> None:
        self._node = node
        self._disk = disk
        self._options = options
        self._on_made = on_made
        self._replicas: dict[StreamId, Replica] = {}
        self._closed: dict[StreamId, None] = {}
        self._topics: dict[StreamId, TopicId] = {}
        self._orders: dict[StreamId, StreamOrder] = {}
        self._touched: dict[StreamId, None] = {}

    def open(self) -> None:
        """Make the replicas that the disk knows (R1)."""
        for stream, store in self._disk.node.streams.items():
            self._topics[StreamId(stream)] = TopicId(store.topic)
        for stream in self._disk.streams():
            self._make(stream)

    def learn(self, view: MetadataView) -> None:
        """Take what a view says of streams."""
        self._orders = {order.stream: order for order in view.streams}
        self._topics |= {order.stream: order.topic for order in view.streams}

    def __iter__(self) -> Iterator[tuple[StreamId, Replica]]:
        return iter(list(self._replicas.items()))

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, stream: StreamId) -> Replica | None:
        """The replica of a stream, if there is one."""
        return self._replicas.get(stream)

    def wanted(self, stream: StreamId) -> Replica | None:
        """The replica of a stream that somebody speaks to: an empty one, if the stream is known."""
        replica = self._replicas.get(stream)
        if replica is None and stream in self._topics and stream not in self._closed:
            replica = self._make(stream)
        return replica

    def close(self, stream: StreamId) -> None:
        """Let go of a replica; there is none until ``reopen``."""
        self._closed[stream] = None
        del self._replicas[stream]

    def reopen(self, stream: StreamId) -> None:
        """Make a replica of what is on the disk now."""
        del self._closed[stream]
        self._make(stream)

    def _make(self, stream: StreamId) -> Replica:
        reader = GuardedReader(self._disk, stream)
        replica = Replica(self._node, stream, self._disk.stored(stream), reader, self._options)
        reader.told = lambda: replica.joined_index
        # What a life before this one was filled up with may be without its producers.
        replica.joined(replica.head.llsn)
        self._replicas[stream] = replica
        self._on_made(stream, replica)
        return replica

    # --- what is known of a stream ---

    def topic_of(self, stream: StreamId) -> TopicId:
        """The topic of a stream that there is a replica of."""
        return self._topics[stream]

    def is_sealed(self, stream: StreamId) -> bool:
        """Whether a stream takes no appends any more."""
        order = self._orders.get(stream)
        return order is not None and order.status is not StreamStatus.RUNNING

    def known_revision(self, stream: StreamId) -> int:
        """The revision of the row that is known of a stream; 0: none is."""
        order = self._orders.get(stream)
        return 0 if order is None else order.revision

    def knows_of_reign(self, stream: StreamId, reign: Term) -> bool:
        """Whether the row that is known here was written in a reign of a leader, or later."""
        order = self._orders.get(stream)
        return order is not None and order.term >= reign

    def leader_of(self, stream: StreamId) -> NodeId:
        """Who leads, by the later word of the replica here and of the metadata."""
        order, replica = self._orders.get(stream), self._replicas.get(stream)
        if replica is None or replica.role not in (Role.LEADER, Role.FOLLOWER):
            return NO_NODE if order is None else order.leader
        if order is None or replica.term >= order.term:
            return replica.leader
        return order.leader

    def ignored(self) -> Counter[Ignored]:
        """What all replicas left without effect, by reason."""
        total: Counter[Ignored] = Counter()
        for replica in self._replicas.values():
            total.update(replica.ignored)
        return total

    def peers(self) -> list[NodeId]:
        """The nodes that share a stream with this one."""
        found: dict[NodeId, None] = {}
        for order in self._orders.values():
            if self._node in order.ensemble:
                found |= dict.fromkeys(order.ensemble)
        return sorted(found)

    # --- turns ---

    def touch(self, stream: StreamId) -> None:
        """Something was done to a replica (R2)."""
        self._touched[stream] = None

    def take_touched(self) -> list[StreamId]:
        """The streams of which something was done to their replicas."""
        touched, self._touched = list(self._touched), {}
        return touched
