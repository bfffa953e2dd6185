"""Appends: consistency, truncation, acknowledgement, pace (F1, F2, G1 to G3, P1 to P3, W1 to W3).

The other side of commitment is in ``test_commitment``.
"""

from __future__ import annotations

import pytest

from tests.core.raft.group import Group, command, of, stored
from tidelog import limits
from tidelog.core.raft.entries import Entry, EntryKind, Index, RaftTerm
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    Heartbeat,
    HeartbeatAnswer,
    Message,
)
from tidelog.core.raft.node import Ignored, RaftOptions, Refused
from tidelog.core.raft.progress import Pace
from tidelog.types import NodeId

VOTERS = (1, 2, 3)


def append(
    term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0, source: int = 2
) -> AppendRequest:
    """An append to node 1."""
    return AppendRequest(
        NodeId(source),
        NodeId(1),
        RaftTerm(term),
        Index(previous[0]),
        RaftTerm(previous[1]),
        Index(commit),
        entries,
    )


def heartbeat(term: int, *, source: int = 2) -> Heartbeat:
    """A heartbeat to node 1, which brings it into a term."""
    return Heartbeat(NodeId(source), NodeId(1), RaftTerm(term), Index(0), 0)


def answer(source: int, target: int, term: int, match: int) -> AppendAnswer:
    return AppendAnswer(NodeId(source), NodeId(target), RaftTerm(term), Index(match))


def matches(group: Group, source: int) -> list[int]:
    """What a node acknowledged, in order."""
    said = [each for each in group.sent if isinstance(each, AppendAnswer)]
    return [each.match for each in said if each.source == source]


def refusals(group: Group) -> list[tuple[int, int]]:
    said = [each for each in group.sent if isinstance(each, AppendRefusal)]
    return [(each.previous_index, each.hint) for each in said]


def follower(*entries: Entry, term: int = 1) -> Group:
    """Node 1 alone, with this log; the test plays the others."""
    group = Group(1, images={1: stored(VOTERS, *entries, term=term)})
    group.sent.clear()
    return group


# --- how a follower takes entries over -----------------------------------------------------------


def test_a_proposal_reaches_every_node_and_is_applied_everywhere() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.deliver()
    assert [group.applied(n) for n in (1, 2, 3)] == [[b"a", b"b"]] * 3


def test_an_append_that_does_not_join_the_log_is_refused_and_changes_nothing() -> None:
    group = follower(command(1, 1, b"a"))
    group.step(append(2, (2, 1), command(3, 2)))
    group.step(append(2, (1, 2), command(2, 2)))
    assert refusals(group) == [(2, 1), (1, 0)]
    assert group.log(1) == [(1, b"a")]


def test_entries_that_conflict_with_the_leaders_are_replaced_from_the_first_on() -> None:
    group = follower(command(1, 1, b"a"), command(2, 1, b"old"), command(3, 1, b"old"))
    group.step(append(2, (1, 1), command(2, 2, b"new")))
    assert group.log(1) == [(1, b"a"), (2, b"new")]
    assert matches(group, 1) == [2]


def test_an_append_that_the_log_holds_already_truncates_nothing() -> None:
    """A delayed, shorter append must not undo what came after it."""
    group = follower()
    entries = [command(index, 1, b"%d" % index) for index in (1, 2, 3)]
    group.step(append(1, (0, 0), *entries))
    group.step(append(1, (0, 0), entries[0]))
    group.step(append(1, (0, 0)))
    assert group.log(1) == [(1, b"1"), (1, b"2"), (1, b"3")]
    assert matches(group, 1) == [3, 3, 3]
    assert len(group.writes) == 1, "what is there already is not written again"


def test_an_append_that_overlaps_adds_only_what_is_new() -> None:
    group = follower(command(1, 1), command(2, 1))
    group.step(append(1, (0, 0), command(1, 1), command(2, 1), command(3, 1)))
    assert group[1].last_index == 3
    assert [entry.index for _, write in group.writes for entry in write.entries] == [3]


def test_a_stale_append_of_an_old_term_changes_nothing() -> None:
    group = follower(command(1, 1, b"a"), term=3)
    group.step(append(2, (0, 0), command(1, 2, b"x"), commit=1))
    assert group.log(1) == [(1, b"a")]
    assert group[1].commit == 0
    assert group[1].ignored[Ignored.OLD_TERM] == 1


def test_an_append_that_would_replace_a_committed_entry_is_ignored() -> None:
    group = follower(command(1, 1, b"a"))
    group.step(append(2, (1, 1), commit=1))
    assert group.applied(1) == [b"a"]
    group.step(append(2, (0, 0), command(1, 2, b"x")))
    group.step(append(2, (1, 2), command(2, 2, b"x")))
    assert group.log(1) == [(1, b"a")]
    assert group[1].ignored[Ignored.CONTRADICTS_COMMITTED] == 2


@pytest.mark.parametrize(("commit", "expected"), [(1, 1), (2, 2), (9, 2)])
def test_a_follower_commits_no_more_than_what_it_was_sent(commit: int, expected: int) -> None:
    group = follower(command(1, 1), command(2, 1), command(3, 1))
    group.step(append(2, (1, 1), command(2, 1), commit=commit))
    assert group[1].commit == expected


def test_a_heartbeat_moves_the_commit_index_but_never_back() -> None:
    group = follower(command(1, 1), command(2, 1))
    for commit in (2, 1, 7):
        group.step(Heartbeat(NodeId(2), NodeId(1), RaftTerm(2), Index(commit), 0))
        assert group[1].commit == 2


def test_a_restarted_follower_learns_from_a_heartbeat_what_is_committed() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.restart(3)
    assert group.applied(3) == []
    group.tick(1)
    group.deliver()
    assert group.applied(3) == [b"a"]


@pytest.mark.parametrize(
    ("terms", "previous", "hint"),
    [
        ([1, 1, 1], (5, 3), 3),
        ([1, 2, 2, 2], (4, 1), 1),
        ([1, 1, 3, 3, 3, 4, 4], (6, 2), 2),
        ([3, 3, 3], (2, 1), 0),
        ([1, 1, 1, 1], (3, 2), 2),
    ],
)
def test_a_refusal_skips_whole_terms_that_cannot_agree(
    terms: list[int], previous: tuple[int, int], hint: int
) -> None:
    entries = [command(index, term) for index, term in enumerate(terms, 1)]
    group = follower(*entries, term=max(terms))
    group.step(append(9, previous))
    assert refusals(group) == [(previous[0], hint)]


def test_a_refusal_never_goes_below_what_is_committed() -> None:
    group = follower(command(1, 3), command(2, 3), command(3, 3), term=3)
    group.step(append(4, (2, 3), commit=2))
    group.step(append(4, (3, 1)))
    assert refusals(group) == [(3, 2)]


# --- acknowledged means durable -------------------------------------------------------------------


def test_entries_are_not_acknowledged_before_they_are_durable() -> None:
    group = follower()
    group.hold_back(1)
    group.step(append(1, (0, 0), command(1, 1)))
    assert matches(group, 1) == []
    group.complete(1)
    assert matches(group, 1) == [1]


def test_a_repeated_append_is_not_acknowledged_before_it_is_durable() -> None:
    group = follower()
    group.hold_back(1)
    for _ in range(3):
        group.step(append(1, (0, 0), command(1, 1)))
    assert matches(group, 1) == []


def test_several_writes_on_their_way_are_acknowledged_one_by_one() -> None:
    group = follower()
    group.hold_back(1)
    for index in (1, 2, 3):
        group.step(append(1, (index - 1, min(index - 1, 1)), command(index, 1)))
    group.complete(1, 1)
    assert matches(group, 1) == [1]
    group.complete(1, 2)
    assert matches(group, 1) == [1, 3]


def test_word_of_a_write_that_comes_twice_changes_nothing() -> None:
    group = follower()
    group.step(append(1, (0, 0), command(1, 1)))
    group[1].written(1)
    group[1].written(1)
    group.collect()
    assert matches(group, 1) == [1]


def test_a_write_whose_entries_were_replaced_meanwhile_counts_for_nothing() -> None:
    """Entries 1 and 2 of term 1 are on their way to the disk when term 2 replaces them."""
    group = follower()
    group.hold_back(1)
    group.step(append(1, (0, 0), command(1, 1, b"old"), command(2, 1, b"old")))
    group.step(heartbeat(2, source=3))
    group.step(append(2, (0, 0), command(1, 2, b"new"), command(2, 2, b"new"), source=3))
    group.complete(1, 2)
    assert max(matches(group, 1)) == 0, "the term is durable, but not yet its entries"
    group.complete(1)
    assert max(matches(group, 1)) == 2


def test_a_write_counts_for_nothing_though_its_entries_came_back_meanwhile() -> None:
    """Entries A are on their way, then B in their place, then A again: the disk has A, B, A.

    When the first A is durable, a crash may still leave B, so nothing may be acknowledged.
    """
    group = follower()
    group.hold_back(1)
    a = (command(1, 1, b"a"), command(2, 1, b"a"))
    b = (command(1, 2, b"b"), command(2, 3, b"b"))
    group.step(append(1, (0, 0), *a))
    group.step(heartbeat(3))
    group.step(append(3, (0, 0), *b))
    group.step(heartbeat(4, source=3))
    group.step(append(4, (0, 0), *a, source=3))
    assert group.log(1) == [(1, b"a"), (1, b"a")]
    for _ in range(4):
        group.complete(1, 1)
        assert max(matches(group, 1), default=0) == 0
    group.complete(1, 1)
    assert max(matches(group, 1)) == 2


def test_nothing_is_acknowledged_before_the_term_is_durable() -> None:
    """Else the follower could forget the term, and take entries of an older leader instead."""
    group = follower(command(1, 1), term=1)
    group.hold_back(1)
    group.step(append(2, (1, 1)))
    assert matches(group, 1) == []
    group.complete(1)
    assert matches(group, 1) == [1]


def test_a_leader_does_not_count_its_own_entry_before_that_is_durable() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.hold_back(1)
    group.isolate(3)
    index = group.propose(1, b"a")
    group.deliver()
    assert matches(group, 2)[-1] == index
    assert group[1].commit == index - 1
    group.complete(1)
    assert group[1].commit == index


def test_a_leader_sends_entries_while_its_own_write_is_on_its_way() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.hold_back(1)
    index = group.propose(1, b"a")
    group.deliver()
    assert group[1].commit == index, "two followers are a majority without the leader's disk"
    assert group.members[1].disk.waiting


def test_a_leader_that_loses_its_own_entry_in_a_crash_gets_it_back() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.hold_back(1)
    group.propose(1, b"a")
    group.deliver()
    group.restart(1)
    assert group.log(1) == [(1, b"")]
    group.elect(2)
    assert group.applied(1) == [b"a"]


# --- how a leader finds out where its followers stand ---------------------------------------------


def test_a_follower_with_a_longer_wrong_log_is_brought_in_line() -> None:
    mine = stored(VOTERS, command(1, 1, b"a"), command(2, 4, b"b"), term=4)
    other = [command(1, 1, b"a"), *(command(i, 2, b"x") for i in (2, 3, 4)), command(5, 3)]
    group = Group(*VOTERS, images={1: mine, 2: mine, 3: stored(VOTERS, *other, term=4)})
    group.elect(1)
    assert group.log(3) == group.log(1)
    assert group.applied(3) == [b"a", b"b"]


def test_a_follower_that_missed_much_is_brought_up_to_date() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.crash(3)
    for number in range(50):
        group.propose(1, b"%d" % number)
        group.deliver()
    group.restart(3)
    group.pass_time(2)
    assert group.applied(3) == group.applied(1)
    assert len(group.applied(3)) == 50


def test_a_new_leader_probes_each_follower_with_one_append_at_a_time() -> None:
    group = Group(1, 2, 3)
    group.isolate(2)
    group.elect(3)
    assert group.follower_of(3, 2).pace is Pace.PROBE
    before = len(group.sent)
    group.propose(3, b"a", b"b")
    group.propose(3, b"c")
    to_2 = [each for each in group.sent[before:] if each.target == 2]
    assert to_2 == [], "a probe is on its way already"
    assert group.follower_of(3, 1).pace is Pace.REPLICATE
    group.heal()
    group.pass_time(1)
    assert group.follower_of(3, 2).pace is Pace.REPLICATE
    assert group.applied(2) == [b"a", b"b", b"c"]


def test_appends_to_a_follower_that_agrees_do_not_wait_for_one_another() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    for data in (b"a", b"b", b"c"):
        group.propose(1, data)
    waiting = [each for each in group.wire if isinstance(each, AppendRequest) and each.target == 2]
    assert [[entry.data for entry in each.entries] for each in waiting] == [[b"a"], [b"b"], [b"c"]]
    assert group.follower_of(1, 2).inflight_count == 3


def test_proposals_before_a_take_share_a_message_and_a_write() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    before = len(group.sent), len(group.writes)
    group.propose(1, *(b"%d" % number for number in range(10)))
    assert [len(each.entries) for each in appends(group.sent[before[0] :])] == [10, 10]
    assert [len(write.entries) for _, write in group.writes[before[1] :]] == [10]


def appends(messages: list[Message]) -> list[AppendRequest]:
    return [each for each in messages if isinstance(each, AppendRequest)]


@pytest.mark.parametrize(
    "options",
    [
        RaftOptions(inflight_count_max=2),
        RaftOptions(inflight_bytes_max=200),
    ],
)
def test_what_is_on_its_way_to_a_follower_is_bounded(options: RaftOptions) -> None:
    group = Group(1, 2, 3, options=options)
    group.elect(1)
    for number in range(10):
        group.propose(1, b"%d" % number * 100)
    assert group.follower_of(1, 2).inflight_count == 2
    group.deliver()
    assert len(group.applied(2)) == 10


def test_an_append_holds_about_as_many_bytes_as_it_may_but_at_least_one_entry() -> None:
    group = Group(1, 2, 3, options=RaftOptions(append_bytes_max=300))
    group.elect(1)
    before = len(group.sent)
    group.propose(1, *([b"x" * 100] * 4), b"y" * 1000, b"z")
    to_2 = [each for each in appends(group.sent[before:]) if each.target == 2]
    assert [len(each.entries) for each in to_2] == [3, 2, 1]
    group.deliver()
    assert len(group.applied(2)) == 6


@pytest.mark.parametrize("lost", [AppendRequest, AppendAnswer])
def test_a_lost_message_is_made_up_for_by_heartbeats(lost: type[Message]) -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group.propose(1, b"a")
    group.deliver(lambda message: not isinstance(message, lost))
    group.drop(of(lost))
    assert group.applied(1) == []
    group.pass_time(3)
    assert group.applied(1) == group.applied(2) == [b"a"]


def test_a_lost_append_is_made_up_for_by_the_next_one() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.drop(of(AppendRequest, target=2))
    group.propose(1, b"b")
    group.deliver()
    assert group.applied(2) == [b"a", b"b"]


def test_a_lost_probe_is_made_up_for_by_heartbeats() -> None:
    group = Group(1, 2, 3)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    group.drop()
    assert group.follower_of(1, 2).pace is Pace.PROBE
    group.pass_time(2)
    assert group.follower_of(1, 2).pace is Pace.REPLICATE
    assert group[1].commit == 1


def test_a_full_window_whose_messages_were_lost_opens_again() -> None:
    group = Group(1, 2, 3, options=RaftOptions(inflight_count_max=1))
    group.elect(1)
    group.isolate(3)
    group.propose(1, b"a")
    group.propose(1, b"b")
    group.drop(of(AppendRequest))
    group.pass_time(4)
    assert group.applied(2) == [b"a", b"b"]


def test_heartbeats_under_way_are_no_reason_to_send_entries_again() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    for number in range(5):
        group.propose(1, b"%d" % number)
        group.tick(1)
        before = len(group.sent)
        group.deliver()
        assert sum(len(each.entries) for each in appends(group.sent[before:])) == 0


def test_answers_that_come_twice_or_late_change_nothing() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.propose(1, b"b")
    group.deliver(of(AppendRequest, target=2))
    first, second = group.take_messages(of(AppendAnswer, source=2))
    group.step(second)
    assert group.follower_of(1, 2).match == 3
    for late in (first, second, first):
        group.step(late)
    status = group.follower_of(1, 2)
    assert (status.match, status.next_index, status.inflight_count) == (3, 4, 0)
    assert group[1].commit == 3


def test_reordered_appends_are_all_taken_over_in_the_end() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    for data in (b"a", b"b", b"c"):
        group.propose(1, data)
    for message in reversed(group.take_messages(of(AppendRequest, target=2))):
        group.step(message)
    group.deliver()
    group.pass_time(2)
    assert group.applied(2) == [b"a", b"b", b"c"]


def test_refusals_of_appends_that_were_overtaken_are_ignored() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    match = group.follower_of(1, 2).match
    late = AppendRefusal(NodeId(2), NodeId(1), RaftTerm(1), match, Index(0))
    group.step(late)
    assert group.follower_of(1, 2).pace is Pace.REPLICATE
    assert group[1].ignored[Ignored.LATE] >= 1


def test_a_probe_is_not_moved_by_the_answer_to_an_older_one() -> None:
    group = Group(
        1, 2, 3, images={1: stored(VOTERS, *(command(i, 1) for i in range(1, 9)), term=1)}
    )
    group.isolate(3)
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, AppendRefusal))
    (refusal,) = group.take_messages(of(AppendRefusal, source=2))
    assert isinstance(refusal, AppendRefusal)
    group.step(refusal)
    position = group.follower_of(1, 2).next_index
    assert position == 1
    group.step(refusal)
    assert group.follower_of(1, 2).next_index == position
    group.deliver()
    assert group[2].last_index == 9


def test_a_match_beyond_the_leaders_log_is_ignored() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.step(answer(2, 1, 1, 99))
    assert group[1].commit == 1
    assert group[1].ignored[Ignored.NONSENSE] == 1


def test_answers_of_strangers_are_ignored() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.step(answer(9, 1, 1, 1))
    group.step(AppendRefusal(NodeId(9), NodeId(1), RaftTerm(1), Index(1), Index(0)))
    group.step(HeartbeatAnswer(NodeId(9), NodeId(1), RaftTerm(1), 0))
    assert group[1].ignored[Ignored.UNKNOWN_SENDER] == 3


def test_answers_that_reach_who_no_longer_leads_are_ignored() -> None:
    group = Group(1, 2, 3)
    group.step(answer(2, 1, 0 + 1, 0))
    assert group[1].ignored[Ignored.LATE] == 1


def test_an_idle_group_sends_only_heartbeats_and_writes_nothing() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    sent, written = len(group.sent), len(group.writes)
    group.pass_time(20)
    assert {type(each) for each in group.sent[sent:]} == {Heartbeat, HeartbeatAnswer}
    assert len(group.sent) - sent == 20 * 4
    assert len(group.writes) == written


# --- what is refused ------------------------------------------------------------------------------


def test_only_a_leader_takes_proposals() -> None:
    group = Group(1, 2, 3)
    assert group[1].propose(b"a") is Refused.NOT_LEADER
    group.elect(1)
    assert group[2].propose(b"a") is Refused.NOT_LEADER


def test_a_proposal_larger_than_an_entry_may_be_is_refused() -> None:
    group = Group(1)
    group.elect(1)
    assert group[1].propose(bytes(limits.RAFT_ENTRY_BYTES_MAX + 1)) is Refused.TOO_LARGE
    assert not isinstance(group[1].propose(bytes(limits.RAFT_ENTRY_BYTES_MAX)), Refused)


def test_bytes_that_wait_to_be_committed_are_bounded() -> None:
    group = Group(1, 2, 3, options=RaftOptions(uncommitted_bytes_max=1000))
    group.elect(1)
    while not isinstance(group[1].propose(b"x" * 100), Refused):
        assert group[1].last_index < 100
    assert group[1].propose(b"") is Refused.TOO_MUCH_UNCOMMITTED
    group.deliver()
    assert not isinstance(group[1].propose(b"x"), Refused)


def test_what_an_old_leader_left_uncommitted_counts_against_the_bound() -> None:
    tail = [command(index, 1, b"x" * 100) for index in range(1, 20)]
    image = stored(VOTERS, *tail, term=1)
    group = Group(*VOTERS, options=RaftOptions(uncommitted_bytes_max=1000), images={1: image})
    group.campaign(1)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert group[1].propose(b"x") is Refused.TOO_MUCH_UNCOMMITTED
    group.deliver()
    assert not isinstance(group[1].propose(b"x"), Refused)


def test_the_first_entry_of_a_leadership_is_empty() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    log = group[1]._state.log
    assert log.slice(1, 2) == (Entry(Index(1), RaftTerm(1), EntryKind.EMPTY, b""),)
    assert group[2].commit == 1
