"""How far the topics of a node can be read here, and who wants to know when that changes.

Invariants:
  G1  high watermarks are as of the last cuts that hosting took; ends of streams are those that
      hosting knows, which are as of these cuts or later ones
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidelog.core.metadata.messages import CommitResult
from tidelog.core.metadata.view import MetadataView
from tidelog.core.replica.replica import Replica
from tidelog.runtime.storage_node.readable import Snapshot, readable_up_to
from tidelog.types import Llsn, NodeId, StreamId, TopicId


class Reading:
    """Belongs to one event loop."""

    def __init__(self, node: NodeId, ends: Callable[[], Mapping[StreamId, Llsn]]) -> None:
        """``ends`` are those of hosting."""
        self._node = node
        self._ends = ends
        self._watermarks: dict[TopicId, int] = {}
        self._seen = Snapshot({}, {})
        self._placed: frozenset[StreamId] = frozenset()
        self._listeners: dict[int, Callable[[], None]] = {}
        self._last_listener = 0

    def cut(self, result: CommitResult) -> None:
        """Hosting took cuts (G1)."""
        self._watermarks |= {one.topic: one.glsn for one in result.watermarks}

    def issued_end(self, topic: TopicId) -> int:
        """The first GLSN that the cuts which hosting took did not issue."""
        return self._watermarks.get(topic, 0) + 1

    def learn(self, view: MetadataView) -> None:
        """A view tells high watermarks and ends at one moment."""
        self._seen = Snapshot(
            {topic.topic: topic.high_watermark for topic in view.topics},
            {order.stream: order.llsn_end for order in view.streams},
        )
        self._placed = frozenset(
            [order.stream for order in view.streams if self._node in order.ensemble]
        )

    def end(
        self, topic: TopicId, replicas: Iterable[tuple[StreamId, Replica | None]]
    ) -> int | None:
        """The first GLSN that may not be shown; None if a replica cannot be read here."""
        ends = self._ends()
        snapshots = (Snapshot(self._watermarks, ends), self._seen)
        lowest: int | None = None
        for stream, replica in replicas:
            if replica is None or not self._may_read(stream, replica, ends):
                return None
            up_to = readable_up_to(topic, stream, replica.durable_context, snapshots)
            lowest = up_to if lowest is None else min(lowest, up_to)
        return None if lowest is None else lowest + 1

    def _may_read(self, stream: StreamId, replica: Replica, ends: Mapping[StreamId, Llsn]) -> bool:
        """Whether a replica has all that its context says, and goes on to hear of cuts."""
        return replica.is_complete and (stream in ends or stream in self._placed)

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` when more may be readable; returns what ends that."""
        self._last_listener += 1
        number = self._last_listener
        self._listeners[number] = told
        return lambda: self._end_listening(number)

    def tell(self) -> None:
        """Tell all who listen."""
        for told in list(self._listeners.values()):
            told()

    def _end_listening(self, number: int) -> None:
        self._listeners.pop(number, None)
