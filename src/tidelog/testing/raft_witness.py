"""Watches one node of a Raft group, and holds what it does against what all the others did.

Invariants:
  T1  nothing that a node says reaches another one before its state was looked at
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.core.raft.entries import NO_INDEX, NO_TERM, Entry, Index, RaftTerm, Stored
from tidelog.core.raft.messages import AppendAnswer, Message, VoteAnswer, VoteRequest
from tidelog.core.raft.node import Raft
from tidelog.core.raft.options import Role
from tidelog.core.raft.output import Write
from tidelog.testing.checkers.acked_durable import check_committed_durable
from tidelog.testing.checkers.promises import Promises
from tidelog.testing.checkers.raft_safety import RaftSafety
from tidelog.testing.checkers.stored import check_stored
from tidelog.testing.journal import Happened, Journal
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.types import NodeId

PROMISING: Final = frozenset((VoteRequest, VoteAnswer, AppendAnswer))
VALIDATE_EVERY: Final = 16
"""A node's full self-check is made every so many looks."""


class RaftGroup:
    """What the witnesses of a group share."""

    __slots__ = (
        "campaigns",
        "journal",
        "leaders",
        "on_campaign",
        "promises",
        "safety",
        "sometimes",
        "synced",
    )

    def __init__(
        self,
        journal: Journal,
        sometimes: Sometimes,
        on_campaign: Callable[[NodeId, int], None],
        on_committed: Callable[[Entry], None],
    ) -> None:
        self.journal = journal
        self.sometimes = sometimes
        self.safety = RaftSafety(sometimes, on_committed)
        self.promises = Promises()
        self.synced: dict[NodeId, ShadowLog] = {}
        self.leaders: dict[NodeId, RaftTerm] = {}
        """The nodes that believe to lead, and their terms."""
        self.campaigns = 0
        self.on_campaign = on_campaign

    @property
    def leader(self) -> NodeId | None:
        """The node that leads the highest term, if any."""
        if not self.leaders:
            return None
        return max(self.leaders, key=lambda node: self.leaders[node])


class RaftWitness:
    """The eyes on one node."""

    __slots__ = ("_commit", "_group", "_looks", "_node", "_term", "_unsynced", "log")

    def __init__(self, node: NodeId, group: RaftGroup) -> None:
        self._node = node
        self._group = group
        self._unsynced: list[Write] = []
        self._looks = 0
        self._commit = NO_INDEX
        self._term = NO_TERM
        self.log: ShadowLog
        """The log in the node's memory."""

    def opened(self, stored: Stored) -> None:
        """Check what the node found on its disk."""
        synced = self._group.synced.get(self._node)
        if synced is None:
            found = ShadowLog(stored)
        else:
            found = check_stored(self._node, stored, synced, self._unsynced)
        self._unsynced.clear()
        self._group.synced[self._node] = found
        self.log = found.copy()
        self._commit = NO_INDEX
        self._term = stored.hard_state.term

    def stopped(self) -> None:
        """The node is down."""
        self._group.leaders.pop(self._node, None)

    def asked(self, write: Write) -> None:
        """Note what a node wants written: from now on it is in its memory."""
        replaced = self.log.apply(write)
        if replaced:
            self._group.sometimes.count(Rare.UNCOMMITTED_ENTRY_REPLACED, replaced)
        self._group.safety.on_write(self._node, write, self.log)

    def writing(self, write: Write) -> None:
        """Note what is given to the disk."""
        self._unsynced.append(write)

    def synced(self) -> None:
        """Note that the disk has synced all that it was given."""
        log = self._group.synced[self._node]
        for write in self._unsynced:
            log.apply(write)
        self._unsynced.clear()

    def says(self, message: Message) -> None:
        """Look at a message before it leaves (T1)."""
        if type(message) in PROMISING:
            synced = self._group.synced[self._node]
            self._group.promises.on_message(message, self.log, synced)

    def look(self, raft: Raft) -> None:
        """Look at a node after something happened to it, before others hear of it (T1)."""
        led = self._group.leaders.get(self._node)
        if raft.role is Role.LEADER:
            self._look_at_leader(raft)
        if raft.commit != self._commit:
            # A leader that was removed resigns in the very step that commits its removal.
            self._look_at_commit(raft, leads=raft.role is Role.LEADER or led == raft.term)
        if raft.role is not Role.LEADER and led is not None:
            del self._group.leaders[self._node]
        if raft.term != self._term:
            self._look_at_term(raft)
        self._looks += 1
        if self._looks % VALIDATE_EVERY == 0:
            raft.validate()

    def _look_at_term(self, raft: Raft) -> None:
        group = self._group
        self._term = raft.term
        group.journal.note(Happened.TERM, self._node, raft.term)
        if raft.vote == self._node:
            group.campaigns += 1
            group.sometimes.count(Rare.CAMPAIGN)
            group.on_campaign(self._node, group.campaigns)

    def _look_at_leader(self, raft: Raft) -> None:
        group = self._group
        if group.leaders.get(self._node) == raft.term:
            return
        group.safety.on_leader(self._node, raft.term, self.log)
        group.leaders[self._node] = raft.term
        group.sometimes.count(Rare.ELECTION)
        if len(group.leaders) > 1:
            group.sometimes.count(Rare.TWO_LEADERS)
        group.journal.note(Happened.LEADER, self._node, raft.term)

    def _look_at_commit(self, raft: Raft, *, leads: bool) -> None:
        group = self._group
        commit: Index = raft.commit
        if leads and commit > group.safety.committed:
            check_committed_durable(self._node, commit, self.log, group.synced)
        group.safety.on_commit(self._node, commit, self.log, leads=leads)
        self._commit = commit
