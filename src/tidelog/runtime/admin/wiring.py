"""Connects the administration of a process with its roles.  No state of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic, time
from typing import Final, Protocol

from tidelog import __version__
from tidelog.embedded.audience import Audience
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import BadOption
from tidelog.interface.cluster_figures import (
    DigestFacts,
    GlsnFacts,
    MemberFacts,
    NodeFacts,
    ReplicaFacts,
)
from tidelog.interface.readers import ReaderFacts
from tidelog.limits import ADMIN_RANGE_ENTRIES_MAX
from tidelog.runtime.admin.agent import AdminAgent
from tidelog.runtime.admin.parts import Mail, Member, Metadata, Stores
from tidelog.runtime.metadata_node.node import MetadataNode
from tidelog.runtime.storage_node.counters import Histogram
from tidelog.runtime.storage_node.status import ReplicaStatus
from tidelog.storage.compaction import settled_index
from tidelog.storage.machine_facts import disk_room, open_files
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.storage.replica_facts import flaw_in_mapping
from tidelog.storage.stream_store import StreamStore
from tidelog.types import Glsn, Llsn, NodeId, StreamId

SYNCS_MIN: Final = 100
"""The first ones make files, and say little about the disk."""


class HasReplicas(Protocol):
    """What is needed of a storage node."""

    @property
    def node_store(self) -> NodeStore: ...

    @property
    def maintenance(self) -> Maintenance: ...

    @property
    def sync_seconds(self) -> Histogram: ...

    @property
    def is_disk_full(self) -> bool: ...

    def hasten_order(self) -> None: ...

    def status(self) -> tuple[ReplicaStatus, ...]: ...


def admin_agent(
    *,
    node: NodeId,
    roles: Sequence[str],
    cluster_id: bytes,
    post: Mail,
    metadata: Metadata,
    directory: str,
    storage: HasReplicas | None = None,
    disk: ReplicaDisk | None = None,
    metadata_node: MetadataNode | None = None,
    audience: Audience | None = None,
) -> AdminAgent:
    """The agent of a process with these roles; ``audience``: who reads from it."""
    started = monotonic()
    stores = None if storage is None or disk is None else NodeStores(node, storage, disk)
    member = None if metadata_node is None else GroupMember(metadata_node)

    def facts() -> NodeFacts:
        return process_facts(
            node=node,
            roles=tuple(roles),
            directory=directory,
            uptime=monotonic() - started,
            stores=stores,
            member=member,
            readers=() if audience is None else audience.tell(),
        )

    return AdminAgent(
        node=node,
        roles=roles,
        cluster_id=cluster_id,
        post=post,
        metadata=metadata,
        facts=facts,
        stores=stores,
        member=member,
    )


def process_facts(
    *,
    node: NodeId,
    roles: tuple[str, ...],
    directory: str,
    uptime: float,
    stores: Stores | None,
    member: Member | None,
    readers: tuple[ReaderFacts, ...] = (),
) -> NodeFacts:
    """What this process is now."""
    room, files = disk_room(directory), open_files()
    return NodeFacts(
        node=node,
        roles=roles,
        release=__version__,
        clock_us=int(time() * 1e6),
        uptime_seconds=round(uptime, 3),
        data_bytes_free=room.free,
        data_bytes_total=room.total,
        open_files=files.open,
        open_files_max=files.limit,
        is_disk_full=stores is not None and stores.is_disk_full,
        sync_seconds=0.0 if stores is None else stores.sync_seconds,
        wal_backlog_files=0 if stores is None else stores.wal_backlog_files,
        damaged_files=() if stores is None else stores.damaged_files,
        replicas=() if stores is None else stores.replicas(),
        member=None if member is None else member.facts(),
        readers=readers,
    )


class NodeStores:
    """The replicas of a storage node, as administration sees them."""

    def __init__(self, node: NodeId, storage: HasReplicas, disk: ReplicaDisk) -> None:
        self._node = node
        self._storage = storage
        self._disk = disk

    @property
    def wal_backlog_files(self) -> int:
        return self._storage.node_store.backlog

    @property
    def is_disk_full(self) -> bool:
        return self._storage.is_disk_full

    @property
    def sync_seconds(self) -> float:
        """What a sync took on average; 0 before there were enough to tell."""
        syncs = self._storage.sync_seconds
        return syncs.total / syncs.count if syncs.count >= SYNCS_MIN else 0.0

    @property
    def damaged_files(self) -> tuple[str, ...]:
        """What a scrub found, and replicas that were given up and are not whole again."""
        incomplete = [one.stream for one in self._storage.status() if not one.is_complete]
        given_up = [
            f"log stream {stream}: {why}"
            for stream, why in self._disk.damaged.items()
            if stream in incomplete
        ]
        return (*self._storage.maintenance.damage.values(), *given_up)

    def replicas(self) -> tuple[ReplicaFacts, ...]:
        """All of this node, as far as they are stored; what is ordered beyond that soon will be."""
        self._storage.hasten_order()
        streams = self._storage.node_store.streams
        return tuple(
            [_replica(replica, streams.get(replica.stream)) for replica in self._storage.status()]
        )

    async def digest(self, stream: StreamId, begin: Llsn, end: Llsn) -> DigestFacts:
        """Reads files, in a thread."""
        _refuse_range(begin, end)
        store = self._storage.node_store.streams[stream]
        context = self._disk.durable_context(stream)
        digest = b""
        if begin < end:
            digest = await asyncio.to_thread(self._disk.digest, stream, begin, end)
        return DigestFacts(
            node=self._node,
            stream=stream,
            llsn_begin=begin,
            llsn_end=end,
            digest=digest.hex(),
            glsn_first=store.glsn_of(begin) if begin < end else 0,
            context=(
                context.version,
                context.high_watermark,
                context.glsn_begin,
                context.llsn_begin,
                context.length,
            ),
            context_flaw=flaw_in_mapping(context, store),
        )

    async def glsns(self, stream: StreamId, begin: Glsn, end: Glsn) -> GlsnFacts:
        """What the GLSN mapping says of a range."""
        _refuse_range(begin, end)
        store = self._storage.node_store.streams[stream]
        runs = await asyncio.to_thread(lambda: list(store.runs_by_glsn(begin, end)))
        count = sum(length for _, _, length in runs)
        total = sum(_sum(first, length) for _, first, length in runs)
        squares = sum(_squares(first, length) for _, first, length in runs)
        return GlsnFacts(self._node, stream, begin, end, count, str(total), str(squares))


class GroupMember:
    """The metadata node of this process, as administration sees it."""

    def __init__(self, node: MetadataNode) -> None:
        self._node = node

    def facts(self) -> MemberFacts:
        status = self._node.status()
        return MemberFacts(
            role=status.role.name.lower(),
            term=status.term,
            leader=status.leader,
            commit=status.commit,
            applied=status.applied,
            voters=status.membership.voters,
            learners=status.membership.learners,
        )

    async def add(self, node: NodeId, address: str, *, seconds: float) -> None:
        await self._node.add_member(node, seconds=seconds, address=address)

    async def remove(self, node: NodeId, *, seconds: float) -> None:
        await self._node.remove_member(node, seconds=seconds)

    async def transfer(self, node: NodeId, *, seconds: float) -> None:
        await self._node.transfer(node, seconds=seconds)


def _replica(replica: ReplicaStatus, store: StreamStore | None) -> ReplicaFacts:
    return ReplicaFacts(
        stream=replica.stream,
        role=replica.role.value,
        term=replica.term,
        leader=replica.leader,
        end_llsn=replica.end,
        ordered_end_llsn=replica.ordered_end,
        snapshot_index=0 if store is None else settled_index(store),
        is_complete=replica.is_complete,
        version=replica.version,
        is_sealed=replica.is_sealed,
        revision=replica.revision,
    )


def _refuse_range(begin: int, end: int) -> None:
    if not 0 < begin <= end or end - begin > ADMIN_RANGE_ENTRIES_MAX:
        raise BadOption(
            f"[{begin}, {end}) is no range of at most {ADMIN_RANGE_ENTRIES_MAX} entries"
        )


def _sum(first: int, length: int) -> int:
    return length * (2 * first + length - 1) // 2


def _squares(first: int, length: int) -> int:
    def below(n: int) -> int:
        return (n - 1) * n * (2 * n - 1) // 6

    return below(first + length) - below(first)
