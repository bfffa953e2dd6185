"""What a leader has taken and no quorum has yet: appends must not pile up without end.

Invariants:
  B1  the appends that are kept lie above the commit index, in their order
  B2  ``size`` is what they weigh together
"""

from __future__ import annotations

from collections import deque

from tidelog.core.replica.entries import Batch
from tidelog.core.replica.log import weight
from tidelog.types import Llsn


class Backlog:
    """The uncommitted appends of one reign."""

    __slots__ = ("_appends", "size", "taken")

    def __init__(self) -> None:
        self._appends: deque[tuple[Llsn, int]] = deque()
        self.size = 0
        self.taken = 0
        """What all appends weigh together, committed or not."""

    def add(self, batch: Batch) -> None:
        """Take in an append."""
        size = weight(batch)
        self._appends.append((batch.head.llsn, size))
        self.size += size
        self.taken += size

    def release(self, commit: Llsn) -> None:
        """Forget what is committed by now."""
        while self._appends and self._appends[0][0] <= commit:
            self.size -= self._appends.popleft()[1]
