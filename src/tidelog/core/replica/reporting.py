"""When what is reported of the replicas of a node.

Input: streams with which something was done, questions, ticks.  Output: reports.

Invariants:
  R1  what was reported is not reported again unless it was asked for
  R2  a report that only tells that cuts are known waits for one that has something to order, and at
      most for a tick; a replica's first report, and its first in a term, does not wait
  R3  a replica that has something reported to order waits with more until it knows the next cut, at
      most for a tick: cuts follow one another anyway, and one report for each is enough
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tidelog.core.order.commands import Report
from tidelog.types import StreamId


class Reporter(Protocol):
    """What is asked of a replica."""

    def report(self) -> Report | None:
        """Return what it has to order; None while it is silent."""
        ...


class Reporting:
    """What the metadata repository was told, and what it is to be told next."""

    __slots__ = ("_is_asked", "_is_late", "_reported", "_touched", "_waiting", "is_owed")

    def __init__(self) -> None:
        self._touched: dict[StreamId, None] = {}
        self._reported: dict[StreamId, Report] = {}
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
            self._waiting |= {report.stream: None for report in news}
            return None
        others = replicas if asked else self._waiting
        news += self._news_of([one for one in others if one not in touched], replicas)
        self._waiting, self._is_asked, self._is_late, self.is_owed = {}, False, False, False
        self._reported |= {report.stream: report for report in news}
        return news

    def _news_of(
        self, streams: Iterable[StreamId], replicas: Mapping[StreamId, Reporter]
    ) -> list[Report]:
        """R1."""
        found = [replicas.get(stream) for stream in streams]
        reports = [replica.report() for replica in found if replica is not None]
        return [
            report
            for report in reports
            if report is not None
            and (self._is_asked or report != self._reported.get(report.stream))
        ]

    def _is_urgent(self, report: Report) -> bool:
        last = self._reported.get(report.stream)
        if last is None or report.term != last.term:
            return True
        is_answered = last.length == 0 or report.version > last.version
        return report.length > 0 and is_answered
