"""Each safeguard is switched off in turn, and the story that it is for must go wrong.

A test of the tests: a story that ends well without its safeguard proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.core.raft import test_commitment as commitment
from tests.core.raft import test_elections as elections
from tests.core.raft import test_membership as membership
from tests.core.raft import test_reads as reads
from tests.core.raft import test_replication as replication
from tests.core.raft import test_snapshots as snapshots
from tidelog.core.raft import election, roles
from tidelog.core.raft.entries import Index
from tidelog.core.raft.following import Following
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.options import RaftOptions
from tidelog.core.raft.progress import Progress
from tidelog.core.raft.roles import Roles
from tidelog.core.raft.state import State
from tidelog.core.raft.writes import Writes
from tidelog.invariants import InvariantViolation
from tidelog.types import NodeId

Story = Callable[[], None]
STAND = Roles._stand_for_election


@dataclass(frozen=True, slots=True)
class Missing:
    """A safeguard, what takes its place, and the story that must notice."""

    name: str
    owner: object
    attribute: str
    instead: object
    story: Story


def yes(*_: object, **__: object) -> bool:
    return True


def no(*_: object, **__: object) -> bool:
    return False


def nothing(*_: object, **__: object) -> None:
    return None


def stand_and_ask_at_once(roles: Roles, *, transfer: bool) -> None:
    STAND(roles, transfer=transfer)
    assert roles.candidacy is not None
    roles.candidacy.ask()


def match_at_once(following: Following, index: Index) -> None:
    following._matched = max(following._matched, index)
    following._state.writes.durable = following._matched
    following._acknowledge()


def without_waiting_for_the_term(following: Following, index: Index) -> None:
    following._matched = max(following._matched, index)
    if following._state.writes.durable >= index:
        following._acknowledge()


def counts_itself_at_once(leadership: Leadership, voter: NodeId) -> Index:
    state, followers = leadership._state, leadership.replication.followers
    return state.log.last_index if voter == state.node else followers[voter].match


def counts_what_was_replaced(writes: Writes, begin: Index) -> None:
    writes.handed = min(writes.handed, Index(begin - 1))
    writes.durable = min(writes.durable, Index(begin - 1))


MISSING = [
    Missing(
        "a vote goes to a log that lacks entries",
        election,
        "is_up_to_date",
        yes,
        lambda: elections.test_a_vote_goes_only_to_a_log_that_is_at_least_as_up_to_date(
            [(1, 1), (2, 1)], (1, 1), False
        ),
    ),
    Missing(
        "a pre-vote goes to a log that lacks entries",
        roles,
        "is_up_to_date",
        yes,
        elections.test_a_pre_vote_is_refused_to_a_log_that_lacks_entries,
    ),
    Missing(
        "a second vote of a term goes to another",
        roles,
        "may_vote",
        yes,
        elections.test_the_first_vote_of_a_term_stands,
    ),
    Missing(
        "a vote is sent before it is durable",
        Writes,
        "hard_state_durable",
        True,
        elections.test_a_vote_is_not_sent_before_it_is_durable,
    ),
    Missing(
        "a candidate asks before its own vote is durable",
        Roles,
        "_stand_for_election",
        stand_and_ask_at_once,
        elections.test_a_vote_for_a_log_that_a_crash_shortened_is_not_counted,
    ),
    Missing(
        "messages of an old term are taken for new ones",
        Roles,
        "_accept_term",
        yes,
        replication.test_a_stale_append_of_an_old_term_changes_nothing,
    ),
    Missing(
        "a heard leader is not protected",
        Roles,
        "_protects_leader",
        no,
        elections.test_who_hears_a_leader_gives_no_vote_to_another,
    ),
    Missing(
        "a leader stays without a majority",
        Leadership,
        "_hears_quorum",
        yes,
        elections.test_a_leader_without_a_majority_steps_down,
    ),
    Missing(
        "a removed leader that restarts is silent at once",
        State,
        "may_lead",
        State.is_voter,
        membership.test_a_removed_leader_whose_log_is_needed_stands_for_election_again,
    ),
    Missing(
        "a voter is removed without whom there is no majority",
        Leadership,
        "_could_commit",
        yes,
        membership.test_no_voter_is_removed_without_whom_the_others_could_not_go_on,
    ),
    Missing(
        "a voter is made of who died",
        Leadership,
        "_could_commit",
        yes,
        membership.test_a_learner_that_has_caught_up_and_died_does_not_become_a_voter,
    ),
    Missing(
        "only who was heard of since the last check counts as alive",
        Progress,
        "was_active",
        property(no, nothing),
        membership.test_who_was_heard_of_just_before_the_quorum_was_checked_counts,
    ),
    Missing(
        "entries are acknowledged before they are durable",
        Following,
        "_match",
        match_at_once,
        replication.test_entries_are_not_acknowledged_before_they_are_durable,
    ),
    Missing(
        "entries are acknowledged before the term is durable",
        Following,
        "_match",
        without_waiting_for_the_term,
        replication.test_nothing_is_acknowledged_before_the_term_is_durable,
    ),
    Missing(
        "a leader counts its own entries before they are durable",
        Leadership,
        "_durable_at",
        counts_itself_at_once,
        replication.test_a_leader_does_not_count_its_own_entry_before_that_is_durable,
    ),
    Missing(
        "a completed write counts for entries that were replaced",
        Writes,
        "truncate",
        counts_what_was_replaced,
        replication.test_a_write_whose_entries_were_replaced_meanwhile_counts_for_nothing,
    ),
    Missing(
        "a completed write counts for entries that were replaced and came back",
        Writes,
        "truncate",
        counts_what_was_replaced,
        replication.test_a_write_counts_for_nothing_though_its_entries_came_back_meanwhile,
    ),
    Missing(
        "every append truncates",
        Following,
        "_first_difference",
        lambda *_: 0,
        replication.test_an_append_that_the_log_holds_already_truncates_nothing,
    ),
    Missing(
        "a committed entry may be replaced",
        Following,
        "_is_settled",
        no,
        replication.test_an_append_that_would_replace_a_committed_entry_is_ignored,
    ),
    Missing(
        "entries of old terms are committed by counting",
        Leadership,
        "_may_commit",
        yes,
        commitment.test_figure_8_an_entry_of_an_old_term_on_a_majority_is_not_committed,
    ),
    Missing(
        "the membership changes whenever it is asked to",
        Leadership,
        "_refuse_change",
        nothing,
        membership.test_a_second_change_waits_until_the_first_is_committed,
    ),
    Missing(
        "a learner is promoted whatever it lacks",
        Leadership,
        "_has_caught_up",
        yes,
        membership.test_a_learner_that_lags_is_not_promoted,
    ),
    Missing(
        "reads are answered before a commit in the leader's term",
        State,
        "committed_in_term",
        True,
        reads.test_a_new_leader_answers_reads_only_once_it_has_committed_in_its_term,
    ),
    Missing(
        "reads are answered without a majority",
        Leadership,
        "_round_of",
        lambda leadership, _: leadership._reads.awaited_round,
        reads.test_a_deposed_leader_that_does_not_know_it_answers_no_read,
    ),
    Missing(
        "lost appends are not looked for",
        Progress,
        "stalls",
        no,
        replication.test_a_full_window_whose_messages_were_lost_opens_again,
    ),
    Missing(
        "the window of a follower has no end",
        Progress,
        "has_room",
        yes,
        lambda: replication.test_what_is_on_its_way_to_a_follower_is_bounded(
            RaftOptions(inflight_count_max=2)
        ),
    ),
    Missing(
        "a snapshot counts before it is durable",
        Following,
        "_match",
        match_at_once,
        snapshots.test_a_snapshot_is_acknowledged_only_once_it_is_durable,
    ),
]


@pytest.mark.parametrize("missing", MISSING, ids=lambda missing: missing.name)
def test_a_missing_safeguard_is_missed(missing: Missing, monkeypatch: pytest.MonkeyPatch) -> None:
    missing.story()
    monkeypatch.setattr(missing.owner, missing.attribute, missing.instead)
    with pytest.raises((AssertionError, InvariantViolation)):
        missing.story()
