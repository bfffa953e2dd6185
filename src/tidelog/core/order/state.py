"""All that the order layer must not forget, as plain values.  No state of its own.

``flaws`` has the invariants that they keep.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.core.order.commands import (
    CutDecided,
    Quorum,
    StreamCommit,
    StreamStatus,
    TopicVersions,
    VersionedCommit,
)
from tidelog.types import (
    FIRST_GLSN,
    FIRST_LLSN,
    FIRST_REVISION,
    FIRST_TERM,
    NO_LLSN,
    NO_NODE,
    NO_VERSION,
    Glsn,
    Llsn,
    NodeId,
    Revision,
    StreamId,
    Term,
    TopicId,
    Version,
)

NO_GLSN: Final = Glsn(0)
NO_STREAM: Final = StreamId(0)


class TopicOrder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic and how far its GLSN sequence got.

    ``removed_entries`` counts what was ordered for streams that are no longer there.  Entries below
    ``trim_glsn_end`` need not be kept, nor what is superseded at or below ``boundary``.
    """

    topic: TopicId
    streams: tuple[StreamId, ...]
    name: str = ""
    quorum: Quorum = Quorum.MAJORITY
    high_watermark: Glsn = NO_GLSN
    removed_entries: int = 0
    versions: TopicVersions = "log"
    key_streams: int = 0
    """Keyed entries go to so many of ``streams``, from the first on."""
    trim_glsn_end: Glsn = FIRST_GLSN
    boundary_high: int = 0
    boundary_low: int = 0

    @property
    def boundary(self) -> int:
        """The GC boundary, a write version of up to 128 bits."""
        return self.boundary_high << 64 | self.boundary_low


class ReplicaOrder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one replica.

    ``version`` is the highest cut that it knows, whatever the term was in which it said so.
    ``end`` is the end of what it has durable in the stream's term; 0 if it is silent in it.
    """

    node: NodeId
    version: Version = NO_VERSION
    end: Llsn = NO_LLSN


class StreamOrder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far one stream is ordered, and what the operator wrote about it.

    ``version`` is the last cut that ordered entries of it, ``glsn_end`` its own last GLSN + 1,
    ``llsn_end`` its next LLSN to be ordered; ``replicas`` are its ensemble, sorted by node, and
    ``departed`` the nodes that left it since its term began.  ``committed_end``: up to there a
    write quorum has it durable by the word of the term's leader; 0 if there is no word yet.
    """

    topic: TopicId
    stream: StreamId
    replicas: tuple[ReplicaOrder, ...]
    version: Version = NO_VERSION
    glsn_end: Glsn = FIRST_GLSN
    llsn_end: Llsn = FIRST_LLSN
    term: Term = FIRST_TERM
    revision: Revision = FIRST_REVISION
    status: StreamStatus = StreamStatus.RUNNING
    leader: NodeId = NO_NODE
    plan: bytes = b""
    departed: tuple[NodeId, ...] = ()
    committed_end: Llsn = NO_LLSN

    @property
    def ensemble(self) -> tuple[NodeId, ...]:
        """The nodes that hold its replicas."""
        return tuple([replica.node for replica in self.replicas])

    def advanced(
        self, commit: StreamCommit, version: Version, replicas: tuple[ReplicaOrder, ...]
    ) -> StreamOrder:
        """Return the stream as it is after its part of a cut; spelt out, for cuts are frequent."""
        return StreamOrder(
            self.topic,
            self.stream,
            replicas,
            version,
            commit.glsn_end,
            commit.llsn_end,
            self.term,
            self.revision,
            self.status,
            self.leader,
            self.plan,
            self.departed,
            self.committed_end,
        )

    @classmethod
    def settled(
        cls,
        topic: TopicId,
        stream: StreamId,
        node: NodeId,
        *,
        term: Term,
        version: Version,
        glsn_end: Glsn,
        llsn_end: Llsn,
    ) -> StreamOrder:
        """Make a stream whose only replica has nothing unordered, as it is found in a manifest."""
        replica = ReplicaOrder(node, version, llsn_end)
        return cls(topic, stream, (replica,), version, glsn_end, llsn_end, term)


class StreamHistory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a stream besides the kept cuts.

    ``forgotten`` is its last commit that is no longer kept; ``older`` are commits of cuts that are
    not kept as a whole any more, and that a majority has not applied yet.
    """

    stream: StreamId
    forgotten: Version
    older: tuple[VersionedCommit, ...] = ()


class OrderState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The whole order layer at one position of its log.

    ``cuts`` are the latest ones, up to ``version``; ``histories`` are of all streams that have
    commits in them or in ``older``.  No new stream gets a number up to ``retired``.
    """

    version: Version = NO_VERSION
    topics: tuple[TopicOrder, ...] = ()
    streams: tuple[StreamOrder, ...] = ()
    cuts: tuple[CutDecided, ...] = ()
    histories: tuple[StreamHistory, ...] = ()
    retired: StreamId = NO_STREAM
