"""The replicas of this node as a log that can be read up to some place.  No state of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.maintenance import Maintenance
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.node_store import NodeStore
from tidelog.storage.stream_store import StreamStore


class LocalLog:
    """A ``KeptLog`` for one look at one topic."""

    def __init__(
        self,
        node: NodeStore,
        maintenance: Maintenance,
        *,
        high: int,
        trim_end: Callable[[int], int],
        cut_ends: CutEnds | None = None,
    ) -> None:
        """``high`` is the last GLSN to be shown; ``trim_end`` tells the first that a topic keeps.

        How far streams were trimmed says less: each begins with an entry of its own.
        """
        self.node = node
        self.maintenance = maintenance
        self._high = high
        self._trim_end = trim_end
        self._cut_ends = cut_ends

    @property
    def path(self) -> str:
        return self.node.path

    def check_open(self) -> None:
        """It is open as long as the node runs."""

    def high_watermark(self, topic: int) -> int:
        return self._high

    def first_available(self, topic: TopicManifest) -> int:
        return self._trim_end(topic.topic)

    def cut_ends(self, topic: int) -> CutEnds:
        return self._cut_ends or CutEnds(self._high + 1)

    def stores(self, topic: TopicManifest, streams: Sequence[int] = ()) -> list[StreamStore]:
        """The streams of a topic that are here."""
        here = self.node.streams
        return [here[stream] for stream in streams or topic.streams if stream in here]
