"""The roles of a process: makes each part, starts it, and stops it in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from prometheus_client.core import Metric

from tidelog.embedded.audience import Audience
from tidelog.errors import LogError, NotALog
from tidelog.net.endpoint import Endpoint
from tidelog.runtime.admin.agent import AdminAgent
from tidelog.runtime.admin.wiring import admin_agent
from tidelog.runtime.config import Config, Role, client_endpoints
from tidelog.runtime.gateway import Gateway
from tidelog.runtime.identity import Identity
from tidelog.runtime.metadata_client import MetadataClient
from tidelog.runtime.metadata_node import MetadataNode
from tidelog.runtime.new_node import METADATA_NAME, STORAGE_NAME
from tidelog.runtime.operator_node import OperatorNode
from tidelog.runtime.post import Post
from tidelog.runtime.process_options import (
    gateway_options,
    metadata_timing,
    operator_timing,
    storage_options,
)
from tidelog.runtime.process_security import ProcessSecurity
from tidelog.runtime.storage_node import StorageNode
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.replica_disk import ReplicaDisk


class Roles:
    """What a process is made of, beside the post and the client of the metadata."""

    def __init__(
        self,
        *,
        config: Config,
        identity: Identity,
        directory: str,
        post: Post,
        metadata: MetadataClient,
        security: ProcessSecurity,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._directory = directory
        self._post = post
        self._metadata = metadata
        self._security = security
        self._on_failure = on_failure
        self._opening: asyncio.Future[ReplicaDisk] | None = None
        self._disk: ReplicaDisk | None = None
        self._metadata_node: MetadataNode | None = None
        self._storage: StorageNode | None = None
        self._gateway: Gateway | None = None
        self._operator: OperatorNode | None = None
        self._admin: AdminAgent | None = None
        self._audience = Audience()

    def _has(self, role: Role) -> bool:
        return role in self._config.node.roles

    # -- start ----------------------------------------------------------------------------------

    async def start_metadata(self) -> None:
        """The node of the metadata repository, if this process has that role."""
        if not self._has(Role.METADATA):
            return
        directory = f"{self._directory}/{METADATA_NAME}"
        if OsVfs().stat(directory) is None:
            raise NotALog(
                f"{directory} is missing: without its Raft log the node may not go on under its "
                "number; make a new directory with `tidelog node init --join`"
            )
        self._metadata_node = MetadataNode(
            node=self._identity.node,
            cluster_id=self._identity.cluster_id,
            directory=directory,
            first_members=None,
            post=self._post,
            timing=metadata_timing(self._config),
            on_failure=self._on_failure,
        )
        await self._metadata_node.start()

    async def start_storage(self) -> list[Endpoint]:
        """The storage node and its gateway; returns where clients connect."""
        if self._has(Role.STORAGE):
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open_disk))
            self._disk = await asyncio.shield(self._opening)
            self._storage = StorageNode(
                node=self._identity.node,
                cluster_id=self._identity.cluster_id,
                disk=self._disk,
                post=self._post,
                metadata=self._metadata,
                options=storage_options(self._config),
                on_failure=self._on_failure,
            )
            await self._storage.start()
        self._admin = self._make_admin()
        if self._storage is None:
            return []
        self._gateway = self._make_gateway(self._storage, self._admin)
        return await self._gateway.start()

    def _open_disk(self) -> ReplicaDisk:
        return ReplicaDisk.open(
            OsVfs(),
            f"{self._directory}/{STORAGE_NAME}",
            cluster_id=self._identity.cluster_id,
            wal_file_bytes=self._config.storage.wal_file_bytes,
        )

    def _make_admin(self) -> AdminAgent:
        return admin_agent(
            node=self._identity.node,
            roles=[role.value for role in self._config.node.roles],
            cluster_id=self._identity.cluster_id,
            post=self._post,
            metadata=self._metadata,
            directory=self._directory,
            storage=self._storage,
            disk=self._disk,
            metadata_node=self._metadata_node,
            audience=self._audience,
        )

    def _make_gateway(self, storage: StorageNode, admin: AdminAgent) -> Gateway:
        return Gateway(
            cluster_id=self._identity.cluster_id,
            storage=storage,
            metadata=self._metadata,
            admin=admin,
            audience=self._audience,
            endpoints=client_endpoints(self._config),
            server_security=self._security.clients,
            client_security=self._security.to_nodes,
            options=gateway_options(self._config),
            on_failure=self._on_failure,
        )

    async def wait_until_placed(self) -> None:
        """Until the storage node was told what it stores."""
        while self._storage is not None and not self._storage.is_placed:
            await asyncio.sleep(0.02)

    async def start_operator(self) -> None:
        """The operator, if this process has that role."""
        if not self._has(Role.OPERATOR):
            return
        self._operator = OperatorNode(
            node=self._identity.node,
            post=self._post,
            metadata=self._metadata,
            timing=operator_timing(self._config),
            on_failure=self._on_failure,
        )
        await self._operator.start()

    # -- the end --------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Clients first, then all that they were served by, but for the metadata."""
        if self._gateway is not None:
            await self._gateway.stop()
        if self._operator is not None:
            await self._operator.stop()
        if self._admin is not None:
            await self._admin.stop()
        if self._storage is not None:
            await self._storage.stop()
        await self._close_disk()

    async def _close_disk(self) -> None:
        """Also one that is still being opened."""
        if self._opening is not None:
            with suppress(LogError):  # Who awaited it was told.
                disk = await self._opening
                await asyncio.to_thread(disk.close)

    async def stop_metadata(self) -> None:
        """The metadata node, once nobody here asks it any more."""
        if self._metadata_node is not None:
            await self._metadata_node.stop()

    # -- what it looks like ---------------------------------------------------------------------

    def metrics(self) -> Iterator[Metric]:
        """Of all parts."""
        parts = (self._metadata_node, self._storage, self._gateway, self._operator)
        yield from self._post.metrics()
        for part in parts:
            if part is not None:
                yield from part.metrics()
