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


def test_what_a_replica_learnt_from_its_leader_moves_its_end() -> None:
    """The sender was told, and leaves it out: without it a reader is told that nothing lacks."""
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}))
    node[1].ordered_up_to(6, 4)
    node.touch(1)
    assert node.hear(collect())[0].ahead == ((1, 4),)
    node.hear(result(0, 5, commit(5, 2, 1, 2), ahead={1: 4}))
    assert node.hosting.newest == 5
    assert node.hosting.ends == {StreamId(1): 6, StreamId(2): 3}


def test_a_replica_that_listens_anew_moves_its_end() -> None:
    """It was filled up beyond all that the node was told of."""
    node = Node(1)
    node[1].is_complete = False
    node.hear(collect({1: 1}))
    node[1].ordered_up_to(6, 4)
    node[1].is_complete = True
    node.touch(1)
    node.hear(result(0, 5, ahead={1: 4}))
    assert node.hosting.ends == {StreamId(1): 6}


def test_cuts_that_a_replica_is_ahead_of_move_no_end_back() -> None:
    node = Node(1)
    node.hear(collect({1: 1}))
    node[1].ordered_up_to(6, 5)
    node.touch(1)
    node.hosting.commits(result(0, 3, commit(3, 1, 1, 2)))
    node.hosting.commits(result(3, 6, ahead={1: 5}))
    assert node.hosting.ends == {StreamId(1): 6}


def test_placements_as_of_an_older_cut_move_no_end_back() -> None:
    """By then the replica may not listen any more, and yet be left out of the next result."""
    node = Node(1)
    node.hear(collect({1: 1}))
    node[1].ordered_up_to(6, 5)
    node.touch(1)
    node[1].is_behind = True
    node.touch(1)
    node.hear(collect({1: 3}, placements=2, version=3))
    node.hear(result(0, 6, placements=2, ahead={1: 5}))
    assert (node.hosting.newest, node.hosting.ends) == (6, {StreamId(1): 6})
