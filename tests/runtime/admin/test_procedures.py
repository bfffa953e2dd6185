"""What takes long is followed to its end, goes on when asked for again, and does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tidelog.client.procedures import Kind, Step, change_ensemble, drain, move_leader
from tidelog.errors import Busy, WrongState
from tidelog.interface.cluster_figures import (
    ClusterChange,
    ClusterMetadata,
    ClusterNode,
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    NodeFacts,
    ReplicaFacts,
)


def node(number: int, *, answers: bool = True, replicas: int = 0) -> ClusterNode:
    facts = NodeFacts(number, ("storage",), "1.0", 0, 1.0) if answers else None
    return ClusterNode(number, ("storage",), "tcp://p:1", "tcp://c:1", facts, replicas=replicas)


def stream(number: int, leader: int, *nodes: int) -> ClusterStream:
    replicas = tuple(ClusterReplica(one, None, None) for one in nodes)
    return ClusterStream(number, "t", 1, 1, "running", "steady", leader, 1, 1, replicas)


class Cluster:
    """A cluster in which a change takes two looks, and elections end as ``winners`` say."""

    def __init__(self, nodes: list[ClusterNode], streams: list[ClusterStream]) -> None:
        self.nodes = nodes
        self.streams = {one.stream: one for one in streams}
        self.calls: list[tuple[object, ...]] = []
        self.winners: list[int] = []
        self.undo: list[bool] = []
        """Whether the next changes are undone by an election."""
        self._later: list[Callable[[], None]] = []

    async def status(self) -> ClusterStatus:
        metadata = ClusterMetadata((1,), (), 1, 1, 1, 1, (1,))
        if self._later:
            self._later.pop(0)()
        streams = tuple(self.streams.values())
        return ClusterStatus("id", 1, metadata, tuple(self.nodes), (), streams, False)

    async def move_leader(self, stream: int, target: int = 0) -> None:
        self.calls.append(("move", stream, target))
        found = self.streams[stream]
        others = [one for one in found.ensemble if one != found.leader]
        winner = self.winners.pop(0) if self.winners else target or others[0]
        self.streams[stream] = replace(found, leader=winner, term=found.term + 1)

    async def change_ensemble(self, stream: int, kind: Kind, *, old: int = 0, new: int = 0) -> None:
        self.calls.append((kind, stream, old, new))
        found = self.streams[stream]
        assert found.leader != old, "the leader is not removed"
        assert found.plan == "steady", "something else is under way"
        change = ClusterChange(kind, "prepare", old, new, 5, 10)
        self.streams[stream] = replace(found, plan="reconfiguration", change=change)
        undone = self.undo.pop(0) if self.undo else False
        members = [one for one in found.ensemble if one != old] + ([new] if new else [])
        after = found if undone else stream_like(found, members)
        self._later = [lambda: None, lambda: self.streams.update({stream: after})]


def stream_like(found: ClusterStream, members: list[int]) -> ClusterStream:
    return replace(found, replicas=tuple(ClusterReplica(one, None, None) for one in members))


def steps_of(steps: AsyncIterator[Step]) -> list[Step]:
    async def run() -> list[Step]:
        return [step async for step in steps]

    return asyncio.run(run())


def test_a_swap_is_followed_with_what_was_copied() -> None:
    cluster = Cluster([node(n) for n in (1, 2, 3, 4)], [stream(1, 1, 1, 2, 3)])

    steps = steps_of(change_ensemble(cluster, 1, "swap", old=3, new=4, look=0))

    assert cluster.streams[1].ensemble == (1, 2, 4)
    assert Step(1, "swap: prepare", 5, 10) in steps
    assert "done" in steps[-1].text


def test_a_change_that_an_election_undid_is_asked_for_again() -> None:
    cluster = Cluster([node(n) for n in (1, 2, 3, 4)], [stream(1, 1, 1, 2, 3)])
    cluster.undo = [True, True]

    steps_of(change_ensemble(cluster, 1, "expand", new=4, look=0))

    assert cluster.calls == [("expand", 1, 0, 4)] * 3
    assert cluster.streams[1].ensemble == (1, 2, 3, 4)


def test_a_change_that_is_undone_for_ever_is_given_up() -> None:
    cluster = Cluster([node(n) for n in (1, 2, 3, 4)], [stream(1, 1, 1, 2, 3)])
    cluster.undo = [True] * 100

    with pytest.raises(WrongState, match="undone"):
        steps_of(change_ensemble(cluster, 1, "expand", new=4, look=0))


def test_elections_go_on_until_the_wanted_node_leads() -> None:
    cluster = Cluster([node(n) for n in (1, 2, 3)], [stream(1, 1, 1, 2, 3)])
    cluster.winners = [1, 2, 1, 3]

    steps = steps_of(move_leader(cluster, 1, target=3, look=0))

    assert cluster.streams[1].leader == 3
    assert "node 3 leads" in steps[-1].text


def test_a_leader_whose_log_is_always_ahead_is_told() -> None:
    cluster = Cluster([node(n) for n in (1, 2, 3)], [stream(1, 1, 1, 2, 3)])
    cluster.winners = [1] * 100

    with pytest.raises(Busy, match="still led by node 1"):
        steps_of(move_leader(cluster, 1, target=3, look=0))


def test_a_node_is_drained_of_leaderships_first_and_then_of_replicas() -> None:
    nodes = [node(1), node(2), node(3), node(4, replicas=5), node(5)]
    cluster = Cluster(nodes, [stream(1, 3, 1, 2, 3), stream(2, 1, 1, 2, 3), stream(3, 1, 1, 2)])

    steps_of(drain(cluster, 3, look=0))

    assert all(3 not in one.ensemble for one in cluster.streams.values())
    assert cluster.calls[0][0] == "move"
    assert cluster.calls[1:] == [("swap", 1, 3, 5), ("swap", 2, 3, 5)]


def test_a_stream_that_stands_still_keeps_no_other_one_on_the_node_that_is_drained() -> None:
    """Its only other replica is alone for ever, if the disk of the node is lost."""
    stuck = replace(stream(1, 0, 1, 3), plan="election")
    facts = ReplicaFacts(2, "follower", 1, 1, 1, 1)
    whole = replace(
        stream(2, 1, 1, 2, 3),
        replicas=tuple(ClusterReplica(n, None if n == 3 else facts, None) for n in (1, 2, 3)),
    )
    nodes = [node(1), node(2), node(3, answers=False), node(4)]
    cluster = Cluster(nodes, [stuck, whole])

    async def until_it_waits() -> None:
        async for step in drain(cluster, 3, look=0):
            if step.stream == stuck.stream:
                return

    asyncio.run(until_it_waits())

    assert cluster.calls == [("swap", 2, 3, 4)]


def test_draining_goes_on_with_a_change_that_another_command_began() -> None:
    begun = replace(
        stream(1, 1, 1, 2, 3),
        plan="reconfiguration",
        change=ClusterChange("swap", "commit", 3, 4),
    )
    cluster = Cluster([node(n) for n in (1, 2, 3, 4)], [begun])
    cluster._later = [
        lambda: None,
        lambda: cluster.streams.update({1: stream(1, 1, 1, 2, 4)}),
    ]

    steps_of(drain(cluster, 3, look=0))

    assert cluster.calls == []
    assert cluster.streams[1].ensemble == (1, 2, 4)


def test_without_a_spare_node_nothing_is_taken_unless_one_may_contract() -> None:
    def cluster() -> Cluster:
        return Cluster([node(1), node(2), node(3), node(4, answers=False)], [stream(1, 1, 1, 2, 3)])

    with pytest.raises(WrongState, match="add a node, or contract"):
        steps_of(drain(cluster(), 3, look=0))
    shrunk = cluster()
    steps_of(drain(shrunk, 3, contract=True, look=0))
    assert shrunk.calls == [("contract", 1, 3, 0)]


def test_the_only_replica_is_copied_before_its_node_is_left() -> None:
    cluster = Cluster([node(1), node(2)], [stream(1, 1, 1)])

    steps_of(drain(cluster, 1, look=0))

    assert [call[0] for call in cluster.calls] == ["expand", "move", "contract"]
    assert cluster.streams[1].ensemble == (2,)


def test_the_only_replica_never_goes_without_another() -> None:
    cluster = Cluster([node(1)], [stream(1, 1, 1)])

    with pytest.raises(WrongState, match="add a node"):
        steps_of(drain(cluster, 1, contract=True, look=0))
    assert cluster.calls == []
