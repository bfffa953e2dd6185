"""Whether a healed cluster gets on, comes to rest, and then writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidelog.core.operator.plan import Status, decode_plan
from tidelog.core.replica.messages import Role
from tidelog.testing.checkers.idle import check_idle
from tidelog.testing.checkers.liveness import check_liveness
from tidelog.testing.world import MILLISECOND, SECOND
from tidelog.types import StreamId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster

HEALING: Final = 30 * SECOND
"""A healed cluster that has not converged after this has lost its liveness."""
QUIET: Final = 1 * SECOND
"""Within this time after the last append, all that was under way has ended."""


class Convergence:
    """The end of a run."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: LogCluster) -> None:
        self._cluster = cluster

    def wait_for_progress(self, goal: int) -> None:
        """Wait until every stream has ordered something new, and there are so many cuts."""
        cluster = self._cluster
        self._wait_until(
            lambda: (
                cluster.agreement.version >= goal
                and len(cluster.clients.ordered) == len(cluster.streams)
            )
        )

    def wait_for_rest(self) -> None:
        """Wait until everybody knows all that was decided, and until late messages are there."""
        world = self._cluster.world
        self._wait_until(self._is_at_rest)
        # A change that somebody asked for may still be held up on its way.
        world.run_until(max(world.now, self._cluster.network.held_until) + QUIET)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Give the cluster time for something; looked at now and then, for it is costly."""
        world = self._cluster.world
        end = world.now + HEALING
        while world.now < end and not is_so():
            world.run_until(world.now + 20 * MILLISECOND)
        check_liveness(is_so(), "\n".join(self._status()))

    def _is_at_rest(self) -> bool:
        """Whether every metadata node and every replica knows all that was decided."""
        cluster = self._cluster
        version = cluster.agreement.version
        if not all(operator.is_at_rest for operator in cluster.operators.values()):
            return False
        if any(p.repository.machine.order.version != version for p in cluster.metadata.values()):
            return False
        return cluster.clients.is_answered and all(map(self._is_settled, cluster.streams))

    def _is_settled(self, stream: StreamId) -> bool:
        order = self._cluster.agreement.order.stream(stream)
        if decode_plan(order.plan).status is not Status.STEADY:
            return False
        for node in order.ensemble:
            process = self._cluster.storage[node]
            replica, durable = process.replicas.get(stream), process.disk.durable(stream)
            if replica is None or not replica.is_complete or not process.disk.is_clean(stream):
                return False
            if durable.context.llsn_end != order.llsn_end or durable.end != order.llsn_end:
                return False
            if (replica.role is Role.LEADER) != (node == order.leader):
                return False
        return True

    def check_idle(self) -> None:
        """Wait for a time in which operators want nothing, not even a better balance."""
        cluster, world = self._cluster, self._cluster.world
        end, quiet, before = world.now + HEALING, 0, 0
        # What a change led to ends in the first quiet time; in the second one nothing is left.
        while quiet < 2 and world.now < end:
            asked, before = cluster.asked, self._entries_written()
            world.run_until(world.now + QUIET)
            quiet = quiet + 1 if cluster.asked == asked else 0
        check_liveness(quiet == 2, "operators find no rest")
        check_idle(before, self._entries_written())

    def _entries_written(self) -> int:
        return sum(process.writes for process in self._cluster.metadata.values())

    # What a person needs to see why it does not converge.

    def _status(self) -> Iterator[str]:
        cluster = self._cluster
        yield f"version {cluster.agreement.version}, acknowledged since {cluster.clients.ordered}"
        for node, process in sorted(cluster.metadata.items()):
            raft = process.repository.raft
            order = process.repository.machine.order
            yield f"node {node} {raft.role.name} term {raft.term} version {order.version}"
        for stream in cluster.streams:
            row = cluster.agreement.order.streams.get(stream)
            if row is not None:
                yield (
                    f"stream {stream} term {row.term} leader {row.leader} {row.ensemble} end"
                    f" {row.llsn_end} {decode_plan(row.plan)} {row.replicas}"
                )
        yield from self._status_of_replicas()
        for node, operator in sorted(cluster.operators.items()):
            work = [s for s in cluster.streams if operator.operator.is_at_work(s)]
            yield f"operator {node} works on {work}"

    def _status_of_replicas(self) -> Iterator[str]:
        for node, storage in sorted(self._cluster.storage.items()):
            yield f"node {node} version {storage.hosting.version} hosts {storage.hosting.placed}"
            for stream, replica in sorted(storage.replicas.items()):
                yield (
                    f"  {stream} {replica.role.name} term {replica.term} reign {replica.reign}"
                    f" leader {replica.leader} head {replica.head} commit {replica.commit_index}"
                    f" ordered {replica.context} complete {replica.is_complete}"
                    f" behind {replica.is_behind} {dict(replica.cursors)}"
                )
