"""The operations whose every crash point is tried, each with the state that it begins from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.crash import steps
from tests.crash.checks import check_first_start, check_recovery
from tests.crash.repeatable import CHANCE
from tests.crash.scribe import Scribe, open_log
from tests.crash.steps import Steps
from tidelog.testing.crash import Check, Journal
from tidelog.testing.disk import SimDisk, SimVfs

OUTCOMES_MAX: Final = 64
"""Mixtures of lost, kept and torn effects that are tried in full at one crash point.  Where there
are more, those that ``crash_outcomes`` names are tried: a number linear in the effects."""
POINTS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    operate: Steps
    prepare: Steps | None = None
    streams: int = 1
    versions: str = "log"
    parts: int = 1
    """Into how many tests it is split, so that they can run side by side."""
    two_stops_every: int = 1
    """The first of two stops is tried at every call, or at every second one, ..."""

    def points(self, part: int, every: int = 1) -> range:
        """The crash points of one part of the scenario."""
        return range(1 + part * every, POINTS_MAX, self.parts * every)

    def prepared(self) -> tuple[SimDisk, Journal]:
        """A closed log to begin from, and what is in it."""
        disk, journal = SimDisk(), Journal()
        if self.prepare is not None:
            CHANCE.begin("prepare")
            log = open_log(disk.vfs(), streams=self.streams, versions=self.versions)
            self.prepare(Scribe(log, journal))
            log.close()
        return disk, journal

    def run(self, vfs: SimVfs, journal: Journal) -> None:
        CHANCE.begin("run")
        log = open_log(vfs, streams=self.streams, versions=self.versions)
        self.operate(Scribe(log, journal))

    def check(self, base: Journal) -> Check:
        """All that ``checks`` has."""

        def check(vfs: SimVfs, journal: Journal) -> None:
            check_recovery(vfs, base, journal, streams=self.streams, versions=self.versions)

        return check

    def quick_check(self, base: Journal) -> Check:
        """Only what the next start shows."""

        def check(vfs: SimVfs, journal: Journal) -> None:
            check_first_start(vfs, base, journal, streams=self.streams, versions=self.versions)

        return check


SCENARIOS: Final = (
    Scenario("creating a log", steps.append_two),
    Scenario("creating a topic", lambda s: s.create_topic("more", 2), steps.append_some),
    Scenario("adding streams", lambda s: s.add_streams(2), steps.append_some),
    Scenario("single appends", steps.append_two, steps.append_some),
    Scenario("appending more than a file", steps.append_more_than_a_file, steps.append_some),
    Scenario("appends of a producer", steps.append_by_producer, steps.append_some, streams=2),
    Scenario("group commits", steps.commit_groups, steps.append_some, streams=2),
    Scenario("rolling the WAL without a spare", steps.roll, steps.append_some),
    Scenario("rolling the WAL with a spare", steps.roll, steps.with_spare, parts=2),
    Scenario("rolling inside an append", steps.append_fill, steps.append_fill),
    Scenario(
        "flushing two streams",
        steps.fill_two_streams,
        steps.fill_two_streams,
        streams=2,
        parts=2,
        two_stops_every=2,
    ),
    Scenario("flushing without a snapshot", Scribe.flush, steps.three_segments),
    Scenario("flushing a delete", steps.delete_then_flush, steps.three_segments),
    Scenario("the first snapshot", Scribe.snapshot, steps.three_segments),
    Scenario("a following snapshot", steps.snapshot_once_more, steps.snapshot_dead_segments),
    Scenario("minor compaction", steps.delete_two_segments, steps.dead_segments),
    Scenario("major compaction of one segment", steps.compact(1), steps.one_mostly_dead),
    Scenario("major compaction of two segments", steps.compact(2), steps.half_dead(2)),
    Scenario("major compaction of three segments", steps.compact(3), steps.half_dead(3)),
    Scenario(
        "major compaction around a dead segment",
        steps.compact_around_a_dead_one,
        steps.around_a_dead_one,
        two_stops_every=4,
    ),
    Scenario(
        "snapshot and compaction",
        steps.compact_and_append,
        steps.three_segments,
        parts=2,
        two_stops_every=3,
    ),
    Scenario(
        "compaction of deletes",
        steps.drop_deletes,
        steps.deleted_keys,
        parts=2,
        two_stops_every=6,
    ),
    Scenario(
        "compaction after a delete",
        steps.compact_and_append,
        steps.snapshot_of_deletes,
        parts=2,
        two_stops_every=4,
    ),
    Scenario("two snapshots over deletes", steps.snapshot_twice, steps.deleted_segment, parts=2),
    Scenario(
        "compaction under a reader",
        steps.compact_under_a_reader,
        steps.deleted_segment,
        parts=2,
        two_stops_every=6,
    ),
    Scenario(
        "a new GC boundary",
        steps.raise_boundary,
        steps.explicit_versions,
        versions="explicit",
        two_stops_every=4,
    ),
    Scenario(
        "a GC boundary over deletes",
        steps.raise_boundary_over_deletes,
        steps.explicit_versions,
        versions="explicit",
        parts=2,
        two_stops_every=6,
    ),
    Scenario("trimming", steps.trim, steps.three_segments),
    Scenario("trimming everything", steps.trim_everything, steps.three_segments, parts=2),
    Scenario("flushing what was trimmed", steps.trim_and_flush, steps.three_segments, parts=2),
    Scenario(
        "rewriting the oldest", steps.rewrite, steps.three_segments, parts=2, two_stops_every=6
    ),
    Scenario("closing", steps.close, steps.append_some),
)
"""``two_stops_every`` is above 1 where an operation is put together from others in this list."""


def scenario(name: str) -> Scenario:
    (found,) = [scenario for scenario in SCENARIOS if scenario.name == name]
    return found
