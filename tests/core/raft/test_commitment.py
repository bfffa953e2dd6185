"""When an entry is committed, and what can never be lost then (C1, C2, S1): figure 8, and more."""

from __future__ import annotations

import pytest

from tests.core.raft.group import ELECTION_TICKS, Group, Which, of
from tidelog.core.raft.entries import Index
from tidelog.core.raft.following import Following
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    Message,
)
from tidelog.core.raft.node import RaftOptions
from tidelog.types import NodeId


def elect_without_appends(group: Group, number: int) -> None:
    """Have a node elected, with its appends waiting on the wire."""
    group.tick(*(n for n in group.alive if n != number), times=ELECTION_TICKS)
    for _ in range(2):  # At the first attempt, a node that was down may only learn the term.
        if group.roles()[number] != "LEADER":
            group.campaign(number)
            group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert group.roles()[number] == "LEADER"


def without_entries_of_term(term: int) -> Which:
    def which(message: Message) -> bool:
        entries = message.entries if isinstance(message, AppendRequest) else ()
        return all(entry.term != term for entry in entries)

    return which


def figure_8() -> Group:
    """Figure 8 of the Raft paper up to (c): the entry of term 2 has come to be on a majority.

    Nodes 1 to 5 are the servers of the figure; the empty entry of each leader plays the client's.
    """
    group = Group(1, 2, 3, 4, 5, options=RaftOptions(append_bytes_max=1))
    group.elect(5)
    group.crash(5)
    # (a) 1 leads term 2 and gets its entry at index 2 to node 2 alone.
    elect_without_appends(group, 1)
    group.deliver(of(AppendRequest, source=1, target=2))
    group.drop()
    # (b) 1 crashes; 5 is elected in term 3 by 3 and 4, and has another entry at index 2.
    group.crash(1)
    group.crash(2)
    group.restart(5)
    elect_without_appends(group, 5)
    group.drop()
    # (c) 5 crashes; 1 is elected in term 4 and gets its entry of term 2 to node 3 as well.
    group.crash(5)
    group.restart(1)
    group.restart(2)
    elect_without_appends(group, 1)
    group.isolate(4)
    group.drop(of(AppendRequest, target=2))
    group.deliver(of(AppendRequest, target=3), rounds=2)  # Refused: it lacks the entry before.
    group.tick(1)
    group.deliver(without_entries_of_term(4))
    assert [term for term, _ in group.log(1)] == [1, 2, 4]
    assert [[term for term, _ in group.log(n)] for n in (2, 3)] == [[1, 2]] * 2
    group.heal()
    return group


def replace_the_entry(group: Group) -> None:
    """Figure 8 (d): 1 crashes, 5 is elected by 3 and 4, and replaces the entry of term 2."""
    group.crash(1)
    group.restart(5)
    group.wire.clear()
    group.tick(2, 3, 4, times=ELECTION_TICKS)
    for _ in range(2):
        group.campaign(5)
        group.deliver()


def test_figure_8_an_entry_of_an_old_term_on_a_majority_is_not_committed() -> None:
    group = figure_8()
    assert group[1].commit < 2
    replace_the_entry(group)
    assert group.leader == 5
    assert [[term for term, _ in group.log(n)][:2] for n in (2, 3, 4, 5)] == [[1, 3]] * 4


def test_figure_8_is_a_catastrophe_if_old_terms_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The story bites: without the rule, what was committed and applied is replaced."""

    def counts_any_term(leadership: Leadership, index: Index) -> bool:
        return True

    monkeypatch.setattr(Leadership, "_may_commit", counts_any_term)
    group = figure_8()
    assert group[1].commit == 2
    with pytest.raises(AssertionError, match="was applied before"):
        replace_the_entry(group)


def test_figure_8_an_entry_of_the_leaders_own_term_commits_all_before_it() -> None:
    """(e): once its own entry is on a majority, 5 can no longer win."""
    group = figure_8()
    group.pass_time(3)
    assert group[1].commit == 3
    replace_the_entry(group)
    assert group.roles()[5] != "LEADER"


@pytest.mark.parametrize(("size", "needed"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_an_entry_is_committed_by_a_majority_of_the_voters(size: int, needed: int) -> None:
    group = Group(*range(1, size + 1))
    group.elect(1)
    index = group.propose(1, b"a")
    for number in range(2, needed + 2):
        assert group[1].commit == index - 1
        group.deliver(of(AppendRequest, target=number))
        group.deliver(of(AppendAnswer, source=number))
    assert group[1].commit == index


def test_a_leader_alone_commits_nothing() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    index = group.propose(1, b"a")
    group.pass_time(5)
    assert group[1].commit == index - 1
    assert group.applied(1) == []


def test_a_single_voter_commits_once_its_own_write_is_durable() -> None:
    group = Group(1)
    group.elect(1)
    group.hold_back(1)
    index = group.propose(1, b"a")
    assert group[1].commit == index - 1
    group.complete(1)
    assert group.applied(1) == [b"a"]


def test_copies_on_learners_commit_nothing() -> None:
    group = Group(1, 2, 3, learners=(4, 5))
    group.elect(1)
    group.isolate(2, 3)
    index = group.propose(1, b"a")
    group.deliver()
    assert group.follower_of(1, 4).match == index
    assert group[1].commit == index - 1


def test_a_committed_entry_survives_its_leader() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group.propose(1, b"a")
    group.deliver()
    group.crash(1)
    group.heal()
    group.tick(2, times=ELECTION_TICKS)
    group.campaign(3)
    group.deliver()
    assert group.roles()[3] != "LEADER", "it lacks a committed entry"
    group.elect(2)
    assert group.applied(2) == group.applied(3) == [b"a"]


def test_an_entry_that_was_not_committed_may_go_and_the_old_leader_lets_it_go() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.propose(1, b"lost")
    group.pass_time(2 * ELECTION_TICKS + 1)
    group.elect(2)
    group.propose(2, b"kept")
    group.deliver()
    group.heal()
    group.pass_time(3)
    assert [group.applied(n) for n in (1, 2, 3)] == [[b"kept"]] * 3


def test_an_entry_of_an_old_leader_is_committed_with_the_first_of_a_new_one() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver(of(AppendRequest))
    group.crash(1)
    group.drop()
    assert group.applied(2) == []
    group.elect(2)
    assert group.applied(2) == group.applied(3) == [b"a"]


def test_followers_learn_at_once_what_was_committed() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    assert not [each for each in group.sent if isinstance(each, Heartbeat)]
    assert group.applied(2) == [b"a"]


def test_a_commit_notice_is_not_answered() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver(lambda message: not isinstance(message, CommitNotice))
    group.deliver(of(CommitNotice))
    group.collect()
    assert group.applied(2) == group.applied(3) == [b"a"]
    assert not group.wire


def test_a_lost_commit_notice_is_made_up_for_by_the_next_heartbeat() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver(lambda message: not isinstance(message, CommitNotice))
    group.drop(of(CommitNotice))
    assert group.applied(2) == []
    group.pass_time(RaftOptions().heartbeat_ticks)
    assert group.applied(2) == [b"a"]


def a_notice_reaches_the_entry_of_another_leader() -> Group:
    """3 alone has an entry of 1 where 2 has committed its own, and hears only of the commit."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1)
    group.propose(1, b"lost")
    group.deliver(of(AppendRequest, target=3))
    group.crash(1)
    group.drop()
    group.isolate(3)
    group.elect(2)
    index = group.propose(2, b"kept")
    group.deliver()
    assert group[2].commit == index
    group.heal()
    group.step(CommitNotice(NodeId(2), NodeId(3), group[2].term, index))
    return group


def test_a_commit_notice_says_nothing_of_entries_that_may_not_be_the_leaders() -> None:
    group = a_notice_reaches_the_entry_of_another_leader()
    assert group.applied(3) == []
    group.pass_time(3)
    assert group.applied(3) == group.applied(2) == [b"kept"]


def test_a_commit_notice_that_is_taken_at_its_word_applies_what_was_never_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at_its_word(following: Following, notice: CommitNotice) -> None:
        following._state.commit_to(min(notice.commit, following._state.log.last_index))

    monkeypatch.setattr(Following, "advance", at_its_word)
    with pytest.raises(AssertionError, match="was applied before"):
        a_notice_reaches_the_entry_of_another_leader()


def test_a_whole_group_that_loses_power_keeps_what_was_committed() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.deliver()
    group.hold_back(1, 2, 3)
    group.propose(1, b"c")
    group.deliver()
    for number in (1, 2, 3):
        group.restart(number)
    group.drop()
    group.elect(2)
    assert [group.applied(n) for n in (1, 2, 3)] == [[b"a", b"b"]] * 3
