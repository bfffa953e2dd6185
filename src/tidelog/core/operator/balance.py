"""Who leads how much, which leadership should move, and which spare node replaces a dead one.

Invariants:
  B1  the counts are those of the rows in view
  B2  a node is replaced only while the others, leader and attached followers, are a majority of
      the ensemble without it: changes never run ahead of the data
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.operator.detection import Detection
from tidelog.core.operator.plan import is_majority
from tidelog.core.operator.row import Row
from tidelog.core.operator.watching import Watch
from tidelog.types import NO_NODE, NodeId

MOVE_AGAIN_PERIODS: Final = 20
"""A leadership that did not move, since the leader's log is always ahead, is left for so long."""


class Burden:
    """How many streams each node leads, and how many replicas it holds (B1)."""

    __slots__ = ("_leads", "_replicas")

    def __init__(self) -> None:
        self._leads: dict[NodeId, int] = {}
        self._replicas: dict[NodeId, int] = {}

    def add(self, row: Row) -> None:
        """Count a row that came into view."""
        self._count(row, 1)

    def remove(self, row: Row) -> None:
        """Count a row no longer."""
        self._count(row, -1)

    def _count(self, row: Row, step: int) -> None:
        if row.leader != NO_NODE:
            self._leads[row.leader] = self._leads.get(row.leader, 0) + step
        for node in row.involved:
            self._replicas[node] = self._replicas.get(node, 0) + step

    def leads(self, node: NodeId) -> int:
        """Return how many streams a node leads."""
        return self._leads.get(node, 0)

    def replicas(self, node: NodeId) -> int:
        """Return how many replicas a node holds."""
        return self._replicas.get(node, 0)


# -- leaderships ---------------------------------------------------------------------------------


def stream_to_move(
    watches: Iterable[Watch], burden: Burden, detection: Detection, now: int, period: int
) -> Watch | None:
    """Return the stream that an election may give a leader with less to do, if there is one."""
    able = [watch for watch in watches if watch.may_move(now, MOVE_AGAIN_PERIODS * period)]
    gains = [(gain_of_move(watch.row, burden, detection), watch) for watch in able]
    # A difference of one would only be handed back and forth.
    gains = [(gain, watch) for gain, watch in gains if gain > 1]
    if not gains:
        return None
    return max(gains, key=lambda pair: (pair[0], -pair[1].row.stream))[1]


def gain_of_move(row: Row, burden: Burden, detection: Detection) -> int:
    """Return by how many streams the leader leads more than the least busy member."""
    others = [
        burden.leads(node)
        for node in row.ensemble
        if node != row.leader and not detection.is_suspected(node)
    ]
    return burden.leads(row.leader) - min(others) if others else 0


# -- replacements --------------------------------------------------------------------------------


def node_to_replace(watch: Watch, detection: Detection) -> NodeId:
    """Return a member that is lost and that the stream can do without, or none.

    The leader may count on a follower that died: nobody told it so.
    """
    for node in watch.row.ensemble:
        is_lost = node != watch.row.leader and detection.is_lost(node)
        if is_lost and is_safe_without(watch, node, detection):
            return node
    return NO_NODE


def is_safe_without(watch: Watch, node: NodeId, detection: Detection) -> bool:
    """Whether enough of the others have caught up (B2); one replica alone is never replaced."""
    others = tuple(member for member in watch.row.ensemble if member != node)
    present = (*watch.attached, watch.row.leader)
    return is_majority([one for one in present if not detection.is_suspected(one)], others)


def spare_node(row: Row, burden: Burden, detection: Detection) -> NodeId:
    """Return the living node outside the ensemble that holds the fewest replicas, or none."""
    spare = [
        node
        for node in detection.nodes
        if node not in row.involved and not detection.is_suspected(node)
    ]
    return min(spare, key=lambda node: (burden.replicas(node), node)) if spare else NO_NODE
