"""Networks that lose what is sent: nodes in namespaces of their own, cut off in every way.

A side without a majority acknowledges nothing; the other one goes on; nothing is lost when they
meet again.  Clients reach every node all the time, so they can be misled by any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.cluster.arena import Arena
from tests.cluster.namespaces import Network, is_possible
from tests.cluster.proxies import Proxies
from tests.cluster.ways import Ways
from tidelog.testing import LocalCluster, LocalNode

NODES = 3
SOAK_TURNS = 5


@contextmanager
def in_namespaces(directory: Path) -> Iterator[tuple[LocalCluster, Ways]]:
    """Node *n* lives in namespace *n*."""
    with Network(NODES) as network:
        cluster = LocalCluster(NODES, directory=directory, streams=2, hosts=network.hosts)
        for number, node in enumerate(cluster.nodes):
            node.prefix = network.prefix(number)
        with cluster:
            yield cluster, network


@contextmanager
def behind_proxies(directory: Path) -> Iterator[tuple[LocalCluster, Ways]]:
    """All on this machine's own address, each behind a proxy."""
    cluster = LocalCluster(NODES, directory=directory, streams=2)
    with Proxies(cluster) as proxies, cluster:
        yield cluster, proxies


def isolate_leader(arena: Arena, ways: Ways) -> None:
    """It still believes that it leads, and clients still come to it."""
    leader = arena.leader()
    stream = led_by(arena, leader)
    arena.fault(lambda: ways.isolate(place_of(arena, leader)))
    wait_for_another_leader(arena, stream, leader)
    ways.heal()


def silence_leader(arena: Arena, ways: Ways) -> None:
    """One way: it hears everybody, and nobody hears it."""
    leader = arena.leader()
    stream, place = led_by(arena, leader), place_of(arena, leader)

    def cut() -> None:
        for other in range(ways.count):
            if other != place:
                ways.cut(place, other)

    arena.fault(cut)
    wait_for_another_leader(arena, stream, leader)
    ways.heal()


def deafen_leader(arena: Arena, ways: Ways) -> None:
    """The other way: everybody hears it, and it hears nobody."""
    leader = arena.leader()
    place = place_of(arena, leader)

    def cut() -> None:
        for other in range(ways.count):
            if other != place:
                ways.cut(other, place)

    arena.fault(cut)
    ways.heal()


def cut_one_link(arena: Arena, ways: Ways) -> None:
    """Two nodes that do not hear each other, and a third one that hears both."""
    leader, follower = arena.leader(), arena.follower()
    one, other = place_of(arena, leader), place_of(arena, follower)
    arena.fault(lambda: ways.split([one], [other]))
    ways.heal()


def split_in_pieces(arena: Arena, ways: Ways) -> None:
    """No side has a majority: nothing may be acknowledged until they meet again."""
    arena.load.wait_for_more(100)
    ways.split(*[[number] for number in range(ways.count)])
    arena.load.wait_for_failures(2)
    arena.fault(ways.heal, before=0)


STORIES = (isolate_leader, silence_leader, deafen_leader, cut_one_link, split_in_pieces)


@pytest.mark.slow
def test_a_cluster_lives_through_partitions_of_every_kind(tmp_path: Path) -> None:
    """In namespaces where the machine allows it."""
    play(in_namespaces(tmp_path) if is_possible() else behind_proxies(tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_cluster_behind_proxies_lives_through_partitions_of_every_kind(tmp_path: Path) -> None:
    play(behind_proxies(tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_cluster_lives_through_partitions_again_and_again(tmp_path: Path) -> None:
    play(in_namespaces(tmp_path) if is_possible() else behind_proxies(tmp_path), SOAK_TURNS)


def play(place: AbstractContextManager[tuple[LocalCluster, Ways]], turns: int = 1) -> None:
    with place as (cluster, ways), Arena(cluster) as arena:
        for _ in range(turns):
            for story in STORIES:
                arena.wait_until_whole()
                story(arena, ways)
        arena.check()


def place_of(arena: Arena, node: LocalNode) -> int:
    return arena.cluster.nodes.index(node)


def led_by(arena: Arena, node: LocalNode) -> int:
    return next(stream.stream for stream in arena.status().streams if stream.leader == node.id)


def wait_for_another_leader(arena: Arena, stream: int, old: LocalNode) -> None:
    others = [node for node in arena.cluster.nodes if node is not old]

    def has_moved() -> bool:
        found = arena.status(others[0]).stream(stream)
        return found is not None and found.leader not in (0, old.id)

    arena.wait_until(has_moved, f"another node leads stream {stream}")
