"""A cluster of real processes on this machine, for tests.

    with LocalCluster(nodes=3) as cluster, cluster.connect() as log:
        log.append(b"hello")
        cluster.leader_of(1).kill()
        log.append(b"still there")

Logs and data of the nodes lie in ``cluster.directory``; errors show the end of a node's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from tidelog.client.blocking_admin import connect_admin
from tidelog.errors import DeadlineExceeded, LogError, Unreachable, WrongState
from tidelog.net.security import ClientSecurity
from tidelog.runtime.identity import new_cluster_id
from tidelog.runtime.local_layout import HOST, new_layout, nodes_of, plan_of
from tidelog.runtime.local_nodes import LocalNode, Ports, TemporaryPlace, free_ports

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog
    from tidelog.interface.cluster_figures import ClusterStatus

READY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


class LocalCluster:
    """Started by ``with``, or by ``start`` and ``stop``; not for several threads at once."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        directory: Path | None = None,
        topic: str = "default",
        streams: int = 2,
        replicas: int = 3,
        token: str = "",
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        hosts: Sequence[str] | None = None,
        roles: Sequence[str] | None = None,
    ) -> None:
        """``directory``: where data and logs are kept; None: a temporary one, removed by ``stop``.

        ``settings``: ``section.key`` → value of ``docs/configuration.md`` for all nodes; lists have
        commas.  ``environment``: more variables for all of them.  ``hosts``: where each node
        listens (default: 127.0.0.1 for all).  ``roles``: for each node, such as
        ``"storage,operator"`` (default: all roles; metadata on at most five).
        """
        self._topic = topic
        self._streams = streams
        self._replicas = replicas
        self._security = ClientSecurity(token=token) if token else None
        self._environment = dict(environment or {})
        self._place = TemporaryPlace(directory)
        self._has_topic = False
        self.directory: Path = self._place.path
        hosts = tuple(hosts or (HOST,) * nodes)
        ports: list[Ports] = []
        for host in hosts:
            ports.append(free_ports(host, ports))
        layout = new_layout(new_cluster_id(), hosts, ports, tuple(roles or ()))
        self._plan = plan_of(layout, self.directory, {**self._secured(token), **(settings or {})})
        self.nodes: list[LocalNode] = nodes_of(layout, self._plan, self._environment)
        self._next_number = nodes + 1

    def _secured(self, token: str) -> dict[str, str]:
        if not token:
            return {}
        path = self.directory / "tokens"
        path.touch(mode=0o600)
        path.write_text(f"{token}\n")
        return {"security.token_file": str(path)}

    # -- life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, seconds: float = READY_SECONDS) -> None:
        """Start all nodes, wait until they are ready, and make the topic if it is not there."""
        try:
            for node in self.nodes:
                node.start()
            self.wait_until_ready(seconds)
            self._make_topic(seconds)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes in order; a temporary directory is removed."""
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.stop()
        self._plan.lifeline.close()
        self._place.remove()

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every node that should run serves; errors show the end of a node's log."""
        deadline = monotonic() + seconds
        for node in self.nodes:
            while node.should_run and not node.is_ready:
                if not node.is_running:
                    raise Unreachable(f"{node} ended ({node.exit_code}):\n{node.log_tail()}")
                if monotonic() > deadline:
                    why = node.page("/readyz")[1].strip()
                    raise DeadlineExceeded(
                        f"{node} is not ready after {seconds:g} s ({why}):\n{node.log_tail()}"
                    )
                _pause()

    def _make_topic(self, seconds: float) -> None:
        if not self._topic or self._has_topic:
            return
        storing = sum("storage" in node.roles.split(",") for node in self.nodes)
        replicas = min(self._replicas, storing)
        self.connect(create=True, streams=self._streams, replicas=replicas, timeout=seconds).close()
        self._has_topic = True

    # -- use ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """All nodes that serve clients, in one URL with the topic of the cluster."""
        return self.url_of(self._topic)

    def url_of(self, topic: str) -> str:
        """The same for another topic."""
        serving = [node for node in self.nodes if "storage" in node.roles.split(",")]
        hosts = ",".join(f"{node.host}:{node.ports.clients}" for node in serving)
        return f"tidelog://{hosts}/{topic}"

    def connect(self, **options: Any) -> RemoteLog:
        """A client of the cluster; options as of ``tidelog.connect``."""
        import tidelog  # noqa: PLC0415 - the client is not needed to start nodes.

        if self._security is not None:
            options.setdefault("security", self._security)
        return tidelog.connect(self.url, **options)

    def add_node(self, *, roles: str = "storage,operator", host: str = HOST) -> LocalNode:
        """Start one more node, which joins the cluster; it is not ready yet."""
        node = LocalNode(
            self._plan,
            self._next_number,
            host=host,
            ports=free_ports(host, [node.ports for node in self.nodes]),
            roles=roles,
            is_founder=False,
            environment=self._environment,
        )
        self._next_number += 1
        self.nodes.append(node)
        node.start()
        return node

    def node(self, number: int) -> LocalNode:
        """The node with this NodeId."""
        for node in self.nodes:
            with suppress(LogError):
                if node.id == number:
                    return node
        raise WrongState(f"no node of this cluster has the id {number}")

    # -- looking ----------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        """The cluster, as one of its nodes sees it."""
        with connect_admin(self.url, security=self._security) as admin:
            return admin.status()

    def leader_of(self, stream: int, seconds: float = READY_SECONDS) -> LocalNode:
        """The node that leads a log stream; waits while nobody does."""

        def leader() -> int:
            found = self.status().stream(stream)
            return 0 if found is None else found.leader

        return self._node_once(leader, f"log stream {stream} has no leader", seconds)

    def metadata_leader(self, seconds: float = READY_SECONDS) -> LocalNode:
        """The node that leads the metadata repository; waits while none does."""
        return self._node_once(
            lambda: self.status().metadata.leader, "the metadata has no leader", seconds
        )

    def _node_once(self, find: Callable[[], int], trouble: str, seconds: float) -> LocalNode:
        deadline = monotonic() + seconds
        while True:
            found, why = 0, ""
            try:
                found = find()
            except LogError as error:
                why = f": {error}"
            if found:
                return self.node(found)
            if monotonic() > deadline:
                raise DeadlineExceeded(f"{trouble} after {seconds:g} s{why}")
            _pause()


def _pause() -> None:
    """Give the nodes a moment."""
    Event().wait(_PAUSE_SECONDS)
