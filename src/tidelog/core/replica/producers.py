"""Idempotent producers of one stream: a repeated append is answered, not appended again.

A producer numbers its appends; the numbers grow, gaps are allowed.  The table knows the last
``PRODUCER_WINDOW`` appends of each of the ``PRODUCERS_PER_STREAM_MAX`` producers that appended
last.  It is a function of the recorded appends alone, so that all replicas hold the same.

Invariants:
  P1  a producer's recorded sequences grow, and so do their LLSNs
  P2  a producer's ``sequence`` is at or above all its recorded appends: what lies at or below it
      is answered from the window or refused, never appended
  P3  the table and every window are bounded
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from tidelog import limits
from tidelog.core.replica.commit_context import Natural
from tidelog.errors import CorruptData, ProducerConflict
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, Llsn


class ProducerState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One producer: its last sequence, and (sequence, LLSN begin, count) of its last appends."""

    producer: Natural
    sequence: Natural
    appends: tuple[tuple[Natural, Natural, Natural], ...] = ()


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Where an append with the same producer and sequence went before."""

    llsn_begin: Llsn
    count: int


class ProducerTable:
    """The producers of one stream, in the order of their last append."""

    __slots__ = ("_producers_max", "_states", "_window")

    def __init__(
        self,
        *,
        producers_max: int = limits.PRODUCERS_PER_STREAM_MAX,
        window: int = limits.PRODUCER_WINDOW,
    ) -> None:
        check(producers_max >= 1 and window >= 1, "P3: a producer table needs room")
        self._producers_max = producers_max
        self._window = window
        # Least recently recorded first: a dict keeps the order in which keys were put in.
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def lookup(self, producer: int, sequence: int) -> Duplicate | None:
        """Return where this append went before; None if it is new.

        Raises ProducerConflict when the sequence was passed, but its append is not known (any
        more).  A producer that is not in the table starts anew with any sequence.
        """
        if self.is_new(producer, sequence):
            return None
        state = self._states[producer]
        for known, llsn_begin, count in reversed(state.appends):
            if known == sequence:
                return Duplicate(Llsn(llsn_begin), count)
        raise ProducerConflict(
            f"producer {producer} is at sequence {state.sequence}; an append {sequence}"
            f" is not among its last {self._window}"
        )

    def last_sequence(self, producer: int) -> int:
        """Return the highest sequence that is known of a producer; 0 if there is none."""
        state = self._states.get(producer)
        return 0 if state is None else state.sequence

    def is_new(self, producer: int, sequence: int) -> bool:
        """Whether the append lies behind all that is known of its producer."""
        state = self._states.get(producer)
        return state is None or sequence > state.sequence

    def record(self, producer: int, sequence: int, llsn_begin: int, count: int) -> None:
        """Remember an append that ``lookup`` called new."""
        check(producer > 0 and sequence > 0, "P1: 0 stands for no producer and no sequence")
        check(llsn_begin >= FIRST_LLSN and count >= 1, "P1: an append has a place and entries")
        state = self._states.pop(producer, None)
        appends: tuple[tuple[int, int, int], ...] = ()
        if state is not None:
            check(sequence > state.sequence, f"P1: producer {producer} went back to {sequence}")
            appends = state.appends
        if appends:
            check(llsn_begin >= appends[-1][1] + appends[-1][2], "P1: two appends overlap")
        appends = (*appends, (sequence, llsn_begin, count))[-self._window :]
        self._states[producer] = ProducerState(producer, sequence, appends)
        if len(self._states) > self._producers_max:
            del self._states[next(iter(self._states))]
        check(len(self._states) <= self._producers_max, "P3: too many producers")

    def truncate(self, llsn_end: int) -> None:
        """Forget the appends that reach ``llsn_end`` or beyond, so that they may come again.

        An append that is cut in two goes as a whole: half of it is no answer to a retry.
        Producers that were evicted by a forgotten append stay evicted.
        """
        for producer, state in list(self._states.items()):
            kept = tuple(append for append in state.appends if append[1] + append[2] <= llsn_end)
            if len(kept) == len(state.appends):
                continue
            # With the window gone nobody knows the sequence before it; the one right below the
            # first forgotten append is the highest that it can have been.
            sequence = kept[-1][0] if kept else state.appends[0][0] - 1
            if kept or sequence > 0:
                self._states[producer] = ProducerState(producer, sequence, kept)
            else:
                del self._states[producer]

    def freeze(self) -> tuple[ProducerState, ...]:
        """Return the table as values, least recent producer first."""
        return tuple(self._states.values())

    @classmethod
    def thaw(
        cls,
        states: Iterable[ProducerState],
        *,
        producers_max: int = limits.PRODUCERS_PER_STREAM_MAX,
        window: int = limits.PRODUCER_WINDOW,
    ) -> ProducerTable:
        """Go on from frozen values; raise CorruptData if they are not sound.

        Values that were frozen under wider bounds lose what is oldest.
        """
        table = cls(producers_max=producers_max, window=window)
        for state in states:
            flaw = _flaw_in_producer(state)
            if flaw is not None or state.producer in table._states:
                raise CorruptData(f"producer {state.producer}: {flaw or 'occurs twice'}")
            appends = state.appends[-window:]
            table._states[state.producer] = ProducerState(state.producer, state.sequence, appends)
        while len(table._states) > producers_max:
            del table._states[next(iter(table._states))]
        return table


def _flaw_in_producer(state: ProducerState) -> str | None:
    if state.producer <= 0 or state.sequence <= 0:
        return "P1: 0 stands for no producer and no sequence"
    for sequence, llsn_begin, count in state.appends:
        if sequence <= 0 or llsn_begin < FIRST_LLSN or count < 1:
            return "P1: an append has no place or no entries"
        if sequence > state.sequence:
            return f"P2: append {sequence} lies above the last sequence {state.sequence}"
    for before, after in pairwise(state.appends):
        if after[0] <= before[0] or after[1] < before[1] + before[2]:
            return f"P1: append {after[0]} does not follow append {before[0]}"
    return None
