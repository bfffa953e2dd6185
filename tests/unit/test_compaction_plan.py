"""What compaction chooses (invariants C1 to C5); the numbered scenarios are Ra's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.core.compaction.plan import (
    CompactionFacts,
    Group,
    RewriteBudget,
    RewriteCandidate,
    SegmentFacts,
    Strategy,
    Trigger,
    plan_major,
    plan_minor,
    plan_rewrite,
    should_run,
)
from tidelog.errors import BadOption
from tidelog.invariants import InvariantViolation
from tidelog.types import Llsn

BYTES_MAX = 8_000
"""Segments of the tests: 100 entries of 50 bytes, more than an eighth of this."""


def segments(*live: int, entry_bytes: int = 50) -> list[SegmentFacts]:
    """Segments 1, 2, ... of 100 entries each, of which so many are live."""
    return [
        SegmentFacts(
            number=i + 1,
            first_llsn=100 * i + 1,
            end_llsn=100 * (i + 1) + 1,
            entries=100,
            bytes=100 * entry_bytes,
            live_entries=count,
            live_bytes=count * entry_bytes,
        )
        for i, count in enumerate(live)
    ]


def major(
    given_segments: Sequence[SegmentFacts], index: int = 10_000, *, full: bool = False
) -> list[tuple[int, ...]]:
    groups = plan_major(given_segments, index, full=full, bytes_max=BYTES_MAX)
    return [group.numbers for group in groups]


def test_scenario_1_live_only_in_the_first_segment() -> None:
    """Minor deletes the second, keeps the first and the newest; major then shrinks the first."""
    found = segments(10, 0, 0)
    assert plan_minor(found, 300) == [2]
    assert major([found[0], found[2]], 300) == [(1,)]


def test_scenario_2_a_dense_segment_parts_the_groups() -> None:
    assert major(segments(10, 10, 10, 90, 10, 10, 100)) == [(1, 2, 3), (5, 6)]


def test_scenario_3_bytes_part_groups_that_their_count_would_allow() -> None:
    found = segments(40, 40, 40, 40, 100, entry_bytes=100)
    assert major(found) == [(1, 2), (3, 4)]


def test_scenario_3_few_live_bytes_qualify_although_many_entries_are_live() -> None:
    found = [replace(s, live_entries=90, live_bytes=1_000) for s in segments(90, 90, 0)]
    assert major(found) == [(1, 2)]


def test_scenario_4_an_empty_live_set_leaves_only_the_newest_segment() -> None:
    found = segments(0, 0, 0, 0)
    assert plan_minor(found, 10_000) == [1, 2, 3]
    assert major(found) == []


def test_scenario_7_a_major_runs_after_so_many_minors() -> None:
    strategy = Strategy(minors=3, dead_ratio=None)
    due = [should_run(strategy, CompactionFacts(10, 10, minors=n)) for n in range(5)]
    assert due == [None, None, None, Trigger.MINORS, Trigger.MINORS]


def test_scenario_12_a_segment_alone_above_the_limit_is_skipped_and_parts_the_groups() -> None:
    found = segments(10, 10, 40, 10, 10, 100)
    found[2] = replace(found[2], bytes=90_000, live_bytes=BYTES_MAX + 1)
    assert major(found) == [(1, 2), (4, 5)]
    assert major(found, full=True) == [(1, 2), (4, 5)]


def test_a_segment_without_live_entries_is_not_in_the_way() -> None:
    assert major(segments(10, 0, 10, 100)) == [(1, 3)]


def test_segments_beyond_the_snapshot_index_are_left_alone() -> None:
    found = segments(0, 0, 0, 0)
    assert plan_minor(found, 200) == [1, 2]
    assert plan_minor(found, 199) == [1]
    assert plan_minor(found, 0) == []
    assert major(segments(10, 10, 10, 10), 200) == [(1, 2)]
    assert major(segments(10, 10, 10, 10), 199) == [(1,)]


def test_the_newest_segment_is_never_touched() -> None:
    assert plan_minor(segments(0), 10_000) == []
    assert major(segments(1), full=True) == []
    assert plan_minor([], 10_000) == []
    assert major([], full=True) == []


def test_a_single_segment_is_rewritten_only_if_more_than_half_of_it_goes() -> None:
    assert major(segments(49, 100)) == [(1,)]
    assert major(segments(50, 100)) == []
    assert major(segments(50, 100), full=True) == [(1,)]
    assert major(segments(100, 100), full=True) == []


def test_full_takes_any_segment_with_a_dead_entry() -> None:
    found = segments(60, 60, 100, 60, 100)
    assert major(found) == []
    assert major(found, full=True) == [(1, 2), (4,)]


def test_many_tiny_segments_are_merged_even_if_all_is_live() -> None:
    tiny = segments(*[100] * 20, entry_bytes=1)
    assert major(tiny) == [tuple(range(1, 9)), tuple(range(9, 17)), (17, 18, 19)]


def test_one_tiny_segment_without_dead_entries_is_not_copied_for_nothing() -> None:
    assert major(segments(100, 100, entry_bytes=1)) == []
    assert major(segments(100, 100, entry_bytes=1), full=True) == []


def test_a_group_has_at_most_eight_members() -> None:
    assert [len(numbers) for numbers in major(segments(*[1] * 18))] == [8, 8, 1]
    assert limits.COMPACTION_GROUP_MAX == 8


def test_a_segment_is_small_below_an_eighth_of_the_largest_size() -> None:
    limit = limits.SEGMENT_BYTES_MAX // 8
    for size, groups in ((limit - 1, [Group((1, 2))]), (limit, [])):
        found = [replace(s, bytes=size, live_bytes=size) for s in segments(100, 100, 100)]
        assert plan_major(found, 10_000) == groups


@pytest.mark.parametrize(
    "broken",
    [
        [segments(1, 1)[1], segments(1, 1)[0]],
        [replace(segments(1)[0], live_entries=101)],
        [replace(segments(1)[0], live_bytes=99_999)],
    ],
)
def test_segments_that_cannot_be_are_a_bug_of_the_caller(broken: list[SegmentFacts]) -> None:
    with pytest.raises(InvariantViolation, match=r"C[13]"):
        plan_minor(broken, 10)
    with pytest.raises(InvariantViolation, match=r"C[13]"):
        plan_major(broken, 10)


def test_a_manual_strategy_runs_only_when_asked() -> None:
    manual = Strategy(dead_ratio=None)
    facts = CompactionFacts(bytes=1 << 40, live_bytes=0, minors=99, idle_ticks=99)
    assert should_run(manual, facts) is None
    assert should_run(manual, replace(facts, asked=True)) is Trigger.MANUAL


def test_dead_bytes_count_by_ratio_and_by_amount() -> None:
    strategy = Strategy(dead_ratio=0.5, dead_bytes_min=100)
    assert should_run(strategy, CompactionFacts(200, 100)) is Trigger.DEAD_RATIO
    assert should_run(strategy, CompactionFacts(198, 99)) is None
    assert should_run(strategy, CompactionFacts(201, 101)) is None
    assert should_run(strategy, CompactionFacts(0, 0)) is None
    assert should_run(Strategy(dead_bytes_min=0), CompactionFacts(0, 0)) is None


def test_an_idle_log_is_compacted_only_if_something_is_dead() -> None:
    strategy = Strategy(dead_ratio=None, idle_ticks=5)
    assert should_run(strategy, CompactionFacts(10, 9, idle_ticks=5)) is Trigger.IDLE
    assert should_run(strategy, CompactionFacts(10, 9, idle_ticks=4)) is None
    assert should_run(strategy, CompactionFacts(10, 10, idle_ticks=5)) is None


@pytest.mark.parametrize(
    "options",
    [
        {"minors": 0},
        {"dead_ratio": 0.0},
        {"dead_ratio": 1.5},
        {"dead_ratio": float("nan")},
        {"dead_bytes_min": -1},
        {"idle_ticks": 0},
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadOption):
        Strategy(**options)  # type: ignore[arg-type]


def test_more_live_bytes_than_bytes_are_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="C1"):
        should_run(Strategy(), CompactionFacts(bytes=1, live_bytes=2))


def candidates(*sizes: int) -> list[RewriteCandidate]:
    return [RewriteCandidate(Llsn(10 * (i + 1)), size) for i, size in enumerate(sizes)]


def test_a_rewrite_takes_the_oldest_entries_up_to_its_budget() -> None:
    budget = RewriteBudget(ranges_max=2, entries_max=3)
    assert plan_rewrite(candidates(1, 1, 1, 1), 3, budget) == [10, 20, 30]
    half = limits.BATCH_BODY_BYTES_MAX // 2
    assert plan_rewrite(candidates(half, half, 1), 3, budget) == [10, 20]
    assert plan_rewrite(candidates(half, half + 1, 1), 3, budget) == [10]
    assert plan_rewrite(candidates(1), 3, budget) == [10]
    assert plan_rewrite([], 3, budget) == []


def test_a_live_set_of_few_ranges_is_not_rewritten() -> None:
    assert plan_rewrite(candidates(1, 1), 2, RewriteBudget(ranges_max=2)) == []


def test_a_rewrite_looks_at_no_more_candidates_than_it_needs() -> None:
    endless = (RewriteCandidate(Llsn(llsn), 1) for llsn in range(1, 10**12))
    assert len(plan_rewrite(endless, 9, RewriteBudget(ranges_max=1))) == 4096


def test_candidates_out_of_order_and_budgets_without_room_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="C3"):
        plan_rewrite(candidates(1, 1)[::-1], 9, RewriteBudget(ranges_max=1))
    with pytest.raises(BadOption):
        RewriteBudget(bytes_max=limits.VALUE_BYTES_MAX)
    with pytest.raises(BadOption):
        RewriteBudget(entries_max=0)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentFacts]:
    found = []
    llsn = 1
    for number in range(1, draw(st.integers(0, 25)) + 1):
        entries = draw(st.sampled_from([1, 10, 100]))
        size = draw(st.sampled_from([10, 999, 1_000, 5_000, 9_000, 50_000]))
        live = draw(st.integers(0, entries))
        # All entries live means all bytes live; none live means none.
        least, most = (size, size) if live == entries else (0, size if live else 0)
        live_size = draw(st.integers(least, most))
        found.append(SegmentFacts(number, llsn, llsn + 100, entries, size, live, live_size))
        llsn += 100
    return found


@given(logs(), st.integers(0, 2_600), st.booleans())
def test_plans_keep_every_live_entry_and_groups_are_bounded_neighbours(
    log: list[SegmentFacts], index: int, full: bool
) -> None:
    by_number = {segment.number: segment for segment in log}
    deleted = plan_minor(log, index)
    groups = major(log, index, full=full)
    chosen = [number for numbers in groups for number in numbers]

    for number in deleted:
        assert by_number[number].live_entries == 0
    assert chosen == sorted(chosen)
    assert len(frozenset(chosen + deleted)) == len(chosen) + len(deleted)
    for number in chosen + deleted:
        assert number != log[-1].number
        assert by_number[number].end_llsn <= index + 1
    survivors = [segment.number for segment in log if segment.number not in deleted]
    for numbers in groups:
        start = survivors.index(numbers[0])
        assert tuple(survivors[start : start + len(numbers)]) == numbers
        assert 1 <= len(numbers) <= limits.COMPACTION_GROUP_MAX
        assert sum(by_number[number].live_bytes for number in numbers) <= BYTES_MAX


@given(logs(), st.booleans())
def test_compacting_again_and_again_comes_to_an_end(log: list[SegmentFacts], full: bool) -> None:
    rounds = 0
    while groups := major(log, full=full):
        rounds += 1
        assert rounds <= 25
        for numbers in groups:
            members = [segment for segment in log if segment.number in numbers]
            live = sum(segment.live_entries for segment in members)
            size = sum(segment.live_bytes for segment in members)
            merged = SegmentFacts(
                numbers[0], members[0].first_llsn, members[-1].end_llsn, live, size, live, size
            )
            log = [segment for segment in log if segment.number not in numbers[1:]]
            log[[segment.number for segment in log].index(numbers[0])] = merged
    if full:
        for segment in log[:-1]:
            assert not (0 < segment.live_entries < segment.entries) or (
                segment.live_bytes > BYTES_MAX
            )
