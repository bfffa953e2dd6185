"""A process of a cluster: any roles over one data directory, in one event loop.

It is started, joins its cluster, serves, and is stopped in order: clients first, then the roles,
then what they stand on.

X1  nothing is opened before the directory is locked and known to be that of this cluster's node
X2  what fails for good ends the process, with the reason in ``failure``; a broken invariant ends
    it at once, for nothing after that could be trusted
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tidelog.core.metadata import wishes
from tidelog.errors import (
    BadOption,
    DeadlineExceeded,
    LogError,
    Unreachable,
)
from tidelog.invariants import InvariantViolation
from tidelog.net.endpoint import Endpoint
from tidelog.net.metrics import render
from tidelog.runtime.config import (
    Config,
    Role,
    advertised,
    advertised_peers,
    members_of,
    peer_endpoints,
)
from tidelog.runtime.events import tell
from tidelog.runtime.identity import Identity, check_cluster, parse_cluster_id, read_identity
from tidelog.runtime.metadata_changes import bring_about
from tidelog.runtime.metadata_client import MetadataClient
from tidelog.runtime.new_node import finish_node
from tidelog.runtime.post import Post
from tidelog.runtime.process_metrics import process_metrics
from tidelog.runtime.process_roles import Roles
from tidelog.runtime.process_security import ProcessSecurity, process_security
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import take_lock
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import Lock
from tidelog.types import NodeId

_logger: Final = logging.getLogger(__name__)
_ASK_SECONDS: Final = 5.0
"""What one question to the metadata repository may take while the process joins."""
_LOOK_SECONDS: Final = 0.05


class ProcessState(Enum):
    """What /readyz tells while the process is not ready."""

    STARTING = "starting"
    OPENING = "opening its files"
    JOINING = "looking for the metadata repository"
    PLACING = "registered, and waiting to learn what it stores"
    SERVING = "serving"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ClusterProcess:
    """Belongs to one event loop; a ``net.serving.Service``."""

    def __init__(self, config: Config, *, ready: Callable[[list[str]], None] | None = None) -> None:
        """``ready`` is told where clients can connect, once they can."""
        self.config = config
        self.state = ProcessState.STARTING
        self.failure: LogError | None = None
        """What ended the process, if it was not asked to stop."""
        self.directory = str(Path(config.node.data).absolute())
        self.identity: Identity
        self._ready = ready
        self._stop_asked = asyncio.Event()
        self._lock: Lock | None = None
        self._post: Post | None = None
        self._metadata: MetadataClient | None = None
        self._roles: Roles | None = None
        self._joining: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it takes its part in the cluster."""
        return self.state is ProcessState.SERVING and self.failure is None

    # -- start ----------------------------------------------------------------------------------

    async def start(self) -> list[Endpoint]:
        """Begin; it is not ready yet when this returns.  Returns where peers connect."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        security = process_security(self.config)
        self._open_directory()
        node = self.identity.node
        roles = ",".join(role.value for role in self.config.node.roles)
        cluster = self.identity.cluster_id.hex()
        tell(_logger, "starting", node=node, cluster=cluster, roles=roles, data=self.directory)
        self._post = post = self._make_post(security)
        bound = await post.start()
        self._joining = asyncio.get_running_loop().create_task(self._join(post, security))
        self._joining.add_done_callback(self._on_joined)
        return bound

    def _open_directory(self) -> None:
        """Lock the directory and learn who this is (X1)."""
        disk = FailStopVfs(OsVfs())
        identity = read_identity(disk, self.directory)
        if self.config.cluster.id:
            check_cluster(identity, parse_cluster_id(self.config.cluster.id), self.directory)
        self._lock = take_lock(disk, self.directory)
        finish_node(disk, self.directory)
        self.identity = identity

    def _make_post(self, security: ProcessSecurity) -> Post:
        post = Post(
            cluster_id=self.identity.cluster_id,
            node=self.identity.node,
            endpoints=peer_endpoints(self.config),
            advertise=advertised_peers(self.config),
            server_security=security.peers,
            client_security=security.to_peers,
        )
        for member in members_of(self.config):
            if member.node != self.identity.node:
                post.learn(member.node, member.address)
        return post

    def _members(self) -> tuple[NodeId, ...]:
        """The metadata nodes to ask."""
        found = {member.node: None for member in members_of(self.config)}
        if Role.METADATA in self.config.node.roles and self.identity.node in self.identity.members:
            found[self.identity.node] = None
        if not found:
            raise BadOption(
                "cluster.metadata is missing: name nodes of the metadata repository, as in "
                '["1@tcp://host:port"]'
            )
        return tuple(sorted(found))

    async def _join(self, post: Post, security: ProcessSecurity) -> None:
        self.state = ProcessState.OPENING
        self._metadata = metadata = MetadataClient(post, self._members())
        self._roles = roles = Roles(
            config=self.config,
            identity=self.identity,
            directory=self.directory,
            post=post,
            metadata=metadata,
            security=security,
            on_failure=self.fail,
        )
        await roles.start_metadata()
        await metadata.start()
        clients = await roles.start_storage()
        self.state = ProcessState.JOINING
        await self._find_metadata(metadata)
        if clients:
            await self._register(metadata, clients)
            self.state = ProcessState.PLACING
            await roles.wait_until_placed()
        await roles.start_operator()
        self.state = ProcessState.SERVING
        addresses = [str(endpoint) for endpoint in clients]
        tell(_logger, "ready", clients=",".join(addresses) or "none")
        if self._ready is not None:
            self._ready(addresses)

    async def _find_metadata(self, metadata: MetadataClient) -> None:
        """Wait until the repository has a leader that tells what it knows."""
        while True:
            try:
                await metadata.read(seconds=_ASK_SECONDS)
            except (DeadlineExceeded, Unreachable) as error:
                tell(_logger, "metadata not found yet", logging.WARNING, why=str(error))
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return

    async def _register(self, metadata: MetadataClient, clients: list[Endpoint]) -> None:
        """Let the cluster know of this storage node, unless it does."""
        node = self.identity.node
        given = advertised(self.config.node.advertise, clients, "node.advertise")
        address = f"{advertised_peers(self.config)} {given}"
        wish = partial(wishes.registered, node=node, address=address)
        while True:
            try:
                await bring_about(metadata, wish, seconds=_ASK_SECONDS)
            except (DeadlineExceeded, Unreachable) as error:
                tell(_logger, "not registered yet", logging.WARNING, why=str(error))
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                tell(_logger, "registered", address=address)
                return

    def _on_joined(self, joining: asyncio.Task[None]) -> None:
        if not joining.cancelled() and (error := joining.exception()) is not None:
            self.fail(error)

    # -- the end --------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the process: it cannot go on (X2)."""
        if isinstance(error, InvariantViolation):
            _logger.critical("a broken invariant: %s", error, exc_info=error)
            die()
        if self.failure is not None:
            return
        if isinstance(error, LogError):
            self.failure = error
        else:
            _logger.error("an error of the program", exc_info=error)
            self.failure = LogError(f"an error of the program: {error!r}")
        tell(_logger, "failed", logging.ERROR, why=str(error), error=type(error).__name__)
        self._stop_asked.set()

    def ask_to_stop(self) -> None:
        """Let ``wait_until_asked_to_stop`` return."""
        self._stop_asked.set()

    async def wait_until_asked_to_stop(self) -> None:
        """Serve until somebody asks for the end, or something fails for good."""
        await self._stop_asked.wait()

    async def stop(self) -> None:
        """Stop in order; requests in flight have ``timing.stop`` seconds."""
        if self.state in (ProcessState.STOPPING, ProcessState.STOPPED):
            return
        self.state = ProcessState.STOPPING
        tell(_logger, "stopping")
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait([self._joining])
        if self._roles is not None:
            await self._roles.stop()
        if self._metadata is not None:
            await self._metadata.stop()
        if self._roles is not None:
            await self._roles.stop_metadata()
        if self._post is not None:
            await self._post.stop()
        if self._lock is not None:
            self._lock.release()
        self.state = ProcessState.STOPPED
        tell(_logger, "stopped")

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, InvariantViolation):
            self.fail(error)
        loop.default_exception_handler(context)

    # -- what it looks like ---------------------------------------------------------------------

    async def metrics(self) -> bytes:
        """For Prometheus: all parts of the process."""
        roles = self.config.node.roles if self.is_ready else ()
        parts = () if self._roles is None else self._roles.metrics()
        return render(chain(process_metrics([role.value for role in roles]), parts))


def die() -> None:
    """End at once, as a crash would: what is on disk is all that counts."""
    signal.raise_signal(signal.SIGABRT)
