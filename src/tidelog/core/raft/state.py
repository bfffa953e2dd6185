"""What a node has in every role, and the few ways in which it changes.

Invariants:
  S1  the snapshot's index <= applied <= commit <= the log's last index: what is committed or
      applied is never replaced
  S2  the term never falls, and within a term a vote once given stays
  S3  no entry is of a later term than the node's
  S4  what is applied has been handed out to be written before, or with it
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog import limits
from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    RaftTerm,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.log import RaftLog
from tidelog.core.raft.membership import NO_MEMBERS, Memberships, decode_membership, is_sound
from tidelog.core.raft.messages import Message
from tidelog.core.raft.options import Ignored, RaftOptions, Refused
from tidelog.core.raft.output import Output, ReadReady
from tidelog.core.raft.writes import Writes
from tidelog.errors import CorruptData
from tidelog.invariants import check
from tidelog.types import NO_NODE, NodeId


def flaw_in_stored(stored: Stored) -> str | None:
    """Say why a node cannot start from what was found on its disk; None if it can."""
    head = stored.snapshot.head
    if not (head.membership == NO_MEMBERS or is_sound(head.membership)):
        return "the membership of the snapshot is not sound"
    index, term = head.index, head.term
    for entry in stored.entries:
        if entry.index != index + 1 or entry.term < term:
            return f"entry {entry.index} does not continue the log at {index}"
        if entry.kind is EntryKind.MEMBERSHIP and decode_membership(entry.data) is None:
            return f"the membership of entry {entry.index} is not sound"
        index, term = entry.index, entry.term
    if term > stored.hard_state.term:
        return f"entry {index} is of term {term}, after the node's"
    return None


class State:
    """Term and vote, log and membership, and what has to leave the node."""

    __slots__ = (
        "applied",
        "commit",
        "ignored",
        "install",
        "log",
        "lost_reads",
        "memberships",
        "messages",
        "node",
        "options",
        "reads",
        "term",
        "vote",
        "writes",
    )

    def __init__(self, node: NodeId, stored: Stored, options: RaftOptions) -> None:
        check(NO_NODE < node < limits.RAFT_NUMBER_END, "S2: a node needs a number to vote for")
        flaw = flaw_in_stored(stored)
        if flaw is not None:
            raise CorruptData(f"the stored Raft log is not sound: {flaw}")
        self.node = node
        self.options = options
        self.term, self.vote = stored.hard_state.term, stored.hard_state.vote
        head = stored.snapshot.head
        self.log = RaftLog(stored.snapshot, stored.entries)
        self.memberships = Memberships(head.index, head.membership)
        for entry in stored.entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                self.memberships.append(entry)
        self.commit = self.applied = head.index
        self.writes = Writes(self.log.last_index)
        self.messages: list[Message] = []
        self.reads: list[ReadReady] = []
        self.lost_reads: list[int] = []
        self.install: Snapshot | None = None
        self.ignored: dict[Ignored, int] = {}

    @property
    def membership(self) -> Membership:
        """The one in force."""
        return self.memberships.current

    @property
    def committed_in_term(self) -> bool:
        """Whether an entry of this term is committed, and with it all that came before."""
        return self.log.term_of(self.commit) == self.term

    @property
    def is_voter(self) -> bool:
        """Whether the node's own vote and log count."""
        return self.node in self.membership.voters

    @property
    def may_lead(self) -> bool:
        """Whether the node may stand for election.

        A voter may, and so may one whose removal is not known to be committed: it may be the only
        one with a log that can commit it.  Its own vote does not count then.
        """
        return self.memberships.is_voter_since(self.commit, self.node)

    def ignore(self, reason: Ignored) -> None:
        """Count a message that has no effect."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1

    def set_term(self, term: RaftTerm, vote: NodeId) -> None:
        """Go to a later term, or vote in this one; never forgotten once it is durable."""
        check(
            term > self.term or (term == self.term and self.vote in (NO_NODE, vote)),
            "S2: the term falls or a vote changes",
        )
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            self.writes.set_hard_state(HardState(term, vote))

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end of the log; a membership is in force at once."""
        for entry in entries:
            check(entry.term <= self.term, "S3: an entry comes from a later term")
            self.log.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                self.memberships.append(entry)

    def truncate(self, begin: Index) -> None:
        """Drop entries that the leader does not have, and the memberships among them."""
        check(begin > self.commit, "S1: a committed entry would be replaced")
        self.log.truncate(begin)
        self.memberships.truncate(begin)
        self.writes.truncate(begin)

    def commit_to(self, index: Index) -> bool:
        """Move the commit index up; say whether it moved."""
        check(index <= self.log.last_index, "S1: an entry is committed that is not here")
        if index <= self.commit:
            return False
        self.commit = index
        return True

    def compact(self, index: Index, data: bytes) -> Refused | None:
        """Put our own snapshot in the place of the log up to ``index``.

        One that is no newer than what we have is left out, and so is one from before we have
        learnt who belongs to the group: it could not say so.
        """
        check(index <= self.applied, "S1: a snapshot of what is not applied")
        term = self.log.term_of(index)
        if index <= self.log.snapshot_index or term is None:
            return None
        membership = self.memberships.at(index)
        if membership == NO_MEMBERS:
            return None
        if len(data) > limits.RAFT_SNAPSHOT_BYTES_MAX:
            return Refused.TOO_LARGE
        snapshot = Snapshot(SnapshotHead(index, term, membership), data)
        self.log.compact(snapshot)
        self.memberships.compact(index)
        self.writes.set_snapshot(snapshot)
        return None

    def replace_log(self, snapshot: Snapshot) -> None:
        """Go on from the leader's snapshot instead of our log and state."""
        head = snapshot.head
        check(head.index > self.commit, "S1: the snapshot is older than what is committed")
        check(head.term <= self.term, "S3: the snapshot comes from a later term")
        self.writes.replace_log(snapshot, kept=self.commit)
        self.log.replace(snapshot)
        self.memberships = Memberships(head.index, head.membership)
        self.commit = self.applied = head.index
        self.install = snapshot

    @property
    def has_output(self) -> bool:
        """Whether ``take`` would return anything."""
        return bool(
            self.messages
            or self.applied < self.commit
            or self.writes.is_due(self.log)
            or self.reads
            or self.lost_reads
            or self.install is not None
        )

    def take(self) -> Output:
        """Hand over what has to be done."""
        committed: tuple[Entry, ...] = ()
        if self.applied < self.commit:
            committed = self.log.slice(self.applied + 1, self.commit + 1)
            self.applied = self.commit
        messages, self.messages = tuple(self.messages), []
        reads, self.reads = tuple(self.reads), []
        lost_reads, self.lost_reads = tuple(self.lost_reads), []
        install, self.install = self.install, None
        return Output(messages, self.writes.take(self.log), install, committed, reads, lost_reads)

    def flaw(self) -> str | None:
        """Say which invariant is broken; looks at the whole log."""
        log = self.log
        if not log.snapshot_index <= self.applied <= self.commit <= log.last_index:
            return f"S1: {log.snapshot_index}, {self.applied}, {self.commit}, {log.last_index}"
        if log.last_term > self.term:
            return f"S3: the log ends in term {log.last_term}, the node is in {self.term}"
        if self.applied > self.writes.handed:
            return f"S4: applied {self.applied}, handed out {self.writes.handed}"
        return log.flaw() or self.writes.flaw(log) or self.memberships.flaw(log)
