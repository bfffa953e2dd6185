"""Which GLSN an LLSN has, as runs in which both count up together.

  G1  Runs ascend in LLSN and in GLSN, and none overlaps another in either.
  G2  Two runs that continue each other in both are one run.

One thread may append while others read: a run becomes visible with its last column.
0 stands for "none" in every answer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import add, le
from typing import TYPE_CHECKING, TypeAlias

from tidelog.errors import CorruptData
from tidelog.invariants import check

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    U64: TypeAlias = NDArray[np.uint64]

Run: TypeAlias = tuple[int, int, int]
"""(LLSN begin, GLSN begin, length)"""

_U64_END = 1 << 64


class GlsnRuns:
    """The runs of one stream, or of a part of it."""

    __slots__ = ("_glsns", "_lengths", "_llsns")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._llsns = array("Q")
        self._glsns = array("Q")
        self._lengths = array("Q")
        for run in runs:
            self.append(*run)

    @classmethod
    def from_columns(
        cls, llsns: Iterable[int], glsns: Iterable[int], lengths: Iterable[int]
    ) -> GlsnRuns:
        """Runs from their three columns, checked at C speed; CorruptData if G1 does not hold."""
        runs = cls()
        runs._llsns = array("Q", llsns)
        runs._glsns = array("Q", glsns)
        runs._lengths = array("Q", lengths)
        if not len(runs._llsns) == len(runs._glsns) == len(runs._lengths):
            raise CorruptData("GLSN runs: columns of different length")
        for begins in (runs._llsns, runs._glsns):
            if not _ascending(begins, runs._lengths):
                raise CorruptData("GLSN runs: not in ascending order (G1)")
        return runs

    def append(self, llsn_begin: int, glsn_begin: int, length: int) -> None:
        """Add a run behind all others; an empty one changes nothing."""
        if length == 0:
            return
        llsn_end = glsn_end = last = 0
        if self._llsns:
            last = self._lengths[-1]
            llsn_end, glsn_end = self._llsns[-1] + last, self._glsns[-1] + last
        check(llsn_begin >= llsn_end and llsn_begin >= 1, "G1: runs ascend in LLSN")
        check(glsn_begin >= glsn_end and glsn_begin >= 1, "G1: runs ascend in GLSN")
        check(max(llsn_begin, glsn_begin) + length < _U64_END, "positions fit into 64 bits")
        if llsn_begin == llsn_end and glsn_begin == glsn_end:
            self._lengths[-1] = last + length
            return
        self._lengths.append(length)
        self._glsns.append(glsn_begin)
        # Readers in other threads count runs by this column, so it comes last.
        self._llsns.append(llsn_begin)

    def __len__(self) -> int:
        return len(self._llsns)

    def __iter__(self) -> Iterator[Run]:
        return zip(self._llsns, self._glsns, self._lengths, strict=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlsnRuns) and self.columns() == other.columns()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"GlsnRuns({list(self)!r})"

    @property
    def llsn_begin(self) -> int:
        return self._llsns[0] if self._llsns else 0

    @property
    def llsn_end(self) -> int:
        """One past the last LLSN; 0 if there is none."""
        last = len(self._llsns) - 1
        return self._llsns[last] + self._lengths[last] if last >= 0 else 0

    @property
    def glsn_begin(self) -> int:
        return self._glsns[0] if self._llsns else 0

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """LLSN begins, GLSN begins and lengths as bytes of 64-bit numbers."""
        size = 8 * len(self._llsns)
        return (
            self._llsns.tobytes()[:size],
            self._glsns.tobytes()[:size],
            self._lengths.tobytes()[:size],
        )

    def glsn_of(self, llsn: int) -> int:
        """The GLSN of an LLSN; 0 if no run holds it."""
        index = bisect_right(self._llsns, llsn) - 1
        if index < 0:
            return 0
        distance = llsn - self._llsns[index]
        return self._glsns[index] + distance if distance < self._lengths[index] else 0

    def covers(self, llsn_begin: int, llsn_end: int) -> bool:
        """Whether every LLSN in ``[llsn_begin, llsn_end)`` has a GLSN."""
        index = bisect_right(self._llsns, llsn_begin) - 1
        if index >= 0 and llsn_end <= self._llsns[index] + self._lengths[index]:
            return True  # One run holds them all, as in every topic with one stream.
        found = self.slices(llsn_begin, llsn_end)
        return sum(run[2] for run in found) == llsn_end - llsn_begin

    def llsn_at_or_after(self, glsn: int) -> int:
        """The first LLSN whose GLSN is ``glsn`` or higher; 0 if all are lower."""
        count = len(self._llsns)
        index = bisect_right(self._glsns, glsn, hi=count) - 1
        if index >= 0:
            distance = glsn - self._glsns[index]
            if distance < self._lengths[index]:
                return self._llsns[index] + distance
        return self._llsns[index + 1] if index + 1 < count else 0

    def slices(self, llsn_begin: int, llsn_end: int) -> list[Run]:
        """The runs inside ``[llsn_begin, llsn_end)``, cut at both ends."""
        result: list[Run] = []
        count = len(self._llsns)
        index = max(bisect_right(self._llsns, llsn_begin, hi=count) - 1, 0)
        while index < count and self._llsns[index] < llsn_end:
            run = self._llsns[index], self._glsns[index], self._lengths[index]
            _add_part(result, run, llsn_begin - run[0], llsn_end - run[0])
            index += 1
        return result

    def slices_by_glsn(self, glsn_begin: int, glsn_end: int) -> list[Run]:
        """The runs whose GLSNs are inside ``[glsn_begin, glsn_end)``, cut at both ends."""
        result: list[Run] = []
        count = len(self._llsns)
        index = max(bisect_right(self._glsns, glsn_begin, hi=count) - 1, 0)
        while index < count and self._glsns[index] < glsn_end:
            run = self._llsns[index], self._glsns[index], self._lengths[index]
            _add_part(result, run, glsn_begin - run[1], glsn_end - run[1])
            index += 1
        return result

    def restrict(self, llsn_begin: int, llsn_end: int) -> GlsnRuns:
        """A copy with the runs inside ``[llsn_begin, llsn_end)`` alone."""
        return GlsnRuns(self.slices(llsn_begin, llsn_end))

    def glsns(self, llsns: U64) -> U64:
        """The GLSN of each LLSN, 0 where no run holds it."""
        # Late, so that programs that only read by position start without numpy.
        import numpy as np  # noqa: PLC0415

        llsns = np.asarray(llsns, dtype=np.uint64)
        # Copies, since a buffer that numpy borrowed could not grow meanwhile.
        begins, firsts, lengths = (np.frombuffer(c, dtype=np.uint64) for c in self.columns())
        if not len(begins):
            return np.zeros(len(llsns), dtype=np.uint64)
        if len(begins) == 1:  # A topic with one stream has no other.
            distance = llsns - begins
            return np.where(distance < lengths, firsts + distance, np.uint64(0))
        index = np.searchsorted(begins, llsns, side="right") - 1
        index = np.maximum(index, 0)
        distance = llsns - begins[index]  # wraps around below the first run: never in length
        return np.where(distance < lengths[index], firsts[index] + distance, np.uint64(0))


def _add_part(result: list[Run], run: Run, begin: int, end: int) -> None:
    """Add the entries ``[begin, end)`` of a run, counted from its first; none adds nothing."""
    llsn, glsn, length = run
    begin, end = max(begin, 0), min(end, length)
    if begin < end:
        result.append((llsn + begin, glsn + begin, end - begin))


def _ascending(begins: array[int], lengths: array[int]) -> bool:
    """Whether begins start at 1 or later and every run ends at or before the next one begins."""
    if not begins:
        return True
    if len(begins) == 1:
        return lengths[0] > 0 and begins[0] > 0 and begins[0] + lengths[0] < _U64_END
    ends = list(map(add, begins, lengths))
    return (
        min(lengths) > 0
        and begins[0] > 0
        and ends[-1] < _U64_END
        and all(map(le, ends, islice(begins, 1, None)))
    )
