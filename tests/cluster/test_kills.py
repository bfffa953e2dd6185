"""SIGKILL and SIGSTOP of every part of a cluster under load; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.arena import FAULT_SECONDS, Arena
from tidelog.testing import LocalCluster, LocalNode

PAUSE_APPENDS = 100
"""Acknowledged by the others while a node is stopped: it was long enough to be noticed."""


def kill_leader(arena: Arena) -> None:
    leader = arena.leader()
    arena.fault(leader.kill)
    arena.restart(leader)


def kill_follower(arena: Arena) -> None:
    follower = arena.follower()
    arena.fault(follower.kill)
    arena.restart(follower)


def kill_metadata_leader(arena: Arena) -> None:
    leader = arena.metadata_leader()
    arena.fault(leader.kill)
    arena.restart(leader)


def kill_all(arena: Arena) -> None:
    """A majority is gone at once, and nothing is acknowledged until it is back."""

    def at_once() -> None:
        for node in arena.cluster.nodes:
            node.kill()
        arena.restart()

    arena.fault(at_once, seconds=2 * FAULT_SECONDS)


def stop_leader(arena: Arena) -> None:
    """SIGSTOP until another one leads; what it has under way when it goes on counts no more."""
    leader = arena.leader()
    stream = next(s.stream for s in arena.status().streams if s.leader == leader.id)
    arena.fault(leader.pause)
    arena.wait_for_status(
        lambda status: bool((s := status.stream(stream)) and s.leader not in (0, leader.id)),
        "another node leads",
    )
    arena.load.wait_for_more(PAUSE_APPENDS)
    leader.resume()


def restart_in_turn(arena: Arena) -> None:
    """One node after the other is stopped in order and started again, as for an upgrade."""
    for node in arena.storing:
        arena.wait_until_whole()
        arena.fault(node.stop)
        arena.restart(node)


KINDS: dict[str, Callable[[Arena], None]] = {
    "leader": kill_leader,
    "follower": kill_follower,
    "metadata leader": kill_metadata_leader,
    "all": kill_all,
    "stopped leader": stop_leader,
}


@pytest.mark.slow
def test_a_cluster_lives_through_kills_and_pauses_of_every_kind(tmp_path: Path) -> None:
    with LocalCluster(3, directory=tmp_path, streams=2) as cluster, Arena(cluster) as arena:
        for happens in KINDS.values():
            arena.wait_until_whole()
            happens(arena)
        arena.check()


APART = ("storage,metadata",) * 3 + ("operator",) * 2
"""Operators in processes of their own, so that they can be killed alone."""


def kill_operators(arena: Arena) -> None:
    """Nobody misses them while nothing breaks."""
    for node in operators(arena):
        arena.fault(node.kill)
    arena.restart()


def kill_leader_and_operators(arena: Arena) -> None:
    """Nobody is elected until an operator is back; then it acts on what it finds."""
    stream = arena.streams()[0]
    leader = arena.leader(stream)
    for node in operators(arena):
        node.kill()
    leader.kill()
    arena.fault(operators(arena)[0].start, before=0)
    arena.restart()


def operators(arena: Arena) -> list[LocalNode]:
    return [node for node in arena.cluster.nodes if node.roles == "operator"]


@pytest.mark.slow
def test_a_cluster_lives_without_operators_until_something_breaks(tmp_path: Path) -> None:
    with (
        LocalCluster(5, directory=tmp_path, streams=1, roles=APART) as cluster,
        Arena(cluster) as arena,
    ):
        for happens in (kill_operators, kill_leader_and_operators):
            arena.wait_until_whole()
            happens(arena)
        arena.check()
