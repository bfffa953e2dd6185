"""What a replica has on its disk, and what it reads of it, in memory.

A ``Write`` takes effect for readers at once and for the disk when it is synced; a crash keeps a
prefix of the writes, each whole or not.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId, GlsnRun
from tidelog.core.replica.output import Filled, HardState, Write
from tidelog.core.replica.producers import ProducerState, ProducerTable
from tidelog.types import FIRST_LLSN, Llsn, Term


class Image(msgspec.Struct, frozen=True):
    """The content of a disk.  Entries below ``first`` were trimmed."""

    hard_state: HardState | None = None
    first: Llsn = FIRST_LLSN
    end: Llsn = FIRST_LLSN
    terms: tuple[tuple[Term, Llsn], ...] = ()
    batches: tuple[Batch, ...] = ()
    runs: tuple[GlsnRun, ...] = ()
    context: CommitContext = NONE
    state: bytes = b""
    producers: tuple[ProducerState, ...] = ()
    snapshot_index: Llsn = NO_ENTRY.llsn

    def after(self, write: Write) -> Image:
        """The content once a write was carried out, in the order of its fields."""
        image = Image() if write.drop else self
        if write.wipe:
            image = Image(hard_state=image.hard_state)
        if write.hard_state is not None:
            image = replace(image, hard_state=write.hard_state)
        if write.truncate_to is not None:
            image = image.cut_to(write.truncate_to)
        if write.batches:
            image = image.extended(write.batches)
        if write.runs:
            known = image.runs[-1].llsn_end if image.runs else NO_ENTRY.llsn
            assert write.runs[0].llsn_begin >= known, "no GLSN is stored twice"
            image = replace(image, runs=image.runs + write.runs)
        if write.context is not None:
            image = replace(image, context=write.context)
        if write.state is not None:
            image = replace(image, state=write.state)
        if write.filled is not None:
            image = image.filled(write.filled)
        if write.trim_to is not None:
            image = image.trimmed(write.trim_to)
        return image

    def filled(self, filled: Filled) -> Image:
        """What a synchronisation told of the log beside its entries."""
        return replace(
            self,
            end=filled.end,
            snapshot_index=filled.snapshot_index,
            terms=filled.terms,
            producers=filled.producers,
        )

    def cut_to(self, end: Llsn) -> Image:
        """Without the entries from ``end`` on."""
        assert end >= self.context.llsn_end, "ordered entries were cut"
        for batch in self.batches:
            assert batch.llsn_end <= end or batch.llsn_begin >= end, "a batch was cut in two"
        kept = tuple(batch for batch in self.batches if batch.llsn_end <= end)
        terms = tuple(run for run in self.terms if run[1] < end)
        runs = tuple(run for run in self.runs if run.llsn_end <= end)
        producers = ProducerTable.thaw(self.producers)
        producers.truncate(end)
        return replace(
            self,
            batches=kept,
            terms=terms,
            runs=runs,
            end=min(self.end, end),
            producers=producers.freeze(),
        )

    def extended(self, batches: tuple[Batch, ...]) -> Image:
        terms, producers = list(self.terms), ProducerTable.thaw(self.producers)
        end = self.end
        for batch in batches:
            assert batch.llsn_begin >= end, "entries were written twice"
            end = batch.llsn_end
            if not terms or batch.term > terms[-1][0]:
                terms.append((batch.term, batch.llsn_begin))
            if batch.producer and producers.is_new(batch.producer, batch.sequence):
                producers.record(batch.producer, batch.sequence, batch.llsn_begin, batch.count)
        return replace(
            self,
            batches=self.batches + batches,
            terms=tuple(terms),
            end=end,
            producers=producers.freeze(),
        )

    def trimmed(self, first: Llsn) -> Image:
        assert first <= self.context.llsn_end, "entries were trimmed that are not ordered"
        kept = tuple(batch for batch in self.batches if batch.llsn_end > first)
        gone = len([begin for _, begin in self.terms if begin < first]) - 1
        return replace(self, first=first, batches=kept, terms=self.terms[max(0, gone) :])

    @property
    def head(self) -> EntryId:
        """The last entry."""
        return EntryId(self.terms[-1][0], Llsn(self.end - 1)) if self.terms else NO_ENTRY

    def entries(self) -> dict[int, tuple[EntryId, bytes]]:
        """Each entry by its LLSN: its id, and what tells it from others."""
        return {
            llsn: (EntryId(batch.term, Llsn(llsn)), data_at(batch, llsn))
            for batch in self.batches
            for llsn in range(batch.llsn_begin, batch.llsn_end)
        }

    def glsns(self) -> dict[int, int]:
        """The GLSN of each ordered entry, by its LLSN."""
        return {
            run.llsn_begin + place: run.glsn_begin + place
            for run in self.runs
            for place in range(run.length)
        }


class Disk:
    """One replica's disk: what is durable, what waits for that, and what readers see."""

    def __init__(self) -> None:
        self.durable = Image()
        self.seen = Image()
        self.waiting: list[Write] = []
        self.holds_back = False
        self.is_slow = False
        """Whether readers have to ask a second time, at a later tick."""
        self._fetched: set[tuple[int, int]] = set()

    def take(self, write: Write) -> None:
        self.seen = self.seen.after(write)
        self.waiting.append(write)

    def sync(self, count: int) -> int:
        """Make the first writes durable; return the sequence number of the last."""
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        for write in done:
            self.durable = self.durable.after(write)
        return done[-1].sequence

    def crash(self) -> None:
        self.waiting.clear()
        self.seen = self.durable

    def lose_log(self, had: EntryId | None) -> None:
        state = self.durable.hard_state
        assert state is not None, "a node that knows no term has nothing to lose"
        self.durable = Image(hard_state=HardState(state.term, is_complete=False, had=had))
        self.crash()

    def compact(
        self, snapshot_index: Llsn, dead: frozenset[int], state: bytes, segment: int = 1
    ) -> None:
        """Let batches go whose entries are all dead; what waits is not compacted.

        A segment of so many entries goes on having the GLSNs from its first live one to its last.
        """
        assert not self.waiting, "only what is durable is compacted"
        kept = tuple(
            batch
            for batch in self.durable.batches
            if not dead.issuperset(range(batch.llsn_begin, batch.llsn_end))
        )
        segments: dict[int, tuple[Llsn, Llsn]] = {}
        for batch in kept:
            number = batch.llsn_begin // segment
            begin, _ = segments.get(number, (batch.llsn_begin, batch.llsn_end))
            segments[number] = (begin, batch.llsn_end)
        parts = (
            clip(run, begin, end) for begin, end in segments.values() for run in self.durable.runs
        )
        runs = tuple(part for part in parts if part.length > 0)
        self.durable = self.seen = replace(
            self.durable, batches=kept, runs=runs, snapshot_index=snapshot_index, state=state
        )

    def join(self, begin: int, end: int) -> None:
        """A flush joins batches of one byte for each entry, and forgets their producers."""
        assert not self.waiting, "only what is durable is flushed"
        joined = [one for one in self.durable.batches if begin <= one.llsn_begin < end]
        data = b"".join([one.data for one in joined])
        assert len(data) == end - begin
        whole = Batch(joined[0].term, Llsn(begin), end - begin, data)
        others = [one for one in self.durable.batches if one not in joined]
        batches = tuple(sorted([*others, whole], key=lambda one: one.llsn_begin))
        self.durable = self.seen = replace(self.durable, batches=batches)

    # -- the Store that the replica reads from -----------------------------------------------

    def _has_to_fetch(self, begin: int, end: int) -> bool:
        """Whether a slow disk is asked for something for the first time."""
        if not self.is_slow or (begin, end) in self._fetched:
            self._fetched.discard((begin, end))
            return False
        self._fetched.add((begin, end))
        return True

    def batches(
        self, begin: Llsn, bytes_max: int, end: Llsn | None = None
    ) -> tuple[Batch, ...] | None:
        if self._has_to_fetch(begin, 0):
            return None
        found: list[Batch] = []
        size = 0
        for stored in self.seen.batches:
            batch = cut(stored, begin, stored.llsn_end if end is None else end)
            if batch is None:
                continue
            size += len(batch.data)
            if found and size > bytes_max:
                break
            found.append(batch)
        return tuple(found)

    def runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        if self._has_to_fetch(begin, end):
            return None
        return tuple(
            clipped for run in self.seen.runs if (clipped := clip(run, begin, end)).length > 0
        )

    def state(self) -> bytes:
        return self.seen.state


def data_at(batch: Batch, llsn: int) -> bytes:
    """What tells an entry from others: its own byte if its batch may have been joined."""
    place = llsn - batch.llsn_begin
    return batch.data[place : place + 1] if len(batch.data) == batch.count else batch.data


def cut(batch: Batch, begin: Llsn, end: Llsn) -> Batch | None:
    """The part of a batch that lies in a range; one that was not joined goes as a whole."""
    if begin <= batch.llsn_begin and batch.llsn_end <= end:
        return batch
    first, last = max(begin, batch.llsn_begin), min(end, batch.llsn_end)
    if first >= last or len(batch.data) != batch.count:
        return None
    data = batch.data[first - batch.llsn_begin : last - batch.llsn_begin]
    return replace(batch, llsn_begin=Llsn(first), count=last - first, data=data)


def clip(run: GlsnRun, begin: Llsn, end: Llsn) -> GlsnRun:
    """The part of a run that lies in a range; of length 0 or less if there is none."""
    first = max(run.llsn_begin, begin)
    length = min(run.llsn_end, end) - first
    return GlsnRun(Llsn(first), run.glsn_begin + first - run.llsn_begin, length)
