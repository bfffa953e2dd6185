"""What is asked of operators at bad times, and which storage node may be destroyed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.operator.plan import Ensemble, Phase, changed_ensemble, decode_plan
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import Role
from tidelog.testing.faults import Fault, FaultClass
from tidelog.testing.operator_process import OperatorProcess
from tidelog.testing.storage_process import StorageProcess
from tidelog.testing.world import MILLISECOND, State
from tidelog.types import NodeId, StreamId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster

INTERRUPTION_MAX: Final = 150 * MILLISECOND
"""Within this time after a reconfiguration was asked for, somebody may ask for an election."""
ISOLATION: Final = 150 * MILLISECOND
"""Within this time another leader is elected, as a rule."""
TRAPS: Final = 3
"""So many leaders with strayed entries make truncations take more than one round."""


class StreamFaults:
    """The faults of one seed that are about streams."""

    __slots__ = ("_at_commit", "_cluster", "_traps")

    def __init__(self, cluster: LogCluster) -> None:
        self._cluster = cluster
        self._at_commit: dict[StreamId, int] = {}
        """How long after the next reconfiguration comes to *commit* somebody wants an election."""
        self._traps: dict[StreamId, int] = {}
        """How many of the next leaders of a stream are cut off as soon as they lead."""

    def ask_operator(self, fault: Fault) -> None:
        """Let somebody ask an operator for an election, or for another ensemble."""
        cluster = self._cluster
        running = [process for process in cluster.operators.values() if process.is_up]
        if not running:
            return
        streams = list(cluster.streams)
        stream = streams[fault.target % len(streams)]
        operator = running[fault.target // 8 % len(running)]
        if fault.what is FaultClass.TERM:
            if fault.strength % 4 == 1:
                self._cut_off_leader(stream, ISOLATION + fault.duration)
            elif fault.strength % 4 > 1:
                self._traps[stream] = TRAPS
            cluster.world.let(operator, partial(operator.elect, stream))
        else:
            cluster.world.let(operator, partial(operator.change, stream, fault.strength))
            self._interrupt(fault, operator, stream)

    def _interrupt(self, fault: Fault, operator: OperatorProcess, stream: StreamId) -> None:
        """Let somebody want an election, or the reconfiguration undone, in the middle of it."""
        world = self._cluster.world
        match fault.strength // 5 % 4:
            case 0:
                world.plan(fault.duration % INTERRUPTION_MAX, partial(self._elect, stream))
            case 1:
                abort = partial(world.let, operator, partial(operator.abort, stream))
                world.plan(fault.duration % INTERRUPTION_MAX, abort)
            case 2:
                self._at_commit[stream] = fault.duration % (5 * MILLISECOND)
            case _:
                pass

    def on_row(self, order: StreamOrder) -> None:
        """Begin an election when a reconfiguration has come to its second phase, if so planned."""
        change = decode_plan(order.plan).change
        if change is None or change.phase is not Phase.COMMIT:
            return
        delay = self._at_commit.pop(order.stream, None)
        if delay is not None:
            self._cluster.world.plan(delay, partial(self._elect, order.stream))

    def _elect(self, stream: StreamId) -> None:
        for operator in self._cluster.operators.values():
            if operator.is_up:
                self._cluster.world.let(operator, partial(operator.elect, stream))

    # Entries that only one replica has.

    def on_new_leader(self, process: StorageProcess, stream: StreamId) -> None:
        """Cut off who has just been elected, if there is a trap for it."""
        if self._traps.get(stream):
            self._traps[stream] -= 1
            self._cluster.world.plan(0, partial(self._spring_trap, process, stream))

    def _spring_trap(self, process: StorageProcess, stream: StreamId) -> None:
        """Let entries stray, and elect again when the leader before this one is back."""
        if not self._cluster.is_healed:
            self._let_entries_stray(process, stream, ISOLATION)
            self._cluster.world.plan(ISOLATION + ISOLATION // 4, partial(self._elect, stream))

    def _cut_off_leader(self, stream: StreamId, duration: int) -> None:
        for process in self._cluster.storage.values():
            replica = process.replicas.get(stream)
            if replica is not None and replica.role is Role.LEADER:
                self._let_entries_stray(process, stream, duration)

    def _let_entries_stray(self, process: StorageProcess, stream: StreamId, duration: int) -> None:
        """Cut a leader off, and let it take appends: who is elected will have others instead."""
        cluster = self._cluster
        cluster.isolate(process.node, duration)
        cluster.world.let(process, partial(cluster.clients.append_to, process, stream))

    # Lost disks.

    def find_victim(self, draw: int) -> StorageProcess | None:
        """Return a storage node that all streams can do without, if chance finds one."""
        cluster = self._cluster
        nodes = [node for node, process in cluster.storage.items() if process.is_up]
        if not nodes:
            return None
        victim = nodes[draw % len(nodes)]
        can_lose = all(self._can_lose(stream, victim) for stream in cluster.streams)
        return cluster.storage[victim] if can_lose else None

    def lost_members(self) -> int:
        """Return how many members at most an ensemble has lost for good."""
        streams = self._cluster.agreement.order.streams.values()
        return max((sum(map(self._is_gone, order.ensemble)) for order in streams), default=0)

    def _is_gone(self, node: NodeId) -> bool:
        return self._cluster.storage[node].state is State.GONE

    def _can_lose(self, stream: StreamId, node: NodeId) -> bool:
        """Whether a minority of all who count for a stream is lost, with one more.

        During a change that goes for the ensemble before it and for that after it.
        """
        order = self._cluster.agreement.order.streams.get(stream)
        if order is None:
            return False
        ensemble, change = order.ensemble, decode_plan(order.plan).change
        if change is None:
            return self._may_lack(ensemble, stream, node)
        after = changed_ensemble(ensemble, change)
        return all(self._may_lack(one, stream, node) for one in (ensemble, after))

    def _may_lack(self, ensemble: Ensemble, stream: StreamId, node: NodeId) -> bool:
        lost = [one for one in ensemble if one == node or not self._is_filled(one, stream)]
        return node not in ensemble or 2 * len(lost) < len(ensemble)

    def _is_filled(self, node: NodeId, stream: StreamId) -> bool:
        hard_state = self._cluster.storage[node].disk.durable(stream).hard_state
        is_complete = hard_state is not None and hard_state.is_complete
        return is_complete and not self._is_gone(node)
