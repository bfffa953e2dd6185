"""How a leader brings its log to the others: what is sent follows from what it believes of each.

Nothing is sent when something is learnt; ``flush`` sends what became due since the last time, so
that proposals, commit index and freed window share messages.

Invariants:
  F1  every member but the leader has a progress, and so has a node whose removal is not
      committed yet: it should learn of it
  F2  messages to one follower that wait for an answer are bounded in number and bytes
"""

from __future__ import annotations

from tidelog.core.raft.entries import Entry, Index, Membership, Snapshot
from tidelog.core.raft.membership import members
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    CommitNotice,
    SnapshotAnswer,
    SnapshotChunk,
)
from tidelog.core.raft.options import Ignored
from tidelog.core.raft.progress import Pace, Progress
from tidelog.core.raft.state import State
from tidelog.types import NodeId


class Replication:
    """The followers of one leadership."""

    __slots__ = ("_state", "due", "followers")

    def __init__(self, state: State) -> None:
        self._state = state
        self.followers: dict[NodeId, Progress] = {}
        self.due = True
        """Something changed that may let us send more."""
        self.include(state.membership)

    def include(self, membership: Membership) -> None:
        """Begin to send to nodes that are new."""
        state, before = self._state, self.followers
        nodes = sorted({*before, *members(membership)} - {state.node})
        begin = Index(state.log.last_index + 1)
        self.followers = {node: before.get(node) or Progress(begin) for node in nodes}
        self.due = True

    def exclude_departed(self) -> None:
        """Tell all what is committed, also those whose removal that was, and then drop these."""
        self.flush()
        staying = members(self._state.membership)
        self.followers = {
            node: progress for node, progress in self.followers.items() if node in staying
        }

    # --- what is learnt ---

    def acknowledge(self, answer: AppendAnswer) -> bool:
        """Take in what a follower has; say whether it is more than was known."""
        progress = self._heard(answer.source)
        if progress is None:
            return False
        if answer.match > self._state.log.last_index:
            self._state.ignore(Ignored.NONSENSE)
            return False
        self.due = True
        return progress.acknowledge(answer.match)

    def refuse(self, refusal: AppendRefusal) -> None:
        """Take in that an append did not fit."""
        progress = self._heard(refusal.source)
        if progress is None:
            return
        if progress.refuse(refusal.previous_index, refusal.hint):
            self.due = True
        else:
            self._state.ignore(Ignored.LATE)

    def answer_heartbeat(self, source: NodeId, read_round: int) -> bool:
        """Take in that a follower lives; whatever may have been lost on the way is looked for."""
        progress = self._heard(source)
        if progress is None:
            return False
        progress.read_round = max(progress.read_round, read_round)
        if progress.stalls():
            self._send_append(source, progress, ())
        elif progress.waited_ticks >= self._state.options.resend_ticks:
            progress.awaiting = False
            self.due = True
        return True

    def advance_snapshot(self, answer: SnapshotAnswer) -> None:
        """Go on with a snapshot where the follower says that it stands."""
        progress = self._heard(answer.source)
        if progress is None:
            return
        snapshot, received = progress.snapshot, answer.received_bytes
        if (
            snapshot is None
            or answer.index != snapshot.head.index
            or (received == progress.offset and progress.awaiting)
            or received >= len(snapshot.data)
        ):
            self._state.ignore(Ignored.LATE)
            return
        if received == 0:
            progress.send_snapshot(self._state.log.snapshot)  # There may be a newer one.
        progress.offset, progress.awaiting, progress.waited_ticks = received, False, 0
        self.due = True

    def tick(self) -> None:
        """Let time pass for parts of snapshots that wait for an answer."""
        for progress in self.followers.values():
            if progress.snapshot is not None:
                progress.waited_ticks += 1

    def _heard(self, source: NodeId) -> Progress | None:
        progress = self.followers.get(source)
        if progress is None:
            self._state.ignore(Ignored.UNKNOWN_SENDER)
        else:
            progress.active = True
        return progress

    # --- what is sent ---

    def flush(self) -> None:
        """Send to each follower what it lacks and the window allows."""
        if self.due:
            self.due = False
            for target, progress in self.followers.items():
                self._send(target, progress)

    def _send(self, target: NodeId, progress: Progress) -> None:
        state = self._state
        if progress.pace is Pace.REPLICATE:
            while progress.next <= state.log.last_index and progress.has_room(state.options):
                if not self._send_entries(target, progress):
                    break
            else:
                if progress.commit_told < state.commit:
                    self._tell_commit(target, progress)
        elif progress.pace is Pace.PROBE and not progress.awaiting:
            self._send_entries(target, progress)
        if progress.snapshot is not None and not progress.awaiting:
            self._send_chunk(target, progress, progress.snapshot)

    def _send_entries(self, target: NodeId, progress: Progress) -> bool:
        """Send the next entries; if they are gone, say so and turn to the snapshot."""
        log = self._state.log
        if progress.next <= log.snapshot_index:
            progress.send_snapshot(log.snapshot)
            return False
        entries = log.slice_of_bytes(progress.next, self._state.options.append_bytes_max)
        self._send_append(target, progress, entries)
        progress.sent(entries)
        return True

    def _send_append(self, target: NodeId, progress: Progress, entries: tuple[Entry, ...]) -> None:
        state, previous = self._state, Index(progress.next - 1)
        previous_term = state.log.term_of(previous)
        if previous_term is None:
            # Only the search for a lost message gets here; the snapshot answers it as well.
            progress.send_snapshot(state.log.snapshot)
            self.due = True
            return
        progress.commit_told = state.commit
        state.messages.append(
            AppendRequest(
                state.node, target, state.term, previous, previous_term, state.commit, entries
            )
        )

    def _tell_commit(self, target: NodeId, progress: Progress) -> None:
        state = self._state
        progress.commit_told = state.commit
        state.messages.append(CommitNotice(state.node, target, state.term, state.commit))

    def _send_chunk(self, target: NodeId, progress: Progress, snapshot: Snapshot) -> None:
        state, begin = self._state, progress.offset
        data = snapshot.data[begin : begin + state.options.snapshot_chunk_bytes]
        state.messages.append(
            SnapshotChunk(
                state.node, target, state.term, snapshot.head, len(snapshot.data), begin, data
            )
        )
        progress.awaiting, progress.waited_ticks = True, 0
