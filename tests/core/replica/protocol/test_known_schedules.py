"""Schedules that break close relatives of this protocol; each test is named after its flaw.

Chance hardly ever meets them: every one takes three or four elections or a reconfiguration that
stalls at one particular step.
"""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.harness import OPERATOR, Group, entry, nodes, of
from tidelog.core.order.commands import StreamStatus, UpdateStream
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    BecomeLeaderResponse,
    ChangeKind,
    CommitResponse,
    Reason,
    Role,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.core.replica.options import CursorKind, ReplicaOptions
from tidelog.errors import RevisionConflict

ONE_BATCH_PER_MESSAGE = ReplicaOptions(message_bytes_max=1)


def test_v1_one_shot_truncation_leaves_foreign_entries() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 3)
    group.append(1, b"a")
    group.drop()
    group.elect(2, 3)
    group.append(2, b"b")
    group.drop()
    group.elect(1, 3)
    group.append(1, b"a again")
    group.drop()
    group.elect(2, 3)
    group.deliver()
    assert group[1].head.term == 4, "node 1 wrote last, and alone, in term 4"

    group.add_follower(2, 1)
    group.deliver()

    rounds = [each for each in group.sent if isinstance(each, TruncateRequest)]
    assert len(rounds) == 2, "one round leaves (2, 1), which is no entry of the leader's log"
    group.order_all()
    assert group.log(1) == group.log(2) == group.log(3)
    assert group.data(1) == [b"b"]


def test_v2_the_write_quorum_is_that_of_the_final_ensemble() -> None:
    """An expansion to four stalls in commit; the election that ends it must count four."""
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    group.synchronise(4, prepared)

    group.elect(1, 2, 4, ensemble=(1, 2, 3, 4))
    llsn = group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, AddEntriesResponse, source=1, target=2))
    group.deliver(of(AddEntriesResponse, source=2))
    assert group[1].commit_index < llsn, "two of four are no majority"
    group.deliver()
    assert group[1].commit_index == llsn


def test_v3_completing_a_reconfiguration_is_compare_and_set() -> None:
    """A first operator's contraction is applied, but its answer is late; a second one elects."""
    group = Group(1, 2, 3, 4)
    group.elect(1, 2, 3, 4)
    group.deliver()
    group.prepare(ChangeKind.CONTRACT, old=4)
    group.deliver()
    read_by_first = group.row
    answer = group.answer(
        group.commit_request(ChangeKind.CONTRACT, entry(0, 0), old=4), CommitResponse
    )
    assert answer.is_done

    group.isolate(1)
    group.elect(2, 3, 4)
    with pytest.raises(RevisionConflict):
        group.order.step(
            UpdateStream(
                read_by_first.stream,
                read_by_first.revision,
                read_by_first.term,
                nodes(1, 2, 3),
                read_by_first.leader,
                StreamStatus.RUNNING,
                b"",
            )
        )
    assert group.row.leader == 2
    assert group.row.ensemble == nodes(1, 2, 3, 4)
    group.heal()
    group.append(1, b"nobody takes this")
    group.deliver()
    assert group[1].role is Role.FENCED
    group.add_follower(2, 1)
    group.append(2, b"x")
    group.order_all()
    assert group.data(1) == group.data(2) == [b"x"]


@pytest.mark.parametrize("kind", [ChangeKind.SWAP, ChangeKind.EXPAND])
def test_v4_committing_a_change_without_traffic_leaves_the_commit_index(kind: ChangeKind) -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    before = group[1].commit_index
    assert before == 1

    old = 3 if kind is ChangeKind.SWAP else 0
    head = group.synchronise(4, group.prepare(kind, old=old, new=4))
    group.ask(group.commit_request(kind, head, old=old, new=4))
    assert group[1].commit_index == before


def test_v4_a_contraction_needs_no_new_traffic() -> None:
    group = Group(1, 2, 3, 4)
    group.elect(1, 2, 3, 4)
    group.append(1, b"x")
    group.deliver()
    group.prepare(ChangeKind.CONTRACT, old=4)
    group.deliver()
    request = group.commit_request(ChangeKind.CONTRACT, entry(0, 0), old=4)
    assert group.answer(request, CommitResponse).is_done


def test_v4_a_contraction_goes_on_when_the_smaller_quorum_commits_more() -> None:
    """Two of four have the entry: not a majority of four, but one of three."""
    group = Group(1, 2, 3, 4)
    group.elect(1, 2, 3, 4)
    group.isolate(3)
    group.isolate(4)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index < llsn
    group.prepare(ChangeKind.CONTRACT, old=4)
    group.deliver()
    request = group.commit_request(ChangeKind.CONTRACT, entry(0, 0), old=4)
    assert group.answer(request, CommitResponse).is_done
    assert group[1].commit_index == llsn


def test_v5_the_new_node_of_a_stalled_swap_counts_in_the_election() -> None:
    """Swap in commit, leader dead, old node gone: only with the new node is there a majority."""
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    head = group.synchronise(4, group.prepare(ChangeKind.SWAP, old=3, new=4))
    assert head == group[1].head
    group.crash(1)

    term = group.row.term + 1
    group.write_row(term=term)
    answers = [group.fence(number, term) for number in (2, 3, 4)]
    assert all(answer.is_complete for answer in answers)
    lead = group.lead_request(2, term, answers[0], answers[2], ensemble=(1, 2, 4))
    group.answer(lead, BecomeLeaderResponse)
    group.write_row(leader=2, ensemble=(1, 2, 4))
    group.append(2, b"y")
    group.order_all()
    assert group.data(2) == group.data(4) == [b"x", b"y"]


def test_v6_the_first_acknowledgement_after_a_new_term_counts() -> None:
    """The follower hears of the reconfiguration's term by the entries themselves."""
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.deliver()
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    llsn = group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, target=2))
    acks = group.take_messages(of(AddEntriesResponse, source=2))
    assert {ack.term for ack in acks} == {prepared.term}
    group.step(acks[-1])
    assert group[1].commit_index == llsn


def test_v6_acknowledgements_in_flight_across_a_prepare_still_count() -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    llsn = group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    acks = group.take_messages(of(AddEntriesResponse))
    assert group[1].commit_index < llsn
    group.prepare(ChangeKind.EXPAND, new=4)
    for ack in acks:
        group.step(ack)
    assert group[1].commit_index == llsn


def test_v6_a_truncation_in_flight_across_a_prepare_comes_to_an_end() -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"of a leader that nobody heard")
    group.drop()
    group.elect(2, 3)
    group.append(2, b"x")
    group.deliver()
    group.add_follower(2, 1)
    group.deliver(of(TruncateRequest))
    late = group.take_messages(of(TruncateResponse))
    assert late
    group.prepare(ChangeKind.EXPAND, new=4)
    for message in late:
        group.step(message)
    group.pass_time(20)
    assert group.data(1) == [b"x"]
    assert group[2].cursors[nodes(1)[0]].kind is CursorKind.ATTACHED


def test_v7_a_contraction_that_stalls_in_commit_is_rolled_back() -> None:
    """A write lies on {1, 4, 5}; whoever leaves 5 out of the election among {2, 3, 5} loses it."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.deliver()
    group.isolate(2, 3)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index == llsn
    group.prepare(ChangeKind.CONTRACT, old=5)
    request = group.commit_request(ChangeKind.CONTRACT, entry(0, 0), old=5)
    assert not group.answer(request, CommitResponse).is_done, "{1, 4} is no majority of four"

    group.crash(1, 4)
    group.heal()
    group.elect(5, 2, 3)
    group.order_all()
    assert group.data(5) == group.data(2) == group.data(3) == [b"x"]


def figure_8() -> Group:
    """Up to where an entry of term 2 lies on a majority under the leader of term 4."""
    group = Group(1, 2, 3, 4, 5, options=ONE_BATCH_PER_MESSAGE)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest, target=2))
    group.drop()
    group.elect(5, 3, 4)
    group.append(5, b"y")
    group.drop()
    group.elect(1, 2, 3)
    for _ in range(4):
        for request in group.take_messages(of(AddEntriesRequest)):
            assert isinstance(request, AddEntriesRequest)
            if all(batch.data == b"x" for batch in request.batches):
                group.step(request)
        group.deliver(of(AddEntriesResponse))
        group.tick()
    assert group[2].role is group[3].role is Role.FOLLOWER
    assert group.data(1) == group.data(2) == group.data(3) == [b"x"]
    return group


def test_v8_an_entry_of_an_older_reign_is_not_committed_by_counting_copies() -> None:
    group = figure_8()
    assert group[1].commit_index == 0
    assert group.members[1].propagated == 0
    group.drop()
    group.elect(5, 3, 4)
    group.deliver()
    group.order_all()
    assert group.data(5) == group.data(3) == group.data(4) == [b"y"]
    group.add_follower(5, 1)
    group.add_follower(5, 2)
    group.order_all()
    assert group.data(1) == group.data(2) == [b"y"]


def test_v8_an_entry_of_an_older_reign_is_not_cut_without_the_control_entry() -> None:
    """Figure 8 through cuts: the order layer counts copies too."""
    group = figure_8()
    group.report()
    assert not group.cut()
    group.drop()
    group.elect(5, 3, 4)
    group.order_all()
    assert group.data(5) == [b"y"]


def test_v8_an_entry_of_an_older_reign_commits_with_the_control_entry() -> None:
    group = figure_8()
    group.pass_time(20)
    assert group[1].commit_index == 2
    group.order_all()
    assert group.row.llsn_end == 3
    group.elect(2, 4, 5)
    assert group.data(2) == [b"x"]


def test_a_late_operator_ends_with_a_refusal_of_its_term() -> None:
    group = Group(1, 2, 3)
    old = group.elect(1, 2)
    group.elect(2, 3)
    refusal = group.refusal(group.fence_request(2, old))
    assert (refusal.target, refusal.reason) == (OPERATOR, Reason.TERM_PASSED)
    assert (refusal.term, refusal.known_term) == (old, old + 1)
