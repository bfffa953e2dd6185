"""All that a gateway is made of, wired together.  No state of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.embedded.audience import Audience
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.append_router import AppendRouter
from tidelog.runtime.gateway.cells import Cells
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.copying import Copying
from tidelog.runtime.gateway.counters import GatewayCounters
from tidelog.runtime.gateway.holders import Holders
from tidelog.runtime.gateway.leading import Leading
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.named_positions import ClusterPositions, LocalPositions
from tidelog.runtime.gateway.options import GatewayOptions
from tidelog.runtime.gateway.peers import Peers, PeerSettings
from tidelog.runtime.gateway.publishing import LocalPublishing
from tidelog.runtime.gateway.reads import ClusterReads
from tidelog.runtime.gateway.rewriting import ClusterRewriting, LocalRewriting
from tidelog.runtime.gateway.stages import Stages
from tidelog.runtime.gateway.surroundings import Admin, Metadata, Replicas
from tidelog.runtime.gateway.tides import Tides
from tidelog.runtime.gateway.topics import Topics
from tidelog.runtime.gateway.upkeep import ClusterUpkeep, LocalUpkeep
from tidelog.runtime.gateway.waiting import Waiting
from tidelog.server.counters import Counters


@dataclass(slots=True)
class GatewayParts:
    """Belongs to one event loop."""

    replicas: Replicas
    metadata: Metadata
    options: GatewayOptions
    readers: WorkThreads
    chores: WorkThreads
    settings: PeerSettings
    admin: Admin | None = None
    audience: Audience = field(default_factory=Audience)
    counters: Counters = field(default_factory=Counters)
    passed: GatewayCounters = field(default_factory=GatewayCounters)
    cluster: ClusterMap = field(init=False)
    peers: Peers = field(init=False)
    tides: Tides = field(init=False)
    router: AppendRouter = field(init=False)
    topics: Topics = field(init=False)
    local_reads: LocalReads = field(init=False)
    waiting: Waiting = field(init=False)
    reads: ClusterReads = field(init=False)
    local_upkeep: LocalUpkeep = field(init=False)
    upkeep: ClusterUpkeep = field(init=False)
    local_rewriting: LocalRewriting = field(init=False)
    rewriting: ClusterRewriting = field(init=False)
    leading: Leading = field(init=False)
    local_positions: LocalPositions = field(init=False)
    positions: ClusterPositions = field(init=False)
    stages: Stages = field(init=False)
    publishing: LocalPublishing = field(init=False)

    def __post_init__(self) -> None:
        replicas, options, passed = self.replicas, self.options, self.passed
        cluster = self.cluster = ClusterMap(self.metadata, fresh_seconds=options.fresh_seconds)
        peers = self.peers = Peers(cluster, self.settings)
        self.tides = Tides(replicas)
        self.router = AppendRouter(
            replicas, cluster, peers, passed, leader_seconds=options.leader_seconds
        )
        self.topics = Topics(
            replicas,
            self.metadata,
            cluster,
            replicas_usual=options.replicas,
            ready_seconds=options.ready_seconds,
        )
        self.leading = Leading(replicas, cluster, peers, passed)
        self._wire_reads()
        self._wire_cells()

    def _wire_reads(self) -> None:
        cluster, peers = self.cluster, self.peers
        self.local_reads = LocalReads(self.replicas, cluster, self.tides, self.readers)
        holders = Holders(cluster, self.replicas.node)
        self.waiting = Waiting(
            self.local_reads, holders, peers, catch_up_seconds=self.options.catch_up_seconds
        )
        self.reads = ClusterReads(self.local_reads, self.waiting, holders, peers, self.passed)
        self.local_upkeep = LocalUpkeep(self.local_reads, self.chores)
        self.upkeep = ClusterUpkeep(
            self.local_upkeep, self.waiting, cluster, self.metadata, peers, self.replicas.node
        )

        self.local_rewriting = LocalRewriting(self.local_reads, self.chores)
        self.rewriting = ClusterRewriting(self.local_rewriting, self.local_reads, peers)

    def _wire_cells(self) -> None:
        cluster = self.cluster
        self.local_positions = LocalPositions(Cells(self.local_reads), cluster)
        self.positions = ClusterPositions(self.local_positions, self.topics, cluster, self.leading)
        self.stages = Stages(
            self.replicas, cluster, self.topics, self.router, self.reads, self.waiting
        )
        self.publishing = LocalPublishing(
            Cells(self.local_reads),
            cluster,
            self.stages,
            Copying(self.stages, self.router, cluster),
            self.reads,
            self.upkeep,
            self.passed,
        )
