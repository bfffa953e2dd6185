"""Who belongs to the group: one change at a time, in force from the moment it is appended.

Invariants:
  M1  the nodes of a membership are sorted, each is there once, and none is voter and learner
  M2  a change adds or removes at most one voter, so that any majority before it and any after
      it have a node in common
  M3  the history has the membership of the snapshot and of each membership entry after it, by
      rising index; a truncated log takes its changes back
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

import msgspec

from tidelog import limits
from tidelog.core.raft.entries import Entry, EntryKind, Index, Membership
from tidelog.core.raft.log import RaftLog
from tidelog.core.raft.options import Refused
from tidelog.invariants import InvariantViolation, check
from tidelog.types import NO_NODE, NodeId

NO_MEMBERS: Final = Membership(())
"""What a node knows that joins a group and has not heard of its leader yet."""


class AddLearner(msgspec.Struct, frozen=True):
    """The node gets the log from now on, but neither votes nor counts."""

    node: NodeId


class Promote(msgspec.Struct, frozen=True):
    """The learner becomes a voter."""

    node: NodeId


class Remove(msgspec.Struct, frozen=True):
    """The node, voter or learner, leaves the group."""

    node: NodeId


Change: TypeAlias = AddLearner | Promote | Remove


def changed(membership: Membership, change: Change) -> Membership | Refused:
    """Return the membership after a change."""
    voters, learners, node = membership.voters, membership.learners, change.node
    match change:
        case AddLearner():
            if node <= NO_NODE or node in voters or node in learners:
                return Refused.NO_CHANGE
            if len(voters) + len(learners) >= limits.RAFT_MEMBERS_MAX:
                return Refused.TOO_MANY_MEMBERS
            return Membership(voters, with_node(learners, node))
        case Promote():
            if node not in learners:
                return Refused.NO_CHANGE
            return Membership(with_node(voters, node), without_node(learners, node))
        case Remove():
            if node not in voters and node not in learners:
                return Refused.NO_CHANGE
            if voters == (node,):
                return Refused.LAST_VOTER
            return Membership(without_node(voters, node), without_node(learners, node))


def with_node(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(sorted((*nodes, node)))


def without_node(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


def members(membership: Membership) -> list[NodeId]:
    """All nodes, sorted."""
    return sorted(membership.voters + membership.learners)


def has_quorum(voters: tuple[NodeId, ...], agreed: Collection[NodeId]) -> bool:
    """Whether a majority of the voters agreed; nobody else counts."""
    return 2 * sum(voter in agreed for voter in voters) > len(voters)


def quorum_value(values: Iterable[int]) -> int:
    """Return the highest value that a majority has reached, given that of each voter."""
    ranked = sorted(values, reverse=True)
    return ranked[len(ranked) // 2]


def encode_membership(membership: Membership) -> bytes:
    """Return what a membership entry carries."""
    return msgspec.msgpack.encode(membership)


def decode_membership(data: bytes) -> Membership | None:
    """Return what a membership entry carries; None unless it is a sound membership."""
    try:
        membership = DECODER.decode(data)
    except msgspec.DecodeError:
        return None
    return membership if is_sound(membership) else None


def is_sound(membership: Membership) -> bool:
    """Whether a membership that came from elsewhere keeps M1 and can decide anything."""
    voters, learners = membership.voters, membership.learners
    nodes = members(membership)
    return (
        len(voters) > 0
        and len(nodes) <= limits.RAFT_MEMBERS_MAX
        and is_rising(nodes)
        and is_rising(voters)
        and is_rising(learners)
    )


def is_rising(nodes: Collection[NodeId]) -> bool:
    before = NO_NODE
    for node in nodes:
        if not before < node < limits.RAFT_NUMBER_END:
            return False
        before = node
    return True


DECODER: Final = msgspec.msgpack.Decoder(Membership)


class Memberships:
    """The memberships that the log knows, and at which index each came into force."""

    __slots__ = ("_indexes", "_values")

    def __init__(self, index: Index, membership: Membership) -> None:
        self._indexes = [index]
        self._values = [membership]

    @property
    def current(self) -> Membership:
        """The one in force, committed or not."""
        return self._values[-1]

    @property
    def changed_at(self) -> Index:
        """Where the one in force was appended."""
        return self._indexes[-1]

    def at(self, index: Index) -> Membership:
        """Return the one that was in force at an index."""
        place = bisect_right(self._indexes, index) - 1
        check(place >= 0, "M3: the membership of a compacted index was asked for")
        return self._values[place]

    def is_voter_since(self, index: Index, node: NodeId) -> bool:
        """Whether a node votes in the membership of an index, or in one after it."""
        place = bisect_right(self._indexes, index) - 1
        return any(node in membership.voters for membership in self._values[place:])

    def append(self, entry: Entry) -> None:
        """Put a membership entry's change into force."""
        check(entry.kind is EntryKind.MEMBERSHIP, "M3: an entry changes no membership")
        check(entry.index > self.changed_at, "M3: a change does not come after the last one")
        membership = decode_membership(entry.data)
        if membership is None:
            raise InvariantViolation("M1: an unsound membership was appended")
        self._indexes.append(entry.index)
        self._values.append(membership)

    def truncate(self, begin: Index) -> None:
        """Take back the changes at ``begin`` and above."""
        place = bisect_left(self._indexes, begin)
        check(place > 0, "M3: the membership of the snapshot would be taken back")
        del self._indexes[place:]
        del self._values[place:]

    def compact(self, index: Index) -> None:
        """Forget what was in force before an index."""
        place = bisect_right(self._indexes, index) - 1
        check(place >= 0, "M3: the log was compacted backwards")
        del self._indexes[:place]
        del self._values[:place]
        self._indexes[0] = index

    def flaw(self, log: RaftLog) -> str | None:
        """Say which invariant is broken, given the log that this is the history of."""
        expected = [(log.snapshot_index, log.snapshot.head.membership)]
        for entry in log.slice(log.snapshot_index + 1, log.last_index + 1):
            if entry.kind is EntryKind.MEMBERSHIP:
                membership = decode_membership(entry.data)
                if membership is None:
                    return f"M1: the membership at {entry.index} is not sound"
                expected.append((entry.index, membership))
        if expected != list(zip(self._indexes, self._values, strict=True)):
            return "M3: the memberships are not those of the log"
        return None
