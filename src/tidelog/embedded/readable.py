"""A log as those see it who read it: an embedded engine, or the replicas of a storage node."""

from __future__ import annotations

from typing import Protocol

from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.maintenance import Maintenance
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.node_store import NodeStore


class ReadableLog(Protocol):
    """All calls are thread-safe."""

    @property
    def node(self) -> NodeStore:
        """The streams that are here: of a cluster, not all of a topic need be."""
        ...

    def check_open(self) -> None:
        """LogClosed once the log was closed."""
        ...

    def high_watermark(self, topic: int) -> int:
        """The last GLSN of a topic that may be shown; 0 before the first."""
        ...

    def first_available(self, topic: TopicManifest) -> int:
        """The first GLSN of a topic that was not trimmed."""
        ...

    def cut_ends(self, topic: int) -> CutEnds:
        """Where the latest cuts of a topic ended."""
        ...


class KeptLog(ReadableLog, Protocol):
    """One whose figures can be told, too."""

    @property
    def path(self) -> str: ...

    @property
    def maintenance(self) -> Maintenance: ...
