"""Synchronisation: how a replica gets what its leader's log alone cannot give it (T10)."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.beginnings import a_group, assert_equal
from tests.core.replica.protocol.harness import Group, entry, nodes, of
from tidelog.core.replica.commit_context import NONE
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    ChangeKind,
    CommitResponse,
    FenceResponse,
    Message,
    Reason,
    Role,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import Llsn

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)
SYNC = (SyncRequest, SyncInitRequest, SyncInitResponse, SyncEntriesRequest, SyncEntriesResponse)


# -- the whole of it -----------------------------------------------------------------------------


def test_a_follower_that_lost_its_log_is_filled_up_and_counts_again() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    assert group[3].is_complete
    assert_equal(group, 1, 3)
    group.isolate(2)
    llsn = group.append(1, b"z")
    group.pass_time(5)
    assert group[1].commit_index == llsn


def test_a_filled_up_follower_can_be_elected_by_the_head_of_its_snapshot() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    group.restart(3)
    assert group[3].head == entry(2, 2)
    group.crash(1)
    group.elect(3, 2)
    group.append(3, b"z")
    group.order_all()
    assert group.data(2) == [b"x", b"y", b"z"]


def test_what_a_replica_has_ordered_is_not_sent_again() -> None:
    """The source has 1 to 4, the destination 1 and 2: 3 is dead, 4 is sent."""
    group = a_group(b"a", b"b")
    group.isolate(3)
    group.append(1, b"c", b"d")
    group.order_all()
    group.compact(1, 3, 1, 3)
    group.restart(1)
    group.heal()
    group.elect(1, 2)
    group.add_follower(1, 3)
    group.pass_time(30)
    (answer,) = [each for each in group.sent if isinstance(each, SyncInitResponse)]
    assert answer.begin == 3
    assert group.data(3) == [b"a", b"b", b"d"]
    assert group[3].context.llsn_end == group[1].context.llsn_end


def test_a_replica_that_ends_before_the_leaders_first_entry_is_wiped() -> None:
    group = a_group(b"a", b"b")
    group.isolate(3)
    group.append(1, b"c", b"d", b"e")
    group.order_all()
    group.trim(1, 5)
    group.trim(2, 5)
    group.heal()
    group.elect(1, 2)
    group.add_follower(1, 3)
    group.pass_time(30)
    assert group.data(3) == [b"e"]
    assert group[3].context.llsn_end == 6
    assert group[3].is_complete
    group.append(1, b"f")
    group.order_all()
    assert group.data(3) == [b"e", b"f"]


def test_only_live_entries_are_sent_below_the_snapshot() -> None:
    group = a_group(b"a", b"b", b"c", b"d")
    group.compact(1, 3, 1, 3)
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    assert group.data(3) == [b"b", b"d"]
    assert group[3].is_complete
    assert group[3].context.llsn_end == 5
    group.append(1, b"e")
    group.order_all()
    assert group.data(3) == [b"b", b"d", b"e"]
    group.restart(3)
    assert group[3].head == group[1].head


def test_what_lies_beyond_the_ordered_part_is_cut_on_disk_first() -> None:
    """Leftovers of an older reign must not survive a synchronisation."""
    group = a_group(b"x")
    group.elect(3, 2)
    group.append(3, b"stale", b"stale too", b"stale as well")
    group.drop()
    group.elect(1, 2)
    group.append(1, b"y", b"z")
    group.order_all()
    group.compact(1, 2, 2)
    group.restart(1)
    group.elect(1, 2)
    group.add_follower(1, 3)
    group.pass_time(30)
    assert any(isinstance(each, SyncInitRequest) and each.target == 3 for each in group.sent)
    group.restart(3)
    assert group.data(3) == [b"x", b"z"]
    group.elect(1, 2, 3)
    group.append(1, b"w")
    group.order_all()
    assert group.data(3) == [b"x", b"z", b"w"]


def test_leftovers_go_with_the_log_when_it_begins_anew() -> None:
    group = Group(1, 2, 3)
    group.elect(3, 2)
    group.append(3, b"stale", b"stale too", b"stale as well")
    group.drop()
    group.elect(1, 2)
    group.append(1, b"x", b"y")
    group.order_all()
    group.trim(1, 3)
    group.trim(2, 3)
    group.restart(1)
    group.elect(1, 2)
    group.add_follower(1, 3)
    group.pass_time(30)
    group.restart(3)
    assert group.data(3) == []
    assert group[3].context.llsn_end == 3
    group.elect(1, 2, 3)
    group.append(1, b"z")
    group.order_all()
    assert group.data(3) == [b"z"]


def test_a_replica_that_gives_its_log_up_tells_what_it_had() -> None:
    """It is not complete, but all that it ever acknowledged lies at or below its old head."""
    group = a_group(b"a", b"b", options=ReplicaOptions(message_bytes_max=1))
    group.isolate(3)
    group.append(1, b"c", b"d", b"e", b"f")
    group.order_all()
    group.trim(1, 5)
    group.trim(2, 5)
    group.restart(1)
    group.heal()
    group.elect(1, 2)
    group.add_follower(1, 3)
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    group.restart(3)
    assert not group[3].is_complete
    answer = group.answer(group.fence_request(3, group.row.term + 1), FenceResponse)
    assert (answer.is_complete, answer.head, answer.had) == (False, entry(2, 2), entry(2, 2))


# -- promises ------------------------------------------------------------------------------------


def test_a_replica_is_silent_while_it_synchronises() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    for _ in range(30):
        if group[3].is_complete:
            break
        assert group[3].report() is None
        group.tick()
        for message in list(group.take_messages()):
            group.step(message)
            assert group[3].is_complete or group[3].report() is None
    assert group[3].is_complete


def test_a_synchronising_replica_acknowledges_no_entries() -> None:
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.append(1, b"y")
    group.deliver(of(AddEntriesRequest))
    assert not group.take_messages(of(AddEntriesResponse, source=3))


def test_a_synchronising_replica_is_incomplete_to_an_election() -> None:
    group = a_group(b"x")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.deliver(of(SyncInitRequest, SyncInitResponse))
    assert not group.fence(3, 3).is_complete


def test_entries_and_context_become_durable_in_one_write() -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.hold_back(3)
    for _ in range(30):
        group.tick()
        group.deliver()
        group.sync(3, 1)
        image = group.image(3)
        assert image.context.llsn_end <= image.end
        assert image.context == NONE or image.batches
    group.release(3)
    group.pass_time(30)
    assert_equal(group, 1, 3)


@pytest.mark.parametrize("writes", range(6))
def test_a_crash_in_the_middle_begins_anew(writes: int) -> None:
    group = a_group(
        *[b"%d" % number for number in range(6)], options=ReplicaOptions(message_bytes_max=2)
    )
    group.lose_log(3)
    group.add_follower(1, 3)
    group.hold_back(3)
    for _ in range(writes):
        group.pass_time(2)
        group.sync(3, 1)
    group.restart(3)
    if not group[3].is_complete:
        assert group[3].report() is None
    group.pass_time(100)
    assert group[3].is_complete
    assert_equal(group, 1, 3)


@pytest.mark.parametrize("kind", SYNC[1:])
def test_a_lost_message_is_repeated(kind: type[Message]) -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    for _ in range(30):
        if group.take_messages(of(kind)):
            break
        group.deliver(lambda message: not isinstance(message, kind))
        group.tick()
    else:
        raise AssertionError(f"no {kind.__name__} was sent")
    group.pass_time(60)
    assert_equal(group, 1, 3)


@pytest.mark.parametrize("kind", SYNC[1:])
def test_a_repeated_message_does_no_harm(kind: type[Message]) -> None:
    group = a_group(b"x", b"y")
    group.lose_log(3)
    group.add_follower(1, 3)
    for _ in range(30):
        again = [message for message in group.wire if isinstance(message, kind)]
        group.wire += again
        group.tick()
        group.deliver()
    for message in [each for each in group.sent if isinstance(each, kind)]:
        group.step(message)
    group.pass_time(60)
    assert group[3].is_complete
    assert_equal(group, 1, 3)


def test_a_replica_is_complete_only_with_all_that_the_leader_had_at_the_beginning() -> None:
    group = a_group(
        *[b"%d" % number for number in range(5)], options=ReplicaOptions(message_bytes_max=1)
    )
    group.append(1, b"unordered")
    group.deliver()
    group.lose_log(3)
    group.add_follower(1, 3)
    for _ in range(60):
        group.tick()
        for message in group.take_messages():
            group.step(message)
            state = group.image(3).hard_state
            assert state is not None
            assert not state.is_complete or group.image(3).head.llsn >= 6
    assert group[3].is_complete


def test_a_node_that_lost_an_entry_it_acknowledged_does_not_help_to_elect() -> None:
    """Nodes 1 and 3 were the majority of an entry; 3 lost it, then 1 fails."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.isolate(2)
    group.append(1, b"x")
    group.deliver()
    assert group.members[1].propagated == 2
    group.lose_log(3)
    group.crash(1)
    group.heal()
    term = group.row.term + 1
    group.write_row(term=term)
    answers = [group.fence(number, term) for number in (2, 3)]
    assert [answer.is_complete for answer in answers] == [True, False]
    group.restart(1)
    group.elect(1, 2, 3)
    group.pass_time(30)
    group.order_all()
    assert group.data(3) == group.data(2) == [b"x"]


def test_a_node_that_lost_its_disk_is_dead_and_its_successor_loses_nothing() -> None:
    """A leader of the past, and an operator that knows of no other, ask for the dead one."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.deliver()
    group.isolate(1)
    group.append(1, b"of the past")
    past = group.row
    group.elect(2, 3)
    group.append(2, b"x")
    group.order_all()
    assert group.members[2].ordered == 2

    group.lose_disk(3, successor=4)
    group.heal()
    stale = group.fence_request(4, past.term)
    group.fence(4, past.term)
    group.append(1, b"of the past too")
    group.deliver()
    assert group.members[1].propagated == 0, "node 4 is not of the ensemble that node 1 leads"
    assert group[1].role is Role.FENCED, "node 2 told it of its term"

    head = group.synchronise(4, group.prepare(ChangeKind.SWAP, old=3, new=4))
    group.answer(group.commit_request(ChangeKind.SWAP, head, old=3, new=4), CommitResponse)
    group.write_row(leader=2, ensemble=(1, 2, 4))
    assert group.refusal(stale).reason is Reason.TERM_PASSED
    group.add_follower(2, 1)
    group.order_all()
    group.crash(2)
    group.elect(4, 1)
    assert group.data(4) == group.data(1) == [b"x"]


def test_what_was_not_ordered_is_not_kept_when_the_leader_has_compacted_beyond_it() -> None:
    """A store may know no GLSNs of dead entries: kept ones would be without for ever (Z5)."""
    group = a_group(b"a")
    group.append(1, b"b", b"c")
    group.deliver()
    assert group.data(3) == [b"a", b"b", b"c"]
    group.isolate(3)
    for data in (b"d", b"e"):
        group.append(1, data)
        group.deliver()
        group.report()
        group.cut()
        group.tell_cuts(1, 2)
    assert group[1].durable_context.llsn_end > 4
    assert group[3].durable_context.llsn_end == 2
    group.compact(1, 4, 2)
    group[1].joined(Llsn(4))
    group.heal()
    group.elect(1, 2, 3)
    group.pass_time(60)
    [begin] = {each.begin for each in group.sent if isinstance(each, SyncInitResponse)}
    assert begin == 2, "only the ordered part was kept"
    assert group[3].is_complete
    assert group.data(3)[:3] == [b"a", b"c", b"d"]
    group.order_all()
    assert_equal(group, 1, 3)
