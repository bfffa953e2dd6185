"""Safeguards of the replicas of a stream, each switched off, and the story that must go wrong.

A story is a directed test of ``tests/core/replica/protocol``, told once more with the safeguard
gone.  Chance hardly ever tells these stories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from tests.core.replica.protocol import test_commitment as commitment
from tests.core.replica.protocol import test_compacted_meanwhile as compacted_meanwhile
from tests.core.replica.protocol import test_departures as departures
from tests.core.replica.protocol import test_elections as elections
from tests.core.replica.protocol import test_joined as joined
from tests.core.replica.protocol import test_known_cuts as known_cuts
from tests.core.replica.protocol import test_known_schedules as schedules
from tests.core.replica.protocol import test_late_synchronisation as late_synchronisation
from tests.core.replica.protocol import test_operated as operated
from tests.core.replica.protocol import test_operated_cuts as operated_cuts
from tests.core.replica.protocol import test_ordering as ordering
from tests.core.replica.protocol import test_producers as producers
from tests.core.replica.protocol import test_reconfigurations as reconfigurations
from tests.core.replica.protocol import test_replication as replication
from tests.core.replica.protocol import test_snapshots as snapshots
from tests.core.replica.protocol import test_synchronisation as synchronisation
from tests.core.replica.protocol import test_truncation as truncation
from tests.core.replica.unit import test_bounds as bounds
from tests.mutation.left_out import Change, replaced, together
from tests.mutation.mutant import instead
from tidelog.core.operator import election, reconfiguration
from tidelog.core.operator import row as operator_row
from tidelog.core.operator.plan import changed_ensemble
from tidelog.core.operator.reconfiguration import Reconfiguration
from tidelog.core.order import machine as order_machine
from tidelog.core.order.commands import Quorum
from tidelog.core.replica import ordering as replica_ordering
from tidelog.core.replica.changing import Changing
from tidelog.core.replica.cursor import Cursor
from tidelog.core.replica.dispatch import Dispatch
from tidelog.core.replica.entries import Batch, EntryId
from tidelog.core.replica.following import Following
from tidelog.core.replica.leading import Leading
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.messages import ChangeKind, Message
from tidelog.core.replica.options import CursorKind
from tidelog.core.replica.output import Filled, HardState
from tidelog.core.replica.producers import ProducerTable
from tidelog.core.replica.roles import Roles
from tidelog.core.replica.state import State
from tidelog.core.replica.sync_source import SyncSource, SyncSources
from tidelog.core.replica.sync_target import SyncTarget
from tidelog.core.replica.writes import Writes
from tidelog.types import NO_VERSION, Llsn, NodeId, Term

Story = Callable[[], None]


@dataclass(frozen=True, slots=True)
class StoryMutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    story: Story


def yes(*_: object, **__: object) -> bool:
    return True


def no(*_: object, **__: object) -> bool:
    return False


def nothing(*_: object, **__: object) -> None:
    return None


# -- what takes the place of a safeguard ---------------------------------------------------------


def with_the_leaders_snapshot(state: State, filled: Filled) -> Filled:
    return replace(filled, terms=state.log.terms)


def whole_batches(source: SyncSource, begin: Llsn) -> tuple[Batch, ...] | None:
    beyond = Llsn(1 << 62)
    found = () if begin == source._end else source._state.live_batches(begin, beyond)
    return found and tuple([batch for batch in found if batch.llsn_end <= source._end])


def attach_wherever_it_is(leading: Leading, response: Any) -> None:
    cursor = leading.cursors[response.source]
    cursor.attach(response.head.llsn)
    leading.due = True


def at_once(state: State, message: Message) -> None:
    state.messages.append(message)


def all_that_matched(following: Following) -> Llsn:
    return following.matched


def put_anywhere(state: State, llsn: Llsn) -> bool:
    state.commit = llsn
    return True


def counts_the_present_term_only(leading: Leading) -> None:
    """Count anew whatever was committed, as if entries of earlier terms were another's."""
    llsn = leading.quorum_place(leading.ensemble)
    is_of_term = leading._state.log.term_at(llsn) == leading.term
    leading._state.commit = llsn if is_of_term else Llsn(0)


def is_of_the_present_term(leading: Leading, term: Term) -> bool:
    return term == leading.term


def is_attached(cursor: Cursor) -> bool:
    return cursor._kind is CursorKind.ATTACHED


def counts_itself_at_once(original: Callable[..., Llsn]) -> Callable[..., Llsn]:
    def confirmed_by(leading: Leading, node: NodeId) -> Llsn:
        if node == leading._state.node:
            return leading._state.log.head.llsn
        return original(leading, node)

    return confirmed_by


def half(quorum: Quorum, members: int) -> int:
    return max(1, members // 2)


def forgets_the_term(original: Callable[..., None]) -> Callable[..., None]:
    def drop(state: State, term: Term) -> None:
        original(state, term)
        state._hard_state = HardState(Term(0), is_complete=False, is_member=False)
        state.writes._hard_state = state._hard_state

    return drop


def lets_go_only_whom_it_serves(leading: Leading, node: NodeId) -> None:
    if node in leading.cursors:
        leading.cursors[node].leave()


def all_that_is_here(roles: Roles) -> Llsn:
    return Llsn(roles._state.log.end - 1)


def commits_without_a_word(leading: Leading, llsn: Llsn) -> None:
    leading._state.commit_to(llsn)


def asks_for_its_own_commit_index_only(changing: Changing, change: Any) -> bool:
    final = changing._final_ensemble(change)
    return changing._leading.quorum_place(final) >= changing._state.commit


def asks_whom_it_counts(original: Callable[..., None]) -> Callable[..., None]:
    def ask(roles: Roles) -> None:
        if roles.leading is None or roles.leading.attached:
            original(roles)

    return ask


def notes_what_it_began_with(procedure: Reconfiguration, *_: object) -> None:
    procedure._must_know = NO_VERSION


def whoever_stays_can_elect(procedure: Reconfiguration) -> bool:
    is_contraction = procedure.change.kind is ChangeKind.CONTRACT
    rest, present = procedure.row.lasting, procedure._present
    return not is_contraction or reconfiguration.is_safe_to_contract(rest, present)


def says_what_it_has(roles: Roles, request: Any) -> None:
    SyncTarget(roles._state, request.leader).answer(request.source)


def no_runs(*_: object) -> tuple[()]:
    return ()


def begins_anew(target: SyncTarget, request: Any) -> None:
    target._state.begin_anew(request.first)


def complete_with_the_first_part(original: Callable[..., None]) -> Callable[..., None]:
    def store(target: SyncTarget, request: Any, init: Any) -> None:
        original(target, request, init)
        target._state.go_to(request.term, is_complete=True)

    return store


def who_leads_the_least(heads: Any, _: object, final: Any, burden: Any) -> NodeId:
    able = election.candidates(heads, final)
    highest = max(each.head for each in able)
    return min((burden(each.node), each.node) for each in able if each.head == highest)[1]


def longest_log(heads: Any, _: object, final: Any, __: object) -> NodeId:
    able = election.candidates(heads, final)
    return max(able, key=lambda each: each.head.llsn).node


def if_it_knows_what_it_had(answer: Any, had: EntryId | None, _: object) -> bool:
    return answer.is_complete or had is not None


def only_members(ensemble: Any, _: object) -> Any:
    return ensemble


def completed_contraction(ensemble: Any, change: Any) -> Any:
    return changed_ensemble(ensemble, change) if change else ensemble


MUTANTS: Final = (
    # -- elections ---------------------------------------------------------------------------
    StoryMutant(
        "T2: a leader is followed that never fenced the node",
        instead(Roles, "_was_fenced_by_election", yes),
        elections.test_t2_a_node_that_the_election_never_fenced_refuses_the_leaders_entries,
    ),
    StoryMutant(
        "T3: a leader that restarted leads its term again",
        instead(Roles, "_was_fenced_in_this_life", yes),
        elections.test_t3_a_leader_that_restarts_does_not_lead_its_term_again,
    ),
    StoryMutant(
        "T1: a leader of the past is followed",
        instead(Roles, "has_passed", no),
        elections.test_t1_an_entry_of_a_lower_term_is_refused_with_the_known_one,
    ),
    StoryMutant(
        "T1: an operator of the past is obeyed",
        instead(Dispatch, "_has_passed", no),
        elections.test_a_fence_of_a_term_that_has_passed_is_refused_with_the_known_one,
    ),
    StoryMutant(
        "T1: a leader that hears of a later term goes on",
        instead(Dispatch, "_tells_later_term", no),
        elections.test_a_deposed_leader_does_not_lead_its_term_again,
    ),
    StoryMutant(
        "a fence is answered before it is durable",
        instead(State, "promise", at_once),
        elections.test_a_fence_is_answered_when_its_term_is_durable_and_not_before,
    ),
    StoryMutant(
        "an incomplete replica counts in an election",
        instead(election, "vouches", yes),
        operated.test_a_node_that_lost_its_log_does_not_help_to_elect,
    ),
    StoryMutant(
        "a replica that gave its log up counts for a leader that lacks what it had",
        instead(election, "vouches", if_it_knows_what_it_had),
        operated.test_a_node_that_gave_its_log_up_does_not_help_to_elect_who_lacks_what_it_had,
    ),
    StoryMutant(
        "V5: the new node of a swap in commit is not fenced",
        instead(operator_row, "fencing_ensemble", only_members),
        operated.test_v5_what_was_committed_with_the_new_node_survives_the_leader,
    ),
    StoryMutant(
        "V2: an election ends with the ensemble from before the expansion",
        instead(operator_row, "final_ensemble", only_members),
        operated.test_v2_the_leader_that_ends_an_expansion_counts_all_members,
    ),
    StoryMutant(
        "V7: an election completes a contraction",
        instead(operator_row, "final_ensemble", completed_contraction),
        operated.test_v7_what_was_committed_without_most_of_the_rest_survives_the_contraction,
    ),
    StoryMutant(
        "V3: a row is written by who has not seen its latest revision",
        instead(order_machine, "refuse_update", nothing),
        schedules.test_v3_completing_a_reconfiguration_is_compare_and_set,
    ),
    StoryMutant(
        "the longest log is elected, of whatever term its entries are",
        instead(election, "choose_leader", longest_log),
        operated.test_the_highest_term_is_elected_not_the_longest_log,
    ),
    # -- truncation --------------------------------------------------------------------------
    StoryMutant(
        "V1: one round of truncation is enough, and entries are put behind anything",
        together(
            instead(Leading, "truncated", attach_wherever_it_is),
            instead(Following, "_has", yes),
        ),
        schedules.test_v1_one_shot_truncation_leaves_foreign_entries,
    ),
    StoryMutant(
        "a follower is attached wherever its log ends",
        instead(Leading, "_is_own_entry", yes),
        truncation.test_a_head_above_the_leaders_is_cut_to_the_leaders,
    ),
    StoryMutant(
        "T5: a late request truncates a log that has changed since",
        instead(Following, "_names_our_head", yes),
        truncation.test_a_request_that_names_another_head_does_nothing,
    ),
    StoryMutant(
        "T5: entries of the present reign are cut",
        instead(Following, "_is_of_present_reign", no),
        truncation.test_entries_of_the_present_reign_are_never_cut,
    ),
    StoryMutant(
        "T5: ordered entries are cut",
        instead(Following, "_is_settled", no),
        truncation.test_ordered_entries_are_never_cut,
    ),
    StoryMutant(
        "producers are remembered whose entries were cut",
        instead(ProducerTable, "truncate", nothing),
        producers.test_a_retry_of_what_was_cut_is_appended_anew,
    ),
    # -- replication -------------------------------------------------------------------------
    StoryMutant(
        "T4: entries are acknowledged before they are durable",
        instead(Following, "confirmed", property(all_that_matched)),
        replication.test_an_entry_is_acknowledged_when_it_is_durable_and_not_before,
    ),
    StoryMutant(
        "T4: entries are put behind anything",
        instead(Following, "_has", yes),
        replication.test_a_gap_is_not_taken_into_an_empty_log,
    ),
    StoryMutant(
        "a refusal of long ago sets a cursor back",
        instead(Leading, "_is_news", yes),
        replication.test_a_refusal_of_another_message_than_the_last_changes_no_cursor,
    ),
    StoryMutant(
        "an acknowledgement of an older reign counts",
        instead(Leading, "is_of_reign", yes),
        replication.test_an_acknowledgement_of_an_older_reign_counts_for_nothing,
    ),
    # -- commitment --------------------------------------------------------------------------
    StoryMutant(
        "V8: entries of an older reign are committed by counting copies",
        instead(Leading, "_may_commit", yes),
        schedules.test_v8_an_entry_of_an_older_reign_is_not_committed_by_counting_copies,
    ),
    StoryMutant(
        "V8: entries of an older reign are reported without one of the present",
        instead(replica_ordering.Ordering, "_may_be_replaced", no),
        schedules.test_v8_an_entry_of_an_older_reign_is_not_cut_without_the_control_entry,
    ),
    StoryMutant(
        "a reign begins without a control entry",
        instead(Leading, "_has_unordered", no),
        commitment.test_a_reign_with_unordered_entries_begins_with_a_control_entry,
    ),
    StoryMutant(
        "a leader counts itself before it is durable",
        replaced(Leading, "_confirmed_by", counts_itself_at_once),
        commitment.test_a_leader_counts_itself_only_when_it_is_durable,
    ),
    StoryMutant(
        "half of the ensemble is enough",
        instead(Quorum, "size", half),
        schedules.test_v2_the_write_quorum_is_that_of_the_final_ensemble,
    ),
    StoryMutant(
        "the commit index goes back",
        instead(State, "commit_to", put_anywhere),
        commitment.test_a_followers_commit_index_never_goes_back,
    ),
    # -- ordering ----------------------------------------------------------------------------
    StoryMutant(
        "T8: a cut is applied beyond the commit index",
        instead(replica_ordering.Ordering, "_may_apply", yes),
        ordering.test_a_cut_of_a_later_term_is_not_applied_to_entries_of_an_earlier_one,
    ),
    StoryMutant(
        "T8: a cut of a later term is a proof to who follows an older leader",
        instead(replica_ordering.Ordering, "_is_proof", yes),
        ordering.test_a_cut_of_a_later_term_proves_nothing_to_who_follows_an_older_leader,
    ),
    StoryMutant(
        "T8: a cut is a proof to a replica whose log nobody has compared",
        instead(Roles, "_agreed", property(all_that_is_here)),
        ordering.test_a_cut_of_a_later_term_proves_nothing_to_who_follows_an_older_leader,
    ),
    StoryMutant(
        "a leader that commits by a cut goes on to count what waits for a quorum",
        instead(Leading, "commit_to", commits_without_a_word),
        bounds.test_a_leader_takes_more_when_a_cut_tells_that_a_quorum_has_all,
    ),
    StoryMutant(
        "T7: a replica that is incomplete or behind reports",
        instead(replica_ordering.Ordering, "_is_silent", no),
        ordering.test_a_replica_that_is_behind_is_silent_and_asks_its_leader,
    ),
    StoryMutant(
        "a cut is applied though one before it is missing",
        instead(replica_ordering.Ordering, "_has_gap", property(no)),
        ordering.test_a_cut_that_does_not_begin_where_the_last_one_ended_is_not_applied,
    ),
    StoryMutant(
        "who misses more cuts than a message holds is told none",
        instead(replica_ordering.Ordering, "_that_fit", no_runs),
        known_cuts.test_a_leader_that_missed_more_cuts_than_a_message_holds_hears_of_all,
    ),
    StoryMutant(
        "T11: a leader whom nobody can tell what it misses leads on",
        instead(Roles, "make_way", nothing),
        operated_cuts.test_a_leader_whom_nobody_can_tell_the_cuts_that_it_misses_makes_way,
    ),
    StoryMutant(
        "T11: a leader makes way to who lacks some of its log",
        instead(Cursor, "may_lead_next", yes),
        operated_cuts.test_a_leader_does_not_make_way_to_who_lacks_some_of_its_log,
    ),
    StoryMutant(
        "T11: a leader makes way to who misses cuts as well",
        instead(Dispatch, "_lacks_cuts", no),
        known_cuts.test_who_misses_cuts_does_not_let_a_leader_make_way,
    ),
    StoryMutant(
        "T11: of equal heads, one is elected that misses cuts",
        instead(election, "choose_leader", who_leads_the_least),
        operated_cuts.test_two_that_miss_cuts_do_not_pass_the_leadership_to_one_another,
    ),
    # -- reconfigurations --------------------------------------------------------------------
    StoryMutant(
        "the leaving node counts",
        instead(Cursor, "counts", property(is_attached)),
        reconfigurations.test_the_leaving_node_does_not_count,
    ),
    StoryMutant(
        "the leaving node counts if it is added late",
        instead(Leading, "let_go", lets_go_only_whom_it_serves),
        reconfigurations.test_a_leaving_node_that_is_added_late_does_not_count,
    ),
    StoryMutant(
        "a leader speaks in a term that is not durable",
        instead(Writes, "hard_state_durable", property(yes)),
        reconfigurations.test_a_leader_that_crashes_before_its_new_term_is_durable_has_said_nothing_in_it,
    ),
    StoryMutant(
        "what was aborted before it came is prepared",
        instead(Changing, "_abort_in_advance", nothing),
        reconfigurations.test_a_prepare_that_comes_after_its_abort_is_refused,
    ),
    StoryMutant(
        "a contraction does not ask whether the rest has all that is committed",
        instead(Changing, "_may_commit", yes),
        reconfigurations.test_a_contraction_waits_until_a_quorum_of_the_rest_has_all_that_is_committed,
    ),
    StoryMutant(
        "a contraction forgets what an older reign may have committed",
        instead(Changing, "_may_commit", asks_for_its_own_commit_index_only),
        reconfigurations.test_a_contraction_waits_for_what_an_older_reign_may_have_committed,
    ),
    StoryMutant(
        "a contraction forgets what was ordered because the leaving node has it",
        instead(Changing, "_may_commit", asks_for_its_own_commit_index_only),
        reconfigurations.test_a_contraction_waits_for_what_was_ordered_because_the_leaving_node_has_it,
    ),
    StoryMutant(
        "a contraction counts on members that may be dead",
        instead(Leading, "is_followed_in", yes),
        reconfigurations.test_a_contraction_waits_until_a_quorum_of_the_rest_was_heard_of_since_it_began,
    ),
    StoryMutant(
        "after a change of terms only entries of the new one are committed",
        instead(Leading, "advance_commit", counts_the_present_term_only),
        lambda: schedules.test_v4_committing_a_change_without_traffic_leaves_the_commit_index(
            ChangeKind.EXPAND
        ),
    ),
    StoryMutant(
        "acknowledgements of an earlier term of the reign do not count",
        instead(Leading, "is_of_reign", is_of_the_present_term),
        schedules.test_v6_acknowledgements_in_flight_across_a_prepare_still_count,
    ),
    StoryMutant(
        "a new node need not know the cuts that the old one may be the last to know",
        instead(reconfiguration, "knows", yes),
        operated_cuts.test_a_swap_does_not_let_go_who_alone_knows_cuts,
    ),
    StoryMutant(
        "a new node need not know cuts that its operator did not read of beforehand",
        instead(Reconfiguration, "note_cut", notes_what_it_began_with),
        operated_cuts.test_a_swap_waits_for_cuts_that_were_made_since_its_operator_last_read_the_row,
    ),
    StoryMutant(
        "a new node that lacks cuts is not filled up again",
        instead(Roles, "_answer_snapshot", says_what_it_has),
        operated_cuts.test_a_swap_waits_for_cuts_that_were_made_since_its_operator_last_read_the_row,
    ),
    StoryMutant(
        "a leader that lacks cuts lets go who knows them",
        instead(Reconfiguration, "_may_commit", property(whoever_stays_can_elect)),
        operated_cuts.test_a_contraction_waits_for_a_leader_that_lacks_cuts,
    ),
    StoryMutant(
        "a leader that misses cuts fills up a new node",
        instead(Dispatch, "_lacks_cuts", no),
        operated_cuts.test_a_leader_asks_who_is_about_to_leave_before_it_fills_up_who_comes_instead,
    ),
    StoryMutant(
        "a leader asks only those for cuts whom it counts",
        replaced(Roles, "_ask_for_cuts", asks_whom_it_counts),
        operated_cuts.test_a_leader_asks_who_is_about_to_leave_before_it_fills_up_who_comes_instead,
    ),
    StoryMutant(
        "two changes at a time",
        instead(Changing, "_is_busy", no),
        reconfigurations.test_one_change_at_a_time,
    ),
    StoryMutant(
        "a leader is removed",
        instead(Changing, "_is_possible", yes),
        reconfigurations.test_a_leader_is_not_removed,
    ),
    StoryMutant(
        "a dropped replica forgets its term",
        replaced(State, "drop", forgets_the_term),
        lambda: departures.test_a_dropped_replica_refuses_the_terms_that_it_has_left_behind(
            restarts=True
        ),
    ),
    # -- synchronisation ---------------------------------------------------------------------
    StoryMutant(
        "a synchronisation leaves what lies beyond the ordered part",
        instead(State, "cut_to", nothing),
        synchronisation.test_what_lies_beyond_the_ordered_part_is_cut_on_disk_first,
    ),
    StoryMutant(
        "T10: a replica whose log ends before its leader's begins forgets the cuts that it knows",
        instead(SyncTarget, "_give_up", begins_anew),
        lambda: (
            known_cuts.test_forgotten_cuts_survive_a_leader_that_dies_while_it_fills_up_who_knows_them(
                messages=1, restarts=False
            )
        ),
    ),
    StoryMutant(
        "T10: a replica is complete with the first part",
        replaced(SyncTarget, "_store", complete_with_the_first_part),
        synchronisation.test_a_replica_is_complete_only_with_all_that_the_leader_had_at_the_beginning,
    ),
    StoryMutant(
        "T5: a late synchronisation cuts the leader's own entries",
        instead(SyncTarget, "_is_of_present_reign", no),
        lambda: late_synchronisation.test_a_late_beginning_does_not_cut_what_came_after_it(
            restarts=True
        ),
    ),
    StoryMutant(
        "a leader that goes by an older answer is not told to begin anew",
        instead(SyncTarget, "_tells_known_cuts", no),
        late_synchronisation.test_a_filling_that_was_begun_twice_under_one_number_begins_anew,
    ),
    StoryMutant(
        "a follower waits for a synchronisation that its leader has ended",
        instead(Roles, "end_idle_filling", nothing),
        lambda: late_synchronisation.test_a_late_beginning_does_not_make_a_follower_deaf(
            restarts=True
        ),
    ),
    StoryMutant(
        "a replica that is filled up again forgets what its own snapshot left out",
        instead(State, "_as_kept", with_the_leaders_snapshot),
        snapshots.test_a_node_that_is_filled_up_again_still_knows_what_its_own_snapshot_left_out,
    ),
    StoryMutant(
        "the answer of an older synchronisation is taken for one of the present",
        instead(
            SyncSources,
            "_answered",
            lambda sources, response: sources._sources.get(response.source),
        ),
        late_synchronisation.test_an_answer_of_an_older_synchronisation_is_not_taken_for_a_new_one,
    ),
    StoryMutant(
        "entries whose producers are forgotten are brought without them",
        instead(ReplicaLog, "join", nothing),
        joined.test_a_follower_that_lacks_joined_entries_is_filled_up_with_the_producers,
    ),
    StoryMutant(
        "a synchronisation leaves out what a flush joined across its head",
        instead(SyncSource, "_batches", whole_batches),
        joined.test_a_flush_that_joins_batches_across_the_head_of_a_filling_does_not_stop_it,
    ),
    StoryMutant(
        "a synchronisation brings entries whose GLSNs are gone",
        instead(SyncSource, "_ordered_in", lambda *_: ()),
        compacted_meanwhile.test_entries_whose_glsns_are_gone_are_not_sent_without_them,
    ),
)
