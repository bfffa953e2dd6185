"""Swap, expand and contract at the leader, and what becomes of the nodes that come and go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.replica.protocol.beginnings import a_group, commit, finish
from tests.core.replica.protocol.harness import OPERATOR, STREAM, Group, entry, nodes, of
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AbortResponse,
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    ChangeKind,
    CommitResponse,
    DropResponse,
    PrepareResponse,
    Reason,
    Role,
)
from tidelog.core.replica.options import CursorKind
from tidelog.types import Llsn, NodeId, Term

NODE_1, NODE_2, NODE_3, NODE_4 = nodes(1, 2, 3, 4)
SWAP, EXPAND, CONTRACT = ChangeKind.SWAP, ChangeKind.EXPAND, ChangeKind.CONTRACT


# -- prepare -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SWAP, EXPAND, CONTRACT])
def test_a_leader_goes_to_the_new_term_and_keeps_its_reign(kind: ChangeKind) -> None:
    group = a_group(b"x")
    prepared = group.prepare(kind, old=0 if kind is EXPAND else 3, new=0 if kind is CONTRACT else 9)
    assert (prepared.term, prepared.reign, prepared.head) == (3, 2, entry(2, 1))
    assert (group[1].term, group[1].reign, group[1].role) == (3, 2, Role.LEADER)


def test_a_prepare_is_answered_when_its_term_is_durable_and_not_before() -> None:
    group = a_group(b"x")
    group.write_row(term=3, leader=1)
    group.hold_back(1)
    assert not group.ask(group.prepare_request(EXPAND, new=9))
    assert not [each for each in group.wire if each.term == 3]
    group.release(1)
    answer = group.take_one(PrepareResponse)
    assert answer.term == 3


def test_a_leader_that_crashes_before_its_new_term_is_durable_has_said_nothing_in_it() -> None:
    group = a_group(b"x")
    group.write_row(term=3, leader=1)
    group.hold_back(1)
    group.append(1, b"y")
    group.ask(group.prepare_request(EXPAND, new=9))
    group.sync(1, 1)
    group.append(1, b"z")
    group.pass_time(5)
    assert not [each for each in group.sent if each.term == 3]
    group.restart(1)
    assert group[1].term == 2


def test_a_repeated_prepare_gets_the_same_answer() -> None:
    group = a_group(b"x")
    first = group.prepare(SWAP, old=3, new=9)
    group.append(1, b"y")
    again = group.answer(group.prepare_request(SWAP, old=3, new=9), PrepareResponse)
    assert (again.term, again.reign) == (first.term, first.reign)
    assert again.head >= first.head
    assert group[1].term == 3


def test_one_change_at_a_time() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    request = group.prepare_request(EXPAND, new=9, term=4)
    assert group.refusal(request).reason is Reason.BUSY


def test_a_leader_is_not_removed() -> None:
    group = a_group(b"x")
    group.write_row(term=3, leader=1)
    for kind in (SWAP, CONTRACT):
        new = 9 if kind is SWAP else 0
        group.refusal(group.prepare_request(kind, old=1, new=new))
    assert group[1].role is Role.LEADER
    assert group[1].ensemble == nodes(1, 2, 3)


def test_only_a_leader_prepares() -> None:
    group = a_group(b"x")
    request = replace(group.prepare_request(EXPAND, new=9, term=3), target=NODE_2)
    assert group.refusal(request).reason is Reason.NOT_LEADER
    assert group[2].term == 2, "a refused request changes nothing"


def test_a_prepare_that_was_late_for_an_election_is_refused() -> None:
    group = a_group(b"x")
    late = group.prepare_request(SWAP, old=3, new=9, term=3)
    group.elect(1, 2, 3)
    assert group.refusal(late).reason is Reason.NOT_PREPARED, "its term is that of the election"
    assert group[1].reign == 3
    assert group[1].cursors[NODE_3].kind is CursorKind.ATTACHED


def test_the_leaving_node_does_not_count() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    group.isolate(2)
    llsn = group.append(1, b"y")
    group.pass_time(30)
    assert group[1].commit_index < llsn, "node 1 alone, whatever node 3 says"
    group.step(AddEntriesResponse(NODE_3, NODE_1, STREAM, group[1].term, Llsn(llsn)))
    assert group[1].commit_index < llsn


def test_a_leaving_node_that_is_added_late_does_not_count() -> None:
    """It was silent when the leader was elected: that is why it is swapped.  Then it answers.

    What the leader committed with it would be on no other node of the final ensemble.
    """
    group = Group(1, 2, 3, spares=[9])
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.order_all()
    head = group.fence(3, term)
    late = AddFollowerRequest(OPERATOR, NODE_1, STREAM, Term(term), head)
    new_head = group.synchronise(9, group.prepare(SWAP, old=3, new=9))
    group.ask(late)
    group.isolate(2)
    llsn = group.append(1, b"y")
    group.pass_time(30)
    assert group[1].commit_index < llsn
    request = group.commit_request(SWAP, new_head, old=3, new=9)
    group.answer(request, CommitResponse)
    assert group[1].ensemble == nodes(1, 2, 9)
    assert NODE_3 not in group[1].cursors


def test_a_leaving_node_that_is_added_late_is_served_after_an_abort() -> None:
    group = Group(1, 2, 3, spares=[9])
    term = group.elect(1, 2)
    group.append(1, b"x")
    group.order_all()
    late = AddFollowerRequest(OPERATOR, NODE_1, STREAM, Term(term), group.fence(3, term))
    group.prepare(SWAP, old=3, new=9)
    group.ask(late)
    group.answer(group.abort_request(), AbortResponse)
    finish(group, 1, 2, 3)
    if NODE_3 not in group[1].cursors:
        group.ask(replace(late, term=group.row.term))
    group.isolate(2)
    llsn = group.append(1, b"y")
    group.pass_time(30)
    assert group[1].commit_index == llsn


def test_the_leader_goes_on_taking_appends_while_it_prepares() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    llsn = group.append(1, b"y")
    group.deliver()
    assert group[1].commit_index == llsn
    assert group.members[1].propagated == llsn + 1


# -- commit --------------------------------------------------------------------------------------


def test_a_swap_replaces_one_node_by_another() -> None:
    group = a_group(b"x")
    assert commit(group, SWAP, old=3, new=9)
    assert group[1].ensemble == nodes(1, 2, 9)
    finish(group, 1, 2, 9)
    group.isolate(2)
    group.append(1, b"y")
    group.order_all()
    assert group.members[1].ordered == 3, "nodes 1 and 9 are the majority"
    assert group.data(9) == [b"x", b"y"]
    assert group.data(3) == [b"x"]


def test_an_expansion_adds_a_node_and_raises_the_quorum() -> None:
    group = a_group(b"x")
    assert commit(group, EXPAND, new=9)
    finish(group, 1, 2, 3, 9)
    assert group[1].ensemble == nodes(1, 2, 3, 9)
    group.isolate(2, 3)
    llsn = group.append(1, b"y")
    group.deliver()
    assert group[1].commit_index < llsn, "two of four"
    group.heal()
    group.pass_time(30)
    assert group[1].commit_index == llsn
    group.order_all()
    assert group.data(9) == [b"x", b"y"]


def test_a_contraction_removes_a_node_and_lowers_the_quorum() -> None:
    group = a_group(b"x", ensemble=(1, 2, 3, 4))
    assert commit(group, CONTRACT, old=4)
    finish(group, 1, 2, 3)
    assert group[1].ensemble == nodes(1, 2, 3)
    group.isolate(3, 4)
    llsn = group.append(1, b"y")
    group.deliver()
    assert group[1].commit_index == llsn, "two of three"
    assert group.data(4) == [b"x"]


def test_a_stream_of_one_can_expand_and_contract_back() -> None:
    group = Group(1, spares=[9])
    group.elect(1)
    group.append(1, b"x")
    group.order_all()
    assert commit(group, EXPAND, new=9)
    finish(group, 1, 9)
    llsn = group.append(1, b"y")
    assert group[1].commit_index < llsn
    group.order_all()
    assert group[1].commit_index == llsn
    assert commit(group, CONTRACT, old=9)
    finish(group, 1)
    llsn = group.append(1, b"z")
    assert group[1].commit_index == llsn


def test_what_was_written_since_the_snapshot_reaches_the_new_node() -> None:
    group = a_group(b"x")
    prepared = group.prepare(SWAP, old=3, new=9)
    head = group.synchronise(9, prepared)
    group.append(1, b"y", b"z")
    group.deliver()
    group.answer(group.commit_request(SWAP, head, old=3, new=9), CommitResponse)
    finish(group, 1, 2, 9)
    group.order_all()
    assert group.data(9) == [b"x", b"y", b"z"]


def test_a_commit_that_nobody_prepared_is_refused() -> None:
    group = a_group(b"x")
    request = group.commit_request(CONTRACT, NO_ENTRY, old=3)
    assert group.refusal(request).reason is Reason.NOT_PREPARED
    assert group[1].ensemble == nodes(1, 2, 3)


def test_a_commit_of_another_change_than_the_prepared_one_is_refused() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    request = group.commit_request(CONTRACT, NO_ENTRY, old=2)
    assert group.refusal(request).reason is Reason.NOT_PREPARED
    assert group[1].ensemble == nodes(1, 2, 3)


def test_a_repeated_commit_gets_the_same_answer_and_resets_no_cursor() -> None:
    group = a_group(b"x")
    prepared = group.prepare(SWAP, old=3, new=9)
    head = group.synchronise(9, prepared)
    request = group.commit_request(SWAP, head, old=3, new=9)
    assert group.answer(request, CommitResponse).is_done
    group.append(1, b"y")
    group.deliver()
    before = dict(group[1].cursors)
    assert group.answer(request, CommitResponse).is_done
    assert dict(group[1].cursors) == before


def test_a_contraction_waits_until_a_quorum_of_the_rest_has_all_that_is_committed() -> None:
    group = a_group(ensemble=(1, 2, 3, 4, 5))
    group.isolate(2, 3)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index == llsn
    group.prepare(CONTRACT, old=5)
    request = group.commit_request(CONTRACT, NO_ENTRY, old=5)
    assert not group.answer(request, CommitResponse).is_done
    assert group[1].ensemble == nodes(1, 2, 3, 4, 5)
    group.heal()
    group.pass_time(30)
    assert group.answer(request, CommitResponse).is_done
    assert group[1].ensemble == nodes(1, 2, 3, 4)


def test_a_contraction_waits_for_what_an_older_reign_may_have_committed() -> None:
    """x was propagated on {1, 4, 5}; node 4, which leads now, does not know that it was."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.isolate(2, 3)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    for ack in group.take_messages(of(AddEntriesResponse)):
        group.step(ack)
    assert group.members[1].propagated == 2
    group.drop()
    group.elect(4, 1, 5)
    group.drop()
    assert group[4].commit_index == 0
    group.prepare(CONTRACT, old=5)
    request = group.commit_request(CONTRACT, NO_ENTRY, old=5)
    assert not group.answer(request, CommitResponse).is_done, "{1, 4} is no majority of four"
    group.heal()
    group.add_follower(4, 2)
    group.pass_time(30)
    assert group.answer(request, CommitResponse).is_done


def test_a_contraction_waits_for_what_was_ordered_because_the_leaving_node_has_it() -> None:
    """The leader hears neither the answers of 4 and 5 nor of the cut that their reports made.

    Without both, {1, 2, 3} would be left, and {2, 3} could elect: node 4 has shown x by then.
    """
    group = a_group(ensemble=(1, 2, 3, 4, 5))
    group.isolate(2, 3)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.drop()
    group.report(1, 4, 5)
    assert group.cut()
    group.tell_cuts(4)
    assert group[4].context.llsn_end == 2
    assert group[1].commit_index == 0
    group.heal()
    group.isolate(4, 5)
    prepared = group.prepare(CONTRACT, old=5)
    for number in (2, 3):
        group.step(AddEntriesResponse(NodeId(number), NODE_1, STREAM, prepared.term, Llsn(0)))
    request = group.commit_request(CONTRACT, NO_ENTRY, old=5)
    assert not group.answer(request, CommitResponse).is_done
    group.pass_time(30)
    assert group.answer(request, CommitResponse).is_done
    assert group.data(2) == group.data(3) == [b"x"]


def test_a_contraction_waits_until_a_quorum_of_the_rest_was_heard_of_since_it_began() -> None:
    """Node 2 has everything, but it is dead: {1, 2} could never elect anybody."""
    group = a_group(b"x")
    group.crash(2)
    group.prepare(CONTRACT, old=3)
    group.deliver()
    request = group.commit_request(CONTRACT, NO_ENTRY, old=3)
    assert not group.answer(request, CommitResponse).is_done
    group.restart(2)
    group.pass_time(30)
    assert group.answer(request, CommitResponse).is_done


def test_the_removed_nodes_acknowledgements_count_no_more() -> None:
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    finish(group, 1, 2, 9)
    group.isolate(2)
    group.isolate(9)
    llsn = group.append(1, b"y")
    group.step(AddEntriesResponse(NODE_3, NODE_1, STREAM, group[1].term, Llsn(llsn)))
    assert group[1].commit_index < llsn
    assert NODE_3 not in group[1].cursors


def test_changes_follow_one_another() -> None:
    group = a_group(b"x")
    commit(group, EXPAND, new=9)
    finish(group, 1, 2, 3, 9)
    group.append(1, b"y")
    group.order_all()
    commit(group, CONTRACT, old=2)
    finish(group, 1, 3, 9)
    group.append(1, b"z")
    group.order_all()
    assert group[1].ensemble == nodes(1, 3, 9)
    assert group.data(3) == group.data(9) == [b"x", b"y", b"z"]
    group.crash(1)
    group.elect(9, 3)
    assert group.data(9) == [b"x", b"y", b"z"]


def test_a_node_can_leave_and_come_back() -> None:
    group = a_group(b"x")
    commit(group, CONTRACT, old=3)
    finish(group, 1, 2)
    group.answer(group.drop_request(3), DropResponse)
    commit(group, EXPAND, new=3)
    finish(group, 1, 2, 3)
    group.append(1, b"y")
    group.order_all()
    assert group.data(3) == [b"x", b"y"]


# -- abort ---------------------------------------------------------------------------------------


def test_after_an_abort_the_old_node_goes_on_and_counts() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    group.append(1, b"y")
    group.answer(group.abort_request(), AbortResponse)
    finish(group, 1, 2, 3)
    group.isolate(2)
    group.order_all()
    group.pass_time(30)
    assert group[1].commit_index == 2
    assert group.data(3) == [b"x", b"y"]


def test_a_repeated_abort_gets_the_same_answer() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    for _ in range(2):
        assert group.answer(group.abort_request(), AbortResponse).term == 3


def test_a_prepare_that_comes_after_its_abort_is_refused() -> None:
    group = a_group(b"x")
    group.write_row(term=3, leader=1)
    group.answer(group.abort_request(), AbortResponse)
    request = group.prepare_request(SWAP, old=3, new=9)
    assert group.refusal(request).reason is Reason.ABORTED
    group.append(1, b"y")
    group.deliver()
    assert group.data(3) == [b"x", b"y"]


def test_a_commit_that_comes_after_the_abort_is_refused() -> None:
    group = a_group(b"x")
    prepared = group.prepare(SWAP, old=3, new=9)
    head = group.synchronise(9, prepared)
    group.answer(group.abort_request(), AbortResponse)
    request = group.commit_request(SWAP, head, old=3, new=9)
    assert group.refusal(request).reason in (Reason.ABORTED, Reason.NOT_PREPARED)
    assert group[1].ensemble == nodes(1, 2, 3)


def test_what_is_committed_is_not_aborted() -> None:
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    assert group.refusal(group.abort_request()).reason is Reason.COMMITTED
    assert group[1].ensemble == nodes(1, 2, 9)


def test_another_change_can_be_prepared_after_an_abort() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    group.answer(group.abort_request(), AbortResponse)
    finish(group, 1, 2, 3)
    assert commit(group, EXPAND, new=9)
    assert group[1].ensemble == nodes(1, 2, 3, 9)
