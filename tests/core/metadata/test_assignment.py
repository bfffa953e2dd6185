"""Every storage node has a living collector, evenly, with the fewest moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.metadata.assignment import gather_at, spread_over
from tidelog.core.metadata.commands import Assign
from tidelog.types import NO_NODE, NodeId


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def after(current: dict[NodeId, NodeId], moves: tuple[Assign, ...]) -> dict[NodeId, NodeId]:
    return current | {move.node: move.collector for move in moves}


def test_new_storage_nodes_are_spread_evenly() -> None:
    current = dict.fromkeys(nodes(11, 12, 13, 14), NO_NODE)
    found = after(current, spread_over(nodes(1, 2, 3), current))
    assert sorted(found.values()) == [1, 1, 2, 3]


def test_the_storage_nodes_of_a_dead_collector_move_and_no_others() -> None:
    current = dict(zip(nodes(11, 12, 13), nodes(1, 2, 3), strict=True))
    assert spread_over(nodes(1, 3), current) == (Assign(NodeId(12), NodeId(1)),)


def test_a_collector_that_comes_back_gets_its_share_again() -> None:
    current = dict(zip(nodes(11, 12, 13, 14), nodes(1, 1, 2, 2), strict=True))
    moves = spread_over(nodes(1, 2, 3), current)
    assert len(moves) == 1
    assert moves[0].collector == 3


def test_a_process_that_is_both_collects_from_itself() -> None:
    """Else two of them that do not hear each other might collect from each other, and nobody
    would ever report though a majority can talk."""
    current = dict(zip(nodes(1, 2, 3, 11), nodes(2, 1, 3, 3), strict=True))
    found = after(current, spread_over(nodes(1, 2, 3), current))
    assert [found[node] for node in nodes(1, 2, 3)] == [1, 2, 3]
    assert spread_over(nodes(1, 2, 3), found) == ()


def test_a_process_whose_collector_is_gone_is_collected_from_elsewhere_until_it_is_back() -> None:
    current = dict(zip(nodes(1, 2, 3), nodes(1, 2, 3), strict=True))
    [move] = spread_over(nodes(1, 3), current)
    assert (move.node, move.collector) == (2, 1)
    away = after(current, (move,))
    assert spread_over(nodes(1, 2, 3), away) == (Assign(NodeId(2), NodeId(2)),)


def test_a_leader_gathers_all_storage_nodes_and_then_moves_none() -> None:
    current = dict(zip(nodes(1, 2, 11, 12), nodes(1, 2, 2, 0), strict=True))
    moves = gather_at(NodeId(2), current)
    assert [move.node for move in moves] == [1, 12]
    assert set(after(current, moves).values()) == {2}
    assert gather_at(NodeId(2), after(current, moves)) == ()


def test_nothing_moves_when_nobody_lives() -> None:
    assert spread_over([], dict.fromkeys(nodes(11), NodeId(1))) == ()


numbers = st.integers(1, 5).map(NodeId)


@given(
    st.dictionaries(st.integers(11, 40).map(NodeId), st.integers(0, 5).map(NodeId)),
    st.lists(numbers, min_size=1, unique=True),
)
def test_a_plan_is_complete_even_and_final(
    current: dict[NodeId, NodeId], collectors: list[NodeId]
) -> None:
    moves = spread_over(collectors, current)
    found = after(current, moves)
    counts = [list(found.values()).count(collector) for collector in collectors]
    assert sum(counts) == len(current)
    assert max(counts) - min(counts) <= 1
    assert spread_over(collectors, found) == ()
    shuffled = dict(reversed(current.items()))
    assert spread_over(list(reversed(collectors)), shuffled) == moves
    # A node moves only if it must: its collector is gone, or had more than its share.
    fewest = sum(
        max(0, list(current.values()).count(collector) - count)
        for collector, count in zip(collectors, counts, strict=True)
    ) + sum(collector not in collectors for collector in current.values())
    assert len(moves) == fewest
