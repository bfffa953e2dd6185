"""What placed replicas are told, and what the node says of them (G2, G3, G4)."""

from __future__ import annotations

import pytest

from tests.core.replica.hosting.fakes import Node, collect, commit, result, streams_of
from tidelog import limits
from tidelog.core.replica.hosting import Unheard
from tidelog.types import FIRST_TERM, Term


def two() -> Node:
    """Streams 1 and 2 are placed here, nothing is ordered yet."""
    node = Node(1, 2)
    node.hear(collect({1: 1, 2: 1}))
    return node


def test_each_replica_is_told_of_its_own_cuts_in_order() -> None:
    node = two()
    node.hear(result(0, 3, commit(1, 1, 1, 2), commit(2, 2, 1, 1), commit(3, 1, 3, 4)))
    assert (node[1].context.llsn_end, node[2].context.llsn_end) == (7, 2)
    assert node.hosting.version == 3


def test_only_what_changed_is_reported() -> None:
    node = two()
    node[1].unordered = 3
    node.touch(1)
    assert streams_of(node.told()) == [1]
    node.touch(1)
    assert node.told() == [], "it said so before"


def test_an_applied_cut_is_reported_at_the_next_tick() -> None:
    node = two()
    assert node.hear(result(0, 1, commit(1, 2, 1, 3))) == [], "there is nothing to order"
    (report,) = node.tick()
    assert [(one.stream, one.version, one.llsn_begin) for one in report.reports] == [(2, 1, 4)]
    assert report.version == 1
    assert node.tick() == [], "it was told"


def test_an_applied_cut_is_reported_with_what_comes_to_be_ordered() -> None:
    node = two()
    node.hear(result(0, 1, commit(1, 2, 1, 3)))
    node[1].unordered = 4
    node.touch(1)
    (report,) = node.told()
    assert [(one.stream, one.version, one.length) for one in report.reports] == [
        (1, 0, 4),
        (2, 1, 0),
    ]
    assert node.tick() == [], "it was told"


def test_what_comes_behind_a_report_waits_for_its_cut() -> None:
    node = two()
    node[1].unordered = 2
    node.touch(1)
    assert streams_of(node.told()) == [1]
    node[1].unordered = 5
    node.touch(1)
    assert node.told() == [], "a cut is on its way"
    node[1].unordered = 3
    (report,) = node.hear(result(0, 1, commit(1, 1, 1, 2)))
    assert [(one.llsn_begin, one.length) for one in report.reports] == [(3, 3)]


def test_what_a_follower_has_durable_waits_for_the_tick() -> None:
    """Its leader tells as soon as a quorum has it."""
    node = two()
    node[1].leads = False
    node[1].unordered = 2
    node.touch(1)
    assert node.told() == []
    (report,) = node.tick()
    assert [(one.llsn_begin, one.length, one.committed_end) for one in report.reports] == [
        (1, 2, 0)
    ]


def test_a_cut_that_orders_more_than_was_reported_is_no_reason_to_report() -> None:
    node = two()
    node[1].unordered = 2
    node.touch(1)
    node.told()
    node[1].unordered = 0
    assert node.hear(result(0, 1, commit(1, 1, 1, 5))) == [], "all is ordered"


def test_a_replica_that_heard_of_many_cuts_says_so_at_once() -> None:
    """They are kept until a majority has them, and only so many can be."""
    node = two()
    most = limits.REPORT_CUTS_MAX - 1
    for version in range(1, most + 1):
        assert node.hear(result(version - 1, version, commit(version, 1, version, 1))) == []
    (report,) = node.hear(result(most, most + 1, commit(most + 1, 1, most + 1, 1)))
    assert [(one.stream, one.version) for one in report.reports] == [(1, most + 1)]


def test_what_waits_for_a_cut_that_does_not_come_is_reported_at_the_next_tick() -> None:
    node = two()
    node[1].unordered = 2
    node.touch(1)
    node.told()
    node[1].unordered = 5
    node.touch(1)
    node.told()
    (report,) = node.tick()
    assert [(one.llsn_begin, one.length) for one in report.reports] == [(1, 5)]


def test_a_stream_that_waits_for_its_cut_holds_no_other_back() -> None:
    node = two()
    node[1].unordered = 2
    node.touch(1)
    node.told()
    node[1].unordered, node[2].unordered = 5, 1
    node.touch(1)
    assert node.told() == []
    node.touch(2)
    assert sorted(streams_of(node.told())) == [1, 2], "what waits goes along"


def test_a_report_in_a_new_term_waits_for_nothing() -> None:
    node = two()
    node[1].unordered = 2
    node.touch(1)
    node.told()
    node[1].term = Term(FIRST_TERM + 1)
    node.touch(1)
    assert streams_of(node.told()) == [1]


def test_a_result_that_concerns_no_replica_is_acknowledged() -> None:
    node = two()
    (report,) = node.hear(result(0, 5))
    assert (report.version, report.reports) == (5, ())


def test_a_repeated_result_is_told_to_nobody() -> None:
    node = two()
    node.hear(result(0, 1, commit(1, 1, 1, 2)))
    node.hear(result(0, 1, commit(1, 1, 1, 2)))
    node.hear(result(0, 2, commit(1, 1, 1, 2), commit(2, 1, 3, 1)))
    assert node[1].context.llsn_end == 4
    assert node.hosting.unheard == {Unheard.NO_NEWS: 1}


def test_a_result_that_leaves_a_gap_is_refused_and_answered_with_what_is_known() -> None:
    node = two()
    (report,) = node.hear(result(1, 2, commit(2, 1, 3, 1)))
    assert report.version == 0
    assert node.hosting.unheard == {Unheard.GAP: 1}


def test_a_silent_replica_is_told_but_not_reported() -> None:
    node = two()
    node[1].is_silent = True
    node.hear(result(0, 1, commit(1, 1, 1, 2)))
    assert node[1].context.llsn_end == 3
    assert streams_of(node.hear(collect())) == [2]


def test_an_incomplete_replica_is_told_nothing_and_holds_nobody_back() -> None:
    node = two()
    node[1].is_complete = False
    node.touch(1)
    node.hear(result(0, 2, commit(1, 1, 1, 2), commit(2, 2, 1, 2)))
    (report,) = node.tick()
    assert (report.version, streams_of([report])) == (2, [2])
    assert node[1].context.llsn_end == 1


def test_a_replica_that_was_filled_up_by_its_leader_goes_on_from_there() -> None:
    """The leader had not applied all cuts itself: the rest comes from the history."""
    node = two()
    node[1].is_complete = False
    node.touch(1)
    node.hear(result(0, 4, commit(1, 1, 1, 2), commit(3, 1, 3, 2), commit(4, 2, 1, 1)))
    node[1].ordered_up_to(3, 1)
    node[1].is_complete = True
    node.touch(1)
    (report,) = node.told()
    assert (report.version, report.ahead) == (1, ((2, 4),))
    node.hear(result(1, 4, commit(3, 1, 3, 2), commit(4, 2, 1, 1)))
    assert (node[1].context.llsn_end, node[2].context.llsn_end) == (5, 2)
    assert node.hear(collect())[0].ahead == ()


def test_a_replica_that_was_filled_up_to_the_newest_cut_costs_no_round_trip() -> None:
    node = two()
    node[1].is_complete = False
    node.touch(1)
    node.hear(result(0, 9, commit(1, 1, 1, 2), commit(9, 2, 1, 1)))
    node[1].ordered_up_to(3, 1)
    node[1].is_complete = True
    node.touch(1)
    (report,) = node.told()
    assert (report.version, node[1].told) == (9, 9)


def test_a_restarted_replica_to_which_nothing_happened_knows_the_newest_version() -> None:
    node = Node(1, 2)
    node[1].ordered_up_to(4, 2)
    node[2].ordered_up_to(9, 50)
    (report,) = node.hear(collect({1: 4, 2: 9}, version=60))
    assert (report.version, report.ahead) == (60, ())


def test_a_restarted_replica_gets_the_cuts_that_it_lost() -> None:
    """Perhaps nobody had applied them before the power went: no leader could tell."""
    node = Node(1)
    node[1].ordered_up_to(4, 2)
    (report,) = node.hear(collect({1: 6}, version=3))
    assert report.version == 2
    assert not node[1].is_behind
    node.hear(result(2, 3, commit(3, 1, 4, 2)))
    assert node[1].context.llsn_end == 6


def test_a_replica_whose_history_is_gone_asks_others_and_holds_nobody_back() -> None:
    node = two()
    node.hear(result(0, 20, commit(19, 2, 1, 1), behind=[(1, 10, 9)]))
    (report,) = node.tick()
    assert node[1].asked_others_for == [10], "nothing was ordered since"
    assert (report.version, streams_of([report])) == (20, [2])
    node[1].is_behind = False
    node[1].ordered_up_to(9, 10)
    node.touch(1)
    (report,) = node.told()
    assert (report.version, report.ahead, node[1].told) == (20, (), 20)


def test_a_replica_that_learnt_more_from_others_is_not_told_again() -> None:
    node = two()
    node[1].ordered_up_to(6, 5)
    node.touch(1)
    node.hear(result(0, 7, commit(4, 1, 1, 3), commit(5, 1, 4, 2), commit(7, 1, 6, 1)))
    assert node[1].context.llsn_end == 7


def test_a_replica_that_is_told_to_ask_others_but_knows_more_by_now_does_not() -> None:
    """A report of the node was overtaken: history does not reach back to it, but to a newer one."""
    node = two()
    node.hear(result(0, 7, commit(7, 1, 1, 5)))
    (report,) = node.hear(result(2, 8, behind=[(1, 8, 7)]))
    assert node[1].asked_others_for == []
    assert (report.version, node.hosting.unheard) == (7, {Unheard.OUTDATED: 1})
    node.hear(result(7, 8, commit(8, 1, 6, 1)))
    assert node[1].context.llsn_end == 7


def test_a_result_that_takes_a_replica_to_know_more_than_it_does_is_refused() -> None:
    """A report of a former life came late: of the cuts in between nobody would ever tell."""
    node = two()
    (report,) = node.hear(result(0, 9, ahead={1: 6}))
    assert (report.version, node.hosting.unheard) == (0, {Unheard.GAP: 1})
    node[1].ordered_up_to(2, 6)
    node.touch(1)
    node.hear(result(0, 9, ahead={1: 6}))
    assert node.hosting.version == 9


def test_many_replicas_are_reported_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_REPORT_REPLICAS_MAX", 2)
    node = Node(1, 2, 3, 4, 5)
    node[5].ordered_up_to(2, 3)
    node.hear(collect({1: 1, 2: 1, 3: 1, 4: 1, 5: 2}, version=1))
    parts = node.hear(collect())
    assert [len(part.reports) for part in parts] == [2, 2, 1]
    assert streams_of(parts) == [1, 2, 3, 4, 5]
    assert [part.ahead for part in parts] == [((5, 3),), None, None]


def test_a_replica_that_is_filled_up_by_its_leader_is_not_sent_to_others() -> None:
    node = two()
    node[1].is_complete = False
    node.touch(1)
    node.hear(result(0, 80, behind=[(1, 50, 9)]))
    assert node[1].asked_others_for == []
    assert node.hosting.unheard == {Unheard.NOT_LISTENING: 1}
    node[1].is_complete = True
    node[1].ordered_up_to(9, 50)
    node.touch(1)
    assert node.told()[0].version == 80, "it has all that was ordered"
