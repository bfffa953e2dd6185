"""The commit context and what may follow it (invariants X1 to X5)."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.core.replica.commit_context import (
    NONE,
    CommitContext,
    flaw_in_context,
    flaw_in_following,
    follow,
)
from tidelog.invariants import InvariantViolation


def context(
    version: int, high_watermark: int, glsn_begin: int, llsn_begin: int, length: int
) -> CommitContext:
    return CommitContext(version, high_watermark, glsn_begin, llsn_begin, length)


FIRST = context(1, 2, 1, 1, 1)


def test_the_ends_are_the_first_positions_not_included() -> None:
    assert (context(3, 20, 11, 5, 4).glsn_end, context(3, 20, 11, 5, 4).llsn_end) == (15, 9)


def test_the_context_before_the_first_cut_ends_at_the_first_position() -> None:
    assert (NONE.version, NONE.high_watermark, NONE.glsn_end, NONE.llsn_end) == (0, 0, 1, 1)
    assert flaw_in_context(NONE) is None


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FIRST.length = 2  # type: ignore[misc]


def test_a_context_survives_encoding() -> None:
    data = msgspec.msgpack.encode(FIRST)
    assert msgspec.msgpack.decode(data, type=CommitContext) == FIRST


def test_the_first_cut_follows_none() -> None:
    assert follow(NONE, FIRST) is FIRST


def test_an_empty_context_carries_the_streams_own_last_glsn_plus_one() -> None:
    """The example of the commit-context document, repaired: GLSN 2, not the topic's next, 3."""
    assert flaw_in_following(FIRST, context(2, 3, 2, 2, 0)) is None
    flaw = flaw_in_following(FIRST, context(2, 3, 3, 2, 0))
    assert flaw is not None
    assert flaw.startswith("X5")


def test_versions_that_ordered_nothing_for_the_stream_may_be_skipped() -> None:
    assert follow(FIRST, context(9, 31, 30, 2, 2)).llsn_end == 4


@pytest.mark.parametrize(
    ("following", "invariant"),
    [
        (context(1, 3, 3, 2, 1), "X3"),  # the same version again
        (context(2, 1, 1, 2, 0), "X4"),  # a high watermark below the stream's own GLSNs
        (context(2, 1, 1, 2, 1), "X4"),
        (context(2, 3, 3, 3, 1), "X2"),  # an LLSN is left out
        (context(2, 3, 3, 1, 1), "X2"),  # an LLSN is ordered twice
        (context(2, 3, 2, 2, 1), "X4"),  # a GLSN is issued twice
        (context(2, 3, 3, 2, 2), "X4"),  # GLSNs above the high watermark
        (context(2, 3, 3, 2, -1), "X1"),
        (context(2, 3, 0, 2, 0), "X1"),
        (context(0, 3, 3, 2, 1), "X3"),
    ],
)
def test_what_does_not_continue_the_context_is_refused(
    following: CommitContext, invariant: str
) -> None:
    flaw = flaw_in_following(FIRST, following)
    assert flaw is not None
    assert flaw.startswith(invariant)
    with pytest.raises(InvariantViolation, match=invariant):
        follow(FIRST, following)


def test_a_high_watermark_never_goes_back() -> None:
    flaw = flaw_in_following(context(4, 30, 10, 1, 1), context(5, 29, 11, 2, 0))
    assert flaw is not None
    assert flaw.startswith("X3: high watermark")


def test_a_stream_cannot_have_more_entries_than_its_topic_has_glsns() -> None:
    flaw = flaw_in_context(context(1, 9, 1, 5, 1))
    assert flaw is not None
    assert flaw.startswith("X4")
