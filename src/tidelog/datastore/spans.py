"""How long each step of a commit takes: what a datastore measures while it works.

H1  memory is bounded: durations are counted in buckets, sixteen for each doubling, so that a
    quantile is off by at most a sixteenth
H2  a duration is counted in its bucket and in the total, or in neither
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import Final

import msgspec

_STEPS_BITS: Final = 4
_STEPS: Final = 1 << _STEPS_BITS
_SHIFT_MAX: Final = 42
"""Longer than a day is as good as for ever."""
_BUCKETS: Final = _STEPS * (_SHIFT_MAX + 2)


class Span(Enum):
    """What is measured; a step on the other machine is measured there."""

    APPEND = "append"
    """Entries into the local WAL, without syncing."""
    SEND = "send"
    """Handing entries to the sockets of all replicas."""
    REMOTE_APPEND = "remote append"
    FSYNC = "fsync"
    REMOTE_FSYNC = "remote fsync"
    ROUND_TRIP = "round trip"
    """From sending entries to a replica's answer, the steps in between included."""
    SESSION_END = "session end"
    """A whole ``end_session``."""
    EPOCH_WRITE = "epoch write"
    """The local record of an epoch, its sync included."""
    GROUP_COMMIT = "group commit"
    """From the order to commit an epoch to its last answer, the local record included."""
    BLOB = "blob"
    """A whole BLOB to one replica."""


class SpanFigures(msgspec.Struct, frozen=True):
    """One span so far; times in microseconds."""

    span: str
    count: int
    total_us: float
    p50_us: float
    p99_us: float
    longest_us: float

    @property
    def mean_us(self) -> float:
        return self.total_us / self.count if self.count else 0.0


class Timer:
    """Durations of one span.  Thread-safe."""

    __slots__ = ("_counts", "_lock", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * _BUCKETS
        self.total_ns = 0
        self.longest_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration."""
        bucket = bucket_of(duration_ns)
        with self._lock:
            self._counts[bucket] += 1
            self.total_ns += duration_ns
            self.longest_ns = max(self.longest_ns, duration_ns)

    def counts(self) -> list[tuple[int, int]]:
        """(end of a bucket in ns, how many durations are in it), without the empty ones."""
        with self._lock:
            counts = list(self._counts)
        return [(bucket_end(bucket), count) for bucket, count in enumerate(counts) if count]

    def figures(self, span: Span) -> SpanFigures:
        counts = self.counts()
        return SpanFigures(
            span=span.value,
            count=sum(count for _, count in counts),
            total_us=self.total_ns / 1000,
            p50_us=quantile_ns(counts, 0.50) / 1000,
            p99_us=quantile_ns(counts, 0.99) / 1000,
            longest_us=self.longest_ns / 1000,
        )


class Spans:
    """A timer for each span."""

    def __init__(self) -> None:
        self._timers: Final = {span: Timer() for span in Span}
        self.append = self._timers[Span.APPEND]
        self.send = self._timers[Span.SEND]
        self.remote_append = self._timers[Span.REMOTE_APPEND]
        self.fsync = self._timers[Span.FSYNC]
        self.remote_fsync = self._timers[Span.REMOTE_FSYNC]
        self.round_trip = self._timers[Span.ROUND_TRIP]
        self.session_end = self._timers[Span.SESSION_END]
        self.epoch_write = self._timers[Span.EPOCH_WRITE]
        self.group_commit = self._timers[Span.GROUP_COMMIT]
        self.blob = self._timers[Span.BLOB]

    def timers(self) -> dict[Span, Timer]:
        return self._timers

    def table(self) -> tuple[SpanFigures, ...]:
        """All spans, in the order of a commit."""
        return tuple(timer.figures(span) for span, timer in self._timers.items())


def bucket_of(duration_ns: int) -> int:
    """Buckets are as wide as a sixteenth of the power of two that they begin at, or above."""
    if duration_ns < _STEPS:
        return max(duration_ns, 0)
    shift = duration_ns.bit_length() - 1 - _STEPS_BITS
    if shift > _SHIFT_MAX:
        return _BUCKETS - 1  # What a replica says of itself may be nonsense.
    return (shift << _STEPS_BITS) + (duration_ns >> shift)


def bucket_end(bucket: int) -> int:
    """The first duration that is too long for a bucket."""
    if bucket < _STEPS:
        return bucket + 1
    shift = (bucket >> _STEPS_BITS) - 1
    return (_STEPS + (bucket & (_STEPS - 1)) + 1) << shift


def quantile_ns(counts: list[tuple[int, int]], share: float) -> int:
    """The end of the bucket that this share of all durations does not exceed; 0 of none."""
    left = share * sum(count for _, count in counts)
    for end, count in counts:
        left -= count
        if left <= 0:
            return end
    return 0
