"""Compare-and-set of the metadata needs each of its parts: without one its guard fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.core.metadata import test_changes as changes
from tests.core.metadata import test_delivery as deliveries
from tests.core.metadata import test_revisions as guards
from tests.mutation.left_out import Change, replaced, together
from tests.runtime.admin import test_agent as shells
from tests.runtime.metadata_node import test_bring_about as askers
from tidelog.core.metadata import delivery, machine
from tidelog.core.metadata.commands import UnregisterNode
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.refusals import Refusals
from tidelog.core.metadata.repository import Repository
from tidelog.errors import LogError
from tidelog.runtime import metadata_changes

CAUGHT: Final = (AssertionError, LogError, pytest.fail.Exception)


class Never(Exception):
    """Nobody raises it."""


def repeated(story: str, *, snapshots: bool = False) -> Callable[[], None]:
    return lambda: guards.test_a_late_repetition_undoes_nothing(story, snapshots=snapshots)


def refused(story: str, *, snapshots: bool = False) -> Callable[[], None]:
    return lambda: guards.test_what_was_refused_is_not_made_late_when_its_reason_is_gone(
        story, snapshots=snapshots
    )


def too_large_for_a_message() -> None:
    with pytest.MonkeyPatch.context() as patch:
        deliveries.test_what_is_too_large_for_a_message_comes_in_parts_that_end_at_cuts(4, 4, patch)


def checks_nothing(_: Any) -> Callable[..., None]:
    return lambda *_: None


def leaves_no_trace(unregister: Any) -> Callable[[MetadataMachine, UnregisterNode], None]:
    """A node that is gone is as one that never was."""

    def changed(self: MetadataMachine, command: UnregisterNode) -> None:
        before = self._absent_revision
        unregister(self, command)
        self._absent_revision = before

    return changed


def forgets(name: str) -> Callable[[Any], Callable[[bytes], MetadataMachine]]:
    """A snapshot that has no revision of some of it."""

    def make(restore: Any) -> Callable[[bytes], MetadataMachine]:
        def changed(data: bytes) -> MetadataMachine:
            restored: MetadataMachine = restore(data)
            setattr(restored, name, 0)
            return restored

        return changed

    return make


def forgets_refusals(restore: Any) -> Callable[[bytes], MetadataMachine]:
    def changed(data: bytes) -> MetadataMachine:
        restored: MetadataMachine = restore(data)
        restored._refusals = Refusals()
        return restored

    return changed


def says_nothing_of_what_it_hosts(count: Any) -> Callable[..., None]:
    def changed(self: MetadataMachine, node: Any) -> None:
        before = self._nodes[node].revision
        count(self, node)
        self._nodes[node] = replace(self._nodes[node], revision=before)

    return changed


def has_many_entries(repository: Repository) -> bool:
    entries = repository.raft.applied - repository._snapshot_index
    return entries >= repository._options.snapshot_entries


def instead(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


MUTANTS: Final[dict[str, tuple[Change, Callable[[], None]]]] = {
    **{
        f"what was seen ({story})": (
            replaced(machine, "_refuse_revision", checks_nothing),
            repeated(story),
        )
        for story in guards.STORIES
    },
    "a removal": (
        replaced(MetadataMachine, "_unregister", leaves_no_trace),
        repeated("a removed node stays away"),
    ),
    "a removal, in a snapshot": (
        replaced(MetadataMachine, "restore", forgets("_absent_revision")),
        repeated("a forgotten member stays so", snapshots=True),
    ),
    "a pause, in a snapshot": (
        replaced(MetadataMachine, "restore", forgets("_paused_revision")),
        repeated("operators go on", snapshots=True),
    ),
    "that a node hosts something else": (
        # A refusal is remembered, too, but not for ever.
        together(
            replaced(MetadataMachine, "_count_placement", says_nothing_of_what_it_hosts),
            replaced(Refusals, "refuse_repeated", checks_nothing),
        ),
        guards.test_what_was_refused_stays_refused_though_it_could_be_done_by_now,
    ),
    **{
        f"that it was refused before ({story})": (
            replaced(Refusals, "refuse_repeated", checks_nothing),
            refused(story),
        )
        for story in guards.PASSING
    },
    "that it was refused before, in a snapshot": (
        replaced(MetadataMachine, "restore", forgets_refusals),
        refused("to trim what is not ordered yet", snapshots=True),
    ),
    "that what a node missed may be too large for a message": (
        replaced(delivery, "shortened", instead(lambda result: result)),
        too_large_for_a_message,
    ),
    "that entries may be large": (
        replaced(Repository, "_is_long", instead(property(has_many_entries))),
        changes.test_a_raft_log_of_few_large_entries_is_cut_off_too_after_a_restart_as_well,
    ),
    "that others may be faster": (
        replaced(metadata_changes, "RevisionConflict", instead(Never)),
        askers.test_who_is_overtaken_by_another_wish_asks_again,
    ),
    "that others may be faster than a person": (
        replaced(metadata_changes, "RevisionConflict", instead(Never)),
        shells.test_a_node_is_added_and_removed_though_others_are_faster,
    ),
    "that an unknown outcome can be looked up": (
        replaced(metadata_changes, "DeadlineExceeded", instead(Never)),
        askers.test_an_unknown_outcome_is_looked_up_and_what_was_not_made_is_asked_for_again,
    ),
}


@pytest.mark.parametrize("overlooked", MUTANTS)
def test_a_change_of_the_metadata_that_overlooks(overlooked: str) -> None:
    change, guard = MUTANTS[overlooked]
    guard()
    with change(), pytest.raises(CAUGHT):
        guard()
