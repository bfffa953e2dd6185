"""Changes that an election ends, replicas that are dropped, and what a leader says of itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.replica.protocol.beginnings import a_group, commit, finish
from tests.core.replica.protocol.harness import OPERATOR, STREAM, Group, entry, nodes, of
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    ChangeKind,
    DropResponse,
    Reason,
    Role,
    SnapshotRequest,
    StatusRequest,
    StatusResponse,
)
from tidelog.types import NodeId, Term

NODE_1, NODE_2, NODE_3, NODE_4 = nodes(1, 2, 3, 4)
SWAP, EXPAND, CONTRACT = ChangeKind.SWAP, ChangeKind.EXPAND, ChangeKind.CONTRACT


# -- elections in between ------------------------------------------------------------------------


def test_an_election_ends_a_change_that_was_prepared() -> None:
    group = a_group(b"x")
    group.prepare(SWAP, old=3, new=9)
    group.elect(1, 2, 3)
    group.isolate(2)
    llsn = group.append(1, b"y")
    group.pass_time(30)
    assert group[1].ensemble == nodes(1, 2, 3)
    assert group[1].commit_index == llsn, "node 3 counts again"


def test_a_leader_that_restarts_forgets_what_it_prepared_and_does_not_lead() -> None:
    group = a_group(b"x")
    prepared = group.prepare(SWAP, old=3, new=9)
    head = group.synchronise(9, prepared)
    group.restart(1)
    request = group.commit_request(SWAP, head, old=3, new=9)
    assert group.refusal(request).reason is Reason.NOT_LEADER


def test_a_swap_that_was_applied_survives_the_leader_by_the_fencing_ensemble() -> None:
    """The leader commits with the new node; whoever fences three of four meets one of them."""
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    group.isolate(2)
    group.append(1, b"y")
    group.pass_time(5)
    assert group.members[1].propagated == 3
    group.crash(1)
    group.heal()
    term = group.row.term + 1
    group.write_row(term=term)
    answers = [group.fence(number, term) for number in (2, 3, 9)]
    best = max((each for each in answers if each.node != 3), key=lambda each: each.head)
    assert best.node == 9
    group.ask(group.lead_request(9, term, *answers[:1], best, ensemble=(1, 2, 9)))
    group.write_row(leader=9, ensemble=(1, 2, 9))
    group.order_all()
    assert group.data(9) == group.data(2) == [b"x", b"y"]


# -- drop and status -----------------------------------------------------------------------------


def a_dropped_replica() -> Group:
    """Node 3 was swapped for node 9 and has dropped its replica."""
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    finish(group, 1, 2, 9)
    group.answer(group.drop_request(3), DropResponse)
    return group


def test_a_dropped_replica_leaves_only_its_term() -> None:
    group = a_dropped_replica()
    assert group[3].role is Role.NOT_MEMBER
    assert group.log(3) == []
    image = group.image(3)
    assert image.hard_state is not None
    assert (image.hard_state.term, image.hard_state.is_member) == (group.row.term, False)
    group.answer(group.drop_request(3), DropResponse)
    assert not group.fence(3, 9).is_complete


@pytest.mark.parametrize("restarts", [False, True])
def test_a_dropped_replica_refuses_the_terms_that_it_has_left_behind(restarts: bool) -> None:
    """Else a leader of the past could fill it up, and count on it."""
    group = a_dropped_replica()
    if restarts:
        group.restart(3)
    past = group.row.term - 1
    assert group.refusal(group.fence_request(3, past)).reason is Reason.TERM_PASSED
    request = SnapshotRequest(
        OPERATOR, NODE_3, STREAM, Term(past), Term(past), NODE_1, entry(past, 1)
    )
    assert group.refusal(request).reason is Reason.TERM_PASSED
    assert group[3].role is Role.NOT_MEMBER


def test_a_drop_is_answered_when_it_is_durable_and_not_before() -> None:
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    finish(group, 1, 2, 9)
    group.hold_back(3)
    assert not group.ask(group.drop_request(3))
    group.release(3)
    assert group.take_messages(of(DropResponse, source=3))


def test_a_leader_is_not_dropped() -> None:
    group = a_group(b"x")
    group.refusal(group.drop_request(1))
    assert group.data(1) == [b"x"]


def test_a_late_drop_does_not_hit_a_node_that_was_added_again() -> None:
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    finish(group, 1, 2, 9)
    late = group.drop_request(3)
    commit(group, EXPAND, new=3)
    finish(group, 1, 2, 3, 9)
    assert group.refusal(late).reason is Reason.TERM_PASSED
    group.append(1, b"y")
    group.order_all()
    assert group.data(3) == [b"x", b"y"]


def test_a_removed_node_does_not_disturb_the_stream() -> None:
    group = a_group(b"x")
    commit(group, SWAP, old=3, new=9)
    finish(group, 1, 2, 9)
    group.pass_time(60)
    group.append(1, b"y")
    group.order_all()
    assert group[1].role is Role.LEADER
    assert not [
        each
        for each in group.sent[-20:]
        if isinstance(each, AddEntriesRequest) and each.target == 3
    ]


def test_a_status_tells_the_role_and_who_is_attached() -> None:
    group = a_group(b"x")
    group.isolate(3)
    request = StatusRequest(OPERATOR, NODE_1, STREAM, group.row.term)
    status = group.answer(request, StatusResponse)
    assert (status.role, status.leader, status.own_term) == (Role.LEADER, NODE_1, 2)
    assert (status.head, status.ensemble) == (entry(2, 1), nodes(1, 2, 3))
    assert status.attached == nodes(2, 3)
    status = group.answer(replace(request, target=NODE_2), StatusResponse)
    assert (status.role, status.leader, status.attached) == (Role.FOLLOWER, NODE_1, ())
    status = group.answer(replace(request, target=NodeId(9)), StatusResponse)
    assert (status.role, status.own_term) == (Role.NOT_MEMBER, 0)
