"""When an entry is committed (T6), and who learns of it."""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.harness import STREAM, Group, entry, nodes, of
from tidelog.core.order.commands import Quorum
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    Role,
    TruncateRequest,
)
from tidelog.types import Llsn, Term

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)


def test_an_entry_is_committed_when_a_majority_has_it_durable() -> None:
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.deliver()
    llsn = group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    first, second, *_ = group.take_messages(of(AddEntriesResponse))
    group.step(first)
    assert group[1].commit_index < llsn
    group.step(second)
    assert group[1].commit_index == llsn
    assert group.members[1].propagated == llsn + 1


def test_with_the_quorum_of_all_every_member_must_have_it() -> None:
    group = Group(1, 2, 3, quorum=Quorum.ALL)
    group.elect(1, 2, 3)
    group.isolate(3)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index < llsn
    group.heal()
    group.pass_time(30)
    assert group[1].commit_index == llsn


def test_a_member_that_never_answered_counts_against_the_majority() -> None:
    """The size of the ensemble counts, not the number of cursors."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3)
    group.isolate(3)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group[1].commit_index < llsn, "two of five"


def test_a_leader_counts_itself_only_when_it_is_durable() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.isolate(3)
    group.hold_back(1)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group.data(2) == [b"x"]
    assert group[1].commit_index < llsn
    group.release(1)
    assert group[1].commit_index == llsn


def test_the_followers_alone_may_be_the_majority() -> None:
    """A leader with a slow disk: the entry is on two others."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.hold_back(1)
    llsn = group.append(1, b"x")
    group.deliver()
    assert group.members[1].stored <= llsn, "what is told is stored first"
    assert group.members[1].propagated <= group.members[1].stored
    group.release(1)
    assert group.members[1].propagated == llsn + 1


def test_a_stream_of_one_commits_by_its_own_disk() -> None:
    group = Group(1)
    group.elect(1)
    group.hold_back(1)
    llsn = group.append(1, b"x")
    assert group[1].commit_index < llsn
    group.release(1)
    assert group[1].commit_index == llsn
    group.order_all()
    assert group.members[1].ordered == llsn + 1


def test_a_stream_of_one_commits_what_an_older_reign_left() -> None:
    group = Group(1)
    group.elect(1)
    group.append(1, b"x")
    group.restart(1)
    group.elect(1)
    assert group[1].commit_index == 2
    group.order_all()
    assert group.data(1) == [b"x"]
    assert group.row.llsn_end == 3


def test_a_truncating_cursor_does_not_count() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 3)
    group.append(1, b"a", b"b")
    group.drop()
    group.elect(2, 3)
    group.isolate(3)
    group.add_follower(2, 1)
    llsn = group.append(2, b"x")
    group.deliver(lambda message: not isinstance(message, TruncateRequest))
    group.step(AddEntriesResponse(NODE_1, NODE_2, STREAM, Term(3), Llsn(2)))
    assert group[2].commit_index < llsn


def test_a_reign_with_unordered_entries_begins_with_a_control_entry() -> None:
    """So that what an older reign left commits without traffic."""
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"x")
    group.deliver()
    group.elect(2, 3)
    group.deliver()
    assert group[2].commit_index == 2
    batches = group.members[2].disk.seen.batches
    assert [batch.is_control for batch in batches] == [False, True]
    group.order_all()
    assert group.row.llsn_end == 3, "it takes an LLSN and a GLSN like any other"


def test_a_reign_with_nothing_unordered_begins_without_a_control_entry() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.order_all()
    group.elect(2, 3)
    group.deliver()
    assert group[2].head == entry(2, 1)


def test_entries_of_an_older_reign_commit_with_the_first_of_the_present_one() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.drop()
    group.elect(2, 3)
    assert group[2].commit_index == 0
    group.deliver()
    assert group[2].commit_index == 2


def test_entries_of_an_earlier_term_of_the_same_reign_commit_by_themselves() -> None:
    """A reconfiguration raises the term; nobody else can have written since the election."""
    from tidelog.core.replica.messages import ChangeKind

    group = Group(1, 2, 3, spares=[4])
    group.elect(1, 2, 3)
    llsn = group.append(1, b"x")
    group.drop()
    group.prepare(ChangeKind.EXPAND, new=4)
    group.pass_time(30)
    assert group[1].commit_index == llsn
    assert group.data(2) == [b"x"]
    assert len(group.log(1)) == 1


def test_the_commit_index_reaches_followers_without_new_writes() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    llsn = group.append(1, b"x")
    group.deliver()
    group.pass_time(1)
    assert [group[number].commit_index for number in (1, 2, 3)] == [llsn] * 3


def test_the_commit_index_reaches_followers_even_if_a_message_is_lost() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    llsn = group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    for ack in group.take_messages(of(AddEntriesResponse)):
        group.step(ack)
    group.drop()
    assert group[2].commit_index < llsn
    group.pass_time(30)
    assert [group[number].commit_index for number in (1, 2, 3)] == [llsn] * 3


def test_a_followers_commit_index_stays_within_what_is_matched() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    request = AddEntriesRequest(NODE_1, NODE_2, STREAM, Term(2), Term(2), entry(2, 1), (), Llsn(99))
    group.step(request)
    assert group[2].commit_index == 1


def test_a_followers_commit_index_does_not_cover_what_an_older_reign_left() -> None:
    group = Group(1, 2, 3)
    group.elect(2, 1, 3)
    group.append(2, b"x")
    group.deliver()
    group.append(2, b"stale")
    group.drop()
    group.elect(1, 3)
    group.deliver()
    commit = group[1].commit_index
    assert commit == 2
    group.fence(2, 3)
    group.step(AddEntriesRequest(NODE_1, NODE_2, STREAM, Term(3), Term(3), entry(2, 1), (), commit))
    assert group[2].commit_index == 1


def test_a_followers_commit_index_never_goes_back() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.deliver()
    group.pass_time(1)
    assert group[2].commit_index == 2
    group.step(
        AddEntriesRequest(NODE_1, NODE_2, STREAM, Term(2), Term(2), entry(2, 1), (), Llsn(0))
    )
    assert group[2].commit_index == 2


def test_a_new_leaders_commit_index_does_not_begin_below_what_it_knew() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.pass_time(2)
    group.elect(2, 3)
    assert group[2].commit_index >= 2


def test_after_a_restart_the_commit_index_is_at_least_the_ordered_end() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", b"y")
    group.order_all()
    group.append(1, b"z")
    group.deliver()
    group.restart(2)
    assert group[2].commit_index == 2


def test_a_minority_leader_commits_nothing() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.deliver()
    group.isolate(1)
    group.elect(2, 3)
    llsn = group.append(1, b"lost")
    group.pass_time(30)
    assert group[1].role is Role.LEADER, "nobody could tell it"
    assert group[1].commit_index < llsn
    group.append(2, b"x")
    group.order_all()
    group.heal()
    group.add_follower(2, 1)
    group.order_all()
    assert group.data(1) == [b"x"]


@pytest.mark.parametrize("survivor", [2, 3])
def test_an_acknowledged_entry_is_in_the_log_of_whoever_is_elected(survivor: int) -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    assert group.members[1].propagated == 2
    group.crash(1)
    group.elect(survivor, 5 - survivor)
    group.order_all()
    assert group.data(survivor) == [b"x"]
