"""Which storage nodes were heard lately.

Invariants:
  F1  nobody is suspected before it could have been heard: time counts from the start of the
      operator, or from when the node was registered
  F2  only registered nodes are known, so what is kept is bounded
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.core.operator.options import OperatorOptions
from tidelog.types import NodeId


class Detection:
    """Ticks since each storage node was heard."""

    __slots__ = ("_heard_at", "_options", "_ticks")

    def __init__(self, options: OperatorOptions) -> None:
        self._options = options
        self._ticks = 0
        self._heard_at: dict[NodeId, int] = {}

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The registered storage nodes."""
        return tuple(self._heard_at)

    def tick(self) -> tuple[NodeId, ...]:
        """Let one unit of time pass; return the nodes that are suspected from now on."""
        self._ticks += 1
        limit = self._options.suspect_ticks
        return tuple(node for node in self._heard_at if self.silent_ticks(node) == limit)

    def register(self, nodes: Iterable[NodeId]) -> None:
        """Know exactly these nodes; one that is new has all its time yet (F1)."""
        self._heard_at = {node: self._heard_at.get(node, self._ticks) for node in sorted(nodes)}

    def heard(self, node: NodeId) -> bool:
        """Note a sign of life; False if the node is not registered (F2)."""
        if node not in self._heard_at:
            return False
        self._heard_at[node] = self._ticks
        return True

    def silent_ticks(self, node: NodeId) -> int:
        """Return for how long a node was not heard; a node that is not registered never was."""
        return self._ticks - self._heard_at.get(node, 0)

    def is_suspected(self, node: NodeId) -> bool:
        """Whether the node is taken for dead."""
        return self.silent_ticks(node) >= self._options.suspect_ticks

    def is_lost(self, node: NodeId) -> bool:
        """Whether the node is dead for so long that another one should take its place."""
        return self.silent_ticks(node) >= self._options.replace_ticks
