"""What compaction does next: pure choices over sizes and live counts.  No state.

Segments are given oldest first.  Only those that lie wholly at or below the snapshot index are
known to be dead or live; the newest one is never touched, for the segment writer may be at it.

Invariants:
  C1  no segment with a live entry is deleted
  C2  the newest segment, and any that reaches beyond the snapshot index, is in no plan
  C3  groups are disjoint, of neighbours among the surviving segments, oldest first
  C4  a group has at most ``COMPACTION_GROUP_MAX`` members and fits a segment by its live bytes
  C5  every group makes progress: it leaves fewer segments, or fewer dead entries; so a plan that
      is carried out again and again comes to an end
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from tidelog import limits
from tidelog.errors import BadOption
from tidelog.invariants import check
from tidelog.types import Llsn

SMALL_PARTS: Final = 8
"""A segment below this fraction of the largest size is worth merging even if it is all live."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment; ``end_llsn`` is its effective end, behind which newer segments rule.

    ``bytes`` and ``live_bytes`` count keys and values; both entry counts are of entries that
    are physically in it.
    """

    number: int
    first_llsn: int
    end_llsn: int
    entries: int
    bytes: int
    live_entries: int
    live_bytes: int

    @property
    def has_dead(self) -> bool:
        """Whether anything would go if it were rewritten."""
        return self.live_entries < self.entries

    @property
    def mostly_dead(self) -> bool:
        """Whether more than half of it would go, by entries or by bytes."""
        return 2 * self.live_entries < self.entries or 2 * self.live_bytes < self.bytes


@dataclass(frozen=True, slots=True)
class Group:
    """Segments that become one, named by the lowest number."""

    numbers: tuple[int, ...]


class Trigger(Enum):
    """Why a major compaction runs."""

    MANUAL = "it was asked for"
    MINORS = "enough minor compactions went before it"
    DEAD_RATIO = "enough of the bytes are dead"
    IDLE = "nothing else happens, and something is dead"


@dataclass(frozen=True, slots=True)
class Strategy:
    """When a major compaction runs by itself; None switches a trigger off, all None = manual."""

    minors: int | None = None
    dead_ratio: float | None = 0.5
    dead_bytes_min: int = limits.SEGMENT_BYTES_MAX
    idle_ticks: int | None = None

    def __post_init__(self) -> None:
        if self.minors is not None and self.minors < 1:
            raise BadOption(f"minors is {self.minors}, but must be at least 1")
        if self.dead_ratio is not None and not 0 < self.dead_ratio <= 1:
            raise BadOption(f"dead_ratio is {self.dead_ratio}, but must lie in (0, 1]")
        if self.dead_bytes_min < 0:
            raise BadOption(f"dead_bytes_min is {self.dead_bytes_min}, but must not be negative")
        if self.idle_ticks is not None and self.idle_ticks < 1:
            raise BadOption(f"idle_ticks is {self.idle_ticks}, but must be at least 1")


@dataclass(frozen=True, slots=True)
class CompactionFacts:
    """What the triggers look at, all of the part of the log below the snapshot index.

    ``minors`` counts since the last major; ``idle_ticks`` since the last append, snapshot or
    major, so that a major that found nothing to do is not repeated at once.
    """

    bytes: int
    live_bytes: int
    minors: int = 0
    idle_ticks: int = 0
    asked: bool = False


@dataclass(frozen=True, slots=True)
class RewriteCandidate:
    """A live PUT at or below the GC boundary, and the bytes that copying it takes."""

    llsn: Llsn
    bytes: int


@dataclass(frozen=True, slots=True)
class RewriteBudget:
    """When live entries are moved to the head of the log, and how many at most in one go."""

    ranges_max: int = 1 << 16
    entries_max: int = 4096
    bytes_max: int = limits.BATCH_BODY_BYTES_MAX

    def __post_init__(self) -> None:
        largest = limits.VALUE_BYTES_MAX + limits.KEY_BYTES_MAX
        if self.ranges_max < 1 or self.entries_max < 1:
            raise BadOption("a rewrite needs room for one range and one entry at least")
        if self.bytes_max < largest:
            raise BadOption(f"a rewrite must have room for the largest entry, {largest} bytes")


def plan_minor(segments: Sequence[SegmentFacts], snapshot_index: int) -> list[int]:
    """Choose the segments that can be deleted as they are, oldest first."""
    _check_segments(segments)
    return [
        segment.number
        for segment in segments[:-1]
        if segment.live_entries == 0 and _is_settled(segment, snapshot_index)
    ]


def plan_major(
    segments: Sequence[SegmentFacts],
    snapshot_index: int,
    *,
    full: bool = False,
    bytes_max: int = limits.SEGMENT_BYTES_MAX,
) -> list[Group]:
    """Choose the groups of segments to rewrite; ``full`` takes any that has a dead entry.

    Segments without a live entry are left to ``plan_minor`` and are not in the way.
    """
    _check_segments(segments)
    groups: list[list[SegmentFacts]] = [[]]
    live_bytes = 0
    for segment in segments[:-1]:
        settled = _is_settled(segment, snapshot_index)
        if settled and segment.live_entries == 0:
            continue
        fits_alone = segment.live_bytes <= bytes_max
        if not settled or not fits_alone or not _qualifies(segment, full, bytes_max):
            groups.append([])
            live_bytes = 0
            continue
        is_full = len(groups[-1]) == limits.COMPACTION_GROUP_MAX
        if is_full or live_bytes + segment.live_bytes > bytes_max:
            groups.append([])
            live_bytes = 0
        groups[-1].append(segment)
        live_bytes += segment.live_bytes
    return [
        Group(tuple(segment.number for segment in group))
        for group in groups
        if _is_worth_it(group, full)
    ]


def should_run(strategy: Strategy, facts: CompactionFacts) -> Trigger | None:
    """Tell whether a major compaction is due, and why; ask after each minor and each tick."""
    check(0 <= facts.live_bytes <= facts.bytes, "C1: more bytes are live than there are")
    dead_bytes = facts.bytes - facts.live_bytes
    if facts.asked:
        return Trigger.MANUAL
    if strategy.minors is not None and facts.minors >= strategy.minors:
        return Trigger.MINORS
    if (
        strategy.dead_ratio is not None
        and 0 < dead_bytes >= strategy.dead_bytes_min
        and dead_bytes >= strategy.dead_ratio * facts.bytes
    ):
        return Trigger.DEAD_RATIO
    if (
        strategy.idle_ticks is not None
        and dead_bytes > 0
        and facts.idle_ticks >= strategy.idle_ticks
    ):
        return Trigger.IDLE
    return None


def plan_rewrite(
    candidates: Iterable[RewriteCandidate], live_ranges: int, budget: RewriteBudget
) -> list[Llsn]:
    """Choose the oldest live entries to copy to the head, so that live ranges become fewer.

    ``candidates`` come oldest first and are consumed no further than needed.  They must be
    PUTs with versions at or below the GC boundary: nothing of an equal version can come
    between such an entry and its copy, while above the boundary a copy would overtake a
    delete of the same version.
    """
    if live_ranges <= budget.ranges_max:
        return []
    chosen: list[Llsn] = []
    total = 0
    for candidate in candidates:
        total += candidate.bytes
        if len(chosen) == budget.entries_max or total > budget.bytes_max:
            break
        check(not chosen or chosen[-1] < candidate.llsn, "C3: candidates are not oldest first")
        chosen.append(candidate.llsn)
    return chosen


def _is_settled(segment: SegmentFacts, snapshot_index: int) -> bool:
    return segment.end_llsn <= snapshot_index + 1


def _qualifies(segment: SegmentFacts, full: bool, bytes_max: int) -> bool:
    is_small = segment.bytes * SMALL_PARTS < bytes_max
    return is_small or segment.mostly_dead or (full and segment.has_dead)


def _is_worth_it(group: Sequence[SegmentFacts], full: bool) -> bool:
    """Refuse a group of one that would only be copied (C5)."""
    if len(group) == 1:
        return group[0].has_dead and (full or group[0].mostly_dead)
    return len(group) > 1


def _check_segments(segments: Sequence[SegmentFacts]) -> None:
    for segment in segments:
        check(
            0 <= segment.live_entries <= segment.entries
            and 0 <= segment.live_bytes <= segment.bytes,
            f"C1: segment {segment.number} has more live than it holds",
        )
    for older, newer in pairwise(segments):
        check(older.number < newer.number, "C3: segments are not oldest first")
