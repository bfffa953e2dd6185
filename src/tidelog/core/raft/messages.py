"""What the nodes of a Raft group say to one another.  No state.

Every message carries the sender's term.  Any of them may be lost, late, repeated or reordered.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog.core.raft.entries import Entry, Index, RaftTerm, SnapshotHead
from tidelog.types import NodeId


class PreVoteRequest(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Would you vote for me in ``term``, which is the one after mine?  Changes nothing."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    last_index: Index
    last_term: RaftTerm


class PreVoteAnswer(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """Granted: ``term`` is that of the request.  Refused: it is the sender's own."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    granted: bool


class VoteRequest(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """Vote for me.  ``transfer``: the leader itself asked for it, so it is not to be protected."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    last_index: Index
    last_term: RaftTerm
    transfer: bool


class VoteAnswer(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """Sent once the vote is durable."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    granted: bool


class AppendRequest(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """Entries that follow ``previous_index``; none, to find or move the follower's position."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    previous_index: Index
    previous_term: RaftTerm
    commit: Index
    entries: tuple[Entry, ...]


class AppendAnswer(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """All up to ``match`` is durable here and equal to the leader's log."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    match: Index


class AppendRefusal(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """The entry at ``previous_index`` does not fit, or the request's term has passed.

    ``hint`` is an index at or below which the logs may agree.
    """

    source: NodeId
    target: NodeId
    term: RaftTerm
    previous_index: Index
    hint: Index


class Heartbeat(msgspec.Struct, frozen=True, tag=8, array_like=True):
    """The leader lives.  ``read_round`` is the newest round of reads that waits for a quorum."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    commit: Index
    read_round: int


class HeartbeatAnswer(msgspec.Struct, frozen=True, tag=9, array_like=True):
    """The sender still follows the target as of ``read_round``."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    read_round: int


class SnapshotChunk(msgspec.Struct, frozen=True, tag=10, array_like=True):
    """A part of a snapshot for a follower whose next entry is gone from the leader's log."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    head: SnapshotHead
    total_bytes: int
    offset: int
    data: bytes


class SnapshotAnswer(msgspec.Struct, frozen=True, tag=11, array_like=True):
    """The sender has this much of the snapshot at ``index``, from its start.

    When the whole is durable, an ``AppendAnswer`` follows instead.
    """

    source: NodeId
    target: NodeId
    term: RaftTerm
    index: Index
    received_bytes: int


class TimeoutNow(msgspec.Struct, frozen=True, tag=12, array_like=True):
    """The leader hands over: campaign at once."""

    source: NodeId
    target: NodeId
    term: RaftTerm


class ReadRequest(msgspec.Struct, frozen=True, tag=13, array_like=True):
    """A follower asks the leader for an index that a linearizable read may wait for."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    context: int


class ReadAnswer(msgspec.Struct, frozen=True, tag=14, array_like=True):
    """A read with this context is linearizable once ``index`` is applied."""

    source: NodeId
    target: NodeId
    term: RaftTerm
    context: int
    index: Index


class CommitNotice(msgspec.Struct, frozen=True, tag=15, array_like=True):
    """All up to ``commit`` is committed, as far as the receiver's log is the leader's.

    Nobody answers: if it is lost, the next append or heartbeat tells the same.
    """

    source: NodeId
    target: NodeId
    term: RaftTerm
    commit: Index


Message: TypeAlias = (
    PreVoteRequest
    | PreVoteAnswer
    | VoteRequest
    | VoteAnswer
    | AppendRequest
    | AppendAnswer
    | AppendRefusal
    | Heartbeat
    | HeartbeatAnswer
    | SnapshotChunk
    | SnapshotAnswer
    | TimeoutNow
    | ReadRequest
    | ReadAnswer
    | CommitNotice
)
