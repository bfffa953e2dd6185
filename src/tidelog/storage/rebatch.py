"""Copies the entries that are still needed into batches of a good size.

Segments are made of these: by the segment writer from memtables, and by compaction from older
segments.  Large batches that are kept whole pass through as they are; small or thinned ones are
put together, so that a segment's index stays small and its entries stay columnar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.formats.batch import SPARSE_SPAN_END, Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry
from tidelog.invariants import check
from tidelog.limits import KIB, SEGMENT_BATCH_BYTES

_WHOLE_BYTES_MIN = 16 * KIB
"""A batch of this size is worth keeping as it is."""
_JOINED_ENTRIES_MAX = 16 * KIB
"""So is one of so many entries: put together with others, it might be more than a batch can be."""


def rebatch(kept: Iterable[tuple[Batch, Sequence[int]]]) -> Iterator[Batch]:
    """Batches of the given positions of the given batches, in ascending LLSN order."""
    joining = _Joining()
    for each in kept:
        batch, positions = _cut_out(*each)
        if not positions:
            continue
        if not joining.continues(batch) or _is_large(batch):
            yield from joining.take()
        if _is_large(batch):
            yield batch
            continue
        joining.add(batch, positions)
        if joining.full:
            yield from joining.take()
    yield from joining.take()


def _cut_out(batch: Batch, positions: Sequence[int]) -> tuple[Batch, Sequence[int]]:
    """What is kept of a large batch, for that may be small, or have nearly all of its bytes."""
    if not _is_large(batch) or len(positions) in (0, batch.count):
        return batch, positions
    part = decode_batch(batch.select(positions))
    return part, range(part.count)


def _is_large(batch: Batch) -> bool:
    return batch.length >= _WHOLE_BYTES_MIN or batch.count >= _JOINED_ENTRIES_MAX


@dataclass(slots=True)
class _Joining:
    """Entries on their way into one batch: one stream, one term, versions for all or for none."""

    _like: Batch | None = None
    _entries: list[Entry] = field(default_factory=list)
    _llsns: list[int] = field(default_factory=list)
    _size: int = 0

    @property
    def full(self) -> bool:
        return self._size >= SEGMENT_BATCH_BYTES or len(self._entries) >= _JOINED_ENTRIES_MAX

    def continues(self, batch: Batch) -> bool:
        like = self._like
        if like is None:
            return True
        check(batch.term >= like.term, "terms never fall along ascending LLSNs")
        return (
            batch.term == like.term
            and batch.rewritten == like.rewritten
            and (batch.version_at(0) is None) == (like.version_at(0) is None)
            and batch.end_llsn - self._llsns[0] < SPARSE_SPAN_END
        )

    def add(self, batch: Batch, positions: Sequence[int]) -> None:
        self._like = self._like or batch
        llsns = batch.llsns()
        if len(positions) == batch.count:
            self._entries.extend(batch.entries())
            self._llsns.extend(llsns)
        else:
            self._entries.extend(map(batch.entry, positions))
            self._llsns.extend(llsns[position] for position in positions)
        self._size += batch.length * len(positions) // batch.count

    def take(self) -> Iterator[Batch]:
        """The joined batch, if there is anything in it; starts over."""
        like, entries, llsns = self._like, self._entries, self._llsns
        self._like, self._entries, self._llsns, self._size = None, [], [], 0
        if like is None:
            return
        dense = llsns[-1] - llsns[0] + 1 == len(llsns)
        body = encode_entries(entries, rewritten=like.rewritten, llsns=None if dense else llsns)
        header = seal_batch(body, stream=like.stream, term=like.term, first_llsn=llsns[0])
        yield decode_batch(header + body.data)
