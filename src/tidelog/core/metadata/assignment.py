"""Which metadata node collects from which storage node.  No state.

While there are few storage nodes the leader collects from all of them: what it is told need not be
passed on, and its cuts reach them without a detour.  Of many, every metadata node takes its share.

Invariants of a plan for many:
  A0  a process that is both collects from itself: no network can come between
  A1  any other storage node stays where it is unless its collector is gone or has more than its
      share
  A2  the shares of any two collectors differ by at most one, as far as A0 allows it
  A3  the same input gives the same plan, whatever order the mappings are in
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.core.metadata.commands import Assign
from tidelog.types import NodeId


def gather_at(leader: NodeId, current: Mapping[NodeId, NodeId]) -> tuple[Assign, ...]:
    """Return the moves after which the leader collects from all storage nodes."""
    return tuple(Assign(node, leader) for node in sorted(current) if current[node] != leader)


def spread_over(
    collectors: Collection[NodeId], current: Mapping[NodeId, NodeId]
) -> tuple[Assign, ...]:
    """Return the moves that give every storage node a living collector, evenly.

    ``current``: the collector of each storage node, as assigned; ``collectors``: who lives.
    """
    if not collectors:
        return ()
    at_home = dict.fromkeys(sorted(collectors), 0)
    kept: dict[NodeId, list[NodeId]] = {collector: [] for collector in at_home}
    homeless: list[NodeId] = []
    moves: list[Assign] = []
    for node in sorted(current):
        if node not in at_home:
            kept.get(current[node], homeless).append(node)
            continue
        at_home[node] = 1
        if current[node] != node:
            moves.append(Assign(node, node))

    def load(collector: NodeId) -> int:
        return at_home[collector] + len(kept[collector])

    # The ones that have most keep one more than the others: fewest moves.
    share, larger = divmod(len(current), len(kept))
    for collector in sorted(kept, key=lambda collector: (-load(collector), collector)):
        allowed = max(share + (larger > 0) - at_home[collector], 0)
        larger -= larger > 0
        homeless.extend(kept[collector][allowed:])
        del kept[collector][allowed:]
    for node in sorted(homeless):
        collector = min(kept, key=lambda collector: (load(collector), collector))
        kept[collector].append(node)
        moves.append(Assign(node, collector))
    return tuple(moves)
