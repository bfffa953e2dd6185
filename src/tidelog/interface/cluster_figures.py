"""Figures of a cluster, as values that print and serialise well.  No state.

``NodeFacts`` is what a process tells of itself; ``ClusterStatus`` is what the metadata repository
says, with the facts of all processes that answered.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog.interface.readers import ReaderFacts

# -- what a process tells of itself ----------------------------------------------------------------


class ReplicaFacts(msgspec.Struct, frozen=True):
    """A replica as its own node sees it."""

    stream: int
    role: str
    """``leader``, ``follower``, ``fenced`` or ``not member``."""
    term: int
    leader: int
    end_llsn: int
    """The first LLSN that it does not have."""
    ordered_end_llsn: int
    snapshot_index: int = 0
    """Compaction and trims may have taken entries up to here."""
    is_complete: bool = True
    """Whether it has all that it ever acknowledged."""
    version: int = 0
    """The last cut that it applied."""
    is_sealed: bool = False
    """Whether it was told to take no appends if it leads."""
    revision: int = 0
    """Of the stream's row that its node knows, which says so; 0: it knows none."""


class MemberFacts(msgspec.Struct, frozen=True):
    """A node of the metadata repository as it sees itself."""

    role: str
    term: int
    leader: int
    commit: int
    applied: int
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()


class NodeFacts(msgspec.Struct, frozen=True):
    """One process; what it has no role for is empty."""

    node: int
    roles: tuple[str, ...]
    release: str
    clock_us: int
    """Its clock when it answered, in microseconds since 1970."""
    uptime_seconds: float
    data_bytes_free: int = 0
    data_bytes_total: int = 0
    open_files: int = 0
    open_files_max: int = 0
    is_disk_full: bool = False
    """Whether appends are refused since there is no room."""
    sync_seconds: float = 0.0
    """What it took on average to make writes durable; 0 if there were only a few."""
    wal_backlog_files: int = 0
    damaged_files: tuple[str, ...] = ()
    replicas: tuple[ReplicaFacts, ...] = ()
    member: MemberFacts | None = None
    readers: tuple[ReaderFacts, ...] = ()
    """Who asked this process lately where to go on; ``ClusterStatus`` has their lag."""


class DigestFacts(msgspec.Struct, frozen=True):
    """What a replica holds in ``[llsn_begin, llsn_end)``."""

    node: int
    stream: int
    llsn_begin: int
    llsn_end: int
    digest: str
    """Equal if entries, their places and their GLSNs are; empty for an empty range."""
    glsn_first: int
    """The GLSN of its first entry; 0 for an empty range."""
    context: tuple[int, int, int, int, int]
    """Its commit context: version, high watermark, GLSN begin, LLSN begin, length."""
    context_flaw: str = ""
    """What is wrong with that, if anything is."""


class GlsnFacts(msgspec.Struct, frozen=True):
    """What a replica knows of the GLSNs of its log stream in ``[glsn_begin, glsn_end)``.

    The sums are over the GLSNs themselves and over their squares: with their number they show
    whether the streams of a topic together leave no gap and share no GLSN.
    """

    node: int
    stream: int
    glsn_begin: int
    glsn_end: int
    count: int
    sum: str
    squares: str


# -- what the cluster looks like -------------------------------------------------------------------


class Severity(Enum):
    """How much a finding matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class ClusterNode(msgspec.Struct, frozen=True):
    """A process of the cluster; ``facts`` is None if it did not answer."""

    node: int
    roles: tuple[str, ...]
    """As far as they are known."""
    peers: str
    clients: str
    facts: NodeFacts | None = None
    clock_offset_seconds: float = 0.0
    """Its clock less that of the node that was asked, as exact as half a round trip."""
    round_trip_seconds: float = 0.0
    leads: int = 0
    replicas: int = 0

    @property
    def answers(self) -> bool:
        """Whether it told of itself."""
        return self.facts is not None


class ClusterReplica(msgspec.Struct, frozen=True):
    """A replica; ``facts`` is None if its node did not answer, or has none."""

    node: int
    facts: ReplicaFacts | None
    lag: int | None
    """Entries of the leader's log that it lacks; None if that is not known."""


class ClusterChange(msgspec.Struct, frozen=True):
    """A reconfiguration under way."""

    kind: str
    phase: str
    old: int
    new: int
    copied: int | None = None
    """Entries that the new node has, of so many, if both are known."""
    to_copy: int | None = None


class ClusterStream(msgspec.Struct, frozen=True):
    """A log stream."""

    stream: int
    topic: str
    term: int
    revision: int
    status: str
    """``running``, ``sealing`` or ``sealed``."""
    plan: str
    """``new``, ``election``, ``steady`` or ``reconfiguration``."""
    leader: int
    """0: nobody."""
    ordered_end_llsn: int
    glsn_end: int
    replicas: tuple[ClusterReplica, ...]
    change: ClusterChange | None = None

    @property
    def ensemble(self) -> tuple[int, ...]:
        """The nodes that hold its replicas."""
        return tuple([replica.node for replica in self.replicas])

    @property
    def has_quorum(self) -> bool:
        """Whether more than half of its replicas answered."""
        return 2 * sum(replica.facts is not None for replica in self.replicas) > len(self.replicas)


class ClusterTopic(msgspec.Struct, frozen=True):
    """A topic."""

    name: str
    topic: int
    streams: tuple[int, ...]
    quorum: str
    high_watermark: int
    versions: str = "log"
    first_available: int = 1
    has_removed_streams: bool = False
    """Their GLSNs are gaps."""


class ClusterMetadata(msgspec.Struct, frozen=True):
    """The metadata repository."""

    members: tuple[int, ...]
    learners: tuple[int, ...]
    leader: int
    term: int
    applied: int
    version: int
    """The last cut."""
    answering: tuple[int, ...]

    @property
    def has_quorum(self) -> bool:
        """Whether more than half of the members answered."""
        return 2 * len(self.answering) > len(self.members)


class ClusterFinding(msgspec.Struct, frozen=True):
    """Something about a cluster that a person should know."""

    severity: Severity
    what: str
    remedy: str = ""


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster as one of its nodes sees it."""

    cluster_id: str
    asked: int
    """The node that put this together."""
    metadata: ClusterMetadata
    nodes: tuple[ClusterNode, ...]
    topics: tuple[ClusterTopic, ...]
    streams: tuple[ClusterStream, ...]
    operators_paused: bool
    view_number: int = 0
    readers: tuple[ReaderFacts, ...] = ()
    """Who gave a name and was heard of lately, by whichever node."""

    def node(self, number: int) -> ClusterNode | None:
        """The process of that number."""
        return next((node for node in self.nodes if node.node == number), None)

    def stream(self, number: int) -> ClusterStream | None:
        """The log stream of that number."""
        return next((stream for stream in self.streams if stream.stream == number), None)

    @property
    def operators(self) -> tuple[int, ...]:
        """Nodes that are known to be operators."""
        return tuple([node.node for node in self.nodes if "operator" in node.roles])
