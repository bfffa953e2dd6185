"""The checkers of streams fire on the break that each is for, and are silent without it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.simulation.streams import (
    ENSEMBLE,
    STREAM,
    TOPIC,
    A,
    B,
    C,
    batch,
    follower,
    holder,
    image,
    leader,
    write,
)
from tidelog.core.operator.plan import STEADY, Change, Phase, Status, StreamPlan, encode_plan
from tidelog.core.order.commands import CutDecided, Quorum, StreamCommit
from tidelog.core.order.state import ReplicaOrder, StreamOrder
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.messages import ChangeKind
from tidelog.testing.checkers.acked_durable import check_ordered_durable
from tidelog.testing.checkers.acked_entries import check_acknowledged
from tidelog.testing.checkers.commit_context import CommitContexts
from tidelog.testing.checkers.one_value_per_glsn import OneValuePerGlsn
from tidelog.testing.checkers.rows import Rows
from tidelog.testing.checkers.stream_safety import Holder, StreamSafety
from tidelog.testing.sometimes import Rare, Sometimes
from tidelog.testing.violation import Violation
from tidelog.types import NO_NODE, Glsn, Llsn, NodeId, Revision, Term, Version


def safety(quorum: Quorum = Quorum.MAJORITY) -> StreamSafety:
    return StreamSafety(quorum)


def committed(*terms: int) -> StreamSafety:
    """A leads the last of these terms, and has committed entries of them."""
    group = safety()
    one = holder(A, leader(terms[-1], len(terms)), *terms)
    others = [one, holder(B, follower(terms[-1]), *terms), holder(C, follower(terms[-1]))]
    group.look(STREAM, one, others)
    return group


# Leaders and entries.


def test_two_leaders_of_one_term_of_a_stream_are_found() -> None:
    group = safety()
    group.look(STREAM, holder(A, leader(3)), ())
    group.look(STREAM, holder(A, leader(3)), ())
    group.look(STREAM, holder(B, leader(4)), ())
    with pytest.raises(Violation, match="lead term 3"):
        group.look(STREAM, holder(B, leader(3)), ())


def test_two_entries_of_one_id_are_found() -> None:
    group = safety()
    group.on_write(A, STREAM, write(batch(1, 1, count=3)))
    group.on_write(B, STREAM, write(batch(1, 1, count=3)))
    group.on_write(B, STREAM, write(batch(2, 1, "another")))
    with pytest.raises(Violation, match="entry 3 of this term"):
        group.on_write(C, STREAM, write(batch(1, 3, "another")))


def test_a_leader_that_lacks_a_committed_entry_is_found() -> None:
    group = committed(1, 1)
    group.look(STREAM, holder(B, leader(2), 1, 1), ())
    with pytest.raises(Violation, match="without the committed"):
        group.look(STREAM, holder(C, leader(3), 1), ())


def test_a_leader_of_an_old_term_need_not_have_what_a_later_one_committed() -> None:
    """It was asked to lead, and the request came when the next election was over."""
    group = committed(1, 4)
    group.look(STREAM, holder(B, leader(3), 1), ())


def test_a_later_leader_that_lacks_what_an_old_one_finds_committed_is_found() -> None:
    group = safety()
    old = holder(A, leader(1, 1), 1)
    copies = [old, holder(B, follower(1), 1)]
    with pytest.raises(Violation, match="that is committed in term 1"):
        group.look(STREAM, old, [*copies, holder(C, leader(2), 2)])


# Commit indexes.


def test_a_replica_that_commits_another_entry_is_found() -> None:
    group = committed(1, 1)
    group.look(STREAM, holder(B, follower(1, 2), 1, 1), ())
    with pytest.raises(Violation, match="elsewhere"):
        group.look(STREAM, holder(C, follower(2, 2), 1, 2), ())


def cut_up_to(llsn: int, *, term: int) -> StreamCommit:
    return StreamCommit(TOPIC, STREAM, Glsn(llsn), Glsn(1), Llsn(1), llsn, Term(term))


def test_a_follower_may_commit_what_a_cut_ordered_and_no_leader_knows() -> None:
    group = safety()
    holders = [holder(A, leader(1), 1, 1), holder(B, follower(1), 1, 1), holder(C, follower(1))]
    group.on_cut(cut_up_to(2, term=1), holders, holders)
    group.look(STREAM, holder(B, follower(1, 2), 1, 1), ())
    with pytest.raises(Violation, match="elsewhere"):
        group.look(STREAM, holder(C, follower(2, 2), 1, 2), ())


def test_a_later_leader_that_lacks_what_a_cut_ordered_is_found() -> None:
    group = safety()
    holders = [holder(A, leader(1), 1), holder(B, follower(1), 1)]
    with pytest.raises(Violation, match="that is committed in term 1"):
        group.on_cut(cut_up_to(1, term=1), holders, [*holders, holder(C, leader(2), 2)])
    with pytest.raises(Violation, match="without the committed"):
        group.look(STREAM, holder(C, leader(3), 2), ())


def test_a_follower_that_commits_on_its_own_is_found() -> None:
    group = committed(1)
    with pytest.raises(Violation, match="no leader got beyond"):
        group.look(STREAM, holder(B, follower(1, 2), 1, 1), ())


def test_a_commit_index_that_goes_back_is_found() -> None:
    group = committed(1, 1)
    group.look(STREAM, holder(B, follower(1, 2), 1, 1), ())
    with pytest.raises(Violation, match="commit index 1 after 2"):
        group.look(STREAM, holder(B, follower(1, 1), 1, 1), ())


def test_a_commit_index_may_begin_anew_with_a_life() -> None:
    group = committed(1, 1)
    group.look(STREAM, holder(B, follower(1, 2), 1, 1), ())
    group.on_restart(B)
    group.look(STREAM, holder(B, follower(1, 1), 1, 1), ())


def committing(*others: Holder) -> None:
    one = holder(A, leader(1, 1), 1)
    safety().look(STREAM, one, [one, *others])


def test_a_commit_that_too_few_disks_have_is_found() -> None:
    committing(holder(B, follower(1), 1), holder(C, follower(1)))
    with pytest.raises(Violation, match="acked_durable"):
        committing(holder(B, follower(1), 1, durable=0), holder(C, follower(1)))


def test_a_disk_that_was_destroyed_is_not_held_against_a_commit() -> None:
    committing(holder(B, follower(1), is_lost=True), holder(C, follower(1)))


def test_an_append_that_is_committed_twice_is_found() -> None:
    group = safety()
    seen = image()
    seen.apply(write(batch(1, 1, "x", producer=7), batch(1, 2, "x", producer=7)))
    one = Holder(A, leader(1, 2), seen, seen, False)
    with pytest.raises(Violation, match="exactly_once"):
        group.look(STREAM, one, [replace(one, node=node) for node in ENSEMBLE])


# What clients were told.


def test_an_acknowledged_append_that_is_not_committed_there_is_found() -> None:
    group = committed(1, 1)
    check_acknowledged(group, STREAM, 2, b"1/2")
    with pytest.raises(Violation, match="not committed"):
        check_acknowledged(group, STREAM, 3, b"1/3")
    with pytest.raises(Violation, match="acked_entries"):
        check_acknowledged(group, STREAM, 1, b"1/2")


# Order.


def cut(version: int, llsn: int, length: int) -> CutDecided:
    high = Glsn(llsn + length - 1)
    commit = StreamCommit(TOPIC, STREAM, high, Glsn(llsn), Llsn(llsn), length)
    return CutDecided(Version(version), (commit,))


def test_entries_that_are_ordered_without_a_quorum_are_found() -> None:
    commit = cut(1, 1, 1).commits[0]
    one, other = Term(1), Term(2)
    all_three, without_c = ((A, B, C),), ((A, B, C), (A, B))
    check_ordered_durable(commit, {A: one, B: one, C: None}, all_three, Quorum.MAJORITY)
    check_ordered_durable(commit, {A: one, B: None, C: None}, all_three, Quorum.MAJORITY, [B])
    check_ordered_durable(commit, {A: one, B: one, C: one}, all_three, Quorum.ALL)
    check_ordered_durable(commit, {A: one, B: one, C: None}, without_c, Quorum.ALL)
    for terms in ({A: one, B: None, C: None}, {A: one, B: other, C: None}):
        with pytest.raises(Violation, match="acked_durable"):
            check_ordered_durable(commit, terms, without_c, Quorum.MAJORITY)
    with pytest.raises(Violation, match="acked_durable"):
        check_ordered_durable(commit, {A: one, B: one, C: None}, all_three, Quorum.ALL)


def test_what_a_leader_committed_may_be_ordered_when_its_ensemble_has_changed_since() -> None:
    """A contraction that was rolled back, seed 51019: C never got what A and B committed."""
    group = safety(Quorum.ALL)
    one = holder(A, leader(1, 1, (A, B)), 1)
    group.look(STREAM, one, [one, holder(B, follower(1), 1), holder(C, follower(1))])
    assert group.counted(STREAM, 1) == ((A, B),)
    assert group.counted(STREAM, 2) == ()


def test_what_only_a_cut_committed_has_no_ensemble_of_a_leader() -> None:
    group = safety()
    holders = [holder(A, leader(1), 1), holder(B, follower(1), 1)]
    group.on_cut(cut_up_to(1, term=1), holders, holders)
    assert group.counted(STREAM, 1) == ()


def test_a_glsn_for_two_places_or_two_entries_is_found() -> None:
    values = OneValuePerGlsn()
    runs = (GlsnRun(Llsn(1), 1, 2),)
    values.on_ordered(A, TOPIC, STREAM, runs, image(1, 1))
    values.on_ordered(B, TOPIC, STREAM, runs, image(1, 1))
    with pytest.raises(Violation, match="one_value_per_glsn"):
        values.on_ordered(C, TOPIC, STREAM, runs, image(1, 2))
    with pytest.raises(Violation, match="one_value_per_glsn"):
        values.on_ordered(C, TOPIC, STREAM, (GlsnRun(Llsn(2), 1, 1),), image(1, 1))


def test_an_entry_that_was_compacted_away_is_no_other_entry() -> None:
    values = OneValuePerGlsn()
    compacted = image(1, 1, ordered=2)
    compacted.compact(Llsn(2))
    values.on_ordered(A, TOPIC, STREAM, (GlsnRun(Llsn(1), 1, 2),), image(1, 1))
    values.on_ordered(B, TOPIC, STREAM, (GlsnRun(Llsn(1), 1, 2),), compacted)


def test_a_context_that_is_not_what_its_version_made_of_the_stream_is_found() -> None:
    contexts = CommitContexts()
    contexts.on_cut(cut(1, 1, 2))
    contexts.on_cut(cut(4, 3, 1))
    contexts.on_context(A, STREAM, NONE)
    contexts.on_context(A, STREAM, CommitContext(3, 2, 1, 1, 2))
    contexts.on_context(A, STREAM, CommitContext(4, 3, 3, 3, 1))
    with pytest.raises(Violation, match="commit_context"):
        contexts.on_context(A, STREAM, CommitContext(4, 3, 1, 1, 2))


def test_a_node_that_takes_a_stream_to_end_before_it_does_is_found() -> None:
    contexts = CommitContexts()
    contexts.on_hosted(A, Version(0), {STREAM: Llsn(1)})
    contexts.on_cut(cut(1, 1, 2))
    contexts.on_cut(cut(4, 3, 1))
    contexts.on_hosted(A, Version(0), {STREAM: Llsn(1)})
    contexts.on_hosted(A, Version(3), {STREAM: Llsn(3)})
    contexts.on_hosted(A, Version(3), {STREAM: Llsn(4)})
    with pytest.raises(Violation, match="hosted_ends"):
        contexts.on_hosted(A, Version(4), {STREAM: Llsn(3)})


def test_a_node_that_takes_a_stream_to_end_where_no_cut_has_ended_it_is_found() -> None:
    contexts = CommitContexts()
    contexts.on_cut(cut(1, 1, 2))
    with pytest.raises(Violation, match="hosted_ends"):
        contexts.on_hosted(A, Version(1), {STREAM: Llsn(4)})


def test_a_crash_that_took_ordered_entries_away_is_found() -> None:
    contexts = CommitContexts()
    contexts.on_cut(cut(1, 1, 2))
    contexts.on_recovery(A, STREAM, image(1, 1, ordered=2))
    with pytest.raises(Violation, match="lost ordered entries"):
        contexts.on_recovery(A, STREAM, image(1, ordered=2))


# Rows.

OLD = StreamOrder(
    TOPIC,
    STREAM,
    tuple(ReplicaOrder(node) for node in ENSEMBLE),
    term=Term(3),
    revision=Revision(5),
    leader=A,
    plan=encode_plan(STEADY),
)


def following(before: StreamOrder, **changes: object) -> StreamOrder:
    return replace(before, revision=Revision(before.revision + 1), **changes)


def changing(kind: ChangeKind, phase: Phase, status: Status = Status.RECONFIGURATION) -> bytes:
    old, new = (NO_NODE if kind is ChangeKind.EXPAND else C), NodeId(104)
    change = Change(kind, phase, old, NO_NODE if kind is ChangeKind.CONTRACT else new)
    return encode_plan(StreamPlan(status, change))


def counted(*rows: StreamOrder) -> dict[Rare, int]:
    sometimes = Sometimes()
    watch = Rows(sometimes)
    for row in rows:
        watch.on_row(row)
    return dict(sometimes.counts)


def test_a_row_that_goes_back_is_found() -> None:
    with pytest.raises(Violation, match="rows"):
        counted(OLD, following(OLD, term=Term(2)))


def test_a_leader_outside_its_ensemble_is_found() -> None:
    with pytest.raises(Violation, match="not of the ensemble"):
        counted(OLD, following(OLD, leader=NodeId(104)))


def test_the_ways_of_a_reconfiguration_are_told_apart() -> None:
    kind, steady = ChangeKind.SWAP, encode_plan(STEADY)
    prepare = following(OLD, term=Term(4), plan=changing(kind, Phase.PREPARE))
    commit = following(prepare, plan=changing(kind, Phase.COMMIT))
    swapped = tuple(ReplicaOrder(node) for node in (A, B, NodeId(104)))
    assert Rare.SWAP_COMPLETED in counted(
        OLD, prepare, commit, following(commit, replicas=swapped, plan=steady)
    )
    assert Rare.CHANGE_ABORTED in counted(OLD, prepare, following(prepare, plan=steady))
    dropped = following(
        prepare, term=Term(5), leader=NO_NODE, plan=encode_plan(StreamPlan(Status.ELECTION))
    )
    assert Rare.SWAP_STALLED_IN_PREPARE in counted(OLD, prepare, dropped)
    election = following(
        commit,
        term=Term(5),
        leader=NO_NODE,
        plan=changing(kind, Phase.COMMIT, Status.ELECTION),
    )
    elected = following(election, replicas=swapped, leader=B, plan=steady)
    counts = counted(OLD, prepare, commit, election, elected)
    assert Rare.SWAP_STALLED_IN_COMMIT in counts
    assert Rare.SWAP_RESOLVED_BY_ELECTION in counts
    assert Rare.SWAP_COMPLETED not in counts
