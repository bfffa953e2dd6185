"""What a node has only while it leads: followers, reads, a change, a transfer.

Invariants:
  C1  an entry is committed by counting only if it is of the leader's term; with it all before it
      are committed (an older one, found on a majority, may still be replaced)
  C2  the leader counts its own copy of an entry only once that is durable
  C3  a membership changes only if the one before is committed, and an entry of this term too
  C4  proposals that are not committed are bounded in bytes
  C5  a change of the voters begins only if a majority of those after it was heard of lately: else
      nobody could commit it, nor be elected any more
"""

from __future__ import annotations

from tidelog import limits
from tidelog.core.raft.entries import Entry, EntryKind, Index, Membership
from tidelog.core.raft.log import weight
from tidelog.core.raft.membership import (
    Change,
    Promote,
    changed,
    encode_membership,
    has_quorum,
    members,
    quorum_value,
)
from tidelog.core.raft.messages import (
    AppendAnswer,
    Heartbeat,
    HeartbeatAnswer,
    ReadAnswer,
    ReadRequest,
    TimeoutNow,
)
from tidelog.core.raft.options import Ignored, Refused
from tidelog.core.raft.output import ReadReady
from tidelog.core.raft.progress import Pace
from tidelog.core.raft.reads import ReadRounds, WaitingRead
from tidelog.core.raft.replication import Replication
from tidelog.core.raft.state import State
from tidelog.types import NO_NODE, NodeId


class Leadership:
    """One node's leadership of one term."""

    __slots__ = (
        "_heartbeat_elapsed",
        "_quorum_elapsed",
        "_reads",
        "_state",
        "_transfer_due",
        "_transfer_elapsed",
        "_uncommitted_bytes",
        "replication",
        "transfer_target",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self.replication = Replication(state)
        self._reads = ReadRounds(state.options.reads_max)
        self._heartbeat_elapsed = 0
        self._quorum_elapsed = 0
        self.transfer_target = NO_NODE
        self._transfer_elapsed = 0
        self._transfer_due = False
        log = state.log
        tail = log.slice(state.commit + 1, log.last_index + 1)
        self._uncommitted_bytes = sum(map(weight, tail))
        self._append(EntryKind.EMPTY, b"")

    # --- proposals ---

    def propose(self, data: bytes) -> Index | Refused:
        """Append a command."""
        if self.transfer_target != NO_NODE:
            return Refused.TRANSFERRING
        if len(data) > limits.RAFT_ENTRY_BYTES_MAX:
            return Refused.TOO_LARGE
        if self._uncommitted_bytes >= self._state.options.uncommitted_bytes_max:
            return Refused.TOO_MUCH_UNCOMMITTED
        return self._append(EntryKind.COMMAND, data)

    def change_membership(self, change: Change) -> Index | Refused:
        """Append a membership; it is in force at once."""
        refused = self._refuse_change()
        if refused is not None:
            return refused
        membership = changed(self._state.membership, change)
        if isinstance(membership, Refused):
            return membership
        if isinstance(change, Promote) and not self._has_caught_up(change.node):
            return Refused.NOT_CAUGHT_UP
        if not self._could_commit(membership):
            return Refused.TOO_FEW_ALIVE
        index = self._append(EntryKind.MEMBERSHIP, encode_membership(membership))
        self.replication.include(membership)
        self.advance_commit()  # With a voter less, a majority may be there already.
        return index

    def _refuse_change(self) -> Refused | None:
        """Why the membership must stay as it is for now (C3)."""
        state = self._state
        if self.transfer_target != NO_NODE:
            return Refused.TRANSFERRING
        if state.memberships.changed_at > state.commit:
            return Refused.ANOTHER_CHANGE_PENDING
        if not state.committed_in_term:
            return Refused.NO_COMMIT_IN_THIS_TERM
        return None

    def _could_commit(self, membership: Membership) -> bool:
        """Whether the voters of a membership could decide anything (C5)."""
        if membership.voters == self._state.membership.voters:
            return True
        followers = self.replication.followers.items()
        heard = [node for node, one in followers if one.active or one.was_active]
        return has_quorum(membership.voters, [*heard, self._state.node])

    def _has_caught_up(self, learner: NodeId) -> bool:
        state, progress = self._state, self.replication.followers[learner]
        return (
            progress.pace is Pace.REPLICATE
            and state.log.last_index - progress.match <= state.options.promote_lag_max
        )

    def _append(self, kind: EntryKind, data: bytes) -> Index:
        state = self._state
        entry = Entry(Index(state.log.last_index + 1), state.term, kind, data)
        state.append((entry,))
        self._uncommitted_bytes += weight(entry)
        self.replication.due = True
        return entry.index

    # --- commitment ---

    def acknowledge(self, answer: AppendAnswer) -> None:
        """Count what a follower has."""
        if self.replication.acknowledge(answer):
            self.advance_commit()
            self._transfer_due = True

    def advance_commit(self) -> None:
        """Commit what a majority of the voters has durable."""
        state = self._state
        index = Index(quorum_value(map(self._durable_at, state.membership.voters)))
        if index <= state.commit or not self._may_commit(index):
            return
        for entry in state.log.slice(state.commit + 1, index + 1):
            self._uncommitted_bytes -= weight(entry)
        before = state.commit
        state.commit_to(index)
        self.replication.due = True
        if before < state.memberships.changed_at <= index:
            self.replication.exclude_departed()

    def _durable_at(self, voter: NodeId) -> Index:
        """How much of the log a voter surely has; of our own only what is durable (C2)."""
        if voter == self._state.node:
            return self._state.writes.durable
        return self.replication.followers[voter].match

    def _may_commit(self, index: Index) -> bool:
        """Whether a majority's copies of an entry prove that it stays (C1)."""
        return self._state.log.term_of(index) == self._state.term

    @property
    def is_over(self) -> bool:
        """Whether the leader was removed from the group, for good."""
        state = self._state
        return state.memberships.changed_at <= state.commit and not state.is_voter

    # --- time ---

    def tick(self) -> bool:
        """Let time pass; say whether a majority was heard of lately."""
        options = self._state.options
        self.replication.tick()
        self._quorum_elapsed += 1
        if self._quorum_elapsed >= options.election_ticks:
            self._quorum_elapsed = 0
            if not self._hears_quorum():
                return False
        if self.transfer_target != NO_NODE:
            self._transfer_elapsed += 1
            if self._transfer_elapsed >= options.election_ticks:
                self.transfer_target = NO_NODE
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= options.heartbeat_ticks:
            self._send_heartbeats()
        return True

    def _hears_quorum(self) -> bool:
        """Whether a majority answered since this was last asked."""
        active = {self._state.node}
        for node, progress in self.replication.followers.items():
            if progress.active:
                active.add(node)
            progress.was_active, progress.active = progress.active, False
        return has_quorum(self._state.membership.voters, active)

    def _send_heartbeats(self) -> None:
        state, read_round = self._state, self._reads.awaited_round
        self._heartbeat_elapsed = 0
        self._transfer_due = True
        for target, progress in self.replication.followers.items():
            commit = min(progress.match, state.commit)  # It surely has nothing beyond.
            state.messages.append(Heartbeat(state.node, target, state.term, commit, read_round))

    def answer_heartbeat(self, answer: HeartbeatAnswer) -> None:
        """Count a follower that still follows."""
        if self.replication.answer_heartbeat(answer.source, answer.read_round):
            self._confirm_reads()

    # --- reads ---

    def read(self, context: int) -> None:
        """Find an index for our own read."""
        if not self._reads.add(WaitingRead(self._state.node, context)):
            self._state.lost_reads.append(context)

    def read_for(self, request: ReadRequest) -> None:
        """Find an index for the read of a follower."""
        if request.source not in members(self._state.membership):
            self._state.ignore(Ignored.UNKNOWN_SENDER)
        elif not self._reads.add(WaitingRead(request.source, request.context)):
            self._state.ignore(Ignored.TOO_MANY_READS)

    @property
    def _reads_due(self) -> bool:
        """Whether a round of reads can begin (R1)."""
        return self._reads.is_waiting and self._state.committed_in_term

    def _begin_reads(self) -> None:
        while self._reads_due:
            self._reads.begin(self._state.commit)
            self._confirm_reads()
            if self._reads.awaited_round:
                self._send_heartbeats()

    def _confirm_reads(self) -> None:
        """Answer the reads whose round a majority of the voters has confirmed."""
        state = self._state
        index, reads = self._reads.confirmed(map(self._round_of, state.membership.voters))
        for read in reads:
            if read.requester == state.node:
                state.reads.append(ReadReady(read.context, index))
            else:
                state.messages.append(
                    ReadAnswer(state.node, read.requester, state.term, read.context, index)
                )

    def _round_of(self, voter: NodeId) -> int:
        if voter == self._state.node:
            return self._reads.awaited_round
        return self.replication.followers[voter].read_round

    # --- transfer ---

    def transfer(self, target: NodeId) -> Refused | None:
        """Hand the leadership over, once the target has the whole log."""
        if target == self._state.node:
            return Refused.NO_CHANGE
        if target not in self._state.membership.voters:
            return Refused.NOT_A_VOTER
        if self.transfer_target not in (NO_NODE, target):
            return Refused.TRANSFERRING
        if self.transfer_target == NO_NODE:
            self.transfer_target = target
            self._transfer_elapsed = 0
            self._transfer_due = True
        return None

    def _hand_over(self) -> None:
        state, target = self._state, self.transfer_target
        if not self._transfer_due:
            return
        self._transfer_due = False
        if target == NO_NODE:
            return
        if self.replication.followers[target].match == state.log.last_index:
            state.messages.append(TimeoutNow(state.node, target, state.term))

    # --- output ---

    @property
    def is_due(self) -> bool:
        """Whether ``flush`` may have something to do."""
        return (
            self.replication.due
            or (self._transfer_due and self.transfer_target != NO_NODE)
            or self._reads_due
        )

    def flush(self) -> None:
        """Send what became due."""
        self.replication.flush()
        self._hand_over()
        self._begin_reads()

    def resign(self) -> None:
        """Give up what only a leader can finish."""
        for read in self._reads.drop():
            if read.requester == self._state.node:
                self._state.lost_reads.append(read.context)

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        state, followers = self._state, self.replication.followers
        if list(followers) != sorted(followers) or state.node in followers:
            return "F1: the followers are not sorted, or the leader is among them"
        if any(node not in followers for node in members(state.membership) if node != state.node):
            return "F1: a member is not followed"
        tail = state.log.slice(state.commit + 1, state.log.last_index + 1)
        if self._uncommitted_bytes != sum(map(weight, tail)):
            return "C4: the uncommitted bytes do not add up"
        for progress in followers.values():
            flaw = progress.flaw(state.log.last_index)
            if flaw is not None:
                return flaw
        return None
