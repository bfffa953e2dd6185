"""What a replica reads of its own log, in the event loop: memory now, files a moment later.

What lies in begun writes and memtables is answered at once.  What lies in segments is fetched by
another thread, and kept for a while: the replica asks again.  The next answer is fetched ahead.

Invariants:
  Q1  an answer begins at the place that was asked for, or at the first entry behind it
  Q2  answers kept in memory are bounded, in bytes and in number
  Q3  an answer of a former generation of the log is never given
  Q4  nor is one of before the last snapshot: entries may be gone since, and their GLSNs with them
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias

import msgspec

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.log import weight
from tidelog.errors import CorruptData
from tidelog.formats.replica_records import StreamSummary, encode_summary
from tidelog.limits import CARRIED_BATCHES_MAX, KIB, MIB
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_batches import as_stored, sealed, served
from tidelog.storage.replica_pending import Overlay, Pending
from tidelog.storage.segments import StreamView
from tidelog.storage.stream_store import StreamStore
from tidelog.types import Llsn, StreamId

_ANSWERS_BYTES_MAX: Final = 32 * MIB
"""What the kept answers of all streams may have."""
_MEMORY_BATCHES_MAX: Final = 4 * KIB
"""Batches of one answer from memory: the event loop makes it."""
_RUN_BYTES: Final = 64
_END: Final = 1 << 63

Run: TypeAlias = Callable[[Callable[[], None]], None]
Question: TypeAlias = tuple[StreamStore, str, int, int]
"""The store, what is asked for, and the two numbers of the question."""
Key: TypeAlias = tuple[int, int, int, str, int, int]
"""The same, with the stream, how often its answers were forgotten, and its snapshot index (Q4)."""


class Fetched(msgspec.Struct, frozen=True):
    """Batches of segments, and where what they cover ends."""

    batches: tuple[Batch, ...]
    end: Llsn


class Answers:
    """What was fetched from segments for all streams, the latest of it; shared by the readers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[Question, object, int]] = OrderedDict()
        self._bytes = 0
        self._asked: set[Key] = set()
        self._forgotten: dict[int, int] = {}
        self.damage: dict[StreamId, str] = {}
        self.run: Run = _at_once
        self.fetched: Callable[[StreamId], None] = _tell_nobody

    def forget(self, stream: StreamId) -> None:
        """What was fetched of a stream may be of entries that are not there any more (Q3)."""
        with self._lock:
            self._forgotten[stream] = self._forgotten.get(stream, 0) + 1
            for key in [key for key in self._kept if key[0] == stream]:
                self._bytes -= self._kept.pop(key)[2]

    def _key(self, question: Question) -> Key:
        store, what, begin, end = question
        forgotten = self._forgotten.get(store.stream, 0)
        return store.stream, forgotten, store.snapshot.index, what, begin, end

    def get(self, question: Question) -> object | None:
        """An answer that is there."""
        with self._lock:
            key = self._key(question)
            found = self._kept.get(key)
            if found is None or found[0][0] is not question[0]:
                return None
            self._kept.move_to_end(key)
            return found[1]

    def fetch(self, question: Question, answer: Callable[[], tuple[object, int]]) -> None:
        """Have a question answered, unless that is under way."""
        with self._lock:
            key = self._key(question)
            if key in self._asked or key in self._kept:
                return
            self._asked.add(key)
        try:
            self.run(lambda: self._fetch(key, question, answer))
        except BaseException:
            with self._lock:
                self._asked.discard(key)
            raise

    def _fetch(
        self, key: Key, question: Question, answer: Callable[[], tuple[object, int]]
    ) -> None:
        stream = StreamId(question[0].stream)
        try:
            found, size = answer()
        except CorruptData as error:
            self.damage[stream] = str(error)
            return
        finally:
            with self._lock:
                self._asked.discard(key)
        self._keep(key, question, found, size)
        self.fetched(stream)

    def _keep(self, key: Key, question: Question, found: object, size: int) -> None:
        with self._lock:
            if key[1] != self._forgotten.get(key[0], 0):
                return
            self._kept[key] = (question, found, size)
            self._bytes += size
            while self._bytes > _ANSWERS_BYTES_MAX and len(self._kept) > 1:
                _, (_, _, gone) = self._kept.popitem(last=False)
                self._bytes -= gone


class ReplicaReader:
    """The ``Store`` of one replica."""

    def __init__(
        self, node: NodeStore, stream: StreamId, pending: Pending, answers: Answers
    ) -> None:
        self._node = node
        self._stream = stream
        self._pending = pending
        self._answers = answers

    # --- batches ---

    def batches(
        self, begin: Llsn, bytes_max: int, end: Llsn | None = None
    ) -> tuple[Batch, ...] | None:
        """Return batches from ``begin`` on, at least one if there is any; None: ask again."""
        found = self._batches(begin, bytes_max)
        return found if found is None or end is None else _up_to(found, end)

    def _batches(self, begin: Llsn, bytes_max: int) -> tuple[Batch, ...] | None:
        # In this order: a write that is not in the overlay any more is in the store.
        overlay = self._pending.overlay(self._stream)
        store = self._node.streams.get(self._stream)
        if store is None or (overlay is not None and overlay.is_wiped):
            return _taken(_begun_from(overlay, begin), bytes_max)
        view, end = store.view, _end_of_stored(store, overlay)
        while begin < end and _lies_in_segments(view, begin, end):
            answer = self._from_segments(store, view, begin, bytes_max)
            if answer is None:
                return None
            kept = tuple([batch for batch in answer.batches if batch.llsn_end <= end])
            if kept:
                return kept
            begin = answer.end  # All that lies in the segments behind ``begin`` is dead.
        found = chain(_in_memory(view, begin, end), _begun_from(overlay, begin))
        return _taken(islice(found, _MEMORY_BATCHES_MAX), bytes_max)

    def _from_segments(
        self, store: StreamStore, view: StreamView, begin: Llsn, bytes_max: int
    ) -> Fetched | None:
        answer = self._ask(store, begin, bytes_max)
        if answer is not None and answer.batches and _lies_in_segments(view, answer.end, _END):
            self._ask(store, answer.end, bytes_max)  # The next one, ahead of the question.
        return answer

    def _ask(self, store: StreamStore, begin: Llsn, bytes_max: int) -> Fetched | None:
        question: Question = (store, "batches", begin, bytes_max)
        found = self._answers.get(question)
        if found is None:
            self._answers.fetch(question, lambda: _fetch_batches(store, begin, bytes_max))
            found = self._answers.get(question)
        return found if isinstance(found, Fetched) else None

    # --- GLSNs ---

    def runs(self, begin: Llsn, end: Llsn) -> tuple[GlsnRun, ...] | None:
        """Return the GLSNs in ``[begin, end)`` as far as they are known; None: ask again."""
        overlay = self._pending.overlay(self._stream)
        store = self._node.streams.get(self._stream)
        found: list[GlsnRun] = []
        if store is not None and not (overlay is not None and overlay.is_wiped):
            stop = end if overlay is None or overlay.runs_end is None else overlay.runs_end
            stored = self._stored_runs(store, begin, min(end, stop))
            if stored is None:
                return None
            found.extend(stored)
        for run in overlay.runs if overlay is not None else ():
            first, last = max(run.llsn_begin, begin), min(run.llsn_end, end)
            if first < last:
                found.append(GlsnRun(first, run.glsn_begin + first - run.llsn_begin, last - first))
        return tuple(found)

    def _stored_runs(self, store: StreamStore, begin: int, end: int) -> Sequence[GlsnRun] | None:
        view = store.view
        in_memory = list(_runs_in_memory(view, begin, end))
        if not _lies_in_segments(view, begin, end):
            return in_memory
        stop = min(end, view.segments[-1].end_llsn)
        question: Question = (store, "runs", begin, stop)
        found = self._answers.get(question)
        if found is None:
            self._answers.fetch(question, lambda: _fetch_runs(store, begin, stop))
            found = self._answers.get(question)
        return [*found, *in_memory] if isinstance(found, tuple) else None

    # --- state ---

    def state(self) -> bytes:
        """Return what a replica that is filled up must know besides."""
        store = self._node.streams.get(self._stream)
        if store is None:
            return b""
        summary = StreamSummary.of(store.boundary, store.trim_glsn_end, store.snapshot.deletes)
        return encode_summary(summary)


# --- memory ---


def _end_of_stored(store: StreamStore, overlay: Overlay | None) -> int:
    end = store.end_llsn
    return end if overlay is None or overlay.end is None else min(end, overlay.end)


def _lies_in_segments(view: StreamView, begin: int, end: int) -> bool:
    """Whether the first entry at or behind ``begin`` may be in a segment."""
    return any(segment.end_llsn > begin and segment.first_llsn < end for segment in view.segments)


def _in_memory(view: StreamView, begin: int, end: int) -> Iterator[Batch]:
    for table in view.memtables:
        for stored in table.batches_between(begin, end):
            if begin <= stored.first_llsn and stored.end_llsn <= end:
                yield as_stored(stored)
            else:
                batch = stored.view()
                yield from served(batch, batch.position(begin), batch.position(end))


def _begun_from(overlay: Overlay | None, begin: int) -> Iterator[Batch]:
    for batch in overlay.batches if overlay is not None else ():
        if batch.llsn_begin >= begin:
            yield batch
        elif batch.llsn_end > begin:
            view = sealed(StreamId(0), batch).view()
            yield from served(view, view.position(begin), view.count)


def _up_to(batches: tuple[Batch, ...], end: Llsn) -> tuple[Batch, ...]:
    """The batches before ``end``; one that reaches beyond it was joined, and is cut there."""
    if not batches or batches[-1].llsn_end <= end:
        return batches
    kept = [batch for batch in batches if batch.llsn_end <= end]
    crossing = batches[len(kept)]
    if crossing.llsn_begin < end:
        view = sealed(StreamId(0), crossing).view()
        kept += served(view, 0, view.position(end))
    return tuple(kept)


def _taken(batches: Iterable[Batch], bytes_max: int) -> tuple[Batch, ...]:
    """The first batches, as far as there is room; one in any case."""
    found: list[Batch] = []
    size = 0
    for batch in batches:
        size += weight(batch)
        if found and (size > bytes_max or len(found) >= CARRIED_BATCHES_MAX):
            break
        found.append(batch)
    return tuple(found)


def _runs_in_memory(view: StreamView, begin: int, end: int) -> Iterator[GlsnRun]:
    for table in view.memtables:
        for llsn, glsn, length in table.runs.slices(begin, end):
            yield GlsnRun(Llsn(llsn), glsn, length)


# --- segments ---


def _fetch_batches(store: StreamStore, begin: Llsn, bytes_max: int) -> tuple[object, int]:
    with store.pins.pinned():
        segments = StreamView(store.view.segments)
        pieces = store.read_view(segments, begin, _END)
        batches = (
            batch for piece in pieces for batch in served(piece.batch, piece.begin, piece.end)
        )
        found = _taken(batches, bytes_max)
    last = segments.segments[-1].end_llsn if segments.segments else begin
    end = found[-1].llsn_end if found else Llsn(max(begin, last))
    return Fetched(found, end), sum(map(weight, found))


def _fetch_runs(store: StreamStore, begin: int, end: int) -> tuple[object, int]:
    found: list[GlsnRun] = []
    with store.pins.pinned():
        for segment in store.view.segments:
            first, last = max(begin, segment.first_llsn), min(end, segment.end_llsn)
            if first < last:
                with store.opened.lease(segment.path) as reader:
                    slices = reader.footer.runs.slices(first, last)
                found.extend(GlsnRun(Llsn(llsn), glsn, length) for llsn, glsn, length in slices)
    return tuple(found), _RUN_BYTES * len(found)


def _at_once(work: Callable[[], None]) -> None:
    work()


def _tell_nobody(stream: StreamId) -> None:
    del stream
