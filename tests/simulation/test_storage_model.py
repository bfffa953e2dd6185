"""The modelled replica keeps its own rules (P1 to P4), or the simulation would blame others."""

from __future__ import annotations

from random import Random

from tidelog.core.order.commands import Quorum, StreamCommit, VersionedCommit
from tidelog.testing.storage_messages import Copy, Record
from tidelog.testing.storage_replica import Replica
from tidelog.types import Glsn, Llsn, NodeId, StreamId, Term, TopicId, Version

A, B, C = NodeId(101), NodeId(102), NodeId(103)
ENSEMBLE = (A, B, C)
STREAM = StreamId(1)


def replica(node: NodeId) -> Replica:
    return Replica(node, STREAM, Quorum.MAJORITY)


def leader(term: int, *payloads: int) -> Replica:
    """A leads a term and has these records, durable on its own disk only."""
    new = replica(A)
    new.fence(Term(term))
    new.lead(Term(term), ENSEMBLE)
    for payload in payloads:
        new.append(payload)
    new.synced_records = len(new.records)
    return new


def commit(version: int, llsn: int, length: int) -> VersionedCommit:
    last = Glsn(llsn + length - 1)
    parts = StreamCommit(TopicId(1), STREAM, last, Glsn(llsn), Llsn(llsn), length)
    return VersionedCommit(Version(version), parts)


def test_a_commit_is_not_applied_to_records_that_only_this_replica_has() -> None:
    """It may come from a later term, whose leader has other records at these places."""
    deposed = leader(1, 7)
    deposed.hear([commit(1, 1, 1)], Version(1))
    assert deposed.apply_next() is None
    deposed.followers[B].matched = 1
    deposed.count_propagated()
    assert deposed.apply_next() == commit(1, 1, 1)


def test_records_of_an_older_term_are_not_reported_before_one_of_this_term() -> None:
    old = leader(1, 7, 8)
    old.fence(Term(2))
    old.lead(Term(2), ENSEMBLE)
    report = old.report()
    assert report is not None
    assert report.length == 0
    old.synced_records = 3  # The control record of the new term is durable.
    report = old.report()
    assert report is not None
    assert (report.term, report.length) == (2, 3)


def test_a_fenced_replica_is_silent_until_it_knows_its_leaders_log() -> None:
    follower = replica(B)
    follower.fence(Term(1))
    assert follower.report() is None
    records = (Record(Term(1), 7),)
    copy = Copy(A, B, STREAM, Term(1), 0, Term(0), records, 0, ENSEMBLE)
    assert follower.take_copy(copy) is None
    report = follower.report()
    assert report is not None
    assert report.length == 0  # It is not durable yet.


def test_another_leaders_records_replace_what_was_not_ordered() -> None:
    follower = leader(1, 7, 8)
    follower.fence(Term(2))
    records = (Record(Term(2), 9),)
    copy = Copy(B, A, STREAM, Term(2), 1, Term(1), records, 0, ENSEMBLE)
    assert follower.take_copy(copy) is None
    assert [record.payload for record in follower.records] == [7, 9]
    assert follower.synced_records == 1
    assert follower.truncations == 1


def test_a_leader_that_does_not_know_where_the_logs_agree_is_led_back() -> None:
    follower = leader(1, 7)
    follower.fence(Term(2))
    copy = Copy(B, A, STREAM, Term(2), 3, Term(2), (), 0, ENSEMBLE)
    assert follower.take_copy(copy) == 1


def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    for seed in range(20):
        crashed = leader(1, 7, 8, 9)
        crashed.synced_records = 1
        crashed.lose(Random(seed))
        assert [record.payload for record in crashed.records] in ([7], [7, 8], [7, 8, 9])
        assert crashed.is_silent


def test_a_replica_that_fell_behind_takes_only_what_leaves_no_gap() -> None:
    follower = leader(1, 7, 8, 9)
    follower.followers[B].matched = 3
    follower.count_propagated()
    follower.fall_behind(Version(2))
    follower.hear([commit(3, 3, 1)], Version(3))
    assert not follower.catch_up([commit(1, 1, 1)], Version(1))
    assert follower.apply_next() is None
    assert follower.catch_up([commit(1, 1, 1), commit(2, 2, 1)], Version(2))
    assert [follower.apply_next() for _ in range(3)] == [
        commit(1, 1, 1),
        commit(2, 2, 1),
        commit(3, 3, 1),
    ]


def test_a_replica_that_fell_behind_is_still_behind_after_a_crash() -> None:
    crashed = replica(B)
    crashed.fall_behind(Version(8))
    crashed.lose(Random(1))
    crashed.fall_behind(Version(0))
    assert crashed.behind_until == 8
    assert not crashed.catch_up([commit(1, 1, 1)], Version(7))


def test_records_are_propagated_when_the_replica_that_was_missing_leaves() -> None:
    alone = leader(1, 7)
    alone.count_propagated()
    assert alone.propagated == 0
    alone.learn_ensemble((A,))
    assert alone.propagated == 1
