"""What a storage node needs of its surroundings: a disk, the post, the metadata.  No state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidelog.core.metadata.view import MetadataView
from tidelog.core.replica.output import Store, Write
from tidelog.core.replica.state import Stored
from tidelog.formats.cluster_messages import ClusterMessage
from tidelog.formats.manifest import TopicManifest
from tidelog.net.connection import FrameConnection, FrameHandler
from tidelog.storage.node_store import NodeStore
from tidelog.types import Llsn, NodeId, StreamId, TopicId


class Disk(Protocol):
    """``storage.replica_disk.ReplicaDisk``, as far as it is used here."""

    @property
    def node(self) -> NodeStore: ...

    @property
    def damaged(self) -> Mapping[StreamId, str]: ...

    @property
    def has_begun(self) -> bool: ...

    @property
    def is_urgent(self) -> bool: ...

    @property
    def last_begun(self) -> int: ...

    @property
    def is_backlogged(self) -> bool: ...

    def set_topics(self, topics: Sequence[TopicManifest]) -> None: ...

    def set_fetching(
        self, run: Callable[[Callable[[], None]], None], fetched: Callable[[StreamId], None]
    ) -> None: ...

    def streams(self) -> tuple[StreamId, ...]: ...

    def stored(self, stream: StreamId) -> Stored: ...

    def reader(self, stream: StreamId) -> Store: ...

    def begin(self, stream: StreamId, topic: TopicId, write: Write) -> int: ...

    def set_boundary(self, stream: StreamId, version: int) -> int: ...

    def settled_index(self, stream: StreamId) -> Llsn: ...

    def damage(self, stream: StreamId) -> str: ...

    def give_up(self, stream: StreamId) -> int: ...

    def batch_begin(self, stream: StreamId, llsn: Llsn) -> Llsn: ...

    def sync(self) -> int: ...

    def sync_quickly(self) -> int | None: ...

    def roll(self) -> None: ...


class Mail(Protocol):
    """``runtime.post.Post``, as far as it is used here."""

    def send(self, target: NodeId, message: ClusterMessage) -> None: ...

    def on(
        self,
        kinds: tuple[type, ...],
        receive: Callable[[NodeId, ClusterMessage], None],
        *,
        at_once: bool = False,
    ) -> None: ...

    async def open_session(self, target: NodeId, handler: FrameHandler) -> FrameConnection: ...

    def on_session(self, accept: Callable[[NodeId, FrameConnection], FrameHandler]) -> None: ...


class Views(Protocol):
    """``runtime.metadata_client.MetadataClient``, as far as it is used here."""

    @property
    def view(self) -> MetadataView | None: ...

    def on_view(self, told: Callable[[MetadataView], None]) -> None: ...
