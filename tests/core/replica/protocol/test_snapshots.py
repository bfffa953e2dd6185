"""Snapshots: how the new node of a reconfiguration is filled up before it counts."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.replica.protocol.harness import Group, entry, nodes, of
from tidelog.core.replica.messages import (
    AbortResponse,
    ChangeKind,
    SnapshotResponse,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import NodeId

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)
SYNC = (SyncRequest, SyncInitRequest, SyncInitResponse, SyncEntriesRequest, SyncEntriesResponse)


def begin_of(group: Group) -> int:
    answers = [each for each in group.sent if isinstance(each, SyncInitResponse)]
    return answers[-1].begin


def test_a_snapshot_request_of_a_passed_term_destroys_nothing() -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    prepared = group.prepare(ChangeKind.SWAP, old=3, new=4)
    group.synchronise(4, prepared)
    before = group.image(4)
    old = replace(group.snapshot_request(4, prepared), term=prepared.reign)
    group.refusal(old)
    assert group.image(4) == before


def test_a_new_node_answers_when_all_up_to_the_leaders_head_is_durable() -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.order_all()
    group.append(1, b"unordered")
    group.deliver()
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    assert prepared.head == entry(2, 3)
    group.hold_back(4)
    group.ask(group.snapshot_request(4, prepared))
    for _ in range(20):
        group.pass_time(1)
        assert not group.take_messages(of(SnapshotResponse)) or (
            group.image(4).head >= prepared.head
        )
        group.sync(4, 1)
    assert group.image(4).head == entry(2, 3)
    assert group[4].report() is None, "it is in no ensemble yet"


def test_a_repeated_snapshot_request_gets_the_same_answer() -> None:
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    head = group.synchronise(4, prepared)
    again = group.answer(group.snapshot_request(4, prepared), SnapshotResponse)
    assert again.head == head == entry(2, 1)


def test_a_snapshot_goes_on_after_the_new_node_restarted() -> None:
    group = Group(1, 2, 3, spares=[4], options=ReplicaOptions(message_bytes_max=1))
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y", b"z")
    group.order_all()
    prepared = group.prepare(ChangeKind.EXPAND, new=4)
    group.ask(group.snapshot_request(4, prepared))
    group.tick()
    group.deliver(of(SyncRequest, SyncInitRequest, SyncInitResponse))
    group.restart(4)
    assert group.synchronise(4, prepared) == entry(2, 3)
    assert NodeId(4) not in group.row.ensemble


def test_a_node_that_is_filled_up_again_still_knows_what_its_own_snapshot_left_out() -> None:
    """The leader has taken no snapshot; the new node has, between two attempts to let it join."""
    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.order_all()
    group.synchronise(4, group.prepare(ChangeKind.EXPAND, new=4))
    group.answer(group.abort_request(), AbortResponse)
    group.compact(4, 1, 1)
    group.append(1, b"z")
    group.order_all()
    group.synchronise(4, group.prepare(ChangeKind.EXPAND, new=4))
    assert begin_of(group) == 3, "what it had was kept"
    for _ in range(2):
        assert group.image(4).snapshot_index == 1
        assert group.image(4).state == b"state up to 1"
        assert group.data(4) == [b"y", b"z"]
        group.restart(4)
