"""Every outcome of the recovery rule, one test each (invariants V1 to V3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.recover import Facts, Recovery, Verdict, recover
from tidelog.invariants import InvariantViolation


def ending_at(llsn_end: int) -> CommitContext:
    """A context whose ordered part ends at ``llsn_end``."""
    return CommitContext(7, 100, 50, llsn_end - 2, 2)


def test_nothing_at_all_is_a_new_replica() -> None:
    assert recover(Facts()) == Recovery(Verdict.NEW, "no commit context and no entry")


def test_context_and_entries_that_end_together_are_valid() -> None:
    found = recover(Facts(ending_at(11), first_llsn=1, end_llsn=11))
    assert found.verdict is Verdict.VALID
    assert "both end at LLSN 11" in found.reason


def test_entries_beyond_the_context_are_unordered_and_stay() -> None:
    found = recover(Facts(ending_at(11), first_llsn=1, end_llsn=15))
    assert found.verdict is Verdict.VALID
    assert found.usable


def test_a_context_beyond_the_entries_means_a_lost_suffix() -> None:
    found = recover(Facts(ending_at(11), first_llsn=1, end_llsn=9))
    assert found.verdict is Verdict.NEEDS_SYNC
    assert "a suffix was lost" in found.reason
    assert not found.usable


def test_a_context_with_no_entry_is_valid_only_if_everything_was_trimmed() -> None:
    """The document calls this a failure; a trim of the whole log is none."""
    assert recover(Facts(ending_at(11), trim_llsn_end=11)).verdict is Verdict.FULLY_TRIMMED
    assert recover(Facts(ending_at(11), trim_llsn_end=10)).verdict is Verdict.NEEDS_SYNC
    assert recover(Facts(ending_at(11))).verdict is Verdict.NEEDS_SYNC


@pytest.mark.parametrize("end_llsn", [5, 11])
def test_trimmed_entries_whose_bytes_are_still_there_do_not_matter(end_llsn: int) -> None:
    found = recover(Facts(ending_at(11), first_llsn=3, end_llsn=end_llsn, trim_llsn_end=11))
    assert found.verdict is Verdict.FULLY_TRIMMED


def test_unordered_entries_may_follow_a_fully_trimmed_part() -> None:
    found = recover(Facts(ending_at(11), first_llsn=11, end_llsn=13, trim_llsn_end=11))
    assert found.verdict is Verdict.VALID


def test_a_compacted_prefix_is_not_a_hole() -> None:
    assert recover(Facts(ending_at(11), first_llsn=7, end_llsn=11)).verdict is Verdict.VALID


def test_everything_compacted_away_up_to_the_context_is_valid() -> None:
    """A snapshot accounts for all entries, none of which is live any more."""
    assert recover(Facts(ending_at(11), end_llsn=11)).verdict is Verdict.VALID


@pytest.mark.parametrize("missing", [1, 5, 10])
def test_an_entry_missing_inside_is_damage(missing: int) -> None:
    found = recover(Facts(ending_at(11), first_llsn=1, end_llsn=11, missing_llsn=missing))
    assert found.verdict is Verdict.DAMAGED
    assert f"LLSN {missing} " in found.reason


def test_an_entry_missing_among_the_unordered_is_damage_too() -> None:
    """It may have been acknowledged as stored, so it must not vanish without a word."""
    facts = Facts(ending_at(11), first_llsn=1, end_llsn=15, missing_llsn=12)
    assert recover(facts).verdict is Verdict.DAMAGED


def test_damage_is_named_before_a_lost_suffix() -> None:
    facts = Facts(ending_at(11), first_llsn=1, end_llsn=9, missing_llsn=4)
    assert recover(facts).verdict is Verdict.DAMAGED


@pytest.mark.parametrize("first", [None, 12, 14])
def test_unordered_entries_that_do_not_abut_the_context_are_damage(first: int | None) -> None:
    facts = Facts(ending_at(11), first_llsn=first, end_llsn=15, trim_llsn_end=11)
    assert recover(facts).verdict is Verdict.DAMAGED


def test_entries_without_a_context_are_unordered_if_they_start_at_the_first() -> None:
    found = recover(Facts(NONE, first_llsn=1, end_llsn=4))
    assert found.verdict is Verdict.VALID


@pytest.mark.parametrize(
    "facts",
    [
        Facts(NONE, first_llsn=2, end_llsn=4),
        Facts(NONE, end_llsn=4),
        Facts(NONE, trim_llsn_end=4),
        Facts(NONE, first_llsn=1, end_llsn=9, trim_llsn_end=4),
    ],
)
def test_entries_that_must_have_been_ordered_need_their_context(facts: Facts) -> None:
    found = recover(facts)
    assert found.verdict is Verdict.NEEDS_SYNC
    assert "context is missing" in found.reason


def test_a_trim_beyond_the_context_tells_that_a_later_context_was_lost() -> None:
    found = recover(Facts(ending_at(11), first_llsn=12, end_llsn=15, trim_llsn_end=12))
    assert found.verdict is Verdict.NEEDS_SYNC
    assert "a later one was lost" in found.reason


def test_a_context_that_contradicts_itself_is_damage() -> None:
    found = recover(Facts(CommitContext(7, 3, 50, 9, 2), first_llsn=1, end_llsn=11))
    assert found.verdict is Verdict.DAMAGED
    assert found.reason.startswith("X4")


@pytest.mark.parametrize(
    "facts",
    [
        Facts(end_llsn=0),
        Facts(trim_llsn_end=0),
        Facts(first_llsn=4, end_llsn=4),
        Facts(first_llsn=0, end_llsn=4),
        Facts(first_llsn=1, end_llsn=4, missing_llsn=4),
        Facts(first_llsn=1, end_llsn=4, missing_llsn=2, trim_llsn_end=3),
    ],
)
def test_facts_that_cannot_be_are_a_bug_of_the_caller(facts: Facts) -> None:
    with pytest.raises(InvariantViolation, match=r"V[13]"):
        recover(facts)


positions = st.integers(1, 9)


@given(st.none() | st.integers(3, 9), st.none() | positions, positions, positions)
def test_a_usable_replica_has_all_that_was_ordered_and_not_trimmed(
    ordered_end: int | None, first: int | None, end: int, trim: int
) -> None:
    if first is not None and first >= end:
        first = None
    context = NONE if ordered_end is None else ending_at(ordered_end)
    found = recover(Facts(context, first_llsn=first, end_llsn=end, trim_llsn_end=trim))
    if found.usable:
        assert end >= context.llsn_end or trim == context.llsn_end
        assert trim <= context.llsn_end
