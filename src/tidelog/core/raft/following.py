"""What a node has only while it follows a leader: how far their logs agree, a snapshot, reads.

Invariants:
  G1  all up to ``matched`` is the same in the leader's log; within a term that only grows
  G2  only what is durable here and equal to the leader's log is acknowledged, and only once the
      term is durable too
  G3  an entry is truncated only if the leader has another in its place, never a committed one
  G4  a snapshot that arrives takes no more memory than what came of it, and at most its limit
"""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import Entry, Index, Snapshot, SnapshotHead
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    ReadAnswer,
    ReadRequest,
    SnapshotAnswer,
    SnapshotChunk,
)
from tidelog.core.raft.options import Ignored
from tidelog.core.raft.output import ReadReady
from tidelog.core.raft.state import State
from tidelog.invariants import check
from tidelog.types import NodeId

UNKNOWN: Final = Index(-1)
"""Not even the beginning of the log was compared yet."""


class Following:
    """One node's following of one leader, in one term."""

    __slots__ = (
        "_acknowledged",
        "_forwarded",
        "_incoming",
        "_matched",
        "_state",
        "_ticks",
        "leader",
    )

    def __init__(self, state: State, leader: NodeId) -> None:
        self._state = state
        self.leader = leader
        self._matched = UNKNOWN
        self._acknowledged = UNKNOWN
        self._incoming: IncomingSnapshot | None = None
        # By the number under which they were sent: the host's context, and when they expire.
        self._forwarded: dict[int, tuple[int, int]] = {}
        self._ticks = 0

    # --- appends ---

    def append(self, request: AppendRequest) -> None:
        """Take over the leader's entries, from the first one that our log lacks or has wrong."""
        state, log = self._state, self._state.log
        entries = self._entries_that_join(request)
        if entries is None:
            return
        fresh = self._first_difference(entries)
        if fresh < len(entries):
            begin = entries[fresh].index
            if begin <= log.last_index:
                if self._is_settled(begin):
                    return
                is_other = log.term_of(begin) != entries[fresh].term
                check(is_other, f"G3: entry {begin} is truncated, and the leader has the same")
                state.truncate(begin)
            state.append(entries[fresh:])
        matched = max(Index(request.previous_index + len(request.entries)), log.snapshot_index)
        state.commit_to(min(request.commit, matched))
        self._match(matched)

    def _entries_that_join(self, request: AppendRequest) -> tuple[Entry, ...] | None:
        """Return the entries beyond our snapshot if they join our log; else refuse the request."""
        log, previous = self._state.log, request.previous_index
        if previous >= log.snapshot_index:
            if log.term_of(previous) == request.previous_term:
                return request.entries
            self._refuse(request)
            return None
        # What the snapshot covers is committed, so the leader has the same.
        covered = log.snapshot_index - previous
        entries = request.entries[covered:]
        if entries and request.entries[covered - 1].term != log.snapshot.head.term:
            self._state.ignore(Ignored.CONTRADICTS_COMMITTED)
            return None
        return entries

    def _is_settled(self, index: Index) -> bool:
        """Whether the entry at an index cannot be replaced, whoever asks for it (G1, G3)."""
        if index <= self._state.commit:
            self._state.ignore(Ignored.CONTRADICTS_COMMITTED)
        elif index <= self._matched:
            self._state.ignore(Ignored.CONTRADICTS_LEADER)
        else:
            return False
        return True

    def _first_difference(self, entries: tuple[Entry, ...]) -> int:
        """Return the place of the first entry that our log lacks or has of another term (G3)."""
        log = self._state.log
        if entries and entries[0].index > log.last_index:
            return 0
        for place, entry in enumerate(entries):
            if log.term_of(entry.index) != entry.term:
                return place
        return len(entries)

    def _refuse(self, request: AppendRequest) -> None:
        state, previous = self._state, request.previous_index
        if previous <= state.commit:
            state.ignore(Ignored.CONTRADICTS_COMMITTED)
            return
        hint = state.log.highest_at_term(previous - 1, request.previous_term)
        hint = max(hint, state.commit)  # What is committed here, the leader has.
        state.messages.append(AppendRefusal(state.node, self.leader, state.term, previous, hint))

    def _match(self, index: Index) -> None:
        """Our log is the leader's up to ``index``: say so at once if that is durable already."""
        self._matched = max(self._matched, index)
        if self._state.writes.durable >= index and self._state.writes.hard_state_durable:
            self._acknowledge()

    def acknowledge_durable(self) -> None:
        """Tell the leader what became durable of its log."""
        state = self._state
        if (
            state.writes.hard_state_durable
            and min(self._matched, state.writes.durable) > self._acknowledged
        ):
            self._acknowledge()

    def _acknowledge(self) -> None:
        state = self._state
        self._acknowledged = min(self._matched, state.writes.durable)
        state.messages.append(AppendAnswer(state.node, self.leader, state.term, self._acknowledged))

    def heartbeat(self, heartbeat: Heartbeat) -> None:
        """Take over the leader's commit index, and tell it that it is still followed."""
        state = self._state
        state.commit_to(min(heartbeat.commit, state.log.last_index))
        state.messages.append(
            HeartbeatAnswer(state.node, self.leader, state.term, heartbeat.read_round)
        )

    def advance(self, notice: CommitNotice) -> None:
        """Take over the leader's commit index, as far as our log is known to be its log (G1)."""
        if self._matched > UNKNOWN:
            self._state.commit_to(min(notice.commit, self._matched))

    # --- snapshots ---

    def receive(self, chunk: SnapshotChunk) -> None:
        """Take in a part of a snapshot, and the whole once it is there."""
        state, head = self._state, chunk.head
        if head.index <= state.commit or state.log.term_of(head.index) == head.term:
            # We have all that it covers, so it only tells that this much is committed.
            self._incoming = None
            state.commit_to(head.index)
            self._match(head.index)
            return
        if self._is_settled(head.index):
            return
        incoming = self._incoming
        if incoming is None or not incoming.continues(chunk):
            if incoming is not None and head.index < incoming.head.index:
                state.ignore(Ignored.LATE)
                return
            incoming = self._incoming = IncomingSnapshot(head, chunk.total_bytes)
        incoming.add(chunk)
        if incoming.is_complete:
            self._install(incoming.snapshot())
        else:
            received = incoming.received_bytes
            state.messages.append(
                SnapshotAnswer(state.node, self.leader, state.term, head.index, received)
            )

    def _install(self, snapshot: Snapshot) -> None:
        self._incoming = None
        self._state.replace_log(snapshot)
        self._match(snapshot.head.index)

    # --- reads ---

    def forward(self, number: int, context: int) -> None:
        """Ask the leader for an index; ``number`` stands for the read on the way."""
        state = self._state
        if len(self._forwarded) >= state.options.reads_max:
            state.lost_reads.append(context)
            return
        self._forwarded[number] = (context, self._ticks + state.options.election_ticks)
        state.messages.append(ReadRequest(state.node, self.leader, state.term, number))

    def answer(self, answer: ReadAnswer) -> None:
        """The leader found an index for a read."""
        context, _ = self._forwarded.pop(answer.context, (None, 0))
        if context is None:
            self._state.ignore(Ignored.LATE)
        else:
            self._state.reads.append(ReadReady(context, answer.index))

    def tick(self) -> None:
        """Let time pass: a read that was not answered for long is lost."""
        self._ticks += 1
        while self._forwarded:
            number, (context, expiry) = next(iter(self._forwarded.items()))
            if expiry > self._ticks:
                return
            del self._forwarded[number]
            self._state.lost_reads.append(context)

    def leave(self) -> None:
        """Give up what only this leader could finish."""
        self._state.lost_reads.extend(context for context, _ in self._forwarded.values())
        self._forwarded.clear()

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        if self._matched > self._state.log.last_index:
            return f"G1: matched {self._matched} beyond the log"
        if self._acknowledged > self._matched:
            return f"G2: acknowledged {self._acknowledged} of {self._matched}"
        return None


class IncomingSnapshot:
    """The parts of a snapshot that have arrived, from its start and without gap."""

    __slots__ = ("_data", "_total_bytes", "head")

    def __init__(self, head: SnapshotHead, total_bytes: int) -> None:
        self.head = head
        self._total_bytes = total_bytes
        self._data = bytearray()

    @property
    def received_bytes(self) -> int:
        """How much is there."""
        return len(self._data)

    @property
    def is_complete(self) -> bool:
        """Whether all is there."""
        return len(self._data) == self._total_bytes

    def continues(self, chunk: SnapshotChunk) -> bool:
        """Whether a part is of this snapshot."""
        return (chunk.head, chunk.total_bytes) == (self.head, self._total_bytes)

    def add(self, chunk: SnapshotChunk) -> None:
        """Add a part if it is the next one; what came twice or too early changes nothing."""
        if chunk.offset == len(self._data):
            self._data += chunk.data

    def snapshot(self) -> Snapshot:
        """Return the whole."""
        return Snapshot(self.head, bytes(self._data))
