"""Each safeguard of a storage node is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from tests.runtime.storage_node import (
    scripted,
    test_appends,
    test_parts,
    test_sessions,
    test_sessions_out,
    test_three_nodes,
    test_upkeep,
)
from tidelog.core.replica.entries import Batch
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.replica import Replica
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation
from tidelog.runtime.storage_node import host
from tidelog.runtime.storage_node.appends import Appends, StreamAppends
from tidelog.runtime.storage_node.guarded_reader import GuardedReader
from tidelog.runtime.storage_node.host import Host
from tidelog.runtime.storage_node.reading import Reading
from tidelog.runtime.storage_node.replicas import Replicas
from tidelog.runtime.storage_node.sessions_in import _Visitor
from tidelog.runtime.storage_node.sessions_out import LeaderSessions
from tidelog.runtime.storage_node.syncs import Syncs
from tidelog.runtime.storage_node.taking import Taking
from tidelog.types import Llsn

WAIT_SECONDS: Final = 0.5
"""What never happens is waited for no longer than this."""
CAUGHT: Final = (
    AssertionError,
    InvariantViolation,
    LogError,
    TimeoutError,
    pytest.fail.Exception,
)


def unguarded(
    self: GuardedReader, begin: Llsn, bytes_max: int, end: Llsn | None = None
) -> tuple[Batch, ...] | None:
    return self._reader.batches(begin, bytes_max, end)


MUTANTS: Final[list[tuple[object, str, object, Callable[[], None]]]] = [
    (
        StreamAppends,
        "is_reached",
        lambda *_: True,
        test_appends.test_each_stage_is_acknowledged_to_who_waits_for_it_alone,
    ),
    (
        Replicas,
        "knows_of_reign",
        lambda *_: True,
        test_appends.test_a_sealed_stream_takes_no_appends_from_a_leader_that_has_no_view_yet,
    ),
    (
        Taking,
        "_refuse_gap",
        lambda *_: None,
        test_appends.test_an_append_whose_predecessor_did_not_arrive_is_refused,
    ),
    (
        Appends,
        "refuse_crowd",
        lambda *_: None,
        test_appends.test_appends_beyond_the_bound_are_refused_for_a_while,
    ),
    (
        Appends,
        "_depose",
        lambda *_: None,
        test_appends.test_who_waits_for_a_deposed_leader_hears_that_nobody_knows,
    ),
    (
        Replica,
        "is_awaited",
        False,
        test_appends.test_who_waits_for_an_answer_has_order_stored_at_once,
    ),
    (
        Syncs,
        "flush",
        lambda *_: None,
        test_appends.test_order_is_stored_at_the_next_tick_if_nothing_else_is,
    ),
    (
        Appends,
        "note_runs",
        lambda *_: None,
        test_appends.test_an_append_is_told_before_its_order_is_stored_and_read_when_somebody_asks,
    ),
    (
        host,
        "check_batches",
        lambda _: None,
        partial(
            test_sessions.test_a_batch_that_no_disk_could_store_ends_the_session_and_nothing_else,
            b"no batch",
        ),
    ),
    (
        _Visitor,
        "_check_source",
        lambda *_: None,
        test_sessions.test_a_node_that_speaks_for_another_one_gets_no_session,
    ),
    (
        LeaderSessions,
        "_told",
        lambda self, node, word: word(),
        test_sessions_out.test_a_session_that_is_told_something_is_looked_at_in_that_turn_alone,
    ),
    (
        Reading,
        "_may_read",
        lambda *_: True,
        test_three_nodes.test_an_incomplete_replica_shows_nothing,
    ),
    (
        Host,
        "_refuse",
        lambda self, refusal, to_operator: self._carry(refusal),
        test_three_nodes.test_a_refusal_goes_to_the_operator_that_asked_be_it_on_a_storage_node,
    ),
    (
        host,
        "may_give_up",
        lambda _: True,
        test_upkeep.test_a_leader_in_which_a_read_finds_damage_goes_on,
    ),
    (
        GuardedReader,
        "batches",
        unguarded,
        test_parts.test_flushed_batches_are_read_only_once_the_replica_knows_that_they_are_joined,
    ),
]


@pytest.mark.parametrize(
    ("owner", "name", "without", "test"), MUTANTS, ids=[name for _, name, _, _ in MUTANTS]
)
def test_a_safeguard_is_missed(
    owner: object,
    name: str,
    without: object,
    test: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scripted, "SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(owner, name, without)
    with pytest.raises(CAUGHT):
        test()


def test_without_knowledge_of_joined_batches_a_retry_is_appended_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two safeguards stand for one promise: the replica knows, and its reader sees to that."""
    monkeypatch.setattr(scripted, "SECONDS", 2.0)
    monkeypatch.setattr(GuardedReader, "batches", unguarded)
    monkeypatch.setattr(ReplicaLog, "join", lambda *_: None)
    with pytest.raises(AssertionError):
        test_upkeep.test_a_follower_that_lacks_flushed_entries_learns_their_producers_too()
