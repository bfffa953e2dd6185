"""One node of a Raft group, as a deterministic machine.

Input: messages, ticks, what the host asks for, and word of completed writes.  Output: ``take``; see
``output`` for what the host owes in return.  The node reads no clock, draws no chance but what it
is given, and does nothing between calls.  No state of its own: its parts have it (``state``,
``roles`` and the objects of the roles), with their invariants.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.core.raft.entries import Index, Membership, RaftTerm, Stored
from tidelog.core.raft.membership import AddLearner, Change, Promote, Remove
from tidelog.core.raft.messages import Message
from tidelog.core.raft.options import Ignored, RaftOptions, Refused, Role
from tidelog.core.raft.output import Output
from tidelog.core.raft.roles import Draw, Roles
from tidelog.core.raft.state import State
from tidelog.core.raft.status import FollowerStatus, Status
from tidelog.types import NO_NODE, NodeId

__all__ = [
    "AddLearner",
    "Change",
    "Draw",
    "Ignored",
    "Promote",
    "Raft",
    "RaftOptions",
    "Refused",
    "Remove",
    "Role",
    "Status",
]

READ_NUMBERS: Final = 1 << 48


class Raft:
    """One node; see the module's text."""

    __slots__ = ("_read_number", "_roles", "_state")

    def __init__(self, node: NodeId, stored: Stored, options: RaftOptions, draw: Draw) -> None:
        self._state = State(node, stored, options)
        self._roles = Roles(self._state, draw)
        # Forwarded reads begin at a number of chance, so that an answer to a read from before a
        # crash is not taken for that to a new one.
        self._read_number = draw(READ_NUMBERS)

    # --- what comes in ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        self._roles.tick()

    def step(self, message: Message) -> None:
        """Take in a message; one that makes no sense is ignored and counted."""
        self._roles.step(message)

    def written(self, sequence: int) -> None:
        """All writes up to this one are durable."""
        self._state.writes.complete(sequence)
        self._roles.settle()

    # --- what the host asks for ---

    def propose(self, data: bytes) -> Index | Refused:
        """Append a command; it is committed when ``take`` returns an entry of this index and term.

        Only a leader can, and not while it hands over.
        """
        if self._roles.leadership is None:
            return Refused.NOT_LEADER
        return self._roles.leadership.propose(data)

    def change_membership(self, change: Change) -> Index | Refused:
        """Begin to add, promote or remove one node."""
        if self._roles.leadership is None:
            return Refused.NOT_LEADER
        index = self._roles.leadership.change_membership(change)
        self._roles.retire_if_removed()
        return index

    def transfer_leadership(self, target: NodeId) -> Refused | None:
        """Begin to hand the leadership over; given up after an election timeout."""
        if self._roles.leadership is None:
            return Refused.NOT_LEADER
        return self._roles.leadership.transfer(target)

    def read(self, context: int) -> None:
        """Find an index that a linearizable read may wait for: ``Output.reads`` has it, in time.

        ``Output.lost_reads`` has the context if there is no leader, or if it is lost meanwhile.
        """
        if self._roles.leadership is not None:
            self._roles.leadership.read(context)
        elif self._roles.following is not None:
            self._read_number += 1
            self._roles.following.forward(self._read_number, context)
        else:
            self._state.lost_reads.append(context)

    def compact(self, index: Index, data: bytes) -> Refused | None:
        """Replace the log up to ``index``, which is applied, by the state at that point.

        Without effect if the log begins later already: a snapshot of the leader came first.
        Refused if followers could not be sent so much.
        """
        return self._state.compact(index, data)

    # --- what comes out ---

    @property
    def has_output(self) -> bool:
        """Whether ``take`` may have something."""
        leadership = self._roles.leadership
        return self._state.has_output or (leadership is not None and leadership.is_due)

    def take(self) -> Output:
        """Hand over what has to be done; see ``Output``."""
        if self._roles.leadership is not None:
            self._roles.leadership.flush()
        return self._state.take()

    # --- what it looks like ---

    @property
    def node(self) -> NodeId:
        """Which node this is."""
        return self._state.node

    @property
    def role(self) -> Role:
        """What it is to the group at the moment."""
        return self._roles.role

    @property
    def term(self) -> RaftTerm:
        """The latest term that it knows of."""
        return self._state.term

    @property
    def vote(self) -> NodeId:
        """Whom it voted for in its term, if any."""
        return self._state.vote

    @property
    def leader(self) -> NodeId:
        """The leader of its term, if known."""
        return self._roles.leader

    @property
    def commit(self) -> Index:
        """All entries up to this one stay, as far as it knows."""
        return self._state.commit

    @property
    def applied(self) -> Index:
        """All entries up to this one were handed over as committed."""
        return self._state.applied

    @property
    def last_index(self) -> Index:
        """Where its log ends."""
        return self._state.log.last_index

    @property
    def membership(self) -> Membership:
        """Who belongs to the group, by the last entry that says so, committed or not."""
        return self._state.membership

    @property
    def ignored(self) -> Mapping[Ignored, int]:
        """How many messages were left without effect, by reason, since the start."""
        return MappingProxyType(self._state.ignored)

    def status(self) -> Status:
        """Return the node as it stands."""
        state, leadership = self._state, self._roles.leadership
        followers = leadership.replication.followers if leadership is not None else {}
        return Status(
            node=state.node,
            role=self.role,
            term=state.term,
            vote=state.vote,
            leader=self.leader,
            snapshot_index=state.log.snapshot_index,
            applied=state.applied,
            commit=state.commit,
            durable=state.writes.durable,
            last_index=state.log.last_index,
            membership=state.membership,
            transfer_target=leadership.transfer_target if leadership is not None else NO_NODE,
            followers=tuple(
                FollowerStatus(
                    node,
                    progress.match,
                    progress.next,
                    progress.pace,
                    progress.inflight_count,
                    progress.inflight_bytes,
                )
                for node, progress in followers.items()
            ),
        )

    def validate(self) -> None:
        """Check every invariant, at the cost of looking at the whole log."""
        self._roles.validate()
