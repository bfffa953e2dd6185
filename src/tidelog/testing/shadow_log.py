"""The Raft log of one node as its writes tell it, independent of what the node believes.

A node keeps two of them in a simulation: one with all that it asked to be written, which is the
log in its memory, and one with what its disk has synced.

Invariants:
  L1  entries continue the snapshot without gap
  L2  ``apply`` follows the text of ``Write``, and nothing else
"""

from __future__ import annotations

import msgspec

from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    RaftTerm,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.output import Write
from tidelog.invariants import check

_memberships = msgspec.msgpack.Decoder(Membership)


class ShadowLog:
    """Terms of all entries, the membership in force, and the hard state."""

    __slots__ = ("_memberships", "_terms", "hard_state", "head")

    def __init__(self, stored: Stored) -> None:
        self.hard_state = stored.hard_state
        self.head = stored.snapshot.head
        self._terms: list[RaftTerm] = []
        # Memberships of the entries beyond the snapshot, oldest first.
        self._memberships: list[tuple[Index, Membership]] = []
        self._append(stored.entries)

    def copy(self) -> ShadowLog:
        """Return an independent copy."""
        new = ShadowLog.__new__(ShadowLog)
        new.hard_state = self.hard_state
        new.head = self.head
        new._terms = self._terms.copy()
        new._memberships = self._memberships.copy()
        return new

    def apply(self, write: Write) -> int:
        """Carry out a write; return how many entries it replaced."""
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.snapshot is not None:
            self._rebase(write.snapshot.head, replaces_log=write.replaces_log)
        if not write.entries:
            return 0
        return self._append(write.entries)

    @property
    def last_index(self) -> Index:
        """The index of the last entry, or of the snapshot."""
        return Index(self.head.index + len(self._terms))

    def term_of(self, index: Index) -> RaftTerm | None:
        """Return the term of an entry; None if it is not there, or below the snapshot."""
        place = index - self.head.index - 1
        if place == -1:
            return self.head.term
        return self._terms[place] if 0 <= place < len(self._terms) else None

    def holds(self, index: Index, term: RaftTerm) -> bool:
        """Whether the entry is here, by itself or in the snapshot."""
        return index < self.head.index or self.term_of(index) == term

    @property
    def membership(self) -> Membership:
        """Return the membership in force: the last one in the log, committed or not."""
        return self._memberships[-1][1] if self._memberships else self.head.membership

    @property
    def membership_index(self) -> Index:
        """Return where the membership in force stands."""
        return self._memberships[-1][0] if self._memberships else self.head.index

    def facts(self) -> tuple[HardState, SnapshotHead, tuple[RaftTerm, ...]]:
        """Return all of it, to be compared."""
        return self.hard_state, self.head, tuple(self._terms)

    def _append(self, entries: tuple[Entry, ...]) -> int:
        place = entries[0].index - self.head.index - 1 if entries else 0
        check(0 <= place <= len(self._terms) or not entries, "L1: a write leaves a gap")
        replaced = len(self._terms) - place if entries else 0
        if replaced:
            del self._terms[place:]
            while self._memberships and self._memberships[-1][0] >= entries[0].index:
                self._memberships.pop()
        for entry in entries:
            self._terms.append(entry.term)
            if entry.kind is EntryKind.MEMBERSHIP:
                self._memberships.append((entry.index, _memberships.decode(entry.data)))
        return replaced

    def _rebase(self, head: SnapshotHead, *, replaces_log: bool) -> None:
        if replaces_log:
            self._terms.clear()
            self._memberships.clear()
        else:
            check(head.index <= self.last_index, "L1: an own snapshot is beyond the log")
            del self._terms[: head.index - self.head.index]
            self._memberships = [item for item in self._memberships if item[0] > head.index]
        self.head = head
