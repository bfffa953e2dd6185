"""Turns begun writes into the records of one frame, and the changes that they stand for.

Invariants:
  F1  records and changes are in the order of the writes, and of the fields of each write
  F2  each batch names the last LLSN before it, be it that of a batch in the same frame
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.output import Write
from tidelog.formats.replica_records import (
    FilledUp,
    Order,
    Reset,
    encode_carry,
    encode_filled,
    encode_hard_state,
    encode_order,
    encode_reset,
)
from tidelog.formats.wal import RECORD_HEADER_BYTES, Record, RecordType
from tidelog.formats.wal_payloads import (
    Trim,
    Truncate,
    encode_boundary,
    encode_trim,
    encode_truncate,
)
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.replica_apply import Applier, part_of
from tidelog.storage.replica_batches import sealed
from tidelog.storage.replica_pending import BegunWrite
from tidelog.storage.stream_store import StreamStore
from tidelog.types import StreamId

_FRAME_BYTES = 64
_PADDING_BYTES = 8


@dataclass(slots=True)
class _Tail:
    """A stream as it will be behind what is in the frame so far."""

    end: int
    generation: int
    runs: list[GlsnRun] = field(default_factory=list)
    store: StreamStore | None = None
    """What is stored of it; None once it begins anew."""


@dataclass(slots=True)
class ReplicaFrame:
    """One frame in the making."""

    applier: Applier
    records: list[Record] = field(default_factory=list)
    changes: list[Callable[[int], None]] = field(default_factory=list)
    """Each is given the number of the WAL file that the frame went to."""
    generations: list[tuple[int, int]] = field(default_factory=list)
    """Streams that begin anew, and the generations whose directories have to be made first."""
    size: int = _FRAME_BYTES
    _tails: dict[StreamId, _Tail] = field(default_factory=dict)

    def add_all(self, group: Iterable[BegunWrite]) -> None:
        """Add begun writes."""
        for begun in group:
            if begun.write is not None:
                self._add_write(begun.stream, begun.write)
            else:
                self._add(
                    RecordType.BOUNDARY,
                    begun.stream,
                    encode_boundary(begun.boundary),
                    partial(self.applier.boundary, begun.stream, begun.boundary),
                )

    def apply(self, wal_file: int) -> None:
        """Carry out what is durable in a WAL file now."""
        for change in self.changes:
            change(wal_file)

    # --- one write ---

    def _add_write(self, stream: StreamId, write: Write) -> None:
        tail = self._tail(stream)
        if write.drop or write.wipe:
            self._reset(stream, tail, drop=write.drop)
        if write.hard_state is not None:
            state = write.hard_state
            change = partial(self.applier.hard_state, stream, state)
            self._add(RecordType.HARD_STATE, stream, encode_hard_state(state), change)
        if write.truncate_to is not None:
            self._truncate(stream, tail, write.truncate_to)
        for batch in write.batches:
            self._batch(stream, tail, batch)
        if write.runs or write.context is not None:
            order = Order(write.runs, write.context)
            tail.runs.extend(write.runs)
            change = partial(self.applier.order, stream, order)
            self._add(RecordType.ORDER, stream, encode_order(order), change)
        if write.filled is not None:
            filled_up = FilledUp(write.filled, write.state)
            tail.end = max(tail.end, write.filled.end)
            change = partial(self.applier.filled, stream, filled_up)
            self._add(RecordType.FILLED, stream, encode_filled(filled_up), change)
        if write.trim_to is not None:
            self._trim(stream, tail, write)

    def _reset(self, stream: StreamId, tail: _Tail, *, drop: bool) -> None:
        tail.end, tail.runs, tail.store = 1, [], None
        tail.generation += 1
        self.generations.append((stream, tail.generation))
        reset = Reset(tail.generation, drop)
        change = partial(self.applier.reset, stream, reset)
        self._add(RecordType.RESET, stream, encode_reset(reset), change)

    def _truncate(self, stream: StreamId, tail: _Tail, end: int) -> None:
        tail.end = min(tail.end, end)
        truncate = Truncate(end, 0)
        self._add_placed(
            RecordType.TRUNCATE,
            stream,
            (encode_truncate(truncate),),
            partial(self.applier.truncate, stream, end),
        )

    def _batch(self, stream: StreamId, tail: _Tail, batch: Batch) -> None:
        """Give a batch its place (F2)."""
        place = (batch.term, batch.producer, batch.sequence, batch.count)
        self._stored(stream, tail, sealed(stream, batch), place)

    def _stored(
        self,
        stream: StreamId,
        tail: _Tail,
        stored: StoredBatch,
        place: tuple[int, int, int, int],
    ) -> None:
        previous, tail.end = tail.end - 1, stored.end_llsn
        self._add_placed(
            RecordType.BATCH,
            stream,
            (stored.data,),
            partial(self.applier.batch, stream, stored, place, previous),
            previous,
        )

    def _trim(self, stream: StreamId, tail: _Tail, write: Write) -> None:
        first = write.trim_to or 0
        tail.end = max(tail.end, first)
        topic = self.applier.node.streams[stream].topic
        trim = Trim(topic, _glsn_at(tail, first), first)
        change = partial(self.applier.trim, stream, trim)
        self._add(RecordType.TRIM, stream, encode_trim(trim), change)

    # --- entries that wait to be ordered, and keep a WAL file back ---

    def carry(self, store: StreamStore, batches: Iterable[StoredBatch]) -> None:
        """Write unordered entries again, so that older WAL files need not be kept for them."""
        stream, waiting = StreamId(store.stream), list(batches)
        tail = self._tail(stream)
        begin = tail.end = waiting[0].first_llsn
        self._add_placed(
            RecordType.CARRY,
            stream,
            (encode_carry(begin),),
            partial(self.applier.carry, stream, begin),
        )
        for stored in waiting:
            view = stored.view()
            place = (view.term, view.producer, view.sequence, view.count)
            self._stored(stream, tail, stored, place)

    # --- inside ---

    def _tail(self, stream: StreamId) -> _Tail:
        tail = self._tails.get(stream)
        if tail is None:
            store = self.applier.node.streams[stream]
            tail = _Tail(store.end_llsn, part_of(store).generation, store=store)
            self._tails[stream] = tail
        return tail

    def _add(
        self, kind: RecordType, stream: int, payload: bytes, change: Callable[[], None]
    ) -> None:
        self._add_placed(kind, stream, (payload,), lambda _: change())

    def _add_placed(
        self,
        kind: RecordType,
        stream: int,
        parts: tuple[bytes, ...],
        change: Callable[[int], None],
        previous_llsn: int = 0,
    ) -> None:
        self.records.append(Record(kind, stream, previous_llsn, parts))
        self.changes.append(change)
        self.size += RECORD_HEADER_BYTES + _PADDING_BYTES + sum(map(len, parts))


def _glsn_at(tail: _Tail, llsn: int) -> int:
    """The first GLSN that is left when entries before ``llsn`` go; 1 if that is not known."""
    stored = 0
    if tail.store is not None:
        stored = tail.store.glsn_from(llsn)
    for run in tail.runs:
        if run.llsn_end > llsn:
            found = run.glsn_begin + max(0, llsn - run.llsn_begin)
            return min(stored, found) if stored else found
    return stored or 1
