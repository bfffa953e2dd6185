"""How far placed streams are ordered, as readers of a node are told (G4)."""

from __future__ import annotations

from tests.core.replica.hosting.fakes import Node, collect, commit, result
from tidelog.types import StreamId


def test_ends_are_those_of_the_placement_and_then_of_the_cuts() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}))
    node.hear(result(0, 2, commit(1, 1, 1, 2)))
    assert node.hosting.ends == {StreamId(1): 3, StreamId(2): 1}


def test_a_result_that_is_refused_moves_no_end() -> None:
    node = Node(1)
    node.hear(collect({1: 1}))
    node.hear(result(5, 6, commit(6, 1, 4, 1)))
    assert node.hosting.ends == {StreamId(1): 1}
