"""Faults are drawn in advance, so that any of them can be left out and the others stay."""

from __future__ import annotations

import pytest

from tidelog.testing.chance import Chance
from tidelog.testing.cluster import severed_paths
from tidelog.testing.faults import (
    OF_OTHER_KIND,
    Fault,
    FaultClass,
    Plan,
    Reduction,
    draw_plan,
    present_classes,
)
from tidelog.testing.sometimes import Kind
from tidelog.types import NodeId


def plan_with(*classes: FaultClass) -> Plan:
    """A plan in which all of these strike."""
    for seed in range(1000):
        plan = draw_plan(Kind.RAFT, seed)
        if all(plan.has(what) for what in classes):
            return plan
    raise AssertionError("no such plan")


def test_chance_is_split_so_that_streams_do_not_disturb_one_another() -> None:
    chance = Chance(5)
    before = [chance.stream("a").random() for _ in range(3)]
    chance.stream("b").random()
    assert [chance.stream("a").random() for _ in range(3)] == before
    assert chance.stream("a", 1).random() != chance.stream("a", 2).random()


def test_the_same_seed_has_the_same_plan() -> None:
    assert draw_plan(Kind.RAFT, 11) == draw_plan(Kind.RAFT, 11)
    assert draw_plan(Kind.RAFT, 11) != draw_plan(Kind.RAFT, 12)


def test_leaving_out_a_class_changes_no_fault_of_another() -> None:
    plan = plan_with(FaultClass.CRASH, FaultClass.PARTITION, FaultClass.LOSS)
    less = draw_plan(Kind.RAFT, plan.seed, Reduction(without=(FaultClass.PARTITION,)))
    kept = [fault for fault in plan.faults if fault.what is FaultClass.CRASH]
    assert [fault for fault in less.faults if fault.what is FaultClass.CRASH] == kept
    assert not less.has(FaultClass.PARTITION)
    assert less.weather == plan.weather


def test_leaving_out_loss_leaves_it_out_of_the_weather() -> None:
    plan = plan_with(FaultClass.LOSS)
    assert plan.weather.loss > 0
    less = draw_plan(Kind.RAFT, plan.seed, Reduction(without=(FaultClass.LOSS,)))
    assert less.weather.loss == 0


def test_single_faults_can_be_kept() -> None:
    plan = plan_with(FaultClass.CRASH, FaultClass.PARTITION)
    chosen = plan.faults[0]
    less = draw_plan(Kind.RAFT, plan.seed, Reduction(only=(chosen.name,)))
    assert less.faults == (chosen,)


def test_a_shorter_run_has_no_fault_after_its_end() -> None:
    plan = plan_with(FaultClass.CRASH, FaultClass.PARTITION)
    less = draw_plan(Kind.RAFT, plan.seed, Reduction(stop_at=1_000_000))
    assert less.duration == 1_000_000
    at = [fault.at for fault in less.faults if fault.what is not FaultClass.SHORT_RESTART]
    assert all(time < 1_000_000 for time in at)


@pytest.mark.parametrize("kind", Kind)
def test_each_class_is_in_about_half_of_the_seeds_of_its_kind(kind: Kind) -> None:
    present = [present_classes(draw_plan(kind, seed)) for seed in range(200)]
    for what in FaultClass:
        share = sum(what in classes for classes in present) / len(present)
        assert (share == 0) if what in OF_OTHER_KIND[kind] else (0.35 < share < 0.65)


def fault(what: FaultClass, *, target: int, strength: int) -> Fault:
    return Fault(what, 1, at=0, duration=1, target=target, strength=strength)


NODES = [NodeId(node) for node in (1, 2, 3, 4, 5)]


def test_a_partition_severs_both_ways_and_leaves_each_side_whole() -> None:
    paths = severed_paths(fault(FaultClass.PARTITION, target=0b00011, strength=1), NODES)
    assert set(paths) == {path for a in (1, 2) for b in (3, 4, 5) for path in ((a, b), (b, a))}


def test_an_isolated_node_reaches_nobody() -> None:
    paths = severed_paths(fault(FaultClass.PARTITION, target=2, strength=3), NODES)
    assert {source for source, target in paths if target == 3} == {1, 2, 4, 5}
    assert {target for source, target in paths if source == 3} == {1, 2, 4, 5}


def test_both_sides_reach_the_bridge() -> None:
    paths = severed_paths(fault(FaultClass.PARTITION, target=0b00011, strength=2 + 3 * 2), NODES)
    assert not [path for path in paths if 3 in path]
    assert (1, 4) in paths


def test_a_one_way_break_lets_answers_pass() -> None:
    paths = severed_paths(fault(FaultClass.ONE_WAY, target=0b00001, strength=1), NODES)
    assert set(paths) == {(1, 2), (1, 3), (1, 4), (1, 5)}
