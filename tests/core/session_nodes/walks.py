"""Random walks over nodes and their sessions: all that may happen to them, in any order.

Connections overtake one another and are cut at any moment, one side notices long before the other;
disks hold back; nodes crash.  In the end all heals, and every stream must work.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.core.session_nodes.cluster import Cluster
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.session.node_output import NodeOptions


class NodeWalk:
    """One walk; its seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.cluster = Cluster(
            nodes=draw.choice((2, 3, 3)),
            streams=draw.choice((1, 2, 3, 4)),
            node_options=NodeOptions(
                lanes=draw.choice((1, 2, 3)),
                window=draw.choice((1, 2, 100)),
                underway_bytes_max=draw.choice((500, 2_000, 100_000)),
                underway_max=draw.choice((10, 20, 1_000)),
                commits_max=draw.choice((1, 2, 10)),
                epoch_bytes_max=draw.choice((1, 300, 4_000_000)),
                patience_ticks=8,
                retry_ticks=draw.choice((1, 2)),
            ),
            replica_options=ReplicaOptions(
                message_bytes_max=draw.choice((1, 200)),
                inflight_bytes_max=draw.choice((300, 10_000)),
            ),
        )
        cuts, crashes = draw.choice((0, 0.01, 0.05)), draw.choice((0, 0, 0.005, 0.02))
        self.actions: list[tuple[float, Callable[[], None]]] = [
            (0.7, self.happen),
            (0.1, self.append),
            (0.1, self.sync),
            (0.04, self.tick),
            (cuts, self.cut),
            (crashes, self.crash),
            (0.01, self.start),
            (0.01, self.elect),
        ]

    def go(self, steps: int) -> None:
        """Take so many steps, then heal all and see whether the streams work."""
        weights = [weight for weight, _ in self.actions]
        self.cluster.deliver()
        for stream in self.cluster.streams:
            self.cluster.elect(stream, self.draw.choice(self.cluster.nodes))
        for _, action in self.draw.choices(self.actions, weights, k=steps):
            action()
        self.heal()

    def heal(self) -> None:
        """End all troubles: sessions open and stay so, replicas become equal, appends commit."""
        cluster = self.cluster
        for node in cluster.nodes:
            if node not in cluster.hosts:
                cluster.start(node)
        self._pass_time_until(cluster.is_open)
        lost = cluster.lost_sessions()
        for stream in cluster.streams:
            if not cluster.is_led(stream):
                cluster.elect(stream)
            assert cluster.append(stream) is not None
        self._pass_time_until(lambda: all(map(cluster.has_converged, cluster.streams)))
        assert cluster.lost_sessions() == lost, "a session is lost without trouble"

    def _pass_time_until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(100):
            self.cluster.pass_time(1)
            if is_so():
                return
        raise AssertionError("the streams do not work")

    # -- what happens ------------------------------------------------------------------------

    def happen(self) -> None:
        events = list(self.cluster.events())
        if events:
            self.cluster.happen(self.draw.choice(events))

    def append(self) -> None:
        """Append to some streams; the nodes that lead them end their turns."""
        for stream in self.cluster.streams:
            leader = self.cluster.leader_of(stream)
            if leader is not None and self.draw.random() < 0.7:
                self.cluster.append(stream)
        for node in list(self.cluster.hosts):
            if self.draw.random() < 0.8:
                self.cluster.turn(node)

    def sync(self) -> None:
        waiting = [node for node, host in self.cluster.hosts.items() if host.queue]
        if waiting:
            node = self.draw.choice(waiting)
            host = self.cluster.hosts[node]
            host.sync(self.draw.randint(1, len(host.queue)))
            self.cluster.turn(node)

    def tick(self) -> None:
        for node in list(self.cluster.hosts):
            if self.draw.random() < 0.8:
                self.cluster.tick(node)

    def cut(self) -> None:
        alive = [one for one in self.cluster.connections if not one.is_cut]
        if alive:
            self.draw.choice(alive).cut()

    def crash(self) -> None:
        if self.cluster.hosts:
            node = self.draw.choice(list(self.cluster.hosts))
            queue = self.cluster.hosts[node].queue
            self.cluster.crash(node, self.draw.randint(0, len(queue)))
            if self.draw.random() < 0.7:
                self.cluster.start(node)

    def start(self) -> None:
        down = [node for node in self.cluster.nodes if node not in self.cluster.hosts]
        if down:
            self.cluster.start(self.draw.choice(down))

    def elect(self) -> None:
        """Elect where nobody leads, if a majority lives."""
        cluster = self.cluster
        if 2 * len(cluster.hosts) > len(cluster.nodes):
            for stream in cluster.streams:
                if cluster.leader_of(stream) is None:
                    cluster.elect(stream)
