"""Where the latest cuts of a topic ended, so that reads can end there too.

One thread adds; any thread may ask.

Invariants:
  C1  Ends ascend; no more than ``CUT_ENDS_MAX`` to twice as many are kept.
  C2  A column that somebody looks at only grows: forgetting makes a new one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from tidelog.invariants import check

CUT_ENDS_MAX: Final = 64 * 1024


class CutEnds:
    """One past the last GLSN of each remembered cut of a topic."""

    __slots__ = ("_ends",)

    def __init__(self, end: int) -> None:
        """``end`` is where the topic ends now, which is where its last cut ended."""
        self._ends = array("Q", [end])

    @property
    def last(self) -> int:
        """The end that was added last."""
        return self._ends[-1]

    def add(self, end: int) -> None:
        check(end > self._ends[-1], "C1: cut ends ascend")
        self._ends.append(end)
        if len(self._ends) >= 2 * CUT_ENDS_MAX:
            self._ends = self._ends[-CUT_ENDS_MAX:]

    def round_down(self, begin: int, bound: int) -> int:
        """Where a read from ``begin`` ends that shall not go beyond ``bound``.

        At the last cut end up to the bound.  If the first cut behind ``begin`` goes beyond it, at
        the end of that cut, so that a read always gets on; at exactly ``bound`` where cuts are
        no longer remembered.
        """
        ends = self._ends
        after = bisect_right(ends, bound)
        if after and ends[after - 1] > begin:
            return ends[after - 1]
        # No cut ends in (begin, bound]: they lie inside one cut, or before all that is known.
        if after and after < len(ends):
            return ends[after]
        return bound
