"""What a storage node tells of its replicas, for people and metrics.  No state."""

from __future__ import annotations

import msgspec

from tidelog.core.replica.messages import Role
from tidelog.core.replica.options import CursorKind
from tidelog.core.replica.replica import Replica
from tidelog.types import Llsn, NodeId, StreamId, Term, TopicId, Version


class FollowerStatus(msgspec.Struct, frozen=True, gc=False):
    """A follower, as its leader sees it."""

    node: NodeId
    kind: CursorKind
    confirmed: Llsn
    """The last entry that is surely durable there."""
    lag: int
    """Entries of the leader's log that it is not known to have."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of this node."""

    topic: TopicId
    stream: StreamId
    role: Role
    term: Term
    leader: NodeId
    """0 if it is not known here."""
    first: Llsn
    """The first entry that was not trimmed."""
    end: Llsn
    durable_end: Llsn
    propagated_end: Llsn
    ordered_end: Llsn
    high_watermark: int
    """Of the topic, as of the last cut that it applied durably."""
    version: Version
    is_complete: bool
    is_behind: bool
    is_filling: bool
    is_sealed: bool
    """Whether it was told to take no appends if it leads."""
    revision: int
    """Of the stream's row that is known here, which says so; 0: none is."""
    followers: tuple[FollowerStatus, ...] = ()


def status_of(
    topic: TopicId, stream: StreamId, replica: Replica, *, is_sealed: bool, revision: int
) -> ReplicaStatus:
    """Describe a replica as it stands."""
    head, context = replica.head.llsn, replica.durable_context
    return ReplicaStatus(
        topic=topic,
        stream=stream,
        role=replica.role,
        term=replica.term,
        leader=replica.leader,
        first=replica.first,
        end=Llsn(head + 1),
        durable_end=Llsn(replica.durable_head.llsn + 1),
        propagated_end=Llsn(replica.commit_index + 1),
        ordered_end=context.llsn_end,
        high_watermark=context.high_watermark,
        version=replica.version,
        is_complete=replica.is_complete,
        is_behind=replica.is_behind,
        is_filling=replica.is_filling,
        is_sealed=is_sealed,
        revision=revision,
        followers=tuple(
            FollowerStatus(node, cursor.kind, cursor.confirmed, max(0, head - cursor.confirmed))
            for node, cursor in replica.cursors.items()
        ),
    )
