"""Each safeguard of a metadata node is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.core.metadata import test_changes, test_collector, test_masterless, test_placements
from tidelog.core.metadata import collector, machine, proposing, repository
from tidelog.core.metadata.collector import Collector
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.proposing import Proposing
from tidelog.core.metadata.repository import Repository
from tidelog.core.metadata.waiting import Waiting
from tidelog.core.order.commands import Report
from tidelog.invariants import InvariantViolation
from tidelog.types import NodeId


def nothing(*_: object) -> None:
    return None


def no_results(*_: object) -> list[object]:
    return []


def no_moves(*_: object) -> tuple[()]:
    return ()


def always(*_: object) -> bool:
    return True


def longer_only(report: Report, known: Report | None) -> bool:
    return known is None or (
        report.length > 0 and report.llsn_begin + report.length > (known.llsn_begin + known.length)
    )


def in_any_case(report: Report, known: Report | None) -> bool:
    return True


def whatever_waits(self: Proposing, machine: MetadataMachine) -> bool:
    return True


def heard_now(self: Proposing) -> dict[NodeId, int]:
    return dict.fromkeys(self._raft.membership.voters, self._ticks)


@dataclass(frozen=True)
class Safeguard:
    """Where it is, what takes its place, and the test that misses it."""

    owner: object
    name: str
    without: object
    test: Callable[[], None]


SAFEGUARDS = [
    # What was shared and lost is not offered again.
    Safeguard(
        Collector,
        "offer_again",
        nothing,
        test_masterless.test_a_report_that_was_lost_on_its_way_to_the_leader_is_shared_again,
    ),
    # A version without growth counts only when something else is proposed.
    Safeguard(
        collector,
        "_matters",
        longer_only,
        test_masterless.test_a_stream_whose_commits_nobody_learns_waits_and_then_goes_on,
    ),
    # Every report makes a batch.
    Safeguard(
        collector,
        "_matters",
        in_any_case,
        test_collector.test_a_newer_version_alone_makes_no_batch_but_rides_along,
    ),
    # A report that was overtaken replaces the newer one.
    Safeguard(
        collector,
        "_is_newer",
        always,
        test_collector.test_only_the_newest_report_of_a_replica_is_handed_over,
    ),
    # Reports that were void before a change of their stream are forgotten.
    Safeguard(
        Collector,
        "streams_changed",
        nothing,
        test_collector.test_reports_of_a_changed_stream_are_offered_again,
    ),
    # A lost commit is not sent again.
    Safeguard(
        Delivery,
        "tick",
        no_results,
        test_masterless.test_a_commit_that_was_lost_on_its_way_to_a_storage_node_is_sent_again,
    ),
    # Commits go to a node that means other streams than the sender.
    Safeguard(
        Delivery,
        "_knows_placements",
        always,
        test_placements.test_no_commit_is_sent_to_a_node_that_does_not_know_what_it_hosts,
    ),
    # A change of what a node hosts is not counted.
    Safeguard(
        MetadataMachine,
        "_count_placement",
        nothing,
        test_placements.test_placements_are_counted_only_where_something_changes,
    ),
    # Nobody takes over from a dead metadata node.
    Safeguard(
        Proposing,
        "heard",
        nothing,
        test_masterless.test_a_metadata_node_that_comes_back_gets_storage_nodes_again,
    ),
    Safeguard(
        proposing,
        "spread_over",
        no_moves,
        test_masterless.test_the_storage_nodes_of_a_dead_metadata_node_are_taken_over,
    ),
    # What another one collects from now is not asked any more.
    Safeguard(
        Repository,
        "_adopt",
        nothing,
        test_masterless.test_the_storage_nodes_of_a_dead_metadata_node_are_taken_over,
    ),
    # A dead leader is given time to be heard by the next one.
    Safeguard(
        Proposing,
        "_heard_of_voters",
        heard_now,
        test_masterless.test_the_storage_nodes_of_a_dead_leader_are_taken_over_by_the_next_one_at_once,
    ),
    # What a leader that died was given is not offered again.
    Safeguard(
        Proposing,
        "_offer_requests_again",
        nothing,
        test_changes.test_a_change_that_was_given_to_a_leader_that_died_is_made_by_the_next_one,
    ),
    # Addresses and numbers of nodes have no bounds.
    Safeguard(
        machine,
        "_refuse_address",
        nothing,
        test_changes.test_a_member_with_a_bad_address_or_one_too_many_is_not_named,
    ),
    # An idle leader proposes all the same.
    Safeguard(
        Proposing,
        "_is_worth_a_batch",
        whatever_waits,
        test_masterless.test_an_idle_cluster_writes_nothing_to_its_raft_log,
    ),
    # A leader proposes what lets nothing be ordered.
    Safeguard(
        proposing,
        "would_order",
        always,
        test_masterless.test_a_report_that_lets_nothing_be_ordered_waits_for_the_one_that_does,
    ),
    # A change whose leader died is never answered.
    Safeguard(
        Waiting,
        "tick",
        nothing,
        test_changes.test_without_a_quorum_a_change_is_answered_as_unknown_and_exactly_once,
    ),
    # The changes of every life of a node have the same numbers.
    Safeguard(
        repository,
        "REQUEST_NUMBERS",
        1,
        test_changes.test_the_outcome_of_a_change_from_before_a_restart_answers_no_other_one,
    ),
    # A replica may lie on a storage node that nobody knows.
    Safeguard(
        MetadataMachine,
        "_check_registered",
        nothing,
        test_changes.test_a_refused_change_is_answered_with_its_error_and_changes_nothing,
    ),
    # The Raft log is never cut off.
    Safeguard(
        Repository,
        "_compact",
        nothing,
        test_changes.test_a_restarted_cluster_goes_on_from_its_disks,
    ),
    # A snapshot of the leader does not replace the state.
    Safeguard(
        Repository,
        "_install",
        nothing,
        test_changes.test_a_node_that_fell_behind_the_log_gets_a_snapshot_and_the_same_state,
    ),
]


@pytest.mark.parametrize(
    "safeguard", SAFEGUARDS, ids=lambda each: f"{each.name}: {each.test.__name__}"
)
def test_a_safeguard_is_missed(safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch) -> None:
    safeguard.test()
    monkeypatch.setattr(safeguard.owner, safeguard.name, safeguard.without)
    with pytest.raises((AssertionError, InvariantViolation, KeyError, AttributeError)):
        safeguard.test()
