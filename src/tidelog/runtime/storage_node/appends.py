"""Who waits for which append to be stored, propagated or ordered.

Input: appends that a leader took, and how far it says that its log is stored, propagated and
ordered.  Output: futures that end.

Invariants:
  A1  an append is acknowledged only when its leader says so
  A2  when a leader is deposed, all who wait for its appends are told that nobody knows
  A3  who waits is bounded; a future that was given up holds its place until its append is done
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.options import Appended
from tidelog.core.replica.output import Output
from tidelog.errors import Busy, LeaderLost
from tidelog.interface.records import Ack
from tidelog.limits import KIB, NODE_APPENDS_MAX
from tidelog.runtime.storage_node.counters import Counters
from tidelog.types import FIRST_LLSN, Llsn, StreamId

TIMED_MAX: Final = 16 * KIB
"""Of the appends of a stream that are not ordered, so many are measured."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where an append went."""

    stream: StreamId
    llsn: Llsn
    count: int
    glsn: int = 0
    """0 if less than its order was awaited, or if that is not known any more."""
    duplicate: bool = False
    """The producer had appended this before; nothing was appended now."""


class _Waiter(NamedTuple):
    """Sorted by the end of its append; the number keeps futures from being compared."""

    end: int
    number: int
    appended: Appended
    future: asyncio.Future[Placed]


class StreamAppends:
    """The appends of one stream that is led here."""

    __slots__ = ("_ends", "_runs", "_timed", "_waiting")

    def __init__(self, ordered_end: Llsn) -> None:
        self._ends = {Ack.STORED: FIRST_LLSN, Ack.PROPAGATED: FIRST_LLSN, Ack.ORDERED: ordered_end}
        self._waiting: dict[Ack, list[_Waiter]] = {ack: [] for ack in Ack}
        self._timed: dict[Ack, deque[tuple[Llsn, float]]] = {ack: deque() for ack in Ack}
        """Ends of appends and when they came, until they reach a stage."""
        self._runs: list[GlsnRun] = []
        """GLSNs that are on their way to the disk, in order."""

    @property
    def waiting(self) -> int:
        """How many futures are not done."""
        return sum(map(len, self._waiting.values()))

    def is_reached(self, appended: Appended, ack: Ack) -> bool:
        """Whether an append has come as far as its caller wants (A1)."""
        return appended.llsn_begin + appended.count <= self._ends[ack]

    def wait(self, waiter: _Waiter, ack: Ack) -> None:
        heappush(self._waiting[ack], waiter)

    def time(self, end: Llsn, now: float) -> None:
        """Measure when a new append reaches each stage."""
        if len(self._timed[Ack.ORDERED]) < TIMED_MAX:
            for timed in self._timed.values():
                timed.append((end, now))

    def note_runs(self, runs: Sequence[GlsnRun]) -> None:
        """Remember GLSNs until the disk has them."""
        self._runs.extend(runs)

    def reach(self, ack: Ack, end: Llsn) -> list[_Waiter]:
        """Note how far the leader came; return who has waited for that."""
        self._ends[ack] = end
        waiting, reached = self._waiting[ack], list[_Waiter]()
        while waiting and waiting[0].end <= end:
            reached.append(heappop(waiting))
        return reached

    def reached_times(self, ack: Ack) -> list[float]:
        """When the appends came that have reached a stage since it was last asked."""
        timed, end, begins = self._timed[ack], self._ends[ack], list[float]()
        while timed and timed[0][0] <= end:
            begins.append(timed.popleft()[1])
        return begins

    def glsn_of(self, llsn: Llsn) -> int:
        """The GLSN of an entry, if it is on its way to the disk; else 0."""
        place = bisect_right(self._runs, llsn, key=_end)
        if place == len(self._runs) or llsn < self._runs[place].llsn_begin:
            return 0
        return self._runs[place].glsn_begin + llsn - self._runs[place].llsn_begin

    def forget_runs(self, end: Llsn) -> None:
        """Whoever asks for the GLSNs before ``end`` from now on asks the disk."""
        del self._runs[: bisect_right(self._runs, end, key=_end)]

    def depose(self) -> list[_Waiter]:
        """Forget all; return who waits."""
        left = [waiter for waiters in self._waiting.values() for waiter in waiters]
        self._waiting = {ack: [] for ack in Ack}
        self._timed = {ack: deque() for ack in Ack}
        self._ends[Ack.STORED] = self._ends[Ack.PROPAGATED] = FIRST_LLSN
        self._runs.clear()
        return left


def _end(run: GlsnRun) -> Llsn:
    return run.llsn_end


class Appends:
    """All appends that somebody waits for.  Belongs to one event loop."""

    def __init__(self, counters: Counters, find_glsn: Callable[[StreamId, Llsn], int]) -> None:
        """``find_glsn`` knows the GLSNs of entries that were ordered before; 0 if it does not."""
        self._loop = asyncio.get_running_loop()
        self._counters = counters
        self._find_glsn = find_glsn
        self._streams: dict[StreamId, StreamAppends] = {}
        self._waiting = 0
        self._number = 0

    @property
    def waiting(self) -> int:
        """How many futures are not done."""
        return self._waiting

    def add_stream(self, stream: StreamId, ordered_end: Llsn) -> None:
        """A replica is here that may come to lead; it is ordered up to there."""
        self._streams[stream] = StreamAppends(ordered_end)

    def refuse_crowd(self) -> None:
        """A3: raise Busy if too many wait."""
        if self._waiting >= NODE_APPENDS_MAX:
            raise Busy(f"{self._waiting} appends wait on this node: try again later")

    def took(self, stream: StreamId, appended: Appended, ack: Ack) -> asyncio.Future[Placed]:
        """The leader took an append, now or earlier: return what ends when it has come so far."""
        appends, future = self._streams[stream], self._loop.create_future()
        end = Llsn(appended.llsn_begin + appended.count)
        if not appended.is_repeated:
            appends.time(end, self._loop.time())
        self._number += 1
        waiter = _Waiter(end, self._number, appended, future)
        if appends.is_reached(appended, ack):
            self._end(stream, waiter, ack)
        else:
            appends.wait(waiter, ack)
            self._waiting += 1
        return future

    def note_runs(self, stream: StreamId, runs: Sequence[GlsnRun]) -> None:
        """GLSNs of a stream that is led here are on their way to the disk."""
        self._streams[stream].note_runs(runs)

    def stored(self, stream: StreamId, ordered_end: Llsn) -> None:
        """The disk knows the GLSNs of the entries before an end."""
        self._streams[stream].forget_runs(ordered_end)

    def progress(self, stream: StreamId, output: Output) -> None:
        """Take what a replica tells of its appends."""
        if output.deposed:
            self._depose(stream)
        if output.stored is not None:
            self._reach(stream, Ack.STORED, output.stored)
        if output.propagated is not None:
            self._reach(stream, Ack.PROPAGATED, output.propagated)
        if output.ordered is not None:
            self._reach(stream, Ack.ORDERED, output.ordered)

    def fail_all(self, text: str) -> None:
        """The node stops: nobody will know here what becomes of the appends."""
        for stream in self._streams:
            self._depose(stream, text)

    def _reach(self, stream: StreamId, ack: Ack, end: Llsn) -> None:
        appends = self._streams[stream]
        reached = appends.reach(ack, end)
        self._waiting -= len(reached)
        for waiter in reached:
            self._end(stream, waiter, ack)
        now, stage = self._loop.time(), self._counters.stages[ack]
        for begin in appends.reached_times(ack):
            stage.observe(now - begin)

    def _end(self, stream: StreamId, waiter: _Waiter, ack: Ack) -> None:
        if waiter.future.done():
            return  # Its caller gave up.
        appended = waiter.appended
        glsn = self._glsn(stream, appended.llsn_begin) if ack is Ack.ORDERED else 0
        waiter.future.set_result(
            Placed(stream, appended.llsn_begin, appended.count, glsn, appended.is_repeated)
        )

    def _glsn(self, stream: StreamId, llsn: Llsn) -> int:
        return self._streams[stream].glsn_of(llsn) or self._find_glsn(stream, llsn)

    def _depose(self, stream: StreamId, text: str = "the leader was deposed") -> None:
        """A2."""
        left = self._streams[stream].depose()
        self._waiting -= len(left)
        for waiter in left:
            if not waiter.future.done():
                self._counters.lost += 1
                waiter.future.set_exception(
                    LeaderLost(f"stream {stream}: {text} while the append was under way")
                )
