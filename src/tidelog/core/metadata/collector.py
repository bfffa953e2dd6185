"""The reports that a metadata node has collected, until they are in the Raft log.

Input: reports of assigned storage nodes, and what is applied from the Raft log.  Output: the
reports to put into the next batch.

Invariants:
  C1  of each replica only the newest report is kept
  C2  a report that lets something be ordered is offered until the log has it; a lost message or a
      lost leader costs a delay, never a report
  C3  a report that only tells of a newer version makes no batch of its own while its replica has
      nothing left to order: an idle cluster writes nothing.  It rides along with the next one, so
      that history can be trimmed.  With something left it may be what a cut waits for
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tidelog.core.order.commands import Report
from tidelog.types import NodeId, StreamId

Replica: TypeAlias = tuple[NodeId, StreamId]


class Collector:
    """The newest report of each replica of the assigned storage nodes."""

    __slots__ = ("_newest", "_riders", "_shared", "_waiting")

    def __init__(self) -> None:
        self._newest: dict[Replica, Report] = {}
        # Dicts as ordered sets: the order of a set is not the same in every process.
        self._waiting: dict[Replica, None] = {}
        self._shared: dict[Replica, None] = {}
        self._riders: dict[Replica, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there is a report that is worth a batch."""
        return bool(self._waiting)

    def waiting(self) -> Iterator[Report]:
        """Those that are."""
        return (self._newest[replica] for replica in self._waiting)

    def collect(self, report: Report) -> None:
        """Take a report of a replica."""
        replica = (report.node, report.stream)
        known = self._newest.get(replica)
        if known is not None and not _is_newer(report, known):
            return
        self._newest[replica] = report
        if _matters(report, known):
            self._riders.pop(replica, None)
            self._shared.pop(replica, None)
            self._waiting[replica] = None
        elif replica not in self._waiting and replica not in self._shared:
            self._riders[replica] = None

    def take(self, limit: int) -> tuple[Report, ...]:
        """Hand over at most ``limit`` reports for the next batch; none if none is worth one."""
        if not self._waiting:
            return ()
        taken: list[Replica] = []
        for replicas in (self._waiting, self._riders):
            for replica in list(replicas)[: limit - len(taken)]:
                del replicas[replica]
                taken.append(replica)
        for replica in taken:
            self._shared[replica] = None
        return tuple(self._newest[replica] for replica in taken)

    def applied(self, report: Report) -> None:
        """Note that the Raft log has this report; a newer one is left if it says more."""
        replica = (report.node, report.stream)
        # It may be offered again by now: a slow disk takes longer than our patience (C3).
        if replica not in self._shared and replica not in self._waiting:
            return
        newest = self._newest[replica]
        if newest != report and _matters(newest, report):
            return
        self._shared.pop(replica, None)
        self._waiting.pop(replica, None)
        if newest != report:
            self._riders[replica] = None

    def offer_again(self) -> None:
        """Offer once more what was handed over and never came out of the log (C2)."""
        self._waiting.update(self._shared)
        self._shared.clear()

    def streams_changed(self, streams: frozenset[StreamId]) -> None:
        """Offer the reports of these streams again: what was void before may count now."""
        for replica in self._newest:
            if replica[1] in streams:
                self._riders.pop(replica, None)
                self._waiting[replica] = None

    def forget(self, node: NodeId) -> None:
        """Drop what came from a storage node that another one collects from now."""
        for replica in [replica for replica in self._newest if replica[0] == node]:
            del self._newest[replica]
            for replicas in (self._waiting, self._shared, self._riders):
                replicas.pop(replica, None)


def _is_newer(report: Report, known: Report) -> bool:
    """Tell a report from one that was overtaken on its way; a replica's facts only grow."""
    if report.term != known.term:
        return report.term > known.term
    return (
        report != known
        and report.version >= known.version
        and report.llsn_end >= known.llsn_end
        and report.committed_end >= known.committed_end
    )


def _matters(report: Report, known: Report | None) -> bool:
    """Whether a report may let a cut order more (C3)."""
    if report.length == 0:
        return False
    if known is None or report.term != known.term:
        return True
    return (
        report.llsn_end > known.llsn_end
        or report.version > known.version
        or report.committed_end > known.committed_end
    )
