"""Every safeguard of a storage node's disk is needed: with one switched off, a test fails.

That the hunts pass on the code as it is, is shown where they come from: tests/storage_replica.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

import pytest

from tests.mutation.left_out import Change, replaced, sync_dir_left_out
from tests.storage_replica import test_compaction, test_damage, test_races, test_writes
from tests.storage_replica.crash_scenarios import SCENARIOS
from tests.storage_replica.history import History
from tests.storage_replica.twin import Twin
from tidelog.core.replica.output import Write
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation
from tidelog.storage import replica_apply, replica_disk, replica_frame
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_apply import Applier
from tidelog.storage.replica_part import ReplicaPart
from tidelog.storage.replica_pending import Overlay
from tidelog.storage.segments import needed_limits
from tidelog.storage.stream_store import StreamStore
from tidelog.testing.crash import enumerate_crashes

HISTORIES: Final = 40
OUTCOMES_MAX: Final = 16
Hunt: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    hunt: Hunt


def histories() -> None:
    for seed in range(HISTORIES):
        History(Random(seed)).run(80)


def alone(test: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test(patch)


def published_anyway(publish: Callable[..., bool]) -> Callable[..., bool]:
    return lambda store, state, liveness, seen: publish(store, state, liveness, store.snapshot)


def without_waiting(take_snapshot: Callable[..., Any]) -> Callable[..., Any]:
    def call(store: StreamStore) -> Any:
        store.applying = threading.RLock()
        return take_snapshot(store)

    return call


def crashes_of(name: str) -> Hunt:
    def hunt() -> None:
        (scenario,) = [each for each in SCENARIOS if each.name == name]
        disk, base = scenario.prepared()
        enumerate_crashes(
            scenario.run(base), scenario.check(base), disk=disk, outcomes_max=OUTCOMES_MAX
        )

    return hunt


def member() -> Twin:
    twin = Twin()
    twin.become_member()
    return twin


def nothing(*_: Any, **__: Any) -> None:
    """Leaves a step out."""


def left_out(owner: Any, name: str) -> Change:
    return replaced(owner, name, lambda _: nothing)


def pruned_at_once(arrange: Callable[..., None]) -> Callable[..., None]:
    def mutant(store: StreamStore, segments: Any, tables: Any) -> None:
        arrange(store, segments, tables)
        store.limits = needed_limits(store.limits, store.view.segments)

    return mutant


def recorded_again(carry: Callable[..., None]) -> Callable[..., None]:
    def mutant(applier: Applier, stream: int, llsn_begin: int, wal_file: int) -> None:
        carry(applier, stream, llsn_begin, wal_file)
        replica_apply.part_of(applier.node.streams[stream]).carried_end = 0

    return mutant


MUTANTS: Final = (
    Mutant(
        "a start begins from the latest state, not from that of the first WAL file",
        replaced(ReplicaPart, "base_of", lambda _: lambda part, wal_file, now: now),
        histories,
    ),
    Mutant("no state is kept when the WAL rolls", left_out(Applier, "note_bases"), histories),
    Mutant("truncated terms stay", left_out(ReplicaPart, "truncate_terms"), histories),
    Mutant("trimmed terms stay", left_out(ReplicaPart, "trim_terms"), histories),
    Mutant(
        "what comes again is counted again", replaced(Applier, "carry", recorded_again), histories
    ),
    Mutant(
        "answers outlive a truncation",
        replaced(replica_disk, "cuts", lambda _: lambda write: False),
        histories,
    ),
    Mutant(
        "GLSNs outlive a truncation that is under way",
        left_out(Overlay, "_count_runs_before"),
        histories,
    ),
    Mutant(
        "a log begins anew in a directory that was not made",
        left_out(NodeStore, "make_generation"),
        crashes_of("a wipe"),
    ),
    Mutant(
        "a stream's directory is not made durable",
        sync_dir_left_out(NodeStore, "_make_stream_directory"),
        crashes_of("the first streams"),
    ),
    Mutant(
        "the segment of truncated entries stays",
        left_out(StreamStore, "_discard"),
        test_races.test_entries_that_are_truncated_beside_a_flush_never_come_back,
    ),
    Mutant(
        "truncations are forgotten before the files that they concern are gone",
        replaced(StreamStore, "_arrange", pruned_at_once),
        lambda: (
            test_writes.test_what_was_flushed_of_a_given_up_filling_never_comes_back_below_the_next(
                member()
            )
        ),
    ),
    Mutant(
        "a filled replica takes what it was not sent for lost",
        left_out(replica_apply, "install_filled"),
        lambda: test_writes.test_a_replica_that_was_filled_up_has_what_it_was_sent(1, member()),
    ),
    Mutant(
        "entries that wait keep the WAL of all streams back",
        replaced(replica_disk, "to_carry", lambda _: lambda node: ()),
        lambda: (
            test_compaction.test_a_stream_that_cannot_be_ordered_does_not_keep_the_wal_of_others(
                member()
            )
        ),
    ),
    Mutant(
        "batches are stored with the place that their sender gave them",
        replaced(
            replica_frame,
            "sealed",
            lambda _: (
                lambda stream, batch: StoredBatch(batch.llsn_begin, batch.llsn_end, batch.data)
            ),
        ),
        lambda: test_writes.test_an_entry_is_stored_with_its_own_place(member()),
    ),
    Mutant(
        "a snapshot is published on top of whatever there is by then",
        replaced(StreamStore, "publish", published_anyway),
        lambda: alone(test_races.test_a_snapshot_that_a_filling_overtakes_is_not_published),
    ),
    Mutant(
        "a snapshot looks at a filling that is half applied",
        replaced(StreamStore, "take_snapshot", without_waiting),
        lambda: alone(test_races.test_a_snapshot_waits_until_a_filling_is_applied_as_a_whole),
    ),
    Mutant(
        "a replica with damaged files stays complete",
        replaced(replica_disk, "given_up", lambda _: lambda store, overlay=None: _unchanged(store)),
        lambda: (
            test_damage.test_a_damaged_segment_makes_its_replica_incomplete_and_leaves_the_others(
                test_damage.two_streams()
            )
        ),
    ),
)


def _unchanged(store: StreamStore) -> Write:
    return Write(0, hard_state=replica_apply.part_of(store).hard_state)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    expected = (AssertionError, InvariantViolation, LogError, pytest.fail.Exception)
    with pytest.raises(expected) as caught, mutant.change():
        mutant.hunt()
    assert "made other calls" not in str(caught.value), "the hunt failed, not the mutant"
