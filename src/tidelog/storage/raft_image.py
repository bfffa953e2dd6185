"""What the disk of a Raft node holds, in memory, brought up to date by each write.

A write is checked before it is stored, and again when it is read back: a node that contradicts
itself neither stores that nor starts from it.

  I1  Entries are dense and continue the snapshot.
  I2  Terms never fall along the log, and none is above the node's own.
  I3  The node's term never falls, and a vote that was given in a term is never taken back.
  I4  A snapshot is newer than the one it replaces; our own covers nothing that the log lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.core.raft.entries import Entry, HardState, RaftTerm, SnapshotHead
from tidelog.core.raft.output import Write
from tidelog.types import NO_NODE


@dataclass(slots=True)
class RaftImage:
    """Hard state, the place of the snapshot, and the entries behind it."""

    hard_state: HardState
    head: SnapshotHead
    entries: list[Entry]

    @property
    def last_index(self) -> int:
        return self.head.index + len(self.entries)

    def term_at(self, index: int) -> RaftTerm:
        """The term of an entry behind the snapshot."""
        return self.entries[index - self.head.index - 1].term

    def flaw(self) -> str | None:
        """What is wrong with the whole of it; None when nothing is."""
        head = self.head
        return flaw_in_entries(self.entries, head.index, head.term, self.hard_state.term)

    def flaw_in(self, write: Write) -> str | None:
        """Why ``write`` cannot follow what is there; None when it can."""
        hard_state = write.hard_state or self.hard_state
        if not may_follow(hard_state, self.hard_state):
            return f"I3: {hard_state} after {self.hard_state}"
        base, end = self.head, self.last_index
        if write.snapshot is not None:
            base = write.snapshot.head
            if flaw := self._flaw_in_head(base, replaces_log=write.replaces_log):
                return flaw
            end = base.index if write.replaces_log else end
        index = write.entries[0].index - 1 if write.entries else base.index
        if not base.index <= index <= end:
            return f"I1: entries from {index + 1} on where the log has {base.index} to {end}"
        term = base.term if index == base.index else self.term_at(index)
        return flaw_in_entries(write.entries, index, term, hard_state.term)

    def _flaw_in_head(self, head: SnapshotHead, *, replaces_log: bool) -> str | None:
        if head.index <= self.head.index:
            return f"I4: a snapshot at {head.index} after one at {self.head.index}"
        if replaces_log:
            return None
        if head.index > self.last_index or head.term != self.term_at(head.index):
            return f"I4: a snapshot of our own at {head.index}, which our log does not have"
        return None

    def apply(self, write: Write) -> None:
        """Bring the image up to date with a write that has no flaw."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot is not None:
            head = write.snapshot.head
            kept = [] if write.replaces_log else self.entries[head.index - self.head.index :]
            self.head, self.entries = head, kept
        if write.entries:
            del self.entries[write.entries[0].index - self.head.index - 1 :]
            self.entries += write.entries

    def copy(self) -> RaftImage:
        return RaftImage(self.hard_state, self.head, list(self.entries))


def may_follow(new: HardState, old: HardState) -> bool:
    """Whether a node may exchange its hard state like this (I3)."""
    if new.term == old.term:
        return old.vote in (NO_NODE, new.vote)
    return new.term > old.term


def flaw_in_entries(
    entries: Sequence[Entry], index: int, term: RaftTerm, term_max: RaftTerm
) -> str | None:
    """What is wrong with ``entries`` behind one of ``index`` and ``term`` (I1, I2)."""
    for entry in entries:
        index += 1
        if entry.index != index:
            return f"I1: entry {entry.index} where {index} was due"
        if entry.term < term:
            return f"I2: entry {index} of term {entry.term} behind term {term}"
        term = entry.term
    if term > term_max:
        return f"I2: entry {index} of term {term} in term {term_max}"
    return None
