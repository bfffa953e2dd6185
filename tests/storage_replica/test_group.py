"""Real replicas over real disks: what was acknowledged survives crashes, elections, compaction."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage_replica.group import NODES, Group
from tests.storage_replica.twin import STREAM
from tidelog.formats.entry import Kind
from tidelog.types import Llsn, NodeId


def values_of(group: Group, node: NodeId) -> dict[int, tuple[int, Kind, bytes, bytes]]:
    """LLSN → (term, kind, key, value) of what a node stores."""
    store = group.hosts[node].disk.node.streams[STREAM]
    found: dict[int, tuple[int, Kind, bytes, bytes]] = {}
    for piece in store.read(store.trim_llsn_end, store.ordered_end):
        entries = piece.batch.entries(piece.begin, piece.end)
        for llsn, entry in zip(piece.llsns(), entries, strict=True):
            found[llsn] = (piece.batch.term, entry.kind, entry.key, entry.value)
    return found


def check_acknowledged(group: Group) -> None:
    """Each node has all that was acknowledged, but what a later write of its key replaced."""
    for node in NODES:
        found = values_of(group, node)
        index = group.hosts[node].disk.node.streams[STREAM].snapshot.index
        keys = {key: llsn for llsn, (_, kind, key, _) in found.items() if kind is Kind.PUT}
        for llsn, value in group.acknowledged.items():
            if llsn in found:
                assert found[llsn][3] == value, f"node {node} has something else at {llsn}"
            else:
                assert llsn <= index, f"node {node} lost LLSN {llsn}"
                assert any(later > llsn for later in keys.values())


def check_equal(group: Group) -> None:
    stores = [group.hosts[node].disk.node.streams[STREAM] for node in NODES]
    begin = max(max(store.snapshot.index + 1, store.trim_llsn_end) for store in stores)
    end = min(store.ordered_end for store in stores)
    digests = {
        group.hosts[node].disk.digest(STREAM, Llsn(min(begin, end)), Llsn(end)) for node in NODES
    }
    assert len(digests) == 1, "replicas differ"


def start(seed: int) -> Group:
    group = Group(Random(seed))
    assert group.elect(first=True)
    group.settle(5)
    return group


def test_a_pair_that_loses_its_leader_keeps_what_was_acknowledged() -> None:
    group = start(1)
    for _ in range(20):
        group.append()
    group.settle(10)
    group.cut()
    group.settle(10)
    group.cut()
    assert len(group.acknowledged) == 20
    leader = group.leader
    assert leader is not None
    group.crash(leader.node)
    group.heal()
    check_acknowledged(group)
    check_equal(group)


def test_a_replica_that_gave_its_log_up_is_filled_from_segments() -> None:
    group = start(2)
    for _ in range(8):
        for _ in range(5):
            group.append()
        group.settle(6)
        group.cut()
        group.settle(6)
        for host in group.hosts.values():
            host.flush()
    for host in group.hosts.values():
        host.compact()
    lost = next(node for node in NODES if group.hosts[node] is not group.leader)
    group.lose_disk(lost)
    group.heal()
    check_acknowledged(group)
    check_equal(group)
    assert group.hosts[lost].replica.is_complete
    group.crash(lost)
    group.heal()
    check_acknowledged(group)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32))
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int) -> None:
    play(seed, 60)


@pytest.mark.soak
def test_nothing_acknowledged_is_lost_over_many_lives() -> None:
    for seed in range(300):
        play(seed, 150)


def play(seed: int, steps: int) -> Group:
    group = start(seed)
    chance = group.chance
    given_up = 0
    for _ in range(steps):
        node = chance.choice(NODES)
        host = group.hosts[node]
        match chance.choices(range(10), [20, 12, 12, 8, 6, 3, 2, 3, 3, 1])[0]:
            case 0:
                group.append()
            case 1:
                host.sync()
            case 2:
                group.deliver(loss=chance.choice([0.0, 0.0, 0.3]))
            case 3:
                group.cut()
            case 4:
                for each in group.hosts.values():
                    each.replica.tick()
                    each.settle()
            case 5:
                group.crash(node)
            case 6:
                group.elect()
            case 7:
                host.flush()
            case 8:
                host.compact()
            case 9 if not given_up:
                group.heal()
                group.lose_disk(node)
                given_up += 1
            case _:
                group.settle(3)
    group.heal()
    check_acknowledged(group)
    check_equal(group)
    return group
