"""Follow cursors, add-entries messages and acknowledgements (T4)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.core.replica.protocol.harness import STREAM, Group, entry, nodes, of
from tidelog.core.replica.entries import NO_ENTRY, Batch
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    Refusal,
    Role,
    TruncateRequest,
)
from tidelog.core.replica.options import CursorKind, Ignored, ReplicaOptions
from tidelog.types import Llsn, Term

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)


def add(
    previous: tuple[int, int], *batches: Batch, term: int = 2, commit: int = 0
) -> AddEntriesRequest:
    """A request of node 1 to node 2."""
    return AddEntriesRequest(
        NODE_1, NODE_2, STREAM, Term(term), Term(term), entry(*previous), batches, Llsn(commit)
    )


def batch(term: int, llsn: int, data: bytes = b"", count: int = 1) -> Batch:
    return Batch(Term(term), Llsn(llsn), count, data)


def a_follower() -> Group:
    """Node 1 leads term 2, node 2 follows; nothing was written, nothing is on its way."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.drop()
    return group


def refused_at(group: Group) -> AddEntriesRefusal:
    refusal = group.take_one(AddEntriesRefusal, source=2)
    return refusal


def confirmed_at(group: Group) -> list[int]:
    acks = group.take_messages(of(AddEntriesResponse, source=2))
    return [ack.confirmed for ack in acks if isinstance(ack, AddEntriesResponse)]


# -- what a follower takes -----------------------------------------------------------------------


def test_a_fenced_node_follows_by_the_first_entry_that_it_takes() -> None:
    group = a_follower()
    before = group[2].role
    group.step(add((0, 0), batch(2, 1)))
    assert (before, group[2].role) == (Role.FENCED, Role.FOLLOWER)
    assert group[2].leader == NODE_1


def test_a_gap_is_not_taken_into_an_empty_log() -> None:
    """A cumulative acknowledgement of it would commit what nobody has."""
    group = a_follower()
    group.step(add((2, 8), batch(2, 9)))
    assert refused_at(group).head == NO_ENTRY
    assert group.log(2) == []
    assert not confirmed_at(group)


def test_a_gap_inside_of_a_message_is_not_taken() -> None:
    group = a_follower()
    group.step(add((0, 0), batch(2, 1), batch(2, 3)))
    assert group.log(2) == []
    assert group[2].ignored[Ignored.NONSENSE] == 1


def test_entries_of_another_term_at_their_predecessor_are_refused() -> None:
    group = Group(1, 2, 3)
    group.elect(2, 3)
    group.append(2, b"stale")
    group.drop()
    group.elect(1, 3)
    group.fence(2, 3)
    group.step(add((3, 1), batch(3, 2), term=3))
    assert refused_at(group).head == entry(2, 1)
    assert group.data(2) == [b"stale"]


def test_entries_are_never_put_behind_foreign_ones() -> None:
    """The predecessor is there, but the log goes on beyond it with entries of an older reign."""
    group = Group(1, 2, 3)
    group.elect(2, 1, 3)
    group.append(2, b"x")
    group.deliver()
    group.append(2, b"stale")
    group.drop()
    group.elect(1, 3)
    group.fence(2, 3)
    group.step(add((2, 1), batch(3, 2, b"y"), term=3))
    assert refused_at(group).head == entry(2, 2)
    assert group.data(2) == [b"x", b"stale"]


def test_a_message_of_known_entries_is_acknowledged_again() -> None:
    group = a_follower()
    request = add((0, 0), batch(2, 1), batch(2, 2))
    group.step(request)
    assert confirmed_at(group)[-1] == 2
    group.step(request)
    assert confirmed_at(group)[-1] == 2
    assert len(group.log(2)) == 2


def test_a_message_that_overlaps_the_log_adds_what_is_new() -> None:
    group = a_follower()
    group.step(add((0, 0), batch(2, 1), batch(2, 2)))
    group.step(add((2, 1), batch(2, 2), batch(2, 3)))
    assert confirmed_at(group)[-1] == 3
    assert [llsn for _, llsn, _ in group.log(2)] == [1, 2, 3]


def test_a_late_message_does_not_shorten_the_log() -> None:
    group = a_follower()
    early = add((0, 0), batch(2, 1))
    group.step(add((0, 0), batch(2, 1), batch(2, 2)))
    group.step(early)
    assert group[2].head == entry(2, 2)


def test_entries_reordered_on_their_way_are_all_there_in_the_end() -> None:
    group = a_follower()
    group.append(1, b"x")
    first = group.take_messages(of(AddEntriesRequest, target=2))
    group.append(1, b"y")
    for message in group.take_messages(of(AddEntriesRequest, target=2)):
        group.step(message)
    for message in first:
        group.step(message)
    group.pass_time(30)
    assert group.data(2) == [b"x", b"y"]


def test_an_entry_is_acknowledged_when_it_is_durable_and_not_before() -> None:
    group = a_follower()
    group.hold_back(2)
    group.step(add((0, 0), batch(2, 1)))
    assert not confirmed_at(group)
    group.release(2)
    assert confirmed_at(group) == [1]


def test_a_repeated_entry_is_not_acknowledged_before_it_is_durable() -> None:
    group = a_follower()
    group.hold_back(2)
    request = add((0, 0), batch(2, 1))
    group.step(request)
    group.step(request)
    assert not confirmed_at(group)
    group.step(add((2, 1)))
    assert not confirmed_at(group)
    group.release(2)
    assert set(confirmed_at(group)) == {1}


def test_what_a_crash_took_was_not_acknowledged_and_is_sent_again() -> None:
    group = a_follower()
    group.hold_back(2)
    group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index == 1, "node 3 has it"
    group.restart(2)
    assert group.log(2) == []
    group.pass_time(30)
    assert group.data(2) == [b"x"]


def test_an_acknowledgement_covers_matched_entries_only() -> None:
    """The log goes on beyond what the leader's message proves."""
    group = Group(1, 2, 3)
    group.elect(2, 1, 3)
    group.append(2, b"x")
    group.deliver()
    group.append(2, b"stale")
    group.drop()
    group.elect(1, 3)
    group.fence(2, 3)
    group.step(add((2, 1), term=3))
    assert all(confirmed <= 1 for confirmed in confirmed_at(group))


# -- cursors -------------------------------------------------------------------------------------


def test_entries_go_to_all_followers_at_once() -> None:
    group = a_follower()
    group.append(1, b"x")
    targets = [each.target for each in group.take_messages(of(AddEntriesRequest))]
    assert sorted(targets) == [2, 3]


def test_entries_are_sent_before_the_leaders_own_disk_is_done() -> None:
    group = a_follower()
    group.hold_back(1)
    group.append(1, b"x")
    assert group.take_messages(of(AddEntriesRequest, target=2))


def test_a_lost_entry_is_sent_again() -> None:
    group = a_follower()
    group.append(1, b"x")
    group.drop()
    group.pass_time(30)
    assert group.data(2) == group.data(3) == [b"x"]
    assert group[1].commit_index == 1


def test_a_lost_acknowledgement_is_asked_for_again() -> None:
    group = a_follower()
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.drop(of(AddEntriesResponse))
    group.pass_time(30)
    assert group[1].commit_index == 1


def test_acknowledgements_are_cumulative() -> None:
    group = a_follower()
    group.append(1, b"x", b"y", b"z")
    group.deliver(of(AddEntriesRequest))
    acks = group.take_messages(of(AddEntriesResponse, source=2))
    group.step(acks[-1])
    assert group[1].commit_index == 3


def test_a_late_acknowledgement_takes_nothing_back() -> None:
    group = a_follower()
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    early = group.take_messages(of(AddEntriesResponse))
    group.append(1, b"y")
    group.deliver()
    before = dict(group[1].cursors)
    for ack in early:
        group.step(ack)
    assert dict(group[1].cursors) == before
    assert group[1].commit_index == 2


def test_an_acknowledgement_beyond_the_leaders_log_counts_for_nothing() -> None:
    group = a_follower()
    group.append(1, b"x")
    group.drop()
    for node in (NODE_2, NODE_3):
        group.step(AddEntriesResponse(node, NODE_1, STREAM, Term(2), Llsn(9)))
    assert group[1].commit_index == 0
    group.pass_time(30)
    assert group.data(2) == [b"x"]


def test_an_acknowledgement_of_an_older_reign_counts_for_nothing() -> None:
    """Node 3 had three entries in term 2, which were cut; by term 4 it has only one."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.append(1, b"a", b"b", b"c")
    group.deliver(of(AddEntriesRequest, target=3))
    stale = group.take_messages(of(AddEntriesResponse, source=3))
    group.drop()
    group.elect(2, 4, 5)
    group.append(2, b"x")
    group.order_all()
    group.add_follower(2, 1)
    group.add_follower(2, 3)
    group.order_all()
    group.elect(1, 3, 4, 5)
    llsn = group.append(1, b"y", b"z")
    group.deliver(of(AddEntriesRequest, target=4))
    group.deliver(of(AddEntriesResponse, source=4))
    for message in stale:
        group.step(message)
    assert group[1].commit_index < llsn, "it is on nodes 1 and 4 only"


def test_what_is_under_way_is_bounded() -> None:
    group = Group(1, 2, 3, options=ReplicaOptions(message_bytes_max=10, inflight_bytes_max=20))
    group.elect(1, 2, 3)
    group.drop()
    group.append(1, *[b"%09d" % number for number in range(50)])
    requests = group.take_messages(of(AddEntriesRequest, target=2))
    size = sum(
        len(each.data)
        for request in requests
        if isinstance(request, AddEntriesRequest)
        for each in request.batches
    )
    assert 0 < size <= 30
    group.pass_time(200)
    assert group.data(2) == group.data(1)


def test_entries_that_the_store_has_to_fetch_are_sent_when_it_has_them() -> None:
    group = Group(1, 2, 3, options=ReplicaOptions(recent_bytes_max=1, message_bytes_max=10))
    group.elect(1, 2, 3)
    group.isolate(2)
    group.append(1, *[b"%09d" % number for number in range(20)])
    group.deliver()
    group.members[1].disk.is_slow = True
    group.heal()
    group.pass_time(100)
    assert group.data(2) == group.data(1)


def test_a_refused_message_makes_the_cursor_begin_anew() -> None:
    group = a_follower()
    group.hold_back(2)
    group.append(1, b"x")
    group.deliver()
    group.restart(2)
    group.append(1, b"y")
    group.deliver()
    assert any(isinstance(each, AddEntriesRefusal) for each in group.sent)
    group.pass_time(30)
    assert group.data(2) == [b"x", b"y"]


def test_a_refusal_of_another_message_than_the_last_changes_no_cursor() -> None:
    group = a_follower()
    group.append(1, b"x", b"y")
    group.deliver()
    before = group[1].cursors[NODE_2]
    stale = AddEntriesRefusal(NODE_2, NODE_1, STREAM, Term(2), entry(2, 7), NO_ENTRY, True)
    group.step(stale)
    group.step(replace(stale, previous=NO_ENTRY))
    after = group[1].cursors[NODE_2]
    assert (after.kind, after.confirmed) == (before.kind, before.confirmed)


def test_the_old_acknowledgements_of_a_follower_that_lost_its_log_count_no_more() -> None:
    """What it once confirmed is on one node less."""
    group = a_follower()
    group.append(1, b"x")
    group.deliver()
    group.lose_log(2)
    group.isolate(3)
    llsn = group.append(1, b"y")
    group.deliver(of(AddEntriesRequest, AddEntriesRefusal, AddEntriesResponse, Refusal))
    assert group[1].cursors[NODE_2].kind is CursorKind.SYNCHRONISING
    assert group[1].commit_index < llsn


def test_a_message_to_itself_is_never_sent() -> None:
    group = a_follower()
    group.append(1, b"x")
    group.pass_time(30)
    assert not [each for each in group.sent if each.source == each.target]
    assert not any(isinstance(each, TruncateRequest) for each in group.sent)
