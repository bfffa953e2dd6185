"""Truncation (T5): what an older reign left goes, all of it, and nothing else ever does."""

from __future__ import annotations

from tests.core.replica.protocol.harness import STREAM, Group, entry, nodes, of
from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    Reason,
    Refusal,
    Role,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.types import Term

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)


def truncate(term: int, head: EntryId, cut: EntryId, reign: int | None = None) -> TruncateRequest:
    """A request of node 2 to node 1."""
    reigning = Term(term if reign is None else reign)
    return TruncateRequest(NODE_2, NODE_1, STREAM, Term(term), reigning, head, cut)


def a_leader_that_nobody_heard(*data: bytes) -> Group:
    """Node 1 wrote alone in term 2; node 2 leads term 3 with node 3 and has ordered "x"."""
    group = Group(1, 2, 3)
    group.elect(1, 3)
    group.append(1, *data)
    group.drop()
    group.elect(2, 3)
    group.append(2, b"x")
    group.order_all()
    return group


def head_in_answer(group: Group) -> EntryId:
    answer = group.take_one(TruncateResponse, source=1)
    return answer.head


def test_entries_that_the_leader_lacks_are_cut_from_a_lower_term() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.add_follower(2, 1)
    group.order_all()
    assert group.log(1) == group.log(2)


def test_a_head_above_the_leaders_is_cut_to_the_leaders() -> None:
    """Only a late minority can have a head above the elected leader's."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.append(1, b"nobody else has this")
    group.drop()
    group.elect(2, 3)
    group.add_follower(2, 1)
    request = group.take_one(TruncateRequest)
    assert (request.head, request.cut) == (entry(2, 2), entry(2, 1))
    group.step(request)
    group.order_all()
    assert group.log(1) == group.log(2)


def test_a_head_that_the_leader_has_is_not_cut() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.elect(2, 3)
    group.add_follower(2, 1)
    assert not group.take_messages(of(TruncateRequest))


def test_truncation_is_answered_with_the_head_that_is_left() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.fence(1, 3)
    group.step(truncate(3, entry(2, 3), entry(2, 2)))
    assert head_in_answer(group) == entry(2, 2)
    assert group.data(1) == [b"a", b"b"]
    assert group[1].role is Role.FOLLOWER


def test_truncation_to_nothing_leaves_an_empty_log() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.fence(1, 3)
    group.step(truncate(3, entry(2, 1), NO_ENTRY))
    assert head_in_answer(group) == NO_ENTRY
    assert group.log(1) == []


def test_a_target_past_the_end_cuts_nothing() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b")
    group.fence(1, 3)
    group.step(truncate(3, entry(2, 2), entry(2, 9)))
    assert head_in_answer(group) == entry(2, 2)
    assert group.data(1) == [b"a", b"b"]


def test_truncation_is_answered_when_it_is_durable_and_not_before() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b")
    group.fence(1, 3)
    group.hold_back(1)
    group.step(truncate(3, entry(2, 2), NO_ENTRY))
    assert not group.take_messages(of(TruncateResponse))
    group.release(1)
    assert head_in_answer(group) == NO_ENTRY
    assert group.image(1).batches == ()


def test_a_request_that_names_another_head_does_nothing() -> None:
    """It is late: the log has grown, or was cut, since the leader was told of it."""
    group = a_leader_that_nobody_heard(b"a", b"b")
    group.fence(1, 3)
    group.step(truncate(3, entry(2, 1), NO_ENTRY))
    assert head_in_answer(group) == entry(2, 2)
    assert group.data(1) == [b"a", b"b"]


def test_a_repeated_request_does_not_cut_what_came_after_it() -> None:
    """The same head may come back: the leader's own entries end where the old ones did."""
    group = a_leader_that_nobody_heard(b"a")
    group.add_follower(2, 1)
    request = group.take_one(TruncateRequest)
    group.step(request)
    group.order_all()
    log = group.log(1)
    group.step(request)
    group.deliver()
    assert group.log(1) == log
    assert group[1].role is Role.FOLLOWER


def test_entries_of_the_present_reign_are_never_cut() -> None:
    """Whatever a request says: they are the leader's own."""
    group = Group(1, 2, 3)
    group.elect(2, 1, 3)
    group.append(2, b"x", b"y")
    group.deliver(of(AddEntriesRequest))
    group.step(truncate(2, entry(2, 2), NO_ENTRY))
    assert group.data(1) == [b"x", b"y"]
    group.restart(1)
    group.step(truncate(2, entry(2, 2), NO_ENTRY))
    assert group.data(1) == [b"x", b"y"]


def test_entries_of_a_reign_that_went_on_to_another_term_are_never_cut() -> None:
    group = Group(1, 2, 3)
    group.elect(2, 1, 3)
    group.append(2, b"x", b"y")
    group.deliver(of(AddEntriesRequest))
    group.step(truncate(3, entry(2, 2), entry(2, 1), reign=2))
    assert group.data(1) == [b"x", b"y"]


def test_ordered_entries_are_never_cut() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.order_all()
    group.elect(2, 3)
    group.fence(1, 3)
    group.step(truncate(3, entry(2, 2), NO_ENTRY))
    refusal = group.take_one(Refusal, source=1)
    assert refusal.reason is Reason.ORDERED
    assert group.data(1) == [b"x", b"y"]


def test_truncation_of_a_term_that_has_passed_is_refused() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.fence(1, 4)
    group.step(truncate(3, entry(2, 1), NO_ENTRY))
    refusal = group.take_one(Refusal, source=1)
    assert refusal.reason is Reason.TERM_PASSED
    assert group.data(1) == [b"a"]


def test_truncation_by_a_leader_that_never_fenced_the_node_is_refused() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.step(truncate(3, entry(2, 1), NO_ENTRY))
    assert group.data(1) == [b"a"]
    assert group[1].term == 2


def test_a_leader_is_not_truncated() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"a")
    group.step(truncate(2, entry(2, 1), NO_ENTRY))
    assert group.data(1) == [b"a"]
    assert group[1].role is Role.LEADER


def test_a_follower_added_after_the_leader_wrote_more_gets_all() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b")
    group.append(2, b"y", b"z")
    group.order_all()
    group.add_follower(2, 1)
    group.order_all()
    assert group.data(1) == [b"x", b"y", b"z"]


def test_a_truncation_goes_on_after_the_follower_restarted_in_the_same_term() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b")
    group.add_follower(2, 1)
    group.hold_back(1)
    group.deliver(of(TruncateRequest))
    group.restart(1)
    assert group.data(1) == [b"a", b"b"]
    group.pass_time(30)
    group.order_all()
    assert group.log(1) == group.log(2)


def test_entries_are_taken_right_behind_a_truncation() -> None:
    """The head in memory goes back with the log: what comes again is no repetition."""
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.add_follower(2, 1)
    group.hold_back(1)
    group.deliver()
    group.release(1)
    group.append(2, b"y", b"z")
    group.order_all()
    assert group.data(1) == [b"x", b"y", b"z"]


def test_a_lost_truncation_is_asked_for_again() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.add_follower(2, 1)
    group.drop()
    group.pass_time(30)
    group.order_all()
    assert group.log(1) == group.log(2)


def test_a_lost_truncation_answer_is_asked_for_again() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.add_follower(2, 1)
    group.deliver(of(TruncateRequest))
    group.drop(of(TruncateResponse))
    group.pass_time(30)
    group.order_all()
    assert group.log(1) == group.log(2)


def test_an_old_truncation_answer_does_not_attach_a_cursor_anew() -> None:
    group = a_leader_that_nobody_heard(b"a")
    group.add_follower(2, 1)
    group.deliver(of(TruncateRequest))
    answer = group.take_one(TruncateResponse)
    group.step(answer)
    group.append(2, b"y")
    group.order_all()
    before = group[2].cursors[NODE_1]
    group.step(answer)
    group.drop(of(AddEntriesRequest))
    assert group[2].cursors[NODE_1] == before


def test_stale_entries_do_not_rise_from_the_dead_after_a_crash() -> None:
    """What was cut is cut on disk; new entries lie over it, and a restart finds only those."""
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.add_follower(2, 1)
    group.order_all()
    group.restart(1)
    assert group.log(1) == group.log(2)
    group.elect(1, 3)
    group.append(1, b"y")
    group.order_all()
    assert group.data(1) == group.data(3) == [b"x", b"y"]


def test_stale_entries_are_not_reported_if_the_crash_undid_their_truncation() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.add_follower(2, 1)
    group.hold_back(1)
    group.deliver()
    group.restart(1)
    assert group.data(1) == [b"a", b"b", b"c"], "the truncation was not durable"
    assert group[1].report() is None


def test_stale_entries_are_not_reported_while_they_wait_to_be_cut() -> None:
    group = a_leader_that_nobody_heard(b"a", b"b", b"c")
    group.fence(1, 3)
    assert group[1].report() is None
    group.add_follower(2, 1)
    assert group[1].report() is None


def test_stale_entries_are_not_reported_behind_matched_ones() -> None:
    """The leader's first message proves a part of the log only."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.pass_time(2)
    group.append(1, b"stale")
    group.drop()
    group.elect(2, 3)
    group.fence(1, 3)
    proof = AddEntriesRequest(
        NODE_2, NODE_1, STREAM, Term(3), Term(3), entry(2, 1), (), group[2].commit_index
    )
    group.step(proof)
    report = group[1].report()
    assert report is not None
    assert report.length == group[2].commit_index, "(2, 2) is not the leader's"


def test_first_entries_that_only_their_leader_has_leave_no_hole_and_no_waiter() -> None:
    """Nothing was ever ordered: old and new leader still agree on where the log goes on."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"a", b"b")
    group.drop()
    group.elect(2, 3)
    group.fence(1, 3)
    assert group.members[1].deposed == 1, "who waits for a and b is told"
    group.add_follower(2, 1)
    assert group.append(2, b"x") == 1
    group.order_all()
    group.elect(1, 2, 3)
    assert group.append(1, b"y") == 2
    group.order_all()
    assert group.data(1) == group.data(2) == group.data(3) == [b"x", b"y"]
