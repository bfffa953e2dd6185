"""Random histories of replicas: writes such as a core makes, syncs, flushes, crashes, restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.storage_replica.twin import Twin, batch, control
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import NO_ENTRY, Batch, GlsnRun
from tidelog.core.replica.output import Filled, HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.formats.entry import Entry, Kind
from tidelog.testing.disk import Choice
from tidelog.testing.stream_image import StreamImage
from tidelog.types import Llsn, StreamId, Term

STREAMS = (StreamId(1), StreamId(2), StreamId(3))


@dataclass(slots=True)
class History:
    """One seed, one history."""

    chance: Random
    twin: Twin = field(default_factory=Twin)
    _sequence: int = 0
    _texts: int = 0

    def run(self, steps: int) -> None:
        actions: list[tuple[Callable[[StreamId], None], int]] = [
            (self.append, 12),
            (self.order, 8),
            (self.elect, 3),
            (self.trim, 2),
            (self.fill, 2),
            (self.fill_in_part, 1),
            (self.drop, 1),
            (lambda _: self.twin.sync(), 6),
            (lambda _: self.flush(), 3),
            (lambda _: self.twin.restart(), 1),
            (lambda _: self.twin.crash(self.chance.choice(list(Choice)[:2])), 2),
        ]
        weights = [weight for _, weight in actions]
        for _ in range(steps):
            (action,) = self.chance.choices([action for action, _ in actions], weights)
            action(self.chance.choice(STREAMS))
            if self.chance.random() < 0.2:
                self.twin.check_seen()
        self.twin.restart()
        self.twin.check()

    # --- one write each ---

    def image(self, stream: StreamId) -> StreamImage:
        image = self.twin.image(stream)
        state = image.hard_state
        if state is None or not state.is_member:
            term = 1 if state is None else state.term + 1
            self.twin.become_member(stream, term)
        elif not state.is_complete:
            self.fill(stream)
        return image

    def term(self, image: StreamImage) -> Term:
        assert image.hard_state is not None
        return image.hard_state.term

    def batch(self, term: int, llsn: int) -> Batch:
        if self.chance.random() < 0.1:
            return control(term, llsn)
        entries = []
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            self._texts += 1
            entries.append(Entry(Kind.APPEND, f"{self._texts}".encode() * 20))
        if self.chance.random() < 0.5:
            return batch(term, llsn, *entries)
        self._sequence += 1
        producer = self.chance.randrange(1, 5)
        return batch(term, llsn, *entries, producer=producer, sequence=self._sequence)

    def append(self, stream: StreamId) -> None:
        image = self.image(stream)
        batches: list[Batch] = []
        end = image.end
        for _ in range(self.chance.choice([1, 1, 3])):
            batches.append(self.batch(self.term(image), end))
            end = batches[-1].llsn_end
        self.twin.write(stream, batches=batches)

    def order(self, stream: StreamId) -> None:
        image = self.image(stream)
        ends = [b.llsn_end for b in image.batches_between(image.context.llsn_end, image.end)]
        ends = [end for end in ends if end > image.context.llsn_end]
        end = self.chance.choice(ends) if ends else image.end
        self.twin.order(end, stream=stream, gap=self.chance.choice([0, 0, 3]))

    def elect(self, stream: StreamId) -> None:
        """A new term; maybe the new leader does not have all that is not ordered."""
        image = self.image(stream)
        term = Term(self.term(image) + self.chance.choice([1, 1, 4]))
        begins = [b.llsn_begin for b in image.batches_between(image.context.llsn_end, image.end)]
        begins = [begin for begin in begins if begin >= image.context.llsn_end]
        cut = self.chance.choice(begins) if begins and self.chance.random() < 0.7 else None
        state = HardState(term, is_complete=True)
        self.twin.write(stream, hard_state=state, truncate_to=cut)

    def trim(self, stream: StreamId) -> None:
        image = self.image(stream)
        begins = [b.llsn_begin for b in image.batches_between(image.first, image.context.llsn_end)]
        if begins:
            self.twin.write(stream, trim_to=max(self.chance.choice(begins), image.first))

    def drop(self, stream: StreamId) -> None:
        image = self.image(stream)
        term = Term(self.term(image) + 1)
        gone = HardState(term, is_complete=False, is_member=False)
        self.twin.write(stream, drop=True, hard_state=gone)

    # --- synchronisations ---

    def fill_in_part(self, stream: StreamId) -> None:
        """One that never ends; the next one begins anew."""
        image = self.image(stream)
        term = self.term(image)
        self.twin.write(
            stream, wipe=True, hard_state=HardState(term, is_complete=False, had=NO_ENTRY)
        )
        begin = self.chance.choice([1, 50])
        part = self.batch(term, begin)
        runs = [GlsnRun(part.llsn_begin, begin + 100, part.count)]
        self.twin.write(stream, batches=[part], sparse=True, runs=runs)

    def fill(self, stream: StreamId) -> None:
        image = self.twin.image(stream)
        if image.hard_state is None or not image.hard_state.is_member:
            return
        chance, term = self.chance, self.term(image)
        incomplete = HardState(term, is_complete=False, had=NO_ENTRY)
        if not image.hard_state.is_complete and image.first == 1 and chance.random() < 0.5:
            first = 1
            self.twin.write(stream, truncate_to=1, hard_state=incomplete)
        else:
            first = chance.choice([1, 30])
            self.twin.write(stream, wipe=True, hard_state=incomplete)
        self._parts(stream, Llsn(first), term)

    def _parts(self, stream: StreamId, first: Llsn, term: Term) -> None:
        """Three parts of a leader's log, without what is dead up to its snapshot index."""
        chance, glsn, place = self.chance, first + 1000, first
        batches: list[Batch] = []
        own = max(1, term - 1)
        for number in range(chance.randrange(1, 8)):
            batches.append(self.batch(own if number < 4 else term, place))
            place = batches[-1].llsn_end
        terms = _terms_of(batches)
        ordered_end = chance.choice([b.llsn_end for b in batches])
        index = chance.choice([0, *(b.llsn_end - 1 for b in batches if b.llsn_end <= ordered_end)])
        live = [b for b in batches if b.llsn_end - 1 > index or chance.random() < 0.6]
        cut = chance.randrange(len(live) + 1)
        for part in (live[:cut], live[cut:]):
            runs = [
                GlsnRun(b.llsn_begin, glsn + b.llsn_begin - first, b.count)
                for b in part
                if b.llsn_end <= ordered_end
            ]
            self.twin.write(stream, batches=part, sparse=True, runs=runs)
            if chance.random() < 0.3:
                self.flush()
        length = ordered_end - first
        context = CommitContext(5, glsn + length + 7, glsn + length - 1, ordered_end - 1, 1)
        producer = ProducerState(9, 4, ((4, first, 1),))
        self.twin.write(
            stream,
            hard_state=HardState(term, is_complete=True),
            context=context,
            state=b"",
            filled=Filled(place, Llsn(index), terms, (producer,)),
            trim_to=first if first > 1 else None,
        )

    # --- files ---

    def flush(self) -> None:
        self.twin.sync()
        self.twin.disk.roll()
        for _ in range(self.chance.randrange(3)):
            self.twin.disk.node.flush_oldest()
        for store in self.twin.disk.node.streams.values():
            if self.chance.random() < 0.3:
                store.sweep()


def _terms_of(batches: list[Batch]) -> tuple[tuple[Term, Llsn], ...]:
    terms: list[tuple[Term, Llsn]] = []
    for each in batches:
        if not terms or each.term > terms[-1][0]:
            terms.append((each.term, each.llsn_begin))
    return tuple(terms)
