"""What replicas of one stream and operators say to one another.  No state.

Any message may be lost, late, repeated or reordered.  An answer carries the term of its request.
Who answers what in which state: docs/protocol.md.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from tidelog.core.order.commands import Quorum
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.types import NO_NODE, NO_VERSION, Llsn, NodeId, StreamId, Term, Version


class Role(Enum):
    """What a replica is to its stream."""

    NOT_MEMBER = "not member"
    FENCED = "fenced"
    FOLLOWER = "follower"
    LEADER = "leader"


class ChangeKind(Enum):
    """The three reconfigurations."""

    SWAP = "swap"
    EXPAND = "expand"
    CONTRACT = "contract"


class Reason(Enum):
    """Why a request was refused."""

    TERM_PASSED = "a later term has begun"
    NOT_FENCED = "this election never fenced the replica"
    NOT_LEADER = "it does not lead in this term"
    NOT_MEMBER = "it holds no replica, or is not of the ensemble"
    INCOMPLETE = "it lacks entries that it acknowledged"
    ROLE = "its role in this term is settled"
    LED_BEFORE = "it led this term before, or went to it in an earlier life"
    BUSY = "another reconfiguration is in progress"
    ABORTED = "the reconfiguration was aborted"
    COMMITTED = "the reconfiguration is committed"
    NOT_PREPARED = "no such reconfiguration was prepared"
    ORDERED = "ordered entries would be cut"
    COMPACTED = "it has forgotten the GLSNs of what is dead"


class _Message(msgspec.Struct, frozen=True, array_like=True):
    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term


class FollowerHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a fenced replica told of its log."""

    node: NodeId
    head: EntryId
    is_complete: bool


# -- elections -----------------------------------------------------------------------------------


class FenceRequest(_Message, frozen=True, tag=128):
    """End all older terms.  ``is_first``: the stream never had a leader, so empty is complete."""

    is_first: bool


class FenceResponse(_Message, frozen=True, tag=129):
    """The term is durable here, and so is the log up to ``head``; the context has ``version``.

    If it is not complete: all that it ever acknowledged lies at or below ``had``, if that is known.
    ``is_behind``: it misses cuts.
    """

    head: EntryId
    is_complete: bool
    version: Version = NO_VERSION
    had: EntryId | None = None
    is_behind: bool = False


class BecomeLeaderRequest(_Message, frozen=True, tag=130):
    """Lead the term.  ``followers``: the other fenced members of the ensemble known by now."""

    ensemble: tuple[NodeId, ...]
    quorum: Quorum
    followers: tuple[FollowerHead, ...]


class BecomeLeaderResponse(_Message, frozen=True, tag=131):
    """The sender leads."""


class AddFollowerRequest(_Message, frozen=True, tag=132):
    """One more fenced member of the ensemble: ``follower``."""

    follower: FollowerHead


class AddFollowerResponse(_Message, frozen=True, tag=133):
    """The leader has a cursor for ``follower``."""

    follower: NodeId


class TruncateRequest(_Message, frozen=True, tag=134):
    """If ``head`` is still your head, cut off all entries above ``cut``."""

    reign: Term
    head: EntryId
    cut: EntryId


class TruncateResponse(_Message, frozen=True, tag=135):
    """The log ends at ``head``."""

    head: EntryId


# -- replication ---------------------------------------------------------------------------------


class AddEntriesRequest(_Message, frozen=True, tag=136):
    """What follows ``previous`` in the leader's log; none, to tell the commit index alone."""

    reign: Term
    previous: EntryId
    batches: tuple[Batch, ...]
    commit: Llsn


class AddEntriesResponse(_Message, frozen=True, tag=137):
    """All up to ``confirmed`` is durable here and equal to the leader's log."""

    confirmed: Llsn


class AddEntriesRefusal(_Message, frozen=True, tag=138):
    """``previous`` is not an entry of this log, which ends at ``head``."""

    previous: EntryId
    head: EntryId
    is_complete: bool


# -- reconfigurations ----------------------------------------------------------------------------


class PrepareRequest(_Message, frozen=True, tag=139):
    """Go to a new term, and let the old node go, if there is one."""

    kind: ChangeKind
    old: NodeId = NO_NODE
    new: NodeId = NO_NODE


class PrepareResponse(_Message, frozen=True, tag=140):
    """The leader is prepared; a snapshot for the new node must reach ``head``."""

    reign: Term
    head: EntryId


class SnapshotRequest(_Message, frozen=True, tag=141):
    """Synchronise from ``leader`` at least up to ``head``, and until you know cut ``version``."""

    reign: Term
    leader: NodeId
    head: EntryId
    version: Version = NO_VERSION


class SnapshotResponse(_Message, frozen=True, tag=142):
    """The snapshot is durable here; the log ends at ``head``, the context has ``version``."""

    head: EntryId
    version: Version = NO_VERSION


class CommitRequest(_Message, frozen=True, tag=143):
    """Apply the prepared reconfiguration.  ``head``: where the new node's log ended."""

    kind: ChangeKind
    old: NodeId
    new: NodeId
    head: EntryId


class CommitResponse(_Message, frozen=True, tag=144):
    """Applied; or, of a contraction, not yet."""

    is_done: bool


class AbortRequest(_Message, frozen=True, tag=145):
    """Undo what was prepared in this term."""


class AbortResponse(_Message, frozen=True, tag=146):
    """Nothing of it is in force, and nothing will be."""


class DropRequest(_Message, frozen=True, tag=147):
    """The replica is of no ensemble any more: delete it."""


class DropResponse(_Message, frozen=True, tag=148):
    """Nothing of it is left here."""


class StatusRequest(_Message, frozen=True, tag=149):
    """What are you to the stream?  ``term`` is the one that the operator knows."""


class StatusResponse(_Message, frozen=True, tag=150):
    """``attached``: followers whose cursors count.  ``own_term`` is the sender's.

    ``version`` is that of its commit context.
    """

    own_term: Term
    role: Role
    leader: NodeId
    head: EntryId
    is_complete: bool
    ensemble: tuple[NodeId, ...]
    attached: tuple[NodeId, ...]
    version: Version = NO_VERSION


class Refusal(_Message, frozen=True, tag=151):
    """The request changed nothing."""

    known_term: Term
    reason: Reason


# -- synchronisation -----------------------------------------------------------------------------


class SyncRequest(_Message, frozen=True, tag=152):
    """A replica needs its leader to fill it up."""


class SyncInitRequest(_Message, frozen=True, tag=153):
    """The leader has entries from ``first`` up to ``head``; of those up to ``snapshot_index``
    only the live ones.  ``terms``: each term, and the first entry that it wrote."""

    reign: Term
    number: int
    first: Llsn
    head: EntryId
    context: CommitContext
    snapshot_index: Llsn
    terms: tuple[tuple[Term, Llsn], ...] = ()


class SyncInitResponse(_Message, frozen=True, tag=154):
    """Entries from ``begin`` on are missing, and GLSNs from ``ordered_end`` on."""

    number: int
    begin: Llsn
    ordered_end: Llsn


class SyncEntriesRequest(_Message, frozen=True, tag=155):
    """All live entries in ``[begin, end)``, and GLSNs up to there that are missing.

    The last part has the commit context and the state of the snapshot.
    """

    reign: Term
    number: int
    begin: Llsn
    end: Llsn
    batches: tuple[Batch, ...]
    runs: tuple[GlsnRun, ...]
    context: CommitContext | None
    state: bytes


class SyncEntriesResponse(_Message, frozen=True, tag=156):
    """All before ``end`` is durable."""

    number: int
    end: Llsn


class CutsRequest(_Message, frozen=True, tag=157):
    """The sender knows GLSNs up to ``llsn_end`` and cuts up to ``version``; the history is gone."""

    llsn_end: Llsn
    version: Version


class CutsResponse(_Message, frozen=True, tag=158):
    """GLSNs of the entries from ``llsn_begin`` on, up to the end of ``context`` if there is room.

    If it lies beyond what was asked for, the entries before it were trimmed.
    """

    asked: Llsn
    llsn_begin: Llsn
    runs: tuple[GlsnRun, ...]
    context: CommitContext


ToOperator: TypeAlias = (
    FenceResponse
    | BecomeLeaderResponse
    | AddFollowerResponse
    | PrepareResponse
    | SnapshotResponse
    | CommitResponse
    | AbortResponse
    | DropResponse
    | StatusResponse
    | Refusal
)
FromOperator: TypeAlias = (
    FenceRequest
    | BecomeLeaderRequest
    | AddFollowerRequest
    | PrepareRequest
    | SnapshotRequest
    | CommitRequest
    | AbortRequest
    | DropRequest
    | StatusRequest
)
BetweenReplicas: TypeAlias = (
    TruncateRequest
    | TruncateResponse
    | AddEntriesRequest
    | AddEntriesResponse
    | AddEntriesRefusal
    | Refusal
    | SyncRequest
    | SyncInitRequest
    | SyncInitResponse
    | SyncEntriesRequest
    | SyncEntriesResponse
    | CutsRequest
    | CutsResponse
)
ToReplica: TypeAlias = FromOperator | BetweenReplicas
Message: TypeAlias = ToReplica | ToOperator
