"""What a disk holds of one replica, in memory; readers and the disk have one each.

Compaction is modelled: of the entries up to the snapshot index only some batches stay, the same
ones on every replica.  The GLSNs of the dead go with the segments that they were in, and these
are not the same everywhere.

Invariants:
  I1  batches do not overlap, are sorted, and leave gaps only up to the snapshot index, or where
      a synchronisation goes on behind the end of what is ordered
  I2  what is ordered is never truncated
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, NO_PRODUCER, Batch, EntryId, GlsnRun
from tidelog.core.replica.output import Filled, HardState, Write
from tidelog.core.replica.producers import ProducerTable
from tidelog.core.replica.state import Stored, flaw_in_stored
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, Llsn, Term

LIVE_ONE_OF: Final = 3
"""Of so many batches that are compacted, about one is live."""

_begin: Final = attrgetter("llsn_begin")


class StreamImage:
    """One replica on a disk; it is also the ``Store`` that the replica reads from."""

    __slots__ = (
        "_batches",
        "_producers",
        "_runs",
        "_state",
        "_terms",
        "context",
        "end",
        "first",
        "hard_state",
        "snapshot_index",
        "wipes",
    )

    def __init__(self) -> None:
        self.wipes = 0
        """How often it began anew."""
        self._drop()

    def _drop(self) -> None:
        self.hard_state: HardState | None = None
        self._wipe()

    def _wipe(self) -> None:
        self.wipes += 1
        self.first = FIRST_LLSN
        self.end = FIRST_LLSN
        self.context: CommitContext = NONE
        self.snapshot_index = NO_ENTRY.llsn
        self._batches: list[Batch] = []
        self._terms: list[tuple[Term, Llsn]] = []
        self._runs: list[GlsnRun] = []
        self._state = b""
        self._producers = ProducerTable()

    def copy(self) -> StreamImage:
        """Return an image that goes its own way."""
        other = StreamImage()
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, list(value) if isinstance(value, list) else value)
        other._producers = ProducerTable.thaw(self._producers.freeze())
        return other

    # Writes.

    def apply(self, write: Write) -> None:
        """Carry out a write, in the order of its fields."""
        if write.drop:
            self._drop()
        if write.wipe:
            self._wipe()
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.truncate_to is not None:
            self._truncate(write.truncate_to)
        for batch in write.batches:
            self._append(batch, sparse=write.sparse)
        if write.runs:
            known = self._runs[-1].llsn_end if self._runs else FIRST_LLSN
            check(write.runs[0].llsn_begin >= known, "no GLSN is stored twice")
            self._runs.extend(write.runs)
        if write.context is not None:
            self.context = write.context
        if write.state is not None:
            self._state = write.state
        if write.filled is not None:
            self._fill(write.filled)
        if write.trim_to is not None:
            self._trim(write.trim_to)

    def _truncate(self, end: Llsn) -> None:
        check(end >= self.context.llsn_end, "I2: an ordered entry would be truncated")
        while self._batches and self._batches[-1].llsn_end > end:
            check(self._batches[-1].llsn_begin >= end, "I1: a batch would be cut in two")
            self._batches.pop()
        while self._terms and self._terms[-1][1] >= end:
            self._terms.pop()
        while self._runs and self._runs[-1].llsn_end > end:
            self._runs.pop()
        self._producers.truncate(end)
        self.end = min(self.end, end)

    def _append(self, batch: Batch, *, sparse: bool) -> None:
        is_next = batch.llsn_begin == self.end
        check(is_next or (sparse and batch.llsn_begin > self.end), "I1: a batch leaves a gap")
        self._batches.append(batch)
        self.end = batch.llsn_end
        producer, sequence = batch.producer, batch.sequence
        if producer != NO_PRODUCER and self._producers.is_new(producer, sequence):
            self._producers.record(producer, sequence, batch.llsn_begin, batch.count)
        if not self._terms or batch.term > self._terms[-1][0]:
            self._terms.append((batch.term, batch.llsn_begin))

    def _fill(self, filled: Filled) -> None:
        """Take over what the entries of a synchronisation do not tell."""
        check(filled.end >= self.end, "I1: a synchronisation ends before its last entry")
        self.end = filled.end
        self.snapshot_index = filled.snapshot_index
        self._terms = list(filled.terms)
        self._producers = ProducerTable.thaw(filled.producers)

    def _trim(self, first: Llsn) -> None:
        self.first = max(self.first, first)
        self.end = max(self.end, first)
        del self._batches[: bisect_right(self._batches, first, key=_end)]
        self._runs = [run for run in self._runs if run.llsn_end > first]
        # The run that the entry before the first one belongs to stays.
        while len(self._terms) > 1 and self._terms[1][1] < first:
            del self._terms[0]

    def compact(self, snapshot_index: Llsn, segment_entries: int = 1) -> None:
        """Let dead batches up to an index go; all of them are ordered.

        A segment goes on having the GLSNs from its first live entry to its last one.
        """
        check(snapshot_index < self.context.llsn_end, "I2: what is not ordered is compacted")
        self.snapshot_index = max(self.snapshot_index, snapshot_index)
        kept: list[Batch] = []
        segments: dict[int, tuple[Llsn, Llsn]] = {}
        for batch in self._batches:
            if batch.llsn_end - 1 > self.snapshot_index or is_live(batch):
                kept.append(batch)
                segment = batch.llsn_begin // segment_entries
                begin, _ = segments.get(segment, (batch.llsn_begin, NO_ENTRY.llsn))
                segments[segment] = (begin, batch.llsn_end)
        self._batches = kept
        self._runs = [
            part
            for begin, end in segments.values()
            for run in self._runs
            if (part := _clip(run, begin, end)).length > 0
        ]
        self._state = b"snapshot"

    # Reads.

    def batches(
        self, begin: Llsn, bytes_max: int, end: Llsn | None = None
    ) -> tuple[Batch, ...] | None:
        """Return batches from ``begin`` on, at least one if there is any."""
        place = bisect_left(self._batches, begin, key=_begin)
        found: list[Batch] = []
        size = 0
        for batch in self._batches[place : place + 64]:
            size += len(batch.data)
            if (found and size > bytes_max) or (end is not None and batch.llsn_end > end):
                break
            found.append(batch)
        return tuple(found)

    def runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        """Return the GLSNs of the entries in a range."""
        return tuple(part for run in self._runs if (part := _clip(run, begin, end)).length > 0)

    def state(self) -> bytes:
        """Return the state of the latest snapshot."""
        return self._state

    def batch_at(self, llsn: int) -> Batch | None:
        """Return the batch that an entry is in, if it is there."""
        place = bisect_right(self._batches, llsn, key=_begin) - 1
        if place < 0 or self._batches[place].llsn_end <= llsn:
            return None
        return self._batches[place]

    def batches_between(self, begin: int, end: int) -> list[Batch]:
        """Return the batches that have entries in a range."""
        place = max(0, bisect_right(self._batches, begin, key=_begin) - 1)
        found: list[Batch] = []
        for batch in self._batches[place:]:
            if batch.llsn_begin >= end:
                break
            if batch.llsn_end > begin:
                found.append(batch)
        return found

    def term_at(self, llsn: int) -> Term | None:
        """Return the term of an entry, dead or not; None if it is not here."""
        place = bisect_right(self._terms, llsn, key=lambda run: run[1]) - 1
        return self._terms[place][0] if place >= 0 and llsn < self.end else None

    def holds(self, llsn: int, term: Term) -> bool:
        """Whether the entry of this id is here, or was ordered and trimmed."""
        if llsn < self.context.llsn_end and llsn < self.first:
            return True
        return self.term_at(llsn) == term

    @property
    def head(self) -> EntryId:
        """The last entry."""
        return EntryId(self._terms[-1][0], Llsn(self.end - 1)) if self._terms else NO_ENTRY

    def stored(self) -> Stored:
        """Return what a replica that starts is told."""
        if self.hard_state is None:
            return Stored()
        stored = Stored(
            hard_state=self.hard_state,
            first=self.first,
            end=self.end,
            terms=tuple(self._terms),
            context=self.context,
            snapshot_index=self.snapshot_index,
            producers=self._producers.freeze(),
        )
        if not self.hard_state.is_complete and flaw_in_stored(stored) is not None:
            return Stored(hard_state=self.hard_state, is_sound=False)
        return stored


def is_live(batch: Batch) -> bool:
    """Whether compaction keeps a batch: the same everywhere, for it depends on its place alone."""
    return batch.llsn_begin % LIVE_ONE_OF == 0


def _end(batch: Batch) -> Llsn:
    return batch.llsn_end


def _clip(run: GlsnRun, begin: Llsn, end: Llsn) -> GlsnRun:
    """Return the part of a run that lies in a range; of length 0 or less if there is none."""
    first = max(run.llsn_begin, begin)
    length = min(run.llsn_end, end) - first
    return GlsnRun(first, run.glsn_begin + first - run.llsn_begin, length)
