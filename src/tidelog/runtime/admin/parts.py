"""What the administration of a cluster needs of the other parts of a process.  No state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.view import MetadataView
from tidelog.formats.cluster_messages import ClusterMessage
from tidelog.interface.cluster_figures import DigestFacts, GlsnFacts, MemberFacts, ReplicaFacts
from tidelog.types import Glsn, Llsn, NodeId, StreamId


class Mail(Protocol):
    """Messages to other processes; ``Post`` is one."""

    def send(self, target: NodeId, message: ClusterMessage) -> None: ...

    def on(
        self, kinds: tuple[type, ...], receive: Callable[[NodeId, ClusterMessage], None]
    ) -> None: ...

    def learn(self, node: NodeId, address: str) -> None: ...


class Metadata(Protocol):
    """The metadata repository; ``MetadataClient`` is one."""

    @property
    def view(self) -> MetadataView | None: ...

    async def ask(self, change: Change, *, seconds: float) -> None: ...

    async def read(self, *, seconds: float) -> MetadataView: ...


class Stores(Protocol):
    """The replicas of this process."""

    def replicas(self) -> tuple[ReplicaFacts, ...]: ...

    @property
    def is_disk_full(self) -> bool: ...

    @property
    def sync_seconds(self) -> float: ...

    @property
    def wal_backlog_files(self) -> int: ...

    @property
    def damaged_files(self) -> tuple[str, ...]: ...

    async def digest(self, stream: StreamId, begin: Llsn, end: Llsn) -> DigestFacts: ...

    async def glsns(self, stream: StreamId, begin: Glsn, end: Glsn) -> GlsnFacts: ...


class Member(Protocol):
    """The node of the metadata repository in this process."""

    def facts(self) -> MemberFacts: ...

    async def add(self, node: NodeId, address: str, *, seconds: float) -> None: ...

    async def remove(self, node: NodeId, *, seconds: float) -> None: ...

    async def transfer(self, node: NodeId, *, seconds: float) -> None: ...
