"""Cuts that are missed, repeated, early or wrong, and what is reported meanwhile."""

from __future__ import annotations

import pytest

from tests.core.replica.unit.alone import LEADER, ME, STREAM, Alone, batch, cut, entry
from tidelog import limits
from tidelog.core.order.commands import VersionedCommit
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, GlsnRun
from tidelog.core.replica.messages import (
    AddEntriesResponse,
    CutsRequest,
    CutsResponse,
    FollowerHead,
    Message,
)
from tidelog.core.replica.options import Ignored, ReplicaOptions
from tidelog.types import Llsn, NodeId, Term, Version

FOLLOWER = NodeId(3)


def a_follower(entries: int, *, commit: int) -> Alone:
    alone = Alone()
    alone.follow(2, *(batch(2, llsn) for llsn in range(1, entries + 1)), commit=commit)
    return alone


def tell(alone: Alone, *cuts: VersionedCommit, version: int = 0) -> None:
    alone.replica.commit(cuts, Version(version or max(each.version for each in cuts)))
    alone.carry_out()


def cuts_of(
    begin: int, context: CommitContext, *runs: GlsnRun, source: NodeId = LEADER, asked: int = 1
) -> CutsResponse:
    """An answer to who asked for GLSNs from ``asked`` on."""
    return CutsResponse(source, ME, STREAM, Term(2), Llsn(asked), Llsn(begin), runs, context)


def run(llsn: int, glsn: int, length: int) -> GlsnRun:
    return GlsnRun(Llsn(llsn), glsn, length)


def end_of(alone: Alone) -> int:
    return alone.disk.durable.context.llsn_end


def asked(messages: list[Message]) -> list[tuple[int, int]]:
    return [(each.llsn_end, each.version) for each in messages if isinstance(each, CutsRequest)]


# -- in order ------------------------------------------------------------------------------------


def test_cuts_wait_for_the_commit_index_and_go_into_one_write() -> None:
    alone = a_follower(4, commit=1)
    tell(alone, cut(1, 1, 2), cut(2, 3, 2))
    assert end_of(alone) == 1
    alone.outputs.clear()
    alone.add_entries(2, entry(2, 4), commit=4)
    (write,) = [output.write for output in alone.outputs if output.write is not None]
    assert write.runs == (run(1, 1, 2), run(3, 3, 2))
    assert write.context == CommitContext(2, 4, 3, 3, 2)
    assert [output.ordered for output in alone.outputs if output.ordered] == [5]


def test_a_cut_whose_term_is_not_told_waits_for_the_commit_index() -> None:
    alone = a_follower(2, commit=0)
    tell(alone, cut(1, 1, 2))
    assert (end_of(alone), alone.replica.commit_index) == (1, 0)


@pytest.mark.parametrize(("term", "end"), [(1, 3), (2, 3), (3, 1)])
def test_a_cut_of_no_later_term_needs_no_commit_index(term: int, end: int) -> None:
    alone = a_follower(2, commit=0)
    tell(alone, cut(1, 1, 2, term=term))
    assert end_of(alone) == end


def test_a_fenced_replica_takes_no_cut_for_a_proof() -> None:
    alone = a_follower(2, commit=0)
    alone.fence(3)
    tell(alone, cut(1, 1, 2, term=3))
    assert end_of(alone) == 1
    alone.add_entries(3, entry(2, 1))
    assert (end_of(alone), alone.replica.commit_index) == (1, 1), "so much was compared"
    alone.add_entries(3, entry(2, 2))
    assert end_of(alone) == 3


def test_a_cut_is_applied_only_up_to_what_is_durable() -> None:
    alone = a_follower(1, commit=1)
    alone.disk.holds_back = True
    alone.add_entries(2, entry(2, 1), batch(2, 2), commit=2)
    tell(alone, cut(1, 1, 2))
    assert alone.replica.context == NONE
    alone.sync()
    alone.carry_out()
    assert alone.replica.context.llsn_end == 3
    report = alone.replica.report()
    assert report is not None
    assert (report.version, report.llsn_begin, report.length) == (0, 1, 2), "not durable yet"


def test_a_repeated_cut_is_not_applied_again() -> None:
    alone = a_follower(2, commit=2)
    for _ in range(2):
        tell(alone, cut(1, 1, 1), version=3)
    assert (end_of(alone), alone.replica.version) == (2, 3)
    assert alone.replica.ignored == {Ignored.KNOWN_CUT: 1}


def test_the_version_rises_with_cuts_that_ordered_nothing_and_costs_no_write() -> None:
    alone = a_follower(2, commit=2)
    tell(alone, cut(1, 1, 1))
    alone.outputs.clear()
    tell(alone, version=7)
    assert alone.outputs == []
    report = alone.replica.report()
    assert report is not None
    assert (report.version, report.llsn_begin, report.length) == (7, 2, 1)
    tell(alone, cut(8, 2, 1, glsn=5))
    assert alone.replica.context == CommitContext(8, 5, 5, 2, 1)


@pytest.mark.parametrize(
    "wrong",
    [cut(5, 1, 1), cut(5, 2, 1, glsn=1), cut(5, 2, -1)],
    ids=["ordered already", "a GLSN of the past", "nonsense"],
)
def test_a_cut_that_contradicts_what_is_known_is_ignored(wrong: VersionedCommit) -> None:
    alone = a_follower(3, commit=3)
    tell(alone, cut(1, 1, 1))
    tell(alone, wrong)
    assert alone.replica.ignored == {Ignored.CONTRADICTION: 1}
    assert end_of(alone) == 2


# -- behind --------------------------------------------------------------------------------------


def test_a_replica_that_missed_a_cut_is_silent_and_asks_its_leader() -> None:
    alone = a_follower(4, commit=4)
    tell(alone, cut(1, 1, 1))
    tell(alone, cut(3, 3, 1))
    assert alone.replica.report() is None
    assert asked(alone.tick()) == [(2, 1)]
    alone.step(cuts_of(2, CommitContext(2, 2, 2, 2, 1), run(2, 2, 1), asked=2))
    assert not alone.replica.is_behind
    assert end_of(alone) == 4, "the cut that was kept follows what was missing"
    assert alone.replica.version == 3


def test_one_answer_brings_several_cuts() -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    alone.step(cuts_of(1, CommitContext(9, 9, 8, 3, 2), run(1, 1, 2), run(3, 8, 2)))
    assert not alone.replica.is_behind
    assert alone.disk.durable.glsns() == {1: 1, 2: 2, 3: 8, 4: 9}


def test_an_answer_waits_for_the_entries_that_it_orders() -> None:
    alone = a_follower(2, commit=2)
    alone.replica.fall_behind(Version(9))
    alone.step(cuts_of(1, CommitContext(9, 3, 1, 1, 3), run(1, 1, 3)))
    assert end_of(alone) == 1
    alone.add_entries(2, entry(2, 2), batch(2, 3), commit=3)
    assert end_of(alone) == 4


def test_an_answer_without_cuts_ends_the_search() -> None:
    alone = a_follower(2, commit=2)
    alone.replica.fall_behind(Version(9))
    alone.step(cuts_of(1, CommitContext(9, 0, 1, 1, 0)))
    assert (alone.replica.is_behind, alone.replica.version) == (False, 9)


def test_what_others_have_trimmed_is_trimmed_by_their_answer() -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    alone.step(cuts_of(3, CommitContext(9, 9, 8, 3, 2), run(3, 8, 2)))
    assert (alone.replica.first, end_of(alone)) == (3, 5)
    assert alone.disk.durable.first == 3


def test_an_answer_that_reaches_less_far_than_the_gap_is_used_and_asked_on() -> None:
    alone = a_follower(4, commit=4)
    tell(alone, cut(5, 4, 1))
    alone.step(cuts_of(1, CommitContext(2, 2, 1, 1, 2), run(1, 1, 2)))
    assert end_of(alone) == 3
    assert alone.replica.is_behind
    assert asked(alone.tick()) == [(3, 2)]


@pytest.mark.parametrize(
    "wrong",
    [
        cuts_of(2, CommitContext(9, 2, 2, 2, 1), run(3, 3, 1)),
        cuts_of(1, CommitContext(9, 2, 1, 1, 2)),
        cuts_of(1, CommitContext(9, 2, 1, 1, 2), run(1, 1, 3)),
        cuts_of(1, CommitContext(9, 4, 3, 1, 2), run(1, 1, 2)),
        cuts_of(1, NONE),
    ],
    ids=["a gap", "no beginning", "too long", "other GLSNs than its context", "nothing new"],
)
def test_an_answer_that_does_not_lead_to_its_context_is_ignored(wrong: CutsResponse) -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    alone.step(wrong)
    assert alone.replica.ignored == {Ignored.CONTRADICTION: 1}
    assert alone.replica.is_behind


def test_an_answer_that_had_no_room_for_all_is_kept_and_the_rest_is_asked_for() -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    context = CommitContext(9, 9, 9, 4, 1)
    first = cuts_of(1, context, run(1, 1, 1), run(2, 3, 1))
    assert asked(alone.step(first)) == [(3, 0)]
    assert end_of(alone) == 1
    assert alone.step(first) == [], "it came again"
    assert asked(alone.tick()) == [(3, 0)]
    alone.step(cuts_of(3, context, run(3, 5, 1), run(4, 9, 1), source=FOLLOWER, asked=3))
    assert alone.disk.durable.glsns() == {1: 1, 2: 3, 3: 5, 4: 9}
    assert (alone.replica.is_behind, alone.replica.context) == (False, context)


def test_the_rest_of_an_answer_is_not_taken_for_one_whose_beginning_was_trimmed() -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    rest = cuts_of(3, CommitContext(9, 9, 9, 4, 1), run(3, 5, 1), run(4, 9, 1), asked=3)
    assert alone.step(rest) == []
    assert alone.replica.ignored == {Ignored.LATE: 1}
    assert (alone.replica.first, end_of(alone)) == (1, 1)


def test_what_was_gathered_is_dropped_when_the_beginning_is_trimmed_meanwhile() -> None:
    alone = a_follower(4, commit=4)
    alone.replica.fall_behind(Version(9))
    context = CommitContext(9, 9, 9, 4, 1)
    alone.step(cuts_of(1, context, run(1, 1, 1)))
    alone.step(cuts_of(4, context, run(4, 9, 1), asked=2))
    assert alone.disk.durable.glsns() == {4: 9}
    assert (alone.replica.first, alone.replica.context) == (4, context)


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    alone = a_follower(2, commit=2)
    alone.step(cuts_of(1, CommitContext(1, 2, 1, 1, 2), run(1, 1, 2)))
    assert alone.replica.ignored == {Ignored.NOT_WANTED: 1}
    assert end_of(alone) == 1


def test_cuts_that_pile_up_without_end_are_asked_for_instead() -> None:
    most = limits.ORDER_UNAPPLIED_CUTS_MAX + 1
    alone = Alone(ReplicaOptions(pending_cuts_max=most))
    alone.follow(2, batch(2, 1), commit=1)
    tell(alone, *(cut(version, version, 1) for version in range(2, most + 3)), version=most + 2)
    alone.replica.validate()
    assert alone.replica.is_behind


def test_a_leader_that_is_behind_asks_its_followers_in_turn() -> None:
    heads = tuple(FollowerHead(NodeId(node), NO_ENTRY, True) for node in (2, 3))
    alone = Alone(ReplicaOptions(heartbeat_ticks=100))
    alone.lead(2, ensemble=(1, 2, 3), followers=heads)
    alone.append(b"x")
    alone.step(AddEntriesResponse(LEADER, ME, STREAM, Term(2), Llsn(1)))
    alone.replica.fall_behind(Version(4))
    targets = [
        each.target for _ in range(4) for each in alone.tick() if isinstance(each, CutsRequest)
    ]
    assert targets == [3, 2, 3, 2]
    alone.step(cuts_of(1, CommitContext(4, 1, 1, 1, 1), run(1, 1, 1), source=FOLLOWER))
    assert (alone.replica.is_behind, end_of(alone)) == (False, 2)


# -- for others ----------------------------------------------------------------------------------


def test_every_replica_tells_what_it_knows_beyond_the_one_that_asks() -> None:
    alone = a_follower(3, commit=3)
    tell(alone, cut(1, 1, 1), cut(2, 2, 2))
    alone.fence(5)
    request = CutsRequest(FOLLOWER, ME, STREAM, Term(2), Llsn(2), Version(1))
    context = CommitContext(2, 3, 2, 2, 2)
    assert alone.step(request) == [
        CutsResponse(ME, FOLLOWER, STREAM, Term(2), Llsn(2), Llsn(2), (run(2, 2, 2),), context)
    ]
    known = CutsRequest(FOLLOWER, ME, STREAM, Term(2), Llsn(4), Version(2))
    assert alone.step(known) == []


def test_what_was_trimmed_is_left_out_of_an_answer() -> None:
    alone = a_follower(3, commit=3)
    tell(alone, cut(1, 1, 1), cut(2, 2, 2))
    alone.replica.trim(Llsn(3))
    alone.carry_out()
    request = CutsRequest(FOLLOWER, ME, STREAM, Term(2), Llsn(1), Version(0))
    (answer,) = alone.step(request)
    assert isinstance(answer, CutsResponse)
    assert (answer.llsn_begin, answer.runs) == (3, (run(3, 3, 1),))


def test_who_is_not_complete_tells_nothing() -> None:
    alone = Alone()
    alone.fence(2, is_first=False)
    request = CutsRequest(FOLLOWER, ME, STREAM, Term(2), Llsn(1), Version(0))
    assert alone.step(request) == []
    assert alone.replica.ignored == {Ignored.LATE: 1}
