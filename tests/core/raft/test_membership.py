"""Changes of the membership, one at a time (M1 to M3, C3, F1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.raft.group import CAMPAIGN_TICKS, ELECTION_TICKS, Group, nodes, of
from tidelog import limits
from tidelog.core.raft.entries import Entry, EntryKind, Index, Membership, RaftTerm
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.membership import (
    Change,
    changed,
    decode_membership,
    encode_membership,
    is_sound,
    quorum_value,
)
from tidelog.core.raft.messages import AppendRequest, PreVoteRequest
from tidelog.core.raft.node import AddLearner, Ignored, Promote, RaftOptions, Refused, Remove
from tidelog.types import NodeId


def add(number: int) -> AddLearner:
    return AddLearner(NodeId(number))


def promote(number: int) -> Promote:
    return Promote(NodeId(number))


def remove(number: int) -> Remove:
    return Remove(NodeId(number))


def change(group: Group, change: Change) -> None:
    """Change the membership, and have that committed."""
    index = group.change(group.leader, change)
    assert not isinstance(index, Refused), index
    group.deliver()


def test_a_node_joins_as_a_learner_and_becomes_a_voter() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.join(4)
    change(group, add(4))
    group.pass_time(2)
    assert group.applied(4) == [b"a"]
    assert group[4].membership == Membership(nodes(1, 2, 3), nodes(4))
    change(group, promote(4))
    assert group[4].membership == Membership(nodes(1, 2, 3, 4))
    group.pass_time(1)
    group.crash(1)
    group.elect(4)
    assert group.leader == 4


def test_a_learner_neither_votes_nor_counts_but_gets_the_log() -> None:
    group = Group(1, 2, learners=(3,))
    group.elect(1)
    group.crash(2)
    index = group.propose(1, b"a")
    group.deliver()
    assert group[3].last_index == index
    assert group[1].commit == index - 1


def test_a_change_is_in_force_from_the_moment_it_is_appended() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.change(1, remove(3))
    assert group[1].membership.voters == nodes(1, 2)
    group.deliver(of(AppendRequest, target=2))
    assert group[2].membership.voters == nodes(1, 2)
    assert group[2].commit < group[2].last_index


def test_a_second_change_waits_until_the_first_is_committed() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.join(4)
    group.join(5)
    assert group.change(1, add(4)) == 2
    assert group.change(1, add(5)) is Refused.ANOTHER_CHANGE_PENDING
    group.deliver()
    assert group.change(1, add(5)) == 3


def test_a_new_leader_changes_nothing_before_it_has_committed_in_its_term() -> None:
    """The bug of single-server changes: two leaders' changes could have disjoint majorities."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.crash(1)
    group.tick(3, times=ELECTION_TICKS)
    group.campaign(2)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert group.leader == 2
    assert group.change(2, remove(1)) is Refused.NO_COMMIT_IN_THIS_TERM
    group.deliver()
    assert group.change(2, remove(1)) == 3


def three_of_whom_one_is_dead() -> Group:
    group = Group(1, 2, 3)
    group.elect(1)
    group.crash(3)
    group.pass_time(3 * ELECTION_TICKS)
    assert group.leader == 1
    return group


def test_no_voter_is_removed_without_whom_the_others_could_not_go_on() -> None:
    group = three_of_whom_one_is_dead()
    assert group.change(1, remove(2)) is Refused.TOO_FEW_ALIVE
    assert group.change(1, remove(1)) is Refused.TOO_FEW_ALIVE
    group.pass_time(3 * ELECTION_TICKS)
    assert group.leader == 1
    change(group, remove(3))
    assert group[2].membership == Membership(nodes(1, 2))


def test_a_learner_that_has_caught_up_and_died_does_not_become_a_voter() -> None:
    group = three_of_whom_one_is_dead()
    group.join(4)
    change(group, add(4))
    group.pass_time(2)
    group.crash(4)
    group.pass_time(3 * ELECTION_TICKS)
    assert group.change(1, promote(4)) is Refused.TOO_FEW_ALIVE
    group.restart(4)
    group.pass_time(2)
    change(group, promote(4))


def test_who_was_heard_of_just_before_the_quorum_was_checked_counts() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.tick(1, times=ELECTION_TICKS)
    assert group.leader == 1
    change(group, remove(3))


def two_leaders() -> Group:
    """The bug of single-server changes, up to the second change.

    Node 1 leads nodes 1 to 4, makes node 5 a voter, and gets that to node 5 alone.  Node 2 is then
    elected by 3 and 4, and wants to remove node 1.
    """
    group = Group(1, 2, 3, 4, learners=(5,))
    group.elect(1)
    group.isolate(1, 5)
    assert group.change(1, promote(5)) == 2
    group.deliver()
    group.tick(3, 4, times=ELECTION_TICKS)
    group.campaign(2)
    group.deliver(lambda message: not isinstance(message, AppendRequest))
    assert group.roles()[2] == "LEADER"
    return group


def test_two_leaders_cannot_each_change_the_membership() -> None:
    group = two_leaders()
    assert group.change(2, remove(1)) is Refused.NO_COMMIT_IN_THIS_TERM


def test_two_changes_of_two_leaders_would_both_be_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The story bites: 2 and 3 are a majority after one change, 1, 4 and 5 after the other."""

    def refuses_nothing(leadership: Leadership) -> None:
        return None

    monkeypatch.setattr(Leadership, "_refuse_change", refuses_nothing)
    monkeypatch.setattr(Leadership, "_could_commit", lambda *_: True)
    group = two_leaders()
    group.isolate(2, 3)
    assert group.change(2, remove(1)) == 3
    group.deliver()
    group.tick(2)
    group.deliver()
    assert group[2].commit == 3
    group.heal()
    group.isolate(2, 3)
    group.pass_time(1)
    group.tick(4, 5, times=ELECTION_TICKS)
    with pytest.raises(AssertionError, match="was applied before"):
        group.elect(1)


def test_a_change_that_was_not_committed_is_rolled_back_with_its_entry() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.change(1, remove(3))
    assert group[1].membership.voters == nodes(1, 2)
    group.pass_time(2 * ELECTION_TICKS + 1)
    group.elect(2)
    group.heal()
    group.pass_time(3)
    assert group[1].membership.voters == nodes(1, 2, 3)
    assert group[1].leader == 2


def test_a_change_survives_a_restart() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    change(group, remove(3))
    group.restart(1)
    assert group[1].membership.voters == nodes(1, 2)


def test_a_removed_leader_leads_until_that_is_committed_and_then_steps_down() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    index = group.change(1, remove(1))
    assert group.roles()[1] == "LEADER"
    group.deliver(of(AppendRequest, target=2))
    group.deliver(lambda message: message.target == 1)
    assert group[1].commit < 2, "it does not count itself"
    group.deliver()
    assert group[1].commit == index
    assert group.roles()[1] == "FOLLOWER"
    assert group[2].commit == index, "the others were told before it left"
    group.elect(2)
    assert group[3].leader == 2


def test_a_leader_that_removes_the_only_other_voter_goes_on_alone() -> None:
    group = Group(1, 2)
    group.elect(1)
    group.crash(2)
    index = group.change(1, remove(2))
    assert group[1].commit == index
    group.propose(1, b"a")
    group.pass_time(3 * ELECTION_TICKS)
    assert group.applied(1) == [b"a"]
    assert group.leader == 1


def test_with_a_voter_less_what_waited_may_be_committed_at_once() -> None:
    group = Group(1, 2, 3, 4)
    group.elect(1)
    group.crash(3)
    group.crash(4)
    index = group.propose(1, b"a")
    group.deliver()
    assert group[1].commit == index - 1
    group.change(1, remove(4))
    assert group[1].commit == index


def test_a_leader_that_removes_itself_from_a_pair_leaves_it_to_the_other() -> None:
    group = Group(1, 2)
    group.elect(1)
    group.change(1, remove(1))
    group.deliver()
    assert group.roles()[1] == "FOLLOWER"
    group.pass_time(CAMPAIGN_TICKS + 1)
    assert group.leader == 2


def test_a_removed_leader_whose_log_is_needed_stands_for_election_again() -> None:
    """Only its log holds the change; node 2 cannot win without it, and must not wait for ever."""
    group = Group(1, 2)
    group.elect(1)
    index = group.change(1, remove(1))
    group.drop()
    group.restart(1)
    assert group[1].membership.voters == nodes(2)
    group.pass_time(3 * CAMPAIGN_TICKS)
    assert group.leader == 2
    assert group[2].membership.voters == nodes(2)
    assert group[2].commit > 2
    assert index == 2
    term = group[2].term
    group.pass_time(5 * CAMPAIGN_TICKS)
    assert (group.leader, group[2].term) == (2, term), "it has left, and disturbs nobody"


def test_a_removed_node_learns_that_it_is_no_member() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    change(group, remove(3))
    assert group[3].membership.voters == nodes(1, 2)
    assert group[3].commit == group[1].commit
    sent = len(group.sent)
    group.pass_time(3 * CAMPAIGN_TICKS)
    assert not [each for each in group.sent[sent:] if 3 in (each.source, each.target)]


def test_a_removed_node_that_did_not_hear_of_it_disturbs_nobody() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    change(group, remove(3))
    group.heal()
    group.pass_time(5 * CAMPAIGN_TICKS)
    assert [each for each in group.sent if isinstance(each, PreVoteRequest) and each.source == 3]
    assert group.leader == 1
    assert {group[n].term for n in (1, 2, 3)} == {1}


def test_answers_of_a_removed_node_are_ignored() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver(of(AppendRequest))
    late = group.take_messages(lambda message: message.source == 3)
    change(group, remove(3))
    before = group[1].ignored.get(Ignored.UNKNOWN_SENDER, 0)
    for message in late:
        group.step(message)
    assert group[1].ignored[Ignored.UNKNOWN_SENDER] > before


def test_a_learner_that_lags_is_not_promoted() -> None:
    group = Group(1, 2, 3, options=RaftOptions(promote_lag_max=5))
    group.elect(1)
    group.join(4)
    group.isolate(4)
    change(group, add(4))
    for _ in range(10):
        group.propose(1, b"a")
    group.deliver()
    assert group.change(1, promote(4)) is Refused.NOT_CAUGHT_UP
    group.heal()
    group.pass_time(2)
    assert not isinstance(group.change(1, promote(4)), Refused)


def test_a_learner_of_which_nothing_was_heard_is_not_promoted() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    change(group, add(4))
    assert group.change(1, promote(4)) is Refused.NOT_CAUGHT_UP


@pytest.mark.parametrize(
    ("wanted", "refused"),
    [
        (add(1), Refused.NO_CHANGE),
        (add(3), Refused.NO_CHANGE),
        (add(0), Refused.NO_CHANGE),
        (promote(1), Refused.NO_CHANGE),
        (promote(9), Refused.NO_CHANGE),
        (remove(9), Refused.NO_CHANGE),
        (remove(1), Refused.LAST_VOTER),
    ],
)
def test_a_change_that_cannot_be_is_refused(wanted: Change, refused: Refused) -> None:
    group = Group(1, learners=(3,))
    group.elect(1)
    index = group[1].last_index
    assert group.change(1, wanted) is refused
    assert group[1].last_index == index


def test_only_a_leader_changes_the_membership() -> None:
    group = Group(1, 2, 3)
    assert group.change(1, remove(2)) is Refused.NOT_LEADER


def test_a_group_has_only_so_many_members() -> None:
    membership = Membership(nodes(*range(1, limits.RAFT_MEMBERS_MAX + 1)))
    assert changed(membership, add(99)) is Refused.TOO_MANY_MEMBERS


def test_a_node_that_joined_takes_no_snapshot_before_it_knows_the_members() -> None:
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a")
    group.deliver()
    group.join(4)
    group.change(1, add(4))
    group.deliver(lambda message: not isinstance(message, AppendRequest) or message.target != 4)
    group.tick(1)
    group.deliver(rounds=100)
    assert group[4].commit == 3
    raft = group[4]
    raft.compact(Index(2), b"\x91\xc4\x01a")
    assert raft.status().snapshot_index == 0
    assert raft.compact(Index(3), b"\x91\xc4\x01a") is None
    assert raft.status().snapshot_index == 3


MEMBERSHIPS = st.builds(
    lambda voters, learners: Membership(nodes(*sorted(voters)), nodes(*sorted(learners - voters))),
    st.sets(st.integers(1, 8), min_size=1),
    st.sets(st.integers(1, 8)),
)
CHANGES = st.builds(
    lambda kind, node: kind(NodeId(node)),
    st.sampled_from([AddLearner, Promote, Remove]),
    st.integers(0, 9),
)


@given(MEMBERSHIPS, CHANGES)
def test_a_change_keeps_a_membership_sound_and_majorities_overlapping(
    before: Membership, change: Change
) -> None:
    after = changed(before, change)
    if isinstance(after, Refused):
        return
    assert after != before
    assert is_sound(after)
    assert len(set(before.voters) ^ set(after.voters)) <= 1
    smallest = [len(membership.voters) // 2 + 1 for membership in (before, after)]
    everyone = len(set(before.voters) | set(after.voters))
    assert sum(smallest) > everyone, "two majorities could be disjoint"


@given(MEMBERSHIPS)
def test_a_membership_survives_its_entry(membership: Membership) -> None:
    assert decode_membership(encode_membership(membership)) == membership


@pytest.mark.parametrize(
    "membership",
    [
        Membership(()),
        Membership(nodes(2, 1)),
        Membership(nodes(1, 1)),
        Membership(nodes(1, 2), nodes(2)),
        Membership(nodes(0, 1)),
        Membership(nodes(1), nodes(3, 2)),
        Membership(nodes(*range(1, limits.RAFT_MEMBERS_MAX + 2))),
    ],
)
def test_a_membership_that_is_not_sound_is_not_taken_over(membership: Membership) -> None:
    group = Group(1, 2, 3)
    data = encode_membership(membership)
    assert decode_membership(data) is None
    entry = Entry(Index(1), RaftTerm(1), EntryKind.MEMBERSHIP, data)
    request = AppendRequest(
        NodeId(2), NodeId(1), RaftTerm(1), Index(0), RaftTerm(0), Index(0), (entry,)
    )
    group.step(request)
    assert group[1].last_index == 0
    assert group[1].ignored[Ignored.NONSENSE] == 1


def test_bytes_that_are_no_membership_are_not_taken_for_one() -> None:
    assert decode_membership(b"") is None
    assert decode_membership(b"\xff\x00") is None
    assert decode_membership(b"\x92\x91\x01\xa1x") is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_the_value_of_a_quorum_is_the_highest_that_a_majority_has(values: list[int]) -> None:
    value = quorum_value(values)
    assert 2 * sum(other >= value for other in values) > len(values)
    assert 2 * sum(other > value for other in values) <= len(values)
