"""What a node tells the metadata repository of its replicas, and what of it may wait.

No clock of its own: ``tick`` is called by the host.

Invariants:
  R1  what was reported is not reported again unless it was asked for
  R2  what lets a cut order more is the leader's word that more is committed.  All else waits for
      such a report, and at most for a tick: which cuts are known, and what a follower has durable,
      for its leader knows that.  A replica's first report, and its first in a term, does not wait,
      nor does one that has heard of many cuts since its last: they are kept until it says so
  R3  a leader that has something reported to order waits with more until it has heard of the cut
      that orders it, at most for a tick: a report in between would wait for that cut, too, and say
      less than the one after it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tidelog.core.order.commands import Report
from tidelog.limits import REPORT_CUTS_MAX
from tidelog.types import Llsn, StreamId, Version


class Reporter(Protocol):
    """What is asked of a replica."""

    @property
    def version(self) -> Version:
        """All cuts up to this one it has heard of, be they durable or not."""
        ...

    @property
    def ordered_end(self) -> Llsn:
        """How far the stream is ordered by these cuts."""
        ...

    def report(self) -> Report | None:
        """Return what it has to order; None while it is silent."""
        ...


class _Told(NamedTuple):
    """What is said of a replica, and what it has heard of cuts when that is said."""

    report: Report
    version: Version
    ordered_end: Llsn


class Reporting:
    """What the metadata repository was told, and what it is to be told next."""

    __slots__ = ("_is_asked", "_is_late", "_reported", "_touched", "_waiting", "is_owed")

    def __init__(self) -> None:
        self._touched: dict[StreamId, None] = {}
        self._reported: dict[StreamId, _Told] = {}
        self._waiting: dict[StreamId, None] = {}
        """Streams of which there is something to report that can wait (R2, R3)."""
        self._is_asked = False
        self._is_late = False
        self.is_owed = False
        """Whether a sign is due, be there news or not."""

    @property
    def is_due(self) -> bool:
        """Whether ``take`` may return anything."""
        return bool(self._touched) or self._is_asked or self._is_late or self.is_owed

    @property
    def touched(self) -> tuple[StreamId, ...]:
        """The streams with which something was done since the last report."""
        return tuple(self._touched)

    def touch(self, stream: StreamId) -> None:
        """Something was done with the replica of a stream."""
        self._touched[stream] = None

    def forget(self, stream: StreamId) -> None:
        """The replica of a stream is not reported any more; if it comes back it is new."""
        self._reported.pop(stream, None)

    def ask(self) -> None:
        """All replicas are to be reported."""
        self._is_asked = True

    def tick(self) -> None:
        """What waits has waited for long enough (R2, R3)."""
        self._is_late = bool(self._waiting)

    def take(self, replicas: Mapping[StreamId, Reporter]) -> list[Report] | None:
        """What is to be reported now of these replicas, maybe nothing; None: no word at all."""
        touched, self._touched = self._touched, {}
        asked = self._is_asked
        news = self._news_of(touched, replicas)
        if not (asked or self.is_owed or self._is_late or any(map(self._is_urgent, news))):
            self._waiting |= {told.report.stream: None for told in news}
            return None
        others = replicas if asked else self._waiting
        news += self._news_of([one for one in others if one not in touched], replicas)
        self._waiting, self._is_asked, self._is_late, self.is_owed = {}, False, False, False
        self._reported |= {told.report.stream: told for told in news}
        return [told.report for told in news]

    def _news_of(
        self, streams: Iterable[StreamId], replicas: Mapping[StreamId, Reporter]
    ) -> list[_Told]:
        """R1."""
        found = [replicas.get(stream) for stream in streams]
        reports = [
            _Told(report, replica.version, replica.ordered_end)
            for replica in found
            if replica is not None and (report := replica.report()) is not None
        ]
        return [told for told in reports if self._is_asked or self._is_news(told)]

    def _is_news(self, told: _Told) -> bool:
        last = self._reported.get(told.report.stream)
        return last is None or told.report != last.report

    def _is_urgent(self, told: _Told) -> bool:
        """R2, R3."""
        last = self._reported.get(told.report.stream)
        if last is None or told.report.term != last.report.term:
            return True
        if told.version - last.version >= REPORT_CUTS_MAX:
            return True
        return last.report.committed_end <= told.ordered_end < told.report.committed_end
