"""The log of one replica: which terms wrote it, where it begins and ends, its latest batches.

The batches themselves are the store's; only the latest ones are kept here.  What is left out of
memory is told by a few numbers: the runs of entries of one term, and the snapshot index.

Invariants:
  L1  terms and first LLSNs of the runs rise; the last run begins before the end
  L2  batches in memory abut, are of the terms that the runs say, and reach up to the end
  L3  first <= end, and the snapshot index lies before the end
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, NO_LLSN, Llsn, Term

BATCH_OVERHEAD_BYTES: Final = 64
"""Counted beside a batch's data, so that many small batches are not free."""


def weight(batch: Batch) -> int:
    """What a batch costs in messages and memory, about."""
    return len(batch.data) + BATCH_OVERHEAD_BYTES


def _begin(batch: Batch) -> Llsn:
    return batch.llsn_begin


class ReplicaLog:
    """Entry ids of a whole log, and its latest batches."""

    __slots__ = (
        "_begins",
        "_recent",
        "_recent_bytes",
        "_terms",
        "end",
        "first",
        "joined_index",
        "snapshot_index",
    )

    def __init__(
        self,
        first: Llsn = FIRST_LLSN,
        end: Llsn = FIRST_LLSN,
        terms: Sequence[tuple[Term, Llsn]] = (),
        snapshot_index: Llsn = NO_LLSN,
    ) -> None:
        self.first = first
        """Entries before it were trimmed."""
        self.end = end
        self.snapshot_index = snapshot_index
        """Up to this entry only the live ones are stored."""
        self.joined_index = NO_LLSN
        """Up to this entry the store does not know any more which producer appended what."""
        self._terms = [term for term, _ in terms]
        self._begins = [begin for _, begin in terms]
        self._recent: list[Batch] = []
        self._recent_bytes = 0

    # --- entry ids ---

    @property
    def head(self) -> EntryId:
        """The last entry."""
        return self.id_at(Llsn(self.end - 1)) or NO_ENTRY

    @property
    def terms(self) -> tuple[tuple[Term, Llsn], ...]:
        """The runs: each term, and the first entry that it wrote."""
        return tuple(zip(self._terms, self._begins, strict=True))

    def term_at(self, llsn: int) -> Term | None:
        """Return the term of an entry; None if it is not there, or gone for long."""
        place = bisect_right(self._begins, llsn) - 1
        return self._terms[place] if place >= 0 and llsn < self.end else None

    def id_at(self, llsn: Llsn) -> EntryId | None:
        """Return the id of an entry, ``NO_ENTRY`` for what lies before the first one."""
        if llsn == NO_ENTRY.llsn:
            return NO_ENTRY
        term = self.term_at(llsn)
        return None if term is None else EntryId(term, llsn)

    def contains(self, entry: EntryId) -> bool:
        """Whether this very entry is, or was, in the log; nothing is in every log."""
        return self.id_at(entry.llsn) == entry

    def highest_at_or_below(self, entry: EntryId) -> EntryId | None:
        """Return the highest own entry at or below an id; None if that is gone for long."""
        place = bisect_right(self._terms, entry.term) - 1
        if place >= 0 and self._terms[place] == entry.term:
            if entry.llsn >= self._begins[place]:
                return EntryId(entry.term, Llsn(min(entry.llsn, self._run_end(place) - 1)))
            place -= 1
        if place >= 0:
            return EntryId(self._terms[place], Llsn(self._run_end(place) - 1))
        return NO_ENTRY if self._knows_its_beginning() else None

    def _run_end(self, place: int) -> Llsn:
        return self._begins[place + 1] if place + 1 < len(self._begins) else self.end

    def _knows_its_beginning(self) -> bool:
        return self._begins[0] == FIRST_LLSN if self._begins else self.end == FIRST_LLSN

    def common_end(self, other: ReplicaLog) -> Llsn:
        """Return the end of what both logs have, as far as they still know of it."""
        for place in reversed(range(len(self._terms))):
            begin, end = self._begins[place], self._run_end(place)
            twin = bisect_right(other._terms, self._terms[place]) - 1
            if twin >= 0 and other._terms[twin] == self._terms[place]:
                begin, end = max(begin, other._begins[twin]), min(end, other._run_end(twin))
                if begin < end:
                    return end
        return FIRST_LLSN

    def can_serve(self, begin: Llsn) -> bool:
        """Whether all entries from ``begin`` on are there, dead ones too, with their producers."""
        in_memory = bool(self._recent) and self._recent[0].llsn_begin <= begin
        gone = max(self.snapshot_index, self.joined_index, self.first - 1)
        return begin == self.end or in_memory or begin > gone

    # --- changes ---

    def append(self, batch: Batch) -> None:
        """Add the next batch; LLSNs that it leaves out are dead."""
        check(batch.llsn_begin >= self.end, "L1: a batch overlaps the log")
        check(not self._terms or batch.term >= self._terms[-1], "L1: a batch's term falls")
        if not self._terms or batch.term > self._terms[-1]:
            self._terms.append(batch.term)
            self._begins.append(batch.llsn_begin)
        if batch.llsn_begin > self.end:
            self._forget_all()
        self._recent.append(batch)
        self._recent_bytes += weight(batch)
        self.end = batch.llsn_end

    def skip_to(self, end: Llsn) -> None:
        """Entries up to ``end`` are dead, or were never here."""
        if end > self.end:
            self._forget_all()
            self.end = end

    def set_terms(self, terms: Sequence[tuple[Term, Llsn]]) -> None:
        """Take over the runs of the leader's log, which this one is equal to.

        What the leader has trimmed of them, this log knows better.
        """
        older = [
            (term, begin)
            for term, begin in self.terms
            if not terms or (term < terms[0][0] and begin < terms[0][1])
        ]
        known = [*older, *terms]
        self._terms = [term for term, _ in known]
        self._begins = [begin for _, begin in known]

    def truncate(self, end: Llsn) -> None:
        """Drop the entries from ``end`` on."""
        check(end <= self.end, "L1: the log ends before the place of truncation")
        self.end = end
        self.joined_index = min(self.joined_index, Llsn(end - 1))
        while self._begins and self._begins[-1] >= end:
            self._begins.pop()
            self._terms.pop()
        while self._recent and self._recent[-1].llsn_end > end:
            self._recent_bytes -= weight(self._recent.pop())
        if self._recent and self._recent[-1].llsn_end < end:
            self._forget_all()

    def trim(self, first: Llsn) -> None:
        """Drop the entries before ``first``; the term of the last of them stays known."""
        check(self.first <= first <= self.end, "L3: the log does not reach the place of the trim")
        self.first = first
        gone = max(0, bisect_right(self._begins, first - 1) - 1)
        del self._begins[:gone], self._terms[:gone]
        self.forget(first, 0)

    def compact(self, snapshot_index: Llsn) -> None:
        """Up to this entry dead ones may be gone from now on."""
        check(snapshot_index < self.end, "L3: a snapshot of entries that are not there")
        self.snapshot_index = max(self.snapshot_index, snapshot_index)

    def join(self, index: Llsn) -> None:
        """Who appended the entries up to this one is not told by the store from now on."""
        self.joined_index = max(self.joined_index, min(index, Llsn(self.end - 1)))
        self.forget(Llsn(self.joined_index + 1), 0)

    def begin_anew(self, first: Llsn) -> None:
        """Forget everything; the next entry is ``first``."""
        self.first = self.end = first
        self.snapshot_index = self.joined_index = Llsn(first - 1)
        self._terms, self._begins = [], []
        self._forget_all()

    # --- batches in memory ---

    def recent(self, begin: Llsn, bytes_max: int) -> tuple[Batch, ...]:
        """Return batches from ``begin`` on: about so many bytes, but one; none if not in memory."""
        place = bisect_right(self._recent, begin, key=_begin) - 1
        if place < 0 or self._recent[place].llsn_begin != begin:
            return ()
        stop, room = place, bytes_max
        while stop < len(self._recent) and (room > 0 or stop == place):
            room -= weight(self._recent[stop])
            stop += 1
        return tuple(self._recent[place:stop])

    def forget(self, end: Llsn, bytes_max: int) -> None:
        """Let go of the oldest batches before ``end``, which the store has, down to a size."""
        stop = 0
        while (
            stop < len(self._recent)
            and self._recent_bytes > bytes_max
            and self._recent[stop].llsn_end <= end
        ):
            self._recent_bytes -= weight(self._recent[stop])
            stop += 1
        del self._recent[:stop]

    @property
    def recent_bytes(self) -> int:
        """What the batches in memory weigh."""
        return self._recent_bytes

    def _forget_all(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    def flaw(self) -> str | None:
        """Say which invariant is broken; looks at every run and batch."""
        if self._terms != sorted(set(self._terms)) or self._begins != sorted(set(self._begins)):
            return f"L1: the runs are {self.terms}"
        if self._begins and self._begins[-1] >= self.end:
            return f"L1: the last run begins at {self._begins[-1]}, the log ends at {self.end}"
        end = self._recent[0].llsn_begin if self._recent else self.end
        for batch in self._recent:
            if batch.llsn_begin != end or not self.contains(batch.head):
                return f"L2: the batch at {batch.llsn_begin} does not follow {end}"
            end = batch.llsn_end
        if end != self.end:
            return f"L2: the batches end at {end}, the log at {self.end}"
        if not self.first <= self.end or self.snapshot_index >= self.end:
            return f"L3: first {self.first}, end {self.end}, snapshot {self.snapshot_index}"
        return None
