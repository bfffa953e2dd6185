"""Which replicas are told and reported: those that the metadata repository has placed (G1, G3)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.replica.hosting.fakes import (
    COLLECTOR,
    NODE,
    OTHER,
    OTHER_NODE,
    Fake,
    Node,
    collect,
    commit,
    result,
    streams_of,
)
from tidelog.core.replica.hosting import Unheard
from tidelog.types import StreamId


def test_a_node_that_knows_no_placements_says_so_and_reports_nothing() -> None:
    node = Node(1)
    (report,) = node.hear(collect())
    assert (report.target, report.placements, report.reports) == (COLLECTOR, 0, ())


def test_a_node_reports_all_placed_replicas_when_it_is_asked() -> None:
    node = Node(1, 2, 3)
    (report,) = node.hear(collect({1: 1, 2: 1}))
    assert report.placements == 1
    assert streams_of([report]) == [1, 2]
    assert streams_of(node.hear(collect())) == [1, 2], "and again, whatever was said before"


def test_a_replica_that_is_not_placed_is_not_reported() -> None:
    """It may be the new node of a swap before its completion, or one that left."""
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    node[2].unordered = 5
    node.touch(2)
    assert node.told() == []


def test_a_replica_that_is_not_placed_is_not_told_of_cuts() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    node.hear(result(0, 1, commit(1, 1, 1, 3), commit(1, 2, 1, 3)))
    assert node[1].context.llsn_end == 4
    assert node[2].context.llsn_end == 1
    assert node.hosting.unheard == {Unheard.NOT_LISTENING: 1}


def test_a_result_for_other_placements_is_refused_and_answered_at_once() -> None:
    """The sender speaks of a stream that this node does not know to be its own, and may be silent
    of one that it takes for its own."""
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    (report,) = node.hear(result(0, 1, commit(1, 2, 1, 3), placements=2))
    assert (report.version, report.placements) == (0, 1)
    assert node.hosting.unheard == {Unheard.UNKNOWN_PLACEMENTS: 1}


def test_silence_about_a_stream_counts_only_under_known_placements() -> None:
    """The known bad schedule: a metadata node that is late does not know of the new replica yet."""
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    node.hear(collect({1: 1, 2: 1}, placements=2))
    node.hear(result(0, 1, commit(1, 1, 1, 3), placements=1))
    assert node.hosting.version == 0
    node.hear(result(0, 1, commit(1, 1, 1, 3), commit(1, 2, 1, 4), placements=2))
    assert node[2].context.llsn_end == 5


def test_a_list_of_placements_that_was_held_up_changes_nothing() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}, placements=2))
    node.hear(collect({1: 1}, placements=1))
    assert node.hosting.placed == (1, 2)
    assert node.hosting.unheard == {Unheard.OLD_PLACEMENTS: 1}


def test_a_replica_that_left_is_told_and_reported_no_more() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}))
    node.hear(collect({1: 1}, placements=2))
    node[2].unordered = 3
    node.touch(2)
    assert node.told() == []
    node.hear(result(0, 1, commit(1, 2, 1, 1), placements=2))
    assert node[2].context.llsn_end == 1


def test_a_replica_that_leaves_right_after_a_cut_is_reported_no_more() -> None:
    """The known bad schedule: a cut and the end of a swap in one turn, of which the node died."""
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}))
    node.hosting.commits(result(0, 1, commit(1, 2, 1, 3)))
    (report,) = node.hear(collect({1: 1}, placements=2, version=1))
    assert streams_of([report]) == [1]
    assert node.hosting.placed == (1,)


def test_a_newly_placed_replica_does_not_hold_back_its_node() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    node.hear(result(0, 7, commit(7, 1, 1, 3)))
    node[2].ordered_up_to(5, 6)
    (report,) = node.hear(collect({1: 4, 2: 5}, placements=2, version=9))
    assert report.version == 7
    assert report.ahead == ((2, 9),)
    assert node[2].told == 9, "nothing was ordered since, so it knows all there is"


def test_a_newly_placed_replica_that_misses_cuts_gets_them_from_the_history() -> None:
    node = Node(1, 2)
    node.hear(collect({1: 1}))
    node.hear(result(0, 7, commit(7, 1, 1, 3)))
    node[2].ordered_up_to(5, 4)
    (report,) = node.hear(collect({1: 4, 2: 8}, placements=2, version=9))
    assert (report.version, report.ahead) == (4, ((1, 7),))
    node.hear(
        result(4, 9, commit(5, 2, 5, 2), commit(7, 1, 1, 3), commit(9, 2, 7, 1), placements=2)
    )
    assert node[2].context.llsn_end == 8
    assert node[1].context.llsn_end == 4, "it is not told twice"
    assert node.hosting.version == 9


def test_a_replica_that_is_replaced_by_another_begins_anew() -> None:
    node = Node(1)
    node.hear(collect({1: 1}))
    node.hear(result(0, 3, commit(3, 1, 1, 5)))
    node.replicas[StreamId(1)] = Fake(StreamId(1), is_complete=False)
    node.touch(1)
    assert node.told() == []
    node[1].is_complete = True
    node[1].ordered_up_to(3, 2)
    node.touch(1)
    (report,) = node.told()
    assert report.version == 2
    node.hear(result(2, 3, commit(3, 1, 3, 3)))
    assert node[1].context.llsn_end == 6


def test_a_stream_whose_replica_is_not_there_yet_is_left_out() -> None:
    node = Node(1)
    (report,) = node.hear(collect({1: 1, 2: 9}, version=4))
    assert report.version == 4
    node.hear(result(4, 5, commit(5, 2, 9, 1)))
    assert node.hosting.version == 5
    node.replicas[StreamId(2)] = Fake(StreamId(2))
    node.touch(2)
    assert node.told()[0].version == 0, "what it misses must be asked for"


def test_a_node_reports_to_who_has_the_newest_assignment() -> None:
    node = Node(1)
    node.hear(collect({1: 1}, assignment=3))
    assert node.hear(collect(assignment=2, source=OTHER)) == []
    assert node.hosting.collector == COLLECTOR
    (report,) = node.hear(collect(assignment=4, source=OTHER))
    assert report.target == OTHER


def test_messages_for_another_node_are_left_alone() -> None:
    node = Node(1)
    node.hear(collect({1: 1}))
    assert node.hear(replace(collect({}, placements=9), target=OTHER_NODE)) == []
    assert node.hear(replace(result(0, 1, commit(1, 1, 1, 1)), target=OTHER_NODE)) == []
    assert node.hosting.unheard == {Unheard.NOT_FOR_US: 2}
    assert (node.hosting.placements, node.hosting.version) == (1, 0)
    assert NODE != OTHER_NODE
