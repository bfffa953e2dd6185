"""The tail of the log that a node keeps in memory, after its snapshot.

Invariants:
  L1  entries continue the snapshot without gap, and their terms never fall
  L2  nothing at or below the snapshot's index changes or comes back
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tidelog.core.raft.entries import Entry, Index, RaftTerm, Snapshot
from tidelog.invariants import check

ENTRY_OVERHEAD_BYTES: Final = 32
"""Counted beside an entry's data, so that many empty entries are not free."""


def weight(entry: Entry) -> int:
    """What an entry costs in messages and queues, about."""
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


def term_of_entry(entry: Entry) -> RaftTerm:
    return entry.term


class RaftLog:
    """A snapshot and the entries after it."""

    __slots__ = ("_entries", "last_index", "last_term", "snapshot", "snapshot_index")

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry] = ()) -> None:
        self.snapshot = snapshot
        self.snapshot_index = snapshot.head.index
        self.last_index = snapshot.head.index
        """The index of the last entry, or of the snapshot."""
        self.last_term = snapshot.head.term
        """The term of the last entry, or of the snapshot."""
        self._entries: list[Entry] = []
        for entry in entries:
            self.append(entry)

    def term_of(self, index: int) -> RaftTerm | None:
        """Return the term of an entry; None if it is compacted or not there yet."""
        place = index - self.snapshot_index - 1
        if 0 <= place < len(self._entries):
            return self._entries[place].term
        return self.snapshot.head.term if place == -1 else None

    def slice(self, begin: int, end: int) -> tuple[Entry, ...]:
        """Return the entries from ``begin`` up to but without ``end``."""
        check(begin > self.snapshot_index, "L2: compacted entries were asked for")
        offset = self.snapshot_index + 1
        return tuple(self._entries[begin - offset : end - offset])

    def slice_of_bytes(self, begin: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries from ``begin`` on: about so many bytes, but one if there is one."""
        end, room = begin - self.snapshot_index - 1, bytes_max
        check(end >= 0, "L2: compacted entries were asked for")
        entries = self._entries
        while end < len(entries) and room > 0:
            room -= weight(entries[end])
            end += 1
        return tuple(entries[begin - self.snapshot_index - 1 : end])

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        check(entry.index == self.last_index + 1, "L1: an entry leaves a gap")
        check(entry.term >= self.last_term, "L1: an entry's term falls")
        self._entries.append(entry)
        self.last_index, self.last_term = entry.index, entry.term

    def truncate(self, begin: Index) -> None:
        """Drop the entries at ``begin`` and above."""
        check(self.snapshot_index < begin <= self.last_index, "L2: the log has no such entry")
        del self._entries[begin - self.snapshot_index - 1 :]
        self.last_index = Index(begin - 1)
        self.last_term = self._entries[-1].term if self._entries else self.snapshot.head.term

    def compact(self, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of the entries up to its index."""
        index = snapshot.head.index
        check(self.snapshot_index < index <= self.last_index, "L2: the log has no such entry")
        check(self.term_of(index) == snapshot.head.term, "L2: the snapshot is of another log")
        del self._entries[: index - self.snapshot_index]
        self.snapshot, self.snapshot_index = snapshot, index

    def replace(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of the leader; nothing of the old log stays."""
        check(snapshot.head.index > self.snapshot_index, "L2: the snapshot is not newer")
        self.snapshot, self.snapshot_index = snapshot, snapshot.head.index
        self._entries.clear()
        self.last_index, self.last_term = snapshot.head.index, snapshot.head.term

    def highest_at_term(self, index: int, term: RaftTerm) -> Index:
        """Return the highest place up to ``index`` whose term is at most ``term``.

        Terms never fall, so a leader whose entry at ``index`` has that term agrees with nothing
        above that place: a whole term of wrong entries is skipped at once.
        """
        place = bisect_right(self._entries, term, key=term_of_entry)
        return Index(min(index, self.snapshot_index + place))

    def flaw(self) -> str | None:
        """Say which invariant is broken; looks at every entry."""
        index, term = self.snapshot_index, self.snapshot.head.term
        for entry in self._entries:
            if entry.index != index + 1 or entry.term < term:
                return f"L1: entry {entry.index} of term {entry.term} follows {index} of {term}"
            index, term = entry.index, entry.term
        if (index, term) != (self.last_index, self.last_term):
            return f"L1: the log ends at {index} of term {term}"
        return None
