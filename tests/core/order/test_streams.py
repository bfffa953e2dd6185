"""Topics and streams: what the operator writes, and what it does to the order (O4, O5)."""

from __future__ import annotations

import pytest

from tests.core.order.orders import (
    S1,
    S2,
    T1,
    T2,
    THREE,
    acknowledge,
    commit,
    cut,
    cut_all,
    decided,
    feed,
    glsns,
    machine_of,
    missed,
    new,
    nodes,
    now,
    report,
    update,
)
from tidelog import limits
from tidelog.core.order.commands import (
    AddStreams,
    Command,
    CreateTopic,
    NewStream,
    Quorum,
    RemoveStream,
    StreamStatus,
    UpdateStream,
)
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.reports import Ignored
from tidelog.errors import (
    BadOption,
    ReplicasBehind,
    RevisionConflict,
    TopicExists,
    UnknownStream,
    UnknownTopic,
)
from tidelog.types import NodeId, Revision, StreamId, Term, TopicId, Version

HUGE = limits.ORDER_NUMBER_END


# -- terms ---------------------------------------------------------------------------------------


def test_a_commit_keeps_the_term_in_which_it_was_decided() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 2))
    machine.step(update(machine, 1, term=5))
    cut(machine, report(1, 1, 3, term=5))
    kept = machine.commits_after(S1, Version(0))
    assert kept is not None
    assert [each.commit.term for each in kept] == [1, 5]


def test_a_new_term_voids_what_was_reported_in_the_old_one() -> None:
    machine = machine_of(1)
    feed(machine, report(1, 1, 5))
    machine.step(update(machine, 1, term=2))
    assert cut(machine) is None
    assert cut(machine, report(1, 1, 2, term=2)) == decided(1, commit(1, 2, 1, 1, 2, term=2))


def test_fencing_stops_the_cuts_of_the_old_term_at_that_very_position() -> None:
    """The old leader's quorum is complete, but its last report lies behind the new term."""
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 5, node=1))
    machine.step(update(machine, 1, term=2, leader=3))
    assert cut(machine, report(1, 1, 5, node=2)) is None
    assert machine.ignored == {Ignored.OLD_TERM: 1}
    found = cut(machine, report(1, 1, 1, node=2, term=2), report(1, 1, 3, node=3, term=2))
    assert glsns(found) == {1: (1, 1)}


def test_a_quorum_is_never_made_of_two_terms() -> None:
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 5, node=1), report(1, 1, 4, node=2))
    machine.step(update(machine, 1, term=2))
    assert cut(machine, report(1, 1, 5, node=3, term=2)) is None


def test_a_new_term_does_not_make_a_replica_forget_its_cuts() -> None:
    machine = machine_of(1, on=THREE)
    cut_all(machine, 1, 2)
    acknowledge(machine, 1, 1, 2)
    machine.step(update(machine, 1, term=2))
    assert [(one.version, one.end) for one in machine.stream(S1).replicas] == [
        (1, 0),
        (1, 0),
        (0, 0),
    ]


def test_a_term_never_goes_back() -> None:
    machine = machine_of(1)
    machine.step(update(machine, 1, term=3))
    with pytest.raises(BadOption, match="term 3"):
        machine.step(update(machine, 1, term=2))
    machine.step(update(machine, 1, term=3, leader=1))
    assert machine.stream(S1).term == 3


def test_a_write_in_the_same_term_keeps_the_reports() -> None:
    machine = machine_of(1)
    feed(machine, report(1, 1, 5))
    machine.step(update(machine, 1, leader=1, plan=b"swap"))
    order = machine.stream(S1)
    assert (order.leader, order.plan, order.revision) == (1, b"swap", 2)
    assert glsns(cut(machine)) == {1: (1, 5)}


# -- ensembles -----------------------------------------------------------------------------------


def test_a_larger_ensemble_needs_a_larger_quorum() -> None:
    machine = machine_of(1, on=THREE)
    machine.step(update(machine, 1, on=(1, 2, 3, 4, 5), term=2))
    reports = [report(1, 1, length, node=node, term=2) for node, length in ((1, 5), (2, 3))]
    assert cut(machine, *reports) is None, "two of five are no majority"
    assert glsns(cut(machine, report(1, 1, 4, node=5, term=2))) == {1: (1, 3)}


def test_a_replica_may_join_within_a_term_and_then_counts() -> None:
    machine = machine_of(1, on=(1, 2))
    feed(machine, report(1, 1, 5, node=1))
    machine.step(update(machine, 1, on=THREE))
    assert cut(machine) is None, "one of three is no majority"
    assert glsns(cut(machine, report(1, 1, 4, node=3))) == {1: (1, 4)}


def test_a_node_that_left_in_a_term_comes_back_with_a_new_term_only() -> None:
    """Else a report from before it left, held up on its way, would speak for an empty replica."""
    machine = machine_of(1, on=THREE)
    feed(machine, report(1, 1, 5, node=1))
    machine.step(update(machine, 1, on=(1, 2)))
    before = machine.state
    with pytest.raises(BadOption, match="node 3 left stream 1 in term 1; it comes back with a new"):
        machine.step(update(machine, 1, on=THREE))
    assert machine.state == before
    machine.step(update(machine, 1, on=THREE, term=2))
    assert machine.stream(S1).departed == ()


def test_who_left_is_remembered_by_a_stored_state() -> None:
    machine = machine_of(1, on=THREE)
    machine.step(update(machine, 1, on=(1, 2)))
    machine = OrderMachine.restore(machine.state)
    with pytest.raises(BadOption, match="node 3 left"):
        machine.step(update(machine, 1, on=THREE))


def test_a_cut_does_not_make_a_stream_forget_who_left() -> None:
    machine = machine_of(1, on=THREE)
    machine.step(update(machine, 1, on=(1, 2)))
    cut_all(machine, 1, 2)
    with pytest.raises(BadOption, match="node 3 left"):
        machine.step(update(machine, 1, on=THREE))


def test_the_number_of_nodes_that_leave_in_a_term_is_bounded() -> None:
    machine = machine_of(1, on=(1, 2))
    for node in range(3, limits.ENSEMBLE_DEPARTED_MAX + 3):
        machine.step(update(machine, 1, on=(1, node)))
    with pytest.raises(BadOption, match="begin a new one"):
        machine.step(update(machine, 1, on=(1,)))
    machine.step(update(machine, 1, on=(1,), term=2))


def test_a_smaller_ensemble_may_complete_a_quorum() -> None:
    machine = machine_of(1, on=THREE, quorum=Quorum.ALL)
    assert cut(machine, report(1, 1, 5, node=1), report(1, 1, 4, node=3)) is None
    machine.step(update(machine, 1, on=(1, 3)))
    assert glsns(cut(machine)) == {1: (1, 4)}


def test_a_changed_ensemble_takes_back_nothing_that_is_ordered() -> None:
    machine = machine_of(1, on=THREE)
    cut(machine, report(1, 1, 5, node=1), report(1, 1, 5, node=2))
    machine.step(update(machine, 1, on=(3, 4, 5), term=2))
    short = [report(1, 1, 2, node=node, term=2) for node in (3, 4)]
    assert cut(machine, *short) is None
    assert machine.stream(S1).llsn_end == 6
    longer = [report(1, 1, length, node=node, term=2) for node, length in ((3, 6), (4, 7))]
    assert glsns(cut(machine, *longer)) == {1: (6, 6)}


def test_what_a_node_said_before_it_left_does_not_count_when_it_is_back() -> None:
    machine = machine_of(1, on=THREE)
    late = report(1, 1, 5, node=2)
    feed(machine, report(1, 1, 5, node=1))
    machine.step(update(machine, 1, on=(1, 3)))
    machine.step(update(machine, 1, on=THREE, term=2))
    assert cut(machine, report(1, 1, 5, node=1, term=2), late) is None
    assert machine.ignored == {Ignored.OLD_TERM: 1}
    assert glsns(cut(machine, report(1, 1, 5, node=2, term=2))) == {1: (1, 5)}


def test_a_node_that_left_is_not_heard_any_more() -> None:
    machine = machine_of(1, on=THREE)
    machine.step(update(machine, 1, on=(1, 2)))
    assert cut(machine, report(1, 1, 5, node=1), report(1, 1, 5, node=3)) is None
    assert machine.ignored == {Ignored.NOT_IN_ENSEMBLE: 1}


def forgotten_but_by(*knowing: int) -> OrderMachine:
    """A stream of three, with a cut that these replicas know and the history does not any more."""
    machine = machine_of(1, on=THREE)
    cut_all(machine, 1, 5)
    acknowledge(machine, 1, *knowing)
    machine.step(update(machine, 1, term=2))  # Who said nothing in the new term is not waited for.
    cut(machine, *(report(1, 6, 1, node=node, version=1, term=2) for node in knowing))
    assert missed(machine, 1, 0) is None
    return machine


def test_the_last_but_one_replica_that_knows_a_forgotten_cut_does_not_leave() -> None:
    """With it only one would be left that knows GLSNs that nobody else can tell."""
    machine = forgotten_but_by(1, 2)
    with pytest.raises(ReplicasBehind):
        machine.step(update(machine, 1, on=(1, 3, 4)))
    feed(machine, report(1, 6, 0, node=3, version=1, term=2))
    machine.step(update(machine, 1, on=(1, 3, 4)))


def test_a_joining_node_that_knows_the_forgotten_cuts_counts() -> None:
    machine = forgotten_but_by(1, 2)
    machine.step(update(machine, 1, on=(1, 3, 4), joining={4: 1}))
    assert [replica.version for replica in machine.stream(S1).replicas] == [1, 0, 1]


def test_who_knows_nothing_may_leave_and_come() -> None:
    machine = forgotten_but_by(1, 2)
    machine.step(update(machine, 1, on=(1, 2)))
    machine.step(update(machine, 1, on=(1, 2, 4, 5)))


def test_no_node_knows_a_cut_before_it_is_decided() -> None:
    machine = machine_of(1, on=THREE)
    with pytest.raises(BadOption):
        machine.step(update(machine, 1, on=(1, 2, 3, 4), joining={4: 1}))


# -- sealing -------------------------------------------------------------------------------------


def test_a_sealed_stream_contributes_nothing() -> None:
    machine = machine_of(1, 2)
    feed(machine, report(1, 1, 5))
    machine.step(update(machine, 1, status=StreamStatus.SEALED))
    assert not machine.has_pending
    assert glsns(cut(machine, report(1, 1, 6), report(2, 1, 1))) == {2: (1, 1)}


def test_what_a_stream_took_before_it_is_sealed_is_still_ordered() -> None:
    machine = machine_of(1)
    feed(machine, report(1, 1, 5))
    machine.step(update(machine, 1, status=StreamStatus.SEALING))
    assert glsns(cut(machine)) == {1: (1, 5)}
    assert glsns(cut(machine, report(1, 6, 2, version=1))) == {1: (6, 7)}


def test_a_sealed_stream_goes_on_in_a_higher_term() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 2))
    machine.step(update(machine, 1, status=StreamStatus.SEALED))
    machine.step(update(machine, 1, status=StreamStatus.RUNNING, term=2))
    assert cut(machine) is None
    assert cut(machine, report(1, 3, 1, version=1, term=2)) == decided(
        2, commit(1, 3, 3, 3, 1, term=2)
    )


def test_a_seal_that_is_taken_back_in_its_term_loses_nothing() -> None:
    machine = machine_of(1)
    feed(machine, report(1, 1, 5))
    machine.step(update(machine, 1, status=StreamStatus.SEALED))
    machine.step(update(machine, 1, status=StreamStatus.RUNNING))
    assert glsns(cut(machine)) == {1: (1, 5)}


# -- compare and set -----------------------------------------------------------------------------


def test_of_two_operators_only_the_first_one_writes() -> None:
    machine = machine_of(1)
    first, second = update(machine, 1, term=2, leader=1), update(machine, 1, term=3, leader=2)
    machine.step(first)
    before = machine.state
    with pytest.raises(RevisionConflict, match="at revision 2, not at 1"):
        machine.step(second)
    assert machine.state == before
    assert machine.stream(S1).leader == 1


def test_a_repeated_write_is_refused() -> None:
    machine = machine_of(1)
    write = update(machine, 1, leader=1)
    machine.step(write)
    with pytest.raises(RevisionConflict):
        machine.step(write)


def test_a_stream_is_removed_only_by_who_has_seen_its_last_revision() -> None:
    machine = machine_of(1)
    machine.step(update(machine, 1, leader=1))
    with pytest.raises(RevisionConflict):
        machine.step(RemoveStream(S1, Revision(1)))
    machine.step(RemoveStream(S1, Revision(2)))
    with pytest.raises(UnknownStream):
        machine.stream(S1)


# -- removal -------------------------------------------------------------------------------------


def test_glsns_go_on_when_a_stream_is_removed() -> None:
    machine = machine_of(1, 2)
    cut(machine, report(1, 1, 3), report(2, 1, 2))
    machine.step(RemoveStream(S1, Revision(1)))
    found = cut(machine, now(machine, 2, 1))
    assert found == decided(2, commit(2, 6, 6, 3, 1))
    assert OrderMachine.restore(machine.state).state == machine.state


def test_glsns_go_on_when_the_last_stream_is_removed() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 3))
    machine.step(RemoveStream(S1, Revision(1)))
    assert machine.topic(T1).streams == ()
    machine = OrderMachine.restore(machine.state)
    machine.step(AddStreams(T1, new(2)))
    assert cut(machine, report(2, 1, 1, version=1)) == decided(2, commit(2, 4, 4, 1, 1))


def test_what_a_removed_stream_had_not_ordered_is_not_ordered_any_more() -> None:
    machine = machine_of(1, 2)
    feed(machine, report(1, 1, 3))
    machine.step(RemoveStream(S1, Revision(1)))
    assert not machine.has_pending
    assert cut(machine, report(1, 1, 4)) is None
    assert machine.ignored == {Ignored.UNKNOWN_STREAM: 1}


def test_the_number_of_a_removed_stream_is_not_given_again() -> None:
    machine = machine_of(1, 2)
    machine.step(RemoveStream(S2, Revision(1)))
    machine = OrderMachine.restore(machine.state)
    with pytest.raises(BadOption, match="may have existed"):
        machine.step(AddStreams(T1, new(2)))
    machine.step(AddStreams(T1, new(3)))


def test_a_removed_stream_stays_in_the_cuts_that_named_it() -> None:
    machine = machine_of(1, 2, on=THREE)
    both = [report(stream, 1, 1, node=node) for stream in (1, 2) for node in THREE]
    first = cut(machine, *both)
    machine.step(RemoveStream(S1, Revision(1)))
    machine.validate()
    assert machine.cuts_after(machine.stream(S2).replicas[0].version) == (first,)
    cut_all(machine, 2, 1)
    acknowledge(machine, 2, *THREE)
    cut_all(machine, 2, 1)
    assert machine.first_version == 3, "nobody can miss what the removed stream was given"
    assert missed(machine, 2, 2) == [(3, 4, 4)]


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (CreateTopic(T1, new(7)), TopicExists),
        (CreateTopic(T2, new(7), "events"), TopicExists),
        (CreateTopic(T2, new(7), "x" * (limits.TOPIC_NAME_CHARS_MAX + 1)), BadOption),
        (CreateTopic(TopicId(0), new(7)), BadOption),
        (CreateTopic(TopicId(HUGE), new(7)), BadOption),
        (CreateTopic(T2, ()), BadOption),
        (CreateTopic(T2, new(7, 7)), BadOption),
        (CreateTopic(T2, new(7, 1)), BadOption),
        (CreateTopic(T2, new(0)), BadOption),
        (CreateTopic(T2, new(7, on=())), BadOption),
        (CreateTopic(T2, new(7, on=(2, 1))), BadOption),
        (CreateTopic(T2, new(7, on=(1, 1))), BadOption),
        (CreateTopic(T2, new(7, on=(0, 1))), BadOption),
        (CreateTopic(T2, new(7, on=range(1, limits.ENSEMBLE_NODES_MAX + 2))), BadOption),
        (AddStreams(T2, new(7)), UnknownTopic),
        (AddStreams(T1, new(1)), BadOption),
        (AddStreams(T1, ()), BadOption),
        (AddStreams(T1, new(*range(2, limits.STREAMS_PER_TOPIC_MAX + 2))), BadOption),
        (RemoveStream(StreamId(9), Revision(1)), UnknownStream),
        (update(machine_of(9), 9), UnknownStream),
        (update(machine_of(1), 1, term=0), BadOption),
        (update(machine_of(1), 1, term=HUGE), BadOption),
        (update(machine_of(1), 1, on=()), BadOption),
        (update(machine_of(1), 1, on=(3, 2)), BadOption),
        (update(machine_of(1), 1, leader=-1), BadOption),
        (update(machine_of(1), 1, leader=HUGE), BadOption),
        (update(machine_of(1), 1, plan=bytes(limits.STREAM_PLAN_BYTES_MAX + 1)), BadOption),
        (update(machine_of(1), 1, revision=2), RevisionConflict),
    ],
)
def test_a_refused_command_changes_nothing(command: Command, error: type[Exception]) -> None:
    machine = machine_of(1)
    before = machine.state
    with pytest.raises(error):
        machine.step(command)
    assert machine.state == before


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        ("TOPICS_MAX", CreateTopic(T2, new(2))),
        ("STREAMS_MAX", CreateTopic(T2, new(2))),
        ("STREAMS_MAX", AddStreams(T1, new(2))),
    ],
)
def test_the_numbers_of_topics_and_streams_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, command: Command
) -> None:
    machine = machine_of(1)
    monkeypatch.setattr(limits, limit, 1)
    with pytest.raises(BadOption):
        machine.step(command)


def test_topics_may_go_without_a_name() -> None:
    machine = OrderMachine()
    machine.step(CreateTopic(T1, new(1)))
    machine.step(CreateTopic(T2, new(2)))
    assert list(machine.topics) == [T1, T2]
    assert list(machine.streams) == [S1, S2]


def test_a_stream_shows_what_was_written_about_it() -> None:
    machine = OrderMachine()
    machine.step(CreateTopic(T1, (NewStream(S1, nodes((4, 5))),), quorum=Quorum.ALL))
    order = machine.stream(S1)
    assert (order.revision, order.term, order.ensemble, order.leader) == (1, 1, (4, 5), 0)
    assert machine.topic(T1).quorum is Quorum.ALL
    write = UpdateStream(
        S1, Revision(1), Term(2), nodes((4, 6)), NodeId(6), StreamStatus.SEALED, b"plan"
    )
    machine.step(write)
    order = machine.stream(S1)
    assert (order.revision, order.term, order.ensemble, order.leader) == (2, 2, (4, 6), 6)
    assert (order.status, order.plan) == (StreamStatus.SEALED, b"plan")
