"""A stream's delete horizon moves exactly when a delete dies of which nothing tells any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.storage.streams import Streams, delete, delete_storage, put, value
from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon
from tidelog.formats.entry import Entry


def horizon(story: Streams) -> DeleteHorizon:
    return story.store().snapshot.deletes


def next_snapshot(story: Streams) -> DeleteHorizon:
    """A snapshot behind one more segment, so that all before it can be compacted."""
    story.segment([value("more")])
    return story.snapshot().deletes


def compact(story: Streams) -> None:
    assert not story.major(full=True).failures


def deleted_key() -> Streams:
    """A key and its delete in different segments, with GLSNs 1 and 2, and a snapshot behind."""
    story = Streams.new()
    story.segment([put("a")])
    story.segment([delete("a")])
    assert next_snapshot(story) == NOTHING_DROPPED
    return story


def test_the_horizon_moves_with_the_snapshot_by_which_the_delete_dies() -> None:
    story = deleted_key()
    compact(story)
    assert horizon(story) == NOTHING_DROPPED
    assert next_snapshot(story) == DeleteHorizon(3, 1)
    assert 2 in story.read()
    compact(story)
    assert 2 not in story.read()
    assert next_snapshot(story) == DeleteHorizon(3, 1)


def test_a_delete_that_dies_and_stays_for_a_while_is_noted_once() -> None:
    story = deleted_key()
    compact(story)
    for _ in range(3):
        assert next_snapshot(story) == DeleteHorizon(3, 1)


@pytest.mark.parametrize("newer", [put("a", "again"), delete("a"), delete_storage(0)])
def test_a_delete_that_something_newer_replaces_moves_nothing(newer: Entry) -> None:
    story = deleted_key()
    story.segment([newer])
    for _ in range(2):
        compact(story)
        if 2 not in story.read():
            break
        assert next_snapshot(story) == NOTHING_DROPPED
    assert 2 not in story.read()
    assert horizon(story) == NOTHING_DROPPED


def test_the_last_of_a_chain_of_deletes_is_noted() -> None:
    story = deleted_key()
    story.segment([delete("a")])
    for _ in range(4):
        next_snapshot(story)
        compact(story)
    # The put, the first delete, a value, and then the second delete.
    assert horizon(story) == DeleteHorizon(5, 1)
    assert {4, 2, 1}.isdisjoint(story.read())


def test_a_later_death_of_an_earlier_delete_is_counted_and_moves_nothing_back() -> None:
    """The count tells a reader that the horizon alone would not."""
    story = Streams.new()
    story.segment([put("b"), value("kept")])
    story.segment([put("a")])
    story.segment([delete("b"), delete("a")])
    next_snapshot(story)
    story.minor()  # Takes the segment of "a" alone.
    assert next_snapshot(story) == DeleteHorizon(6, 1)
    compact(story)
    assert next_snapshot(story) == DeleteHorizon(6, 2)


def test_a_delete_of_a_key_that_was_never_there_moves_nothing() -> None:
    story = Streams.new()
    story.segment([delete("a"), delete_storage(7), value("x")])
    for _ in range(2):
        assert next_snapshot(story) == NOTHING_DROPPED
        compact(story)
    assert {1, 2}.isdisjoint(story.read())


def test_a_delete_of_what_was_trimmed_is_noted_though_no_snapshot_saw_it_hide_anything() -> None:
    """Who had read the put before the trim must hear of the delete."""
    story = Streams.new()
    story.segment([put("a")])
    story.segment([value("x")])
    story.trim(2)
    story.minor()
    story.segment([delete("a")])
    assert next_snapshot(story) == DeleteHorizon(4, 1)


def test_a_trimmed_delete_moves_nothing() -> None:
    story = deleted_key()
    story.trim(3)
    for _ in range(3):
        assert next_snapshot(story) == NOTHING_DROPPED
        compact(story)


def test_a_storage_delete_is_noted_when_nothing_of_its_storage_is_left() -> None:
    story = Streams.new()
    story.segment([put("a", storage=4), put("b", storage=4)])
    story.segment([delete_storage(4)])
    next_snapshot(story)
    compact(story)
    assert next_snapshot(story) == DeleteHorizon(4, 1)


def test_a_storage_delete_is_noted_though_one_that_hid_nothing_came_after_it() -> None:
    """Both die by one snapshot; the second one, which no snapshot saw alive, tells nothing."""
    story = Streams.new()
    story.segment([put("a", storage=4)])
    story.segment([delete_storage(4)])
    next_snapshot(story)
    compact(story)
    story.segment([delete_storage(4)])
    assert next_snapshot(story) == DeleteHorizon(3, 1)


def test_with_explicit_versions_a_delete_dies_when_the_boundary_passes_it() -> None:
    story = Streams.new(versions="explicit")
    story.segment([put("a", version=5)])
    story.segment([delete("a", version=9)])
    for _ in range(2):
        assert next_snapshot(story) == NOTHING_DROPPED
        compact(story)
    story.boundary(9)
    assert next_snapshot(story) == NOTHING_DROPPED
    compact(story)
    assert next_snapshot(story) == DeleteHorizon(3, 1)


def test_a_newer_version_that_came_earlier_tells_of_the_delete() -> None:
    story = Streams.new(versions="explicit")
    story.segment([put("a", version=5)])
    story.segment([put("a", "newest", version=20), delete("a", version=9)])
    story.boundary(30)
    for _ in range(3):
        assert next_snapshot(story) == NOTHING_DROPPED
        compact(story)
    assert set(story.read()) & {1, 2, 3} == {2}


@pytest.mark.parametrize("restart", [Streams.reopen, Streams.kill, Streams.power_loss])
def test_the_horizon_survives_restarts(restart: Callable[[Streams], None]) -> None:
    story = deleted_key()
    compact(story)
    next_snapshot(story)
    restart(story)
    assert horizon(story) == DeleteHorizon(3, 1)
    compact(story)
    restart(story)
    assert horizon(story) == DeleteHorizon(3, 1)
    assert next_snapshot(story) == DeleteHorizon(3, 1)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_rebuilt_live_index_never_lowers_the_horizon(dropped: bool) -> None:
    """Whether the delete was dead before is not known then, so it is noted once more."""
    story = deleted_key()
    compact(story)
    next_snapshot(story)
    if dropped:
        compact(story)
    (name,) = story.names(suffix=".live")
    story.close()
    story.disk.vfs().unlink(f"{story.directory()}/{name}")
    story.open()
    assert horizon(story) == DeleteHorizon(3, 1 if dropped else 2)


def test_a_rebuilt_live_index_notes_the_deletes_that_die_by_it() -> None:
    story = deleted_key()
    compact(story)
    assert horizon(story) == NOTHING_DROPPED
    (name,) = story.names(suffix=".live")
    story.close()
    story.disk.vfs().unlink(f"{story.directory()}/{name}")
    story.open()
    assert 2 not in story.store().snapshot.live
    assert horizon(story) == DeleteHorizon(3, 1)
    story.power_loss()
    assert horizon(story) == DeleteHorizon(3, 1)
