"""A machine of a simulated pair: its disk, and a master or a replica service on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.core.session.messages import Answer
from tidelog.testing.checkers.kept_epochs import check_kept, check_only_recorded
from tidelog.testing.session_disk import SessionDisk
from tidelog.testing.session_image import Cut, EpochImage
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.session_master import MasterShell
from tidelog.testing.session_replica import ReplicaShell
from tidelog.testing.session_wires import SERVER, Asked, Endpoint, Wire
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.session_cluster import SessionCluster


class SessionMachine(Endpoint):
    """Runs what the operators want it to be when it starts."""

    __slots__ = ("_is_failing", "cluster", "disk", "is_in_session", "ledger", "promised", "shell")

    def __init__(self, cluster: SessionCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        self.cluster = cluster
        draws = cluster.chance.stream("sync", node)
        slowness = draws.choice((1, 2, 5))
        self.disk = SessionDisk(
            self,
            draws,
            cluster.chance.stream("disk", node),
            cluster.sometimes,
            sync_min=cluster.plan.sync_min,
            sync_mean=cluster.plan.sync_mean * slowness // 2,
        )
        self.disk.on_recorded = self._on_recorded
        self.shell: MasterShell | ReplicaShell | None = None
        self.ledger: Ledger | None = None
        """What the entries of the present session, or of the last one, are held against."""
        self.is_in_session = False
        """Whether it has all entries of its session, not only the recorded ones."""
        self.promised: Cut | None = None
        """The last epoch that this machine called durable."""
        self._is_failing = False

    def on_start(self) -> None:
        self.disk.open()
        self.is_in_session = False
        check_only_recorded(self.node, self.disk.seen)
        check_kept(self.node, self.disk.seen, self.promised)
        if self.node == self.cluster.operators.master:
            check_kept(self.node, self.disk.seen, self.cluster.operators.propagated)
            shell = self.shell = MasterShell(self)
            shell.start()
        else:
            self.shell = ReplicaShell(self)
            self.cluster.stranger.on_service_started(self)

    def on_stop(self, *, power_lost: bool) -> None:
        self.shell = None
        self._is_failing = False
        self.cluster.checks.on_service_stopped(self)
        self.disk.lose(power_lost=power_lost)
        self.cluster.wires.stopped(self, power_lost=power_lost)

    def replace(self, image: EpochImage) -> None:
        """Get the data of another machine, or none; it must be down."""
        self.disk.replace(image)
        self.ledger = None
        self.promised = None

    # Its disk.

    def fail_next(self) -> None:
        """Let the next thing that a service wants from its store fail."""
        self._is_failing = True

    def takes_failure(self) -> bool:
        """Whether this is the next thing."""
        failing, self._is_failing = self._is_failing, False
        return failing

    def _on_recorded(self) -> None:
        self.cluster.on_recorded(self)

    # Connections.

    def on_connected(self, wire: Wire) -> None:
        if isinstance(self.shell, ReplicaShell):
            self.shell.on_connected(wire)
        else:
            self.cluster.wires.hang(wire, SERVER)

    def on_asked(self, wire: Wire, asked: Asked) -> None:
        if isinstance(self.shell, ReplicaShell):
            self.shell.on_asked(wire, asked)

    def on_answered(self, wire: Wire, answer: Answer) -> None:
        if isinstance(self.shell, MasterShell):
            self.shell.on_answered(wire, answer)

    def on_lost(self, wire: Wire) -> None:
        if self.shell is not None:
            self.shell.on_lost(wire)
