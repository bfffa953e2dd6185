"""What a Raft log is made of, in memory and on disk.  No state."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NewType

import msgspec

from tidelog.types import NO_NODE, NodeId

Index = NewType("Index", int)
"""An entry's place in the Raft log, dense from 1; 0 means before the first."""

RaftTerm = NewType("RaftTerm", int)
"""The number of a leadership of the Raft group (a log stream's leaderships count on their own)."""

NO_INDEX: Final = Index(0)
NO_TERM: Final = RaftTerm(0)


class EntryKind(IntEnum):
    """What an entry is for."""

    EMPTY = 0
    """The first entry of every leadership: with it, all that came before is committed."""
    COMMAND = 1
    """For the state machine above."""
    MEMBERSHIP = 2
    """A ``Membership``, in force from the moment that it is appended."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the Raft log."""

    index: Index
    term: RaftTerm
    kind: EntryKind
    data: bytes


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """Who votes, and who only follows; both sorted, and no node in both."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node may never forget, besides its entries."""

    term: RaftTerm = NO_TERM
    vote: NodeId = NO_NODE


class SnapshotHead(msgspec.Struct, frozen=True, array_like=True):
    """Where in the log a snapshot stands."""

    index: Index
    term: RaftTerm
    membership: Membership


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine's state after all entries up to the head's index."""

    head: SnapshotHead
    data: bytes


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """What a node finds on its disk when it starts; entries continue the snapshot without gap.

    A group begins with the same snapshot on each of its first voters: index 0, no data.  A node
    that joins later begins with such a snapshot without members.
    """

    hard_state: HardState
    snapshot: Snapshot
    entries: tuple[Entry, ...]
