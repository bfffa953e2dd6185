"""Safeguards of the gateway are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from unittest.mock import patch

import pytest

from tests.mutation.left_out import replaced
from tests.mutation.mutant import Mutant
from tests.runtime.gateway import (
    test_appends,
    test_deposed_leaders,
    test_named_positions,
    test_publishing,
    test_reads,
    test_rewriting,
    test_shared_looks,
    test_topics,
)
from tests.server import raw
from tidelog.core.order.commands import StreamStatus
from tidelog.errors import LogError
from tidelog.formats.messages import NamedPosition, SetPosition
from tidelog.invariants import InvariantViolation
from tidelog.runtime.gateway import append_shares, copying, publishing, reads, upkeep
from tidelog.runtime.gateway.append_router import AppendRouter
from tidelog.runtime.gateway.cells import Cells
from tidelog.runtime.gateway.gateway import Gateway
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.publishing import LocalPublishing
from tidelog.runtime.gateway.rewriting import LocalRewriting
from tidelog.runtime.gateway.shared_looks import SharedLooks
from tidelog.runtime.gateway.tides import Tides
from tidelog.runtime.gateway.waiting import Waiting

WAIT_SECONDS: Final = 2.0
"""What never happens is waited for no longer than this."""
CAUGHT: Final = (AssertionError, InvariantViolation, LogError, TimeoutError, KeyError)


def always(value: object) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: lambda *_args, **_options: value


def first_error(_: Any) -> Callable[..., LogError]:
    return lambda errors, _receipts: errors[0]


def for_everybody(_: Any) -> Callable[..., Any]:
    return lambda self, _hello: self._for_clients


def as_known(_: Any) -> Callable[..., Any]:
    async def high(self: Waiting, topic: Any, _seconds: float) -> int:
        return self.known_high(topic)

    return high


def as_readable(_: Any) -> Callable[..., Any]:
    async def end(self: LocalReads, topic: Any, stream: int) -> int | None:
        return self.tides.end(topic.topic, (stream,))

    return end


def of_before(_: Any) -> Callable[..., Any]:
    async def look_after(self: SharedLooks, _: Any) -> object:
        """As it should be, but for whom it answers: whoever comes during a look gets that one."""
        self._last = self._next
        found = await self._metadata.read(seconds=self._seconds)
        self._next = None
        return found

    return look_after


async def at_once(*_: object) -> None:
    """Wait for nothing."""


def of_nobody(_: Any) -> Callable[[bytes], int]:
    """Whoever copies a publication is a producer of its own."""
    numbers = count(1)
    return lambda _key: next(numbers)


MUTANTS: Final = (
    Mutant(
        "a position is stored although another one was stored since the look",
        replaced(Cells, "_is_still", always(True)),
        test_named_positions.test_what_was_stored_between_the_look_and_the_append_is_seen,
    ),
    Mutant(
        "what was deleted since the look is copied to the head",
        replaced(LocalRewriting, "_is_still", always(True)),
        lambda: test_rewriting.test_what_is_deleted_while_copies_are_chosen_is_not_copied("log"),
    ),
    Mutant(
        "stages expire that a publication needs",
        replaced(publishing, "unfinished", always([])),
        test_publishing.test_stages_expire_but_not_those_that_a_publication_needs,
    ),
    Mutant(
        "the GC boundary moves over what is to be published",
        replaced(publishing, "unfinished", always([])),
        test_publishing.test_no_boundary_moves_over_what_is_to_be_published,
    ),
    Mutant(
        "stale versions are found in the middle of a publication",
        replaced(publishing, "_check_versions", always(None)),
        test_publishing.test_no_boundary_moves_over_what_is_to_be_published,
    ),
    Mutant(
        "a sealed stream is found in the middle of a publication",
        replaced(LocalPublishing, "_refuse_sealed", lambda _: at_once),
        lambda: (
            test_publishing.test_a_publication_for_a_sealed_stream_is_refused_before_it_is_begun(
                StreamStatus.SEALED
            )
        ),
    ),
    Mutant(
        "a publication that was begun is told to be nothing",
        replaced(publishing, "_not_done", lambda _: lambda _intent, error: error),
        test_publishing.test_a_publication_that_a_seal_interrupts_is_not_told_to_be_nothing,
    ),
    Mutant(
        "the numbers of a publication depend on who copies it",
        replaced(copying, "producer_of", of_nobody),
        test_publishing.test_a_publication_that_is_interrupted_anywhere_is_finished_by_whoever_comes_next,
    ),
    Mutant(
        "half an append is told to be nothing",
        replaced(append_shares, "joint_error", first_error),
        test_appends.test_half_an_append_is_never_told_to_be_nothing,
    ),
    Mutant(
        "dropped deletes of replicas are added up",
        replaced(upkeep, "_mark", lambda _: lambda _node, stream: stream.dropped_deletes),
        test_topics.test_dropped_deletes_of_each_replica_count,
    ),
    Mutant(
        "a look at the metadata answers who came after it began",
        replaced(SharedLooks, "_look_after", of_before),
        test_shared_looks.test_who_comes_during_a_look_shares_the_next_one,
    ),
    Mutant(
        "what a node passes on is passed on again",
        replaced(Gateway, "enter", for_everybody),
        test_appends.test_nothing_is_passed_on_twice,
    ),
    Mutant(
        "stale versions are appended",
        replaced(AppendRouter, "_check_version", always(None)),
        test_topics.test_stale_versions_are_refused_by_the_leader,
    ),
    Mutant(
        "a page ends where the last of its parts ends",
        replaced(reads, "_common_end", lambda _: lambda parts: max(p.glsn_end for p in parts)),
        test_reads.test_a_page_ends_where_the_first_of_its_parts_ends,
    ),
    Mutant(
        "a key is looked up before what was answered can be read",
        replaced(LocalReads, "catch_up", as_readable),
        test_reads.test_a_key_is_found_as_soon_as_its_append_was_answered_be_it_stored_or_not,
    ),
    Mutant(
        "a leader takes what it knows of keys for all there is",
        replaced(LocalReads, "catch_up", as_readable),
        test_deposed_leaders.test_a_key_is_looked_up_behind_all_that_clients_were_told,
    ),
    Mutant(
        "a leader takes what it knows of positions for all there is",
        replaced(LocalReads, "catch_up", as_readable),
        lambda: test_deposed_leaders.test_no_position_is_answered_or_refused_by_what_was_true_once(
            SetPosition(test_deposed_leaders.TOPIC, "reader", 30, 2), NamedPosition(30, 3)
        ),
    ),
    Mutant(
        "who waits for entries does not have them stored",
        replaced(Tides, "_hasten", always(None)),
        test_reads.test_who_waits_at_the_end_has_what_was_ordered_stored_at_once,
    ),
    Mutant(
        "a node takes its own end for that of the topic",
        replaced(Waiting, "high_watermark", as_known),
        test_reads.test_the_end_of_a_topic_is_that_of_the_cluster_and_not_of_a_lagging_node,
    ),
)


def by_name(mutant: Mutant) -> str:
    return mutant.name


# A test that fails half-way leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with (
        mutant.change(),
        patch.object(raw, "WAIT_SECONDS", WAIT_SECONDS),
        pytest.raises(CAUGHT),
    ):
        mutant.test()
    gc.collect()
