"""What a gateway needs of the other parts of its process: nothing else may be used here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.view import MetadataView
from tidelog.embedded.maintenance import Maintenance
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.batch import BatchBody
from tidelog.formats.messages import Answer
from tidelog.interface.records import Ack
from tidelog.runtime.storage_node.appends import Placed
from tidelog.storage.node_store import NodeStore
from tidelog.types import NodeId, StreamId, TopicId


class Replicas(Protocol):
    """The storage node of this process."""

    @property
    def node(self) -> NodeId: ...

    @property
    def node_store(self) -> NodeStore: ...

    @property
    def maintenance(self) -> Maintenance: ...

    def append(
        self,
        stream: StreamId,
        body: BatchBody,
        *,
        producer: int = 0,
        sequence: int = 0,
        after: int = 0,
        ack: Ack = Ack.ORDERED,
    ) -> asyncio.Future[Placed]: ...

    def leader_of(self, stream: StreamId) -> NodeId: ...

    def readable_end(self, topic: TopicId, streams: Sequence[StreamId]) -> int | None: ...

    def ordered_end(self, stream: StreamId) -> int: ...

    def issued_end(self, topic: TopicId) -> int: ...

    def hasten_order(self) -> None: ...

    def settled_end(self, stream: StreamId) -> int | None: ...

    def listen(self, told: Callable[[], None]) -> Callable[[], None]: ...

    async def roll(self) -> None: ...

    def report_damage(self, stream: StreamId, why: str) -> None: ...


class Metadata(Protocol):
    """The metadata repository, as ``MetadataClient`` knows it."""

    @property
    def view(self) -> MetadataView | None: ...

    def on_view(self, told: Callable[[MetadataView], None]) -> None: ...

    async def ask(self, change: Change, *, seconds: float) -> None: ...

    async def read(self, *, seconds: float) -> MetadataView: ...


class Admin(Protocol):
    """Answers what people ask of the cluster."""

    async def answer(self, request: AdminRequest, seconds: float) -> Answer: ...
