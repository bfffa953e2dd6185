"""Ensembles change under load while the nodes that take part are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

import tidelog
from tests.cluster.arena import HEAL_SECONDS, Arena
from tests.cluster.load import RECONNECT
from tidelog.client.blocking_admin import Admin
from tidelog.client.procedures import Step
from tidelog.errors import LogError
from tidelog.testing import LocalCluster, LocalNode

SOAK_TURNS = 5

Procedure = Callable[[Admin], Iterator[Step]]


def follow(arena: Arena, procedure: Procedure) -> None:
    """Ask for a change, and again when whoever was asked dies, until it is done."""
    trouble: list[LogError] = []
    deadline = monotonic() + HEAL_SECONDS
    while monotonic() < deadline:
        try:
            with tidelog.connect(arena.cluster.url, timeout=5.0, reconnect=RECONNECT) as log:
                for _ in procedure(log.admin):
                    pass
            return
        except LogError as error:
            trouble.append(error)
    raise AssertionError(f"the change does not come to its end: {trouble[-3:]}")


def change(arena: Arena, procedure: Procedure, victim: LocalNode) -> None:
    """Kill a node while the change is under way; then both come to an end."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow, arena, procedure)
        arena.fault(victim.kill)
        arena.restart(victim)
        following.result(2 * HEAL_SECONDS)


def swap_while_the_leader_is_killed(arena: Arena, stream: int) -> None:
    old, new = follower_in(arena, stream), spare(arena, stream)

    def swap(admin: Admin) -> Iterator[Step]:
        yield from led_by_another(admin, stream, old)
        yield from admin.swap(stream, old.id, new.id)

    change(arena, swap, arena.leader(stream))
    assert_ensemble(arena, stream, without=old, having=new)


def expand_while_the_new_node_is_killed(arena: Arena, stream: int) -> None:
    new = spare(arena, stream)
    change(arena, lambda admin: admin.expand(stream, new.id), new)
    assert_ensemble(arena, stream, having=new)


def contract_while_the_metadata_leader_is_killed(arena: Arena, stream: int) -> None:
    old = follower_in(arena, stream)

    def contract(admin: Admin) -> Iterator[Step]:
        yield from led_by_another(admin, stream, old)
        yield from admin.contract(stream, old.id)

    change(arena, contract, arena.metadata_leader())
    assert_ensemble(arena, stream, without=old)


def led_by_another(admin: Admin, stream: int, old: LocalNode) -> Iterator[Step]:
    """A leader is not removed, and the kill may have made it one."""
    found = admin.status().stream(stream)
    if found is not None and found.leader == old.id:
        yield from admin.move_leader(stream)


def spare(arena: Arena, stream: int) -> LocalNode:
    """A node that has no replica of the stream."""
    found = arena.status().stream(stream)
    assert found is not None
    return next(node for node in arena.cluster.nodes if node.id not in found.ensemble)


def follower_in(arena: Arena, stream: int) -> LocalNode:
    found = arena.status().stream(stream)
    assert found is not None
    numbers = [number for number in found.ensemble if number != found.leader]
    return arena.node_of(arena.random.choice(numbers))


def assert_ensemble(
    arena: Arena, stream: int, *, without: LocalNode | None = None, having: LocalNode | None = None
) -> None:
    found = arena.status().stream(stream)
    assert found is not None
    assert without is None or without.id not in found.ensemble
    assert having is None or having.id in found.ensemble


STORIES = (
    swap_while_the_leader_is_killed,
    expand_while_the_new_node_is_killed,
    contract_while_the_metadata_leader_is_killed,
)


@pytest.mark.slow
def test_ensembles_change_while_the_nodes_that_take_part_are_killed(tmp_path: Path) -> None:
    play(tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ensembles_change_again_and_again_while_nodes_are_killed(tmp_path: Path) -> None:
    play(tmp_path, SOAK_TURNS)


def play(directory: Path, turns: int = 1) -> None:
    with (
        LocalCluster(4, directory=directory, streams=1, replicas=3) as cluster,
        Arena(cluster) as arena,
    ):
        arena.load.wait_for_more(500)
        [stream] = arena.streams()
        for _ in range(turns):
            for story in STORIES:
                arena.wait_until_whole()
                story(arena, stream)
        arena.check()
