"""What the order layer is told, and what it answers.  No state.

The commands are the entries of the metadata repository's log: the same commands
in the same order give the same cuts on every node.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

import msgspec

from tidelog.types import (
    FIRST_GLSN,
    NO_LLSN,
    NO_TERM,
    Glsn,
    Llsn,
    NodeId,
    Revision,
    StreamId,
    Term,
    TopicId,
    Version,
)


class Quorum(Enum):
    """Which replicas of a stream must have an entry before it is ordered."""

    MAJORITY = "majority"
    ALL = "all"

    def size(self, members: int) -> int:
        """Return how many of so many members that is."""
        return members if self is Quorum.ALL else members // 2 + 1


TopicVersions: TypeAlias = Literal["log", "explicit"]
"""Who gives the entries of a topic their write versions: the log, or whoever appends."""


class StreamStatus(Enum):
    """Whether a stream's leader takes appends, and cuts take from the stream."""

    RUNNING = "running"
    SEALING = "sealing"
    """No more appends; what was taken before is ordered."""
    SEALED = "sealed"
    """Neither: what is ordered is all that there will be."""


# -- commands ------------------------------------------------------------------------------------


class NewStream(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stream to be, and the nodes that hold its replicas: sorted, at least one."""

    stream: StreamId
    ensemble: tuple[NodeId, ...]


class CreateTopic(msgspec.Struct, frozen=True, tag=1, array_like=True, gc=False):
    """A topic begins to exist, with its first streams.

    Keyed entries go to the first ``key_streams`` of its streams; 0: to all of these.
    """

    topic: TopicId
    streams: tuple[NewStream, ...]
    name: str = ""
    quorum: Quorum = Quorum.MAJORITY
    versions: TopicVersions = "log"
    key_streams: int = 0


class AddStreams(msgspec.Struct, frozen=True, tag=2, array_like=True, gc=False):
    """A topic gets more streams; its GLSN sequence goes on."""

    topic: TopicId
    streams: tuple[NewStream, ...]


class RemoveStream(msgspec.Struct, frozen=True, tag=3, array_like=True, gc=False):
    """A stream ends, if ``revision`` is its current one; the GLSNs of its topic go on."""

    stream: StreamId
    revision: Revision


class UpdateStream(msgspec.Struct, frozen=True, tag=4, array_like=True, gc=False):
    """The operator's write, if ``revision`` is the current one; the next one is 1 higher.

    From a new term on, reports of older terms are void.  ``leader`` and ``plan`` mean nothing to
    the order.  ``joining_versions``: the highest cuts that joining nodes say to know.
    """

    stream: StreamId
    revision: Revision
    term: Term
    ensemble: tuple[NodeId, ...]
    leader: NodeId
    status: StreamStatus
    plan: bytes
    joining_versions: tuple[tuple[NodeId, Version], ...] = ()


class Report(msgspec.Struct, frozen=True, tag=5, array_like=True, gc=False):
    """A replica has ``length`` durable, unordered entries from ``llsn_begin`` on.

    ``version`` is the highest cut that the replica knows.  ``committed_end``: up to there a write
    quorum has the entries durable, as the leader of the term knows; 0 if the replica does not lead.
    """

    node: NodeId
    stream: StreamId
    term: Term
    version: Version
    llsn_begin: Llsn
    length: int
    committed_end: Llsn = NO_LLSN

    @property
    def llsn_end(self) -> Llsn:
        """The end of what the replica has durable."""
        return Llsn(self.llsn_begin + self.length)


class Cut(msgspec.Struct, frozen=True, tag=6, array_like=True, gc=False):
    """Order all that was reported by quorums and is not ordered yet."""


class RetainTopic(msgspec.Struct, frozen=True, tag=7, array_like=True, gc=False):
    """Entries below a GLSN, and versions below a boundary, need not be kept any more.

    Both only rise: what lies below is left as it is.  The boundary has 128 bits, in two words.
    """

    topic: TopicId
    trim_glsn_end: Glsn = FIRST_GLSN
    boundary_high: int = 0
    boundary_low: int = 0


TopicChange: TypeAlias = CreateTopic | AddStreams | RemoveStream | UpdateStream | RetainTopic
Command: TypeAlias = TopicChange | Report | Cut


# -- answers -------------------------------------------------------------------------------------


class StreamCommit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stream's part of a cut: ``length`` entries get GLSNs from ``glsn_begin`` on.

    ``high_watermark`` is that of the topic after the whole cut.  ``term`` is the stream's at that
    moment: a write quorum has the entries as the leader of it has them.  A log with one replica
    does not store it.
    """

    topic: TopicId
    stream: StreamId
    high_watermark: Glsn
    glsn_begin: Glsn
    llsn_begin: Llsn
    length: int
    term: Term = NO_TERM

    @property
    def glsn_end(self) -> Glsn:
        """The first GLSN not included."""
        return Glsn(self.glsn_begin + self.length)

    @property
    def llsn_end(self) -> Llsn:
        """The first LLSN not included."""
        return Llsn(self.llsn_begin + self.length)


class CutDecided(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A new version: the streams that something was ordered for, by (topic, stream)."""

    version: Version
    commits: tuple[StreamCommit, ...]


class VersionedCommit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one cut means for one stream."""

    version: Version
    commit: StreamCommit


Effect: TypeAlias = CutDecided
