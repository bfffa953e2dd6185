"""Each safeguard of the operator is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pytest
from msgspec.structs import replace

from tests.core.operator import (
    test_balance,
    test_elections,
    test_reconfigurations,
    test_requests,
    test_several_operators,
    test_watching,
)
from tidelog.core.operator import (
    balance,
    election,
    operator,
    procedure,
    reconfiguration,
    row,
    tending,
    watching,
)
from tidelog.core.operator.detection import Detection
from tidelog.core.operator.election import Election
from tidelog.core.operator.plan import Change, Ensemble, Phase, Status, StreamPlan, changed_ensemble
from tidelog.core.operator.procedure import Procedure
from tidelog.core.operator.reconfiguration import Reconfiguration
from tidelog.core.operator.row import Row, with_new_term
from tidelog.core.operator.watching import Watch
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import FollowerHead
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation
from tidelog.types import NO_VERSION, NodeId, Revision, Term

Heads = Mapping[NodeId, FollowerHead]


def nothing(*_: object, **__: object) -> None:
    return None


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


# -- what takes the place of a safeguard ----------------------------------------------------------


def majority_of_answers(heads: Heads, _: object, __: object, row: Row) -> bool:
    return 2 * len(heads) > len(row.fencing)


def majority_of_three(heads: Heads, *_: object) -> bool:
    return sum(1 for head in heads.values() if head.is_complete) >= 2


def vouches_if_known(answer: FollowerHead, had: EntryId | None, _: EntryId) -> bool:
    return answer.is_complete or had is not None


def all_complete(heads: Heads, _: Ensemble) -> list[FollowerHead]:
    return [head for head in heads.values() if head.is_complete]


def longest(heads: Heads, _: object, final: Ensemble, __: object) -> NodeId:
    able = [head for node, head in sorted(heads.items()) if node in final]
    return max(able, key=lambda head: head.head.llsn).node


def ensemble_alone(ensemble: Ensemble, _: Change | None) -> Ensemble:
    return ensemble


def always_completed(ensemble: Ensemble, change: Change | None) -> Ensemble:
    return ensemble if change is None else changed_ensemble(ensemble, change)


def without_change(before: Row, known: Term) -> Row:
    return replace(with_new_term(before, known), plan=StreamPlan(Status.ELECTION))


def with_change(before: Row, known: Term) -> Row:
    change = before.plan.change
    kept = None if change is None else replace(change, phase=Phase.COMMIT)
    return replace(with_new_term(before, known), plan=StreamPlan(Status.ELECTION, kept))


def still_first(before: Row) -> Row:
    return replace(before, revision=Revision(before.revision + 1))


def one_higher(before: Row, _: Term) -> Term:
    return Term(before.term + 1)


really_answered = Procedure.answered


def assumed(self: Procedure, number: int, error: LogError | None, newest: Revision) -> object:
    unknown = error is not None and not error.definite
    return really_answered(self, number, None if unknown else error, newest)


def written_at_once(self: Procedure, number: int, error: LogError | None, _: Revision) -> object:
    return really_answered(self, number, None if error is not None else error, Revision(0))


def commit_at_once(self: Reconfiguration, answer: object) -> None:
    self._record(self._wanted, NO_VERSION)


def undo_at_once(self: Reconfiguration, request: int | None = None) -> bool:
    self.abort_request = request
    self._undo()
    return True


def abort_at_once(self: Reconfiguration, request: int | None = None) -> bool:
    self.abort_request = request
    self._abort()
    return True


def another_one(self: Election) -> None:
    """Ask the next candidate in the same term."""
    if self.stage is election.Stage.LEADING and self._is_impatient:
        self._chosen = NodeId(self._chosen + 1)
        self._lead()
    elif self.stage is not election.Stage.LEADING:
        self._choose_if_due()


@dataclass(frozen=True)
class Mutant:
    """Where a safeguard is, what takes its place, and the test that misses it."""

    owner: object
    name: str
    without: Callable[..., object]
    test: Callable[[], None]


MUTANTS = [
    # Elections.
    Mutant(
        election,
        "has_majority",
        majority_of_answers,
        test_elections.test_only_complete_replicas_are_counted,
    ),
    Mutant(
        election,
        "has_majority",
        majority_of_three,
        test_elections.test_two_of_four_fenced_are_no_majority_of_a_committed_swap,
    ),
    Mutant(
        election,
        "vouches",
        vouches_if_known,
        partial(
            test_elections.test_who_gave_its_log_up_does_not_help_to_elect_who_lacks_what_it_had,
            had=(4, 2),
        ),
    ),
    Mutant(
        election,
        "candidates",
        all_complete,
        test_elections.test_the_old_node_of_a_committed_swap_never_leads_and_is_no_follower,
    ),
    Mutant(
        election,
        "choose_leader",
        longest,
        test_elections.test_a_longer_log_of_an_older_term_does_not_win,
    ),
    Mutant(
        election,
        "is_of_ensemble",
        always,
        test_elections.test_answers_that_do_not_count_change_nothing,
    ),
    Mutant(
        election,
        "with_a_leader_to_be",
        still_first,
        test_elections.test_data_of_a_first_leader_that_was_never_written_down_outlive_a_lost_disk,
    ),
    Mutant(
        Election,
        "_wait",
        another_one,
        test_elections.test_a_chosen_leader_that_is_silent_is_given_up_with_its_term,
    ),
    Mutant(
        Election,
        "_on_refusal",
        nothing,
        test_elections.test_an_election_in_a_term_that_nodes_have_left_behind_jumps_above_theirs,
    ),
    # Rows.
    Mutant(
        row,
        "fencing_ensemble",
        ensemble_alone,
        test_elections.test_the_fencing_ensemble_of_a_committed_swap_has_the_new_node,
    ),
    Mutant(
        row,
        "final_ensemble",
        ensemble_alone,
        test_elections.test_the_leader_counts_with_the_size_of_the_final_ensemble,
    ),
    Mutant(
        row,
        "final_ensemble",
        always_completed,
        test_elections.test_a_stalled_contraction_is_rolled_back,
    ),
    Mutant(
        election,
        "with_new_term",
        without_change,
        test_elections.test_a_committed_change_stays_until_an_election_completes,
    ),
    Mutant(
        election,
        "with_new_term",
        with_change,
        test_elections.test_a_prepared_change_is_dropped_when_an_election_begins,
    ),
    Mutant(
        row,
        "next_term",
        one_higher,
        test_elections.test_an_election_in_a_term_that_nodes_have_left_behind_jumps_above_theirs,
    ),
    Mutant(
        procedure,
        "is_sane_term",
        always,
        test_elections.test_a_term_out_of_all_bounds_is_not_believed,
    ),
    # Writes.
    Mutant(
        Procedure,
        "answered",
        assumed,
        partial(
            test_elections.test_a_term_whose_write_has_an_unknown_outcome_is_never_used,
            is_applied=True,
        ),
    ),
    Mutant(
        Procedure,
        "answered",
        written_at_once,
        test_elections.test_a_row_that_looks_like_the_own_write_is_not_taken_for_it,
    ),
    Mutant(
        Procedure,
        "overtake",
        nothing,
        test_several_operators.test_an_operator_stops_when_another_one_has_written,
    ),
    # Reconfigurations.
    Mutant(
        reconfiguration,
        "reaches",
        always,
        test_reconfigurations.test_a_snapshot_that_ends_before_the_leaders_head_does_not_count,
    ),
    Mutant(
        reconfiguration,
        "is_safe_to_contract",
        always,
        test_reconfigurations.test_a_contraction_leaves_no_rest_that_could_not_elect,
    ),
    Mutant(
        Reconfiguration,
        "_on_prepared",
        commit_at_once,
        partial(
            test_reconfigurations.test_commit_is_written_only_when_the_new_node_has_its_snapshot,
            change=test_reconfigurations.SWAP,
        ),
    ),
    Mutant(
        Reconfiguration,
        "abort",
        undo_at_once,
        test_reconfigurations.test_steady_is_written_only_when_the_leader_has_undone_it,
    ),
    Mutant(
        Reconfiguration,
        "abort",
        abort_at_once,
        test_reconfigurations.test_what_the_leader_has_undone_cannot_be_committed_any_more,
    ),
    Mutant(
        Reconfiguration,
        "_tend",
        nothing,
        test_reconfigurations.test_a_follower_that_a_contraction_waits_for_is_attached_meanwhile,
    ),
    Mutant(
        operator,
        "refuse_change",
        nothing,
        test_requests.test_the_only_replica_is_never_swapped,
    ),
    Mutant(
        Watch,
        "may_drop",
        always,
        test_reconfigurations.test_a_node_that_comes_back_is_not_told_to_delete_its_replica,
    ),
    # Watching.
    Mutant(
        tending,
        "fence_missing",
        nothing,
        test_watching.test_a_follower_that_was_never_added_is_added_by_the_next_operator,
    ),
    Mutant(
        tending,
        "is_unled",
        never,
        test_watching.test_a_leader_that_says_it_does_not_lead_is_replaced,
    ),
    Mutant(
        watching,
        "is_others_work",
        never,
        test_watching.test_what_somebody_may_be_at_work_on_is_left_alone_while_patience_lasts,
    ),
    Mutant(
        watching,
        "may_elect",
        always,
        test_watching.test_elections_of_a_stream_keep_their_distance,
    ),
    Mutant(
        Row,
        "can_elect",
        always,
        test_watching.test_no_election_begins_that_cannot_succeed,
    ),
    Mutant(
        Detection,
        "is_suspected",
        never,
        test_watching.test_a_leader_that_is_not_heard_is_replaced,
    ),
    Mutant(
        balance,
        "is_safe_without",
        always,
        test_balance.test_changes_do_not_run_ahead_of_the_data,
    ),
    Mutant(
        balance,
        "gain_of_move",
        lambda *_: 9,
        partial(test_balance.test_a_difference_of_one_is_no_reason_to_move, leaders=(1, 2, 3)),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.name} {one.without.__name__}")
def test_a_safeguard_is_missed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.test()
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.without)
    with pytest.raises((AssertionError, InvariantViolation, pytest.fail.Exception)):
        mutant.test()
