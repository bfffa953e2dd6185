"""The delete horizon (H1 to H5): what is noted, and whom it concerns."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon, deletes_to_note
from tidelog.invariants import InvariantViolation

LIVE, INDEX = BitMap64([2, 5]), 10
"""A snapshot before: 2 and 5 are live up to 10."""


def test_a_delete_that_was_live_and_dies_silently_is_noted_once() -> None:
    silent = BitMap64([2, 3])
    assert list(deletes_to_note(silent, LIVE, INDEX, trimmed=False)) == [2]
    assert not deletes_to_note(silent, BitMap64([5]), INDEX, trimmed=False)


def test_a_delete_that_never_hid_anything_is_not_noted() -> None:
    assert not deletes_to_note(BitMap64([11, 12]), LIVE, INDEX, trimmed=False)


def test_after_a_trim_a_delete_is_noted_though_no_snapshot_saw_what_it_hides() -> None:
    noted = deletes_to_note(BitMap64([3, 5, 10, 11]), LIVE, INDEX, trimmed=True)
    assert list(noted) == [5, 11]


def test_the_horizon_lies_behind_the_last_noted_delete_and_never_goes_back() -> None:
    first = NOTHING_DROPPED.beyond(7, 2)
    assert first == DeleteHorizon(8, 2)
    assert first.beyond(3, 1) == DeleteHorizon(8, 3)
    assert first.beyond(20, 1) == DeleteHorizon(21, 3)
    with pytest.raises(InvariantViolation, match="H3"):
        first.beyond(0, 1)


def test_who_has_passed_the_dropped_deletes_has_missed_none() -> None:
    horizon = DeleteHorizon(8, 2)
    assert horizon.is_missed_by(7, begun=0)
    assert not horizon.is_missed_by(8, begun=0)
    assert not NOTHING_DROPPED.is_missed_by(1, begun=0)


def test_who_began_after_the_last_one_was_dropped_has_missed_none() -> None:
    horizon = DeleteHorizon(8, 2)
    assert not horizon.is_missed_by(1, begun=2)
    # The horizon stands still when a delete before it goes, and concerns the reader all the same.
    assert horizon.beyond(4, 1).is_missed_by(3, begun=2)
