"""Each safeguard of the order layer is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tests.core.order import (
    test_cuts,
    test_history,
    test_reports,
    test_streams,
    test_topic_options,
)
from tests.core.order.orders import report
from tidelog import limits
from tidelog.core.order import history, machine, refusals, reports
from tidelog.core.order.commands import Quorum, Report, RetainTopic, UpdateStream
from tidelog.core.order.history import History
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.quorum import durable_end
from tidelog.core.order.state import ReplicaOrder, StreamOrder, TopicOrder
from tidelog.invariants import InvariantViolation
from tidelog.types import Llsn, Version


def nothing(*_: object) -> None:
    return None


def never(*_: object) -> bool:
    return False


def always(*_: object) -> bool:
    return True


def itself(replica: ReplicaOrder) -> ReplicaOrder:
    return replica


def longest(replicas: Sequence[ReplicaOrder], _: Quorum) -> Llsn:
    return max(replica.end for replica in replicas)


def majority_always(replicas: Sequence[ReplicaOrder], _: Quorum) -> Llsn:
    return durable_end(replicas, Quorum.MAJORITY)


def highest(replicas: Sequence[ReplicaOrder]) -> Version:
    return max(replica.version for replica in replicas)


def said_before(_: UpdateStream, order: StreamOrder) -> Llsn:
    return order.committed_end


def said_now(report: Report, _: StreamOrder) -> Llsn:
    return report.committed_end


def end_of_quorum(self: OrderMachine, order: StreamOrder) -> Llsn:
    return durable_end(order.replicas, Quorum.MAJORITY)


def contradicting_report() -> None:
    """Version 2 did not end the ordered part where the report begins."""
    test_reports.test_a_report_that_does_not_count_is_ignored_for_a_named_reason(
        report(1, 5, 9, version=2, term=2), reports.Ignored.CONTRADICTION
    )


def as_told(topic: TopicOrder, command: RetainTopic) -> TopicOrder:
    return replace(topic, trim_glsn_end=command.trim_glsn_end, boundary_low=command.boundary_low)


@dataclass(frozen=True)
class Safeguard:
    """Where it is, what takes its place, and the test that misses it."""

    owner: object
    name: str
    without: Callable[..., object]
    test: Callable[[], None]


SAFEGUARDS = [
    Safeguard(
        machine,
        "retained",
        as_told,
        test_topic_options.test_retention_only_rises_and_each_part_by_itself,
    ),
    Safeguard(
        machine,
        "refuse_retention",
        nothing,
        test_topic_options.test_everything_that_is_ordered_may_be_trimmed_and_nothing_more,
    ),
    Safeguard(
        reports,
        "is_of_term",
        always,
        test_streams.test_fencing_stops_the_cuts_of_the_old_term_at_that_very_position,
    ),
    Safeguard(
        reports,
        "void_report",
        itself,
        test_streams.test_a_quorum_is_never_made_of_two_terms,
    ),
    Safeguard(reports, "reason_by_position", nothing, contradicting_report),
    Safeguard(
        reports,
        "reason_by_end",
        nothing,
        test_reports.test_a_report_that_shrinks_takes_nothing_back,
    ),
    Safeguard(
        machine,
        "durable_end",
        longest,
        test_cuts.test_a_silent_replica_counts_as_one_that_has_nothing,
    ),
    Safeguard(
        machine,
        "durable_end",
        majority_always,
        test_cuts.test_one_silent_replica_stops_a_stream_that_needs_all,
    ),
    Safeguard(
        OrderMachine,
        "_orderable_end",
        end_of_quorum,
        test_streams.test_a_sealed_stream_contributes_nothing,
    ),
    Safeguard(
        history,
        "applied_version",
        highest,
        test_history.test_a_cut_that_no_majority_has_learnt_is_never_forgotten,
    ),
    Safeguard(
        History,
        "settle",
        nothing,
        test_history.test_a_cut_that_no_majority_has_learnt_is_never_forgotten,
    ),
    Safeguard(
        History,
        "is_backlogged",
        never,
        test_history.test_a_stream_whose_majority_applies_nothing_has_to_wait,
    ),
    Safeguard(
        History,
        "_is_too_long",
        never,
        test_history.test_a_dead_replica_never_blocks_trimming,
    ),
    Safeguard(
        History,
        "hold",
        nothing,
        test_history.test_a_replica_that_reports_in_the_new_term_holds_what_it_misses,
    ),
    Safeguard(
        History,
        "release",
        nothing,
        test_history.test_history_reaches_back_to_what_a_slow_replica_in_sync_misses,
    ),
    Safeguard(
        machine,
        "refuse_update",
        nothing,
        test_streams.test_of_two_operators_only_the_first_one_writes,
    ),
    Safeguard(
        machine,
        "refuse_revision",
        nothing,
        test_streams.test_a_stream_is_removed_only_by_who_has_seen_its_last_revision,
    ),
    Safeguard(
        refusals,
        "refuse_revision",
        nothing,
        test_streams.test_a_repeated_write_is_refused,
    ),
    Safeguard(
        machine,
        "refuse_streams",
        lambda *_, **__: None,
        test_streams.test_the_number_of_a_removed_stream_is_not_given_again,
    ),
    Safeguard(
        machine,
        "refuse_forgetting",
        nothing,
        test_streams.test_the_last_but_one_replica_that_knows_a_forgotten_cut_does_not_leave,
    ),
    # The word of a former leader counts on.
    Safeguard(
        reports,
        "committed_in",
        said_before,
        test_reports.test_the_word_of_a_leader_is_void_in_the_next_term,
    ),
    # What a leader said can be taken back.
    Safeguard(
        machine,
        "committed_after",
        said_now,
        test_reports.test_the_word_of_a_leader_takes_nothing_back,
    ),
    Safeguard(
        refusals,
        "refuse_joining",
        nothing,
        test_streams.test_a_node_that_left_in_a_term_comes_back_with_a_new_term_only,
    ),
]


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ORDER_HISTORY_CUTS_MAX", test_history.CUTS_MAX)
    monkeypatch.setattr(limits, "ORDER_UNAPPLIED_CUTS_MAX", test_history.UNAPPLIED_MAX)


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda one: one.name)
def test_a_safeguard_is_missed(safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch) -> None:
    safeguard.test()
    monkeypatch.setattr(safeguard.owner, safeguard.name, safeguard.without)
    with pytest.raises((AssertionError, InvariantViolation, pytest.fail.Exception)):
        safeguard.test()
