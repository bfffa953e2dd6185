"""Writes that were begun and are not durable yet, and what a reader sees of them.

The event loop adds, the disk thread takes; a write stays here until it was applied to its stream.
A reader may find a write both here and in its stream: it counts what is here.

Invariants:
  P1  numbers rise by one; what ``done`` takes away was applied
  P2  what can wait does so for a write that cannot, and never in large numbers
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.log import BATCH_OVERHEAD_BYTES
from tidelog.core.replica.output import HardState, Write
from tidelog.limits import GROUP_BYTES_MAX, GROUP_RECORDS_MAX
from tidelog.types import Llsn, StreamId, TopicId

WAITING_MAX: Final = 256
"""Of writes that can wait, so many may be in the queue."""


class BegunWrite(msgspec.Struct, frozen=True):
    """A write, or a GC boundary, of one stream."""

    number: int
    stream: StreamId
    topic: TopicId
    write: Write | None = None
    boundary: int = 0

    @property
    def size(self) -> int:
        """About what it takes in a frame."""
        write = self.write
        if write is None:
            return BATCH_OVERHEAD_BYTES
        batches = sum([len(batch.data) + BATCH_OVERHEAD_BYTES for batch in write.batches])
        return batches + BATCH_OVERHEAD_BYTES * (4 + len(write.runs))


@dataclass(slots=True)
class Overlay:
    """What begun writes make of a stream; of what is stored only entries before ``end`` count."""

    is_wiped: bool = False
    hard_state: HardState | None = None
    end: Llsn | None = None
    batches: list[Batch] = field(default_factory=list)
    runs: list[GlsnRun] = field(default_factory=list)
    runs_end: Llsn | None = None
    """Of the stored GLSNs only those before it count."""

    def add(self, write: Write) -> None:
        """Carry out a write, in the order of its fields."""
        if write.drop or write.wipe:
            self.is_wiped = True
            self.batches, self.runs = [], []
        self.hard_state = write.hard_state or self.hard_state
        if write.truncate_to is not None:
            self._truncate(write.truncate_to)
        if write.batches:
            self._count_before(write.batches[0].llsn_begin)
            self.batches.extend(write.batches)
        if write.runs:
            self._count_runs_before(write.runs[0].llsn_begin)
            self.runs.extend(write.runs)

    def _truncate(self, end: Llsn) -> None:
        self._count_before(end)
        self._count_runs_before(end)
        while self.batches and self.batches[-1].llsn_end > end:
            self.batches.pop()
        if self.runs and self.runs[-1].llsn_end > end:
            self.runs = [run for run in self.runs if run.llsn_end <= end]

    def _count_before(self, end: Llsn) -> None:
        if self.end is None or end < self.end:
            self.end = end

    def _count_runs_before(self, end: Llsn) -> None:
        if self.runs_end is None or end < self.runs_end:
            self.runs_end = end


class Pending:
    """The queue of begun writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[BegunWrite] = deque()
        self._by_stream: dict[StreamId, int] = {}
        """How many writes of each stream are in the queue."""
        self._last = 0
        self._urgent = 0
        """The last write that cannot wait."""

    @property
    def last(self) -> int:
        """The number of the last write that was begun."""
        return self._last

    @property
    def is_urgent(self) -> bool:
        """Whether a write is in the queue that is not to wait for others (P2)."""
        with self._lock:
            if len(self._queue) > WAITING_MAX:
                return True
            return bool(self._queue) and self._queue[0].number <= self._urgent

    def __len__(self) -> int:
        return len(self._queue)

    def begin(
        self, stream: StreamId, topic: TopicId, write: Write | None, boundary: int = 0
    ) -> int:
        """Add a write; returns its number (P1)."""
        with self._lock:
            self._last += 1
            self._queue.append(BegunWrite(self._last, stream, topic, write, boundary))
            self._by_stream[stream] = self._by_stream.get(stream, 0) + 1
            if write is None or not write.can_wait:
                self._urgent = self._last
            return self._last

    def group(self) -> list[BegunWrite]:
        """The first writes, as many as one frame should hold; at least one if there is any."""
        with self._lock:
            first = list(islice(self._queue, GROUP_RECORDS_MAX))
        size = 0
        for place, begun in enumerate(first):
            size += begun.size
            if place and size > GROUP_BYTES_MAX:
                return first[:place]
        return first

    def done(self, number: int) -> None:
        """The writes up to this one were applied."""
        with self._lock:
            while self._queue and self._queue[0].number <= number:
                stream = self._queue.popleft().stream
                self._by_stream[stream] -= 1
                if not self._by_stream[stream]:
                    del self._by_stream[stream]

    def overlay(self, stream: StreamId) -> Overlay | None:
        """What the begun writes of a stream make of it; None if there are none."""
        with self._lock:
            if stream not in self._by_stream:
                return None
            writes = [begun.write for begun in self._queue if begun.stream == stream]
        overlay = Overlay()
        for write in writes:
            if write is not None:
                overlay.add(write)
        return overlay
