"""When to look at which stream.

Invariants:
  A1  a stream has at most one time at which it is looked at: the earliest that was asked for
"""

from __future__ import annotations

from heapq import heappop, heappush

from tidelog.types import StreamId


class Agenda:
    """Streams by the tick at which they are due."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[StreamId, int] = {}
        self._heap: list[tuple[int, StreamId]] = []

    def __len__(self) -> int:
        return len(self._due)

    def put(self, stream: StreamId, at: int) -> None:
        """Look at a stream at this tick, or at the one that was asked for before if earlier."""
        due = self._due.get(stream)
        if due is None or at < due:
            self._due[stream] = at
            heappush(self._heap, (at, stream))

    def drop(self, stream: StreamId) -> None:
        """Look at it no more."""
        self._due.pop(stream, None)

    def take(self, now: int) -> list[StreamId]:
        """Hand over the streams that are due."""
        taken: list[StreamId] = []
        while self._heap and self._heap[0][0] <= now:
            at, stream = heappop(self._heap)
            # A later time of a stream may still lie in the heap after an earlier one (A1).
            if self._due.get(stream) == at:
                del self._due[stream]
                taken.append(stream)
        return taken
