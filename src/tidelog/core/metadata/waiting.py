"""Who waits for an outcome at a metadata node: changes by their number, reads by their context.

Invariants:
  W1  every change is answered exactly once: as applied, as refused, or, when its time is over,
      as unknown; an outcome that comes later is dropped, in the next life of the node too.  Of a
      change that is twice in the log the first outcome counts: it is that of the change itself
  W2  a read is served only when its index is applied
  W3  a change that may have been applied in a snapshot, where nobody saw its outcome, is never
      told as refused: what is refused then may be its own repetition
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from tidelog.core.metadata.commands import Request
from tidelog.core.raft.entries import Index
from tidelog.core.raft.output import ReadReady
from tidelog.errors import DeadlineExceeded, LogError


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a change; ``DeadlineExceeded`` means that it may still be applied."""

    number: int
    error: LogError | None


class Waiting:
    """Changes and reads that were asked for here."""

    __slots__ = (
        "_answers",
        "_doubtful_end",
        "_expiries",
        "_lost",
        "_next",
        "_patience",
        "_pending",
        "_reads",
        "_served",
        "_ticks",
    )

    def __init__(self, patience_ticks: int, first: int) -> None:
        """Count from ``first``: a number of chance, so that it is not one of an earlier life."""
        self._patience = patience_ticks
        self._ticks = 0
        self._next = first
        self._doubtful_end = first
        self._pending: dict[int, Request | None] = {}
        # Changes expire in the order in which they came: all have the same time.
        self._expiries: deque[tuple[int, int]] = deque()
        self._answers: list[Answer] = []
        self._reads: list[ReadReady] = []
        self._served: list[int] = []
        self._lost: list[int] = []

    @property
    def has_output(self) -> bool:
        """Whether ``take`` would return anything."""
        return bool(self._answers or self._served or self._lost)

    def tick(self) -> None:
        """Give up on what waits for too long (W1)."""
        self._ticks += 1
        while self._expiries and self._expiries[0][0] <= self._ticks:
            number = self._expiries.popleft()[1]
            self._finish(number, DeadlineExceeded("the metadata repository did not answer in time"))

    def begin(self) -> int:
        """Return the number of a new change."""
        number, self._next = self._next, self._next + 1
        self._pending[number] = None
        self._expiries.append((self._ticks + self._patience, number))
        return number

    def keep(self, request: Request) -> None:
        """Remember a change until it is answered."""
        self._pending[request.number] = request

    def unanswered(self) -> tuple[Request, ...]:
        """Return the changes that wait, in the order in which they came."""
        return tuple(request for request in self._pending.values() if request is not None)

    def jumped(self) -> None:
        """The state came as a snapshot: changes that wait may be in it (W3)."""
        self._doubtful_end = self._next

    def answered(self, number: int, error: LogError | None) -> None:
        """Note the outcome of a change."""
        if error is not None and error.definite and number < self._doubtful_end:
            error = DeadlineExceeded(f"it may have been applied before it was refused: {error}")
        self._finish(number, error)

    def reads(self, ready: Iterable[ReadReady], lost: Iterable[int], applied: Index) -> None:
        """Note reads that have an index or lost their leader, and serve what is applied (W2)."""
        self._reads.extend(ready)
        self._lost.extend(lost)
        if self._reads:
            self._served.extend(read.context for read in self._reads if read.index <= applied)
            self._reads = [read for read in self._reads if read.index > applied]

    def take(self) -> tuple[tuple[Answer, ...], tuple[int, ...], tuple[int, ...]]:
        """Hand over answers, contexts of reads to serve, and contexts of lost reads."""
        taken = tuple(self._answers), tuple(self._served), tuple(self._lost)
        self._answers, self._served, self._lost = [], [], []
        return taken

    def _finish(self, number: int, error: LogError | None) -> None:
        if number in self._pending:
            del self._pending[number]
            self._answers.append(Answer(number, error))
