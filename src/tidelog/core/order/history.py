"""Cuts that were decided, kept for the replicas that do not know them yet.

Two things are kept: the latest cuts as a whole, and of every stream the commits that are in them
or that a majority of its replicas has not applied.  Everything that a replica may miss is kept
while it is in sync: in the ensemble, heard of in the current term, and not further behind than the
limits allow.  So a dead replica holds nothing for long, and no cut is lost that nobody has learnt.

Invariants:
  H1  the kept cuts are the latest ones, without a gap
  H2  the kept commits of a stream are its latest ones, without a gap: all that are in the kept
      cuts, and all that a majority of its ensemble did not know when the cuts were trimmed
  H3  after a cut, the oldest kept one is missed by a replica in sync; no limit is exceeded
  H4  for every kept cut it is known how many replicas in sync have it as the first they miss
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from tidelog import limits
from tidelog.core.order.commands import CutDecided, VersionedCommit
from tidelog.core.order.quorum import applied_version
from tidelog.core.order.state import ReplicaOrder, StreamHistory, StreamOrder
from tidelog.invariants import check
from tidelog.types import Llsn, StreamId, Version

_version: Final = attrgetter("version")


class _Run(msgspec.Struct):
    """The kept commits of one stream, at least one, and its last one before them."""

    forgotten: Version
    commits: deque[VersionedCommit]


class History:
    """The kept cuts, by version and by stream."""

    __slots__ = ("_commits", "_cuts", "_missed", "_runs")

    def __init__(self) -> None:
        self._cuts: deque[CutDecided] = deque()
        self._missed: deque[int] = deque()
        """For each of the cuts: how many replicas in sync have it as the first they miss (H4)."""
        self._commits = 0
        self._runs: dict[StreamId, _Run] = {}

    # -- asking -------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._cuts and not self._runs

    def first_version(self, latest: Version) -> Version:
        """The oldest cut that is kept as a whole; the next one to come if none is."""
        return Version(latest - len(self._cuts) + 1)

    def cuts_after(self, known: Version, latest: Version) -> tuple[CutDecided, ...] | None:
        """Return the cuts above ``known``; None if the first of them is no longer kept."""
        skipped = known + 1 - self.first_version(latest)
        return None if skipped < 0 else tuple(islice(self._cuts, skipped, None))

    def commits_after(
        self, order: StreamOrder, known: Version
    ) -> tuple[VersionedCommit, ...] | None:
        """Return the commits of a stream above ``known``; None if one is no longer kept."""
        if known >= order.version:
            return ()
        run = self._run_from(order, known)
        if run is None:
            return None
        return tuple(islice(run.commits, _place_after(run, known), None))

    def ordered_end(self, order: StreamOrder, known: Version) -> Llsn | None:
        """Where the ordered part of a stream ended at a version; None if that is forgotten."""
        if known >= order.version:
            return order.llsn_end
        missed = self._first_missed(order, known)
        return None if missed is None else missed.commit.llsn_begin

    def forgotten(self, order: StreamOrder) -> Version:
        """The last commit of a stream that is no longer kept: only replicas know it."""
        run = self._runs.get(order.stream)
        return order.version if run is None else run.forgotten

    def is_backlogged(self, order: StreamOrder) -> bool:
        """Whether a majority has so much of a stream still to apply that it must wait (H2)."""
        run = self._runs.get(order.stream)
        if run is None or len(run.commits) < limits.ORDER_UNAPPLIED_CUTS_MAX:
            return False
        oldest = run.commits[-limits.ORDER_UNAPPLIED_CUTS_MAX]
        return oldest.version > applied_version(order.replicas)

    # -- keeping ------------------------------------------------------------------------------

    def add(self, cut: CutDecided, streams: Mapping[StreamId, StreamOrder]) -> None:
        """Keep a cut; ``streams`` are as they were before it."""
        missed = 0
        for commit in cut.commits:
            order = streams[commit.stream]
            run = self._runs.get(commit.stream)
            if run is None:
                run = self._runs[commit.stream] = _Run(order.version, deque())
            run.commits.append(VersionedCommit(cut.version, commit))
            for replica in order.replicas:
                missed += bool(replica.end) and replica.version >= order.version
        self._cuts.append(cut)
        self._missed.append(missed)
        self._commits += len(cut.commits)

    def hold(self, order: StreamOrder, replica: ReplicaOrder, latest: Version) -> None:
        """Keep what a replica misses from now on."""
        self._count(order, replica, latest, 1)

    def release(self, order: StreamOrder, replica: ReplicaOrder, latest: Version) -> None:
        """Undo ``hold``, with the same replica of the same stream as it was then."""
        self._count(order, replica, latest, -1)

    def _count(
        self, order: StreamOrder, replica: ReplicaOrder, latest: Version, change: int
    ) -> None:
        if not replica.end or replica.version >= order.version:
            return
        missed = self._first_missed(order, replica.version)
        first = self.first_version(latest)
        if missed is not None and missed.version >= first:
            place = missed.version - first
            self._missed[place] += change
            check(self._missed[place] >= 0, "H4: a replica was released that was not held")

    # -- forgetting ---------------------------------------------------------------------------

    def trim(self, streams: Mapping[StreamId, StreamOrder]) -> None:
        """Forget the oldest cuts while nobody in sync misses them, or a limit is exceeded."""
        while self._cuts and (not self._missed[0] or self._is_too_long()):
            cut = self._cuts.popleft()
            self._missed.popleft()
            self._commits -= len(cut.commits)
            for commit in cut.commits:
                order = streams.get(commit.stream)
                if order is not None:
                    self._forget_applied(order, cut.version)

    def _is_too_long(self) -> bool:
        return (
            len(self._cuts) > limits.ORDER_HISTORY_CUTS_MAX
            or self._commits > limits.ORDER_HISTORY_COMMITS_MAX
        )

    def settle(self, order: StreamOrder, latest: Version) -> None:
        """Forget what was kept of a stream only because too few replicas knew it."""
        run = self._runs.get(order.stream)
        if run is not None:
            last = Version(self.first_version(latest) - 1)
            if run.commits[0].version <= last:
                self._forget_applied(order, last)

    def _forget_applied(self, order: StreamOrder, last: Version) -> None:
        """Forget commits up to a version, as far as a majority knows them."""
        run = self._runs[order.stream]
        bound = min(last, applied_version(order.replicas))
        while run.commits and run.commits[0].version <= bound:
            run.forgotten = run.commits.popleft().version
        if not run.commits:
            del self._runs[order.stream]

    def forget_stream(self, order: StreamOrder, latest: Version) -> None:
        """Forget a stream that is no more; the kept cuts still name it."""
        for replica in order.replicas:
            self.release(order, replica, latest)
        self._runs.pop(order.stream, None)

    # -- storing ------------------------------------------------------------------------------

    @property
    def cuts(self) -> tuple[CutDecided, ...]:
        """All cuts that are kept as a whole."""
        return tuple(self._cuts)

    def histories(self, latest: Version) -> tuple[StreamHistory, ...]:
        """What is kept besides ``cuts``, by stream."""
        first = self.first_version(latest)
        return tuple(
            StreamHistory(
                stream,
                run.forgotten,
                tuple([commit for commit in run.commits if commit.version < first]),
            )
            for stream, run in sorted(self._runs.items())
        )

    def validate(
        self, fresh: History, streams: Mapping[StreamId, StreamOrder], latest: Version
    ) -> None:
        """Check at full length, against the same history counted anew."""
        check(fresh._missed == self._missed, "H4: what is missed is miscounted")
        check(fresh._commits == self._commits, "H3: what is kept is miscounted")
        check(not self._is_too_long(), "H3: more is kept than the limits allow")
        for kept in self.histories(latest):
            if kept.older:
                applied = applied_version(streams[kept.stream].replicas)
                check(kept.older[0].version > applied, "H2: a commit is kept that a majority knows")

    @classmethod
    def restore(
        cls,
        cuts: Iterable[CutDecided],
        histories: Iterable[StreamHistory],
        streams: Mapping[StreamId, StreamOrder],
        latest: Version,
    ) -> History:
        """Go on from stored values that have no flaw."""
        history = cls()
        for kept in histories:
            history._runs[kept.stream] = _Run(kept.forgotten, deque(kept.older))
        for cut in cuts:
            history._cuts.append(cut)
            history._missed.append(0)
            history._commits += len(cut.commits)
            for commit in cut.commits:
                run = history._runs.get(commit.stream)
                if run is not None:
                    run.commits.append(VersionedCommit(cut.version, commit))
        for order in streams.values():
            for replica in order.replicas:
                history.hold(order, replica, latest)
        return history

    # -- inside -------------------------------------------------------------------------------

    def _run_from(self, order: StreamOrder, known: Version) -> _Run | None:
        """The run of a stream if it holds all its commits above ``known``."""
        run = self._runs.get(order.stream)
        return run if run is not None and known >= run.forgotten else None

    def _first_missed(self, order: StreamOrder, known: Version) -> VersionedCommit | None:
        """The first commit above ``known``, which is not its last one; None if it is forgotten."""
        run = self._run_from(order, known)
        return None if run is None else run.commits[_place_after(run, known)]


def _place_after(run: _Run, known: Version) -> int:
    return bisect_right(run.commits, known, key=_version)
