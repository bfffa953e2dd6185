"""Random walks over nodes and their sessions."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.core.session_nodes.walks import NodeWalk

SEEDS = 200
STEPS = 200


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_walk_ends_with_equal_replicas(seed: int) -> None:
    NodeWalk(seed).go(STEPS)


def test_walks_come_to_the_rare_places() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS, SEEDS + 60):
        walk = NodeWalk(seed)
        walk.go(STEPS)
        for host in walk.cluster.hosts.values():
            seen["superseded"] += host.follower.counters.superseded
            for leader in host.leaders.values():
                seen["lost"] += leader.counters.lost
                seen["turned away"] += leader.counters.not_taken
                seen["heard"] += leader.counters.heard
    assert all(seen[what] for what in ("superseded", "lost", "turned away", "heard")), seen


def test_the_same_seed_is_the_same_walk() -> None:
    first, second = NodeWalk(7), NodeWalk(7)
    first.go(STEPS)
    second.go(STEPS)
    assert first.cluster.sent == second.cluster.sent
    assert first.cluster.disks[1][1].durable == second.cluster.disks[1][1].durable
