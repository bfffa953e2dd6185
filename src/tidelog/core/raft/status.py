"""A node as its operators see it.  No state."""

from __future__ import annotations

import msgspec

from tidelog.core.raft.entries import Index, Membership, RaftTerm
from tidelog.core.raft.options import Role
from tidelog.core.raft.progress import Pace
from tidelog.types import NodeId


class FollowerStatus(msgspec.Struct, frozen=True):
    """What a leader believes of one other node."""

    node: NodeId
    match: Index
    next_index: Index
    pace: Pace
    inflight_count: int
    inflight_bytes: int


class Status(msgspec.Struct, frozen=True):
    """A node at one moment; ``followers`` only if it leads."""

    node: NodeId
    role: Role
    term: RaftTerm
    vote: NodeId
    leader: NodeId
    snapshot_index: Index
    applied: Index
    commit: Index
    durable: Index
    last_index: Index
    membership: Membership
    transfer_target: NodeId
    followers: tuple[FollowerStatus, ...]
