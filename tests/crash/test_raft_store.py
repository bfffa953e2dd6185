"""A Raft node that stops at any call to its disk finds all that it had synced, and no more than
it had written; the same when it stops again while it starts, or soon after.

Bounds of the second stop: the first is tried behind every call, as a kill and as a power loss with
up to ``FIRST_OUTCOMES_MAX`` mixtures of what was not synced; the second at every call, with
``SECOND_OUTCOMES_MAX`` mixtures in full (where there are more, those of ``crash_outcomes``).
"""

from __future__ import annotations

import pytest

from tests.crash.nested import first_stops
from tests.crash.raft_scenarios import (
    OUTCOMES_MAX,
    SCENARIOS,
    Scenario,
    check_recovery,
    check_start,
    second_run,
)
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import SimVfs

FIRST_OUTCOMES_MAX = 6
SECOND_OUTCOMES_MAX = 8
POINTS = range(1, 1000)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_loses_no_synced_write_and_keeps_no_half_write(scenario: Scenario) -> None:
    disk, begin = scenario.prepared()
    report = enumerate_crashes(
        scenario.run, check_recovery(begin), disk=disk, outcomes_max=OUTCOMES_MAX
    )
    assert report.points > 5
    assert report.outcomes > report.points


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_second_stop_loses_nothing_that_a_start_has_shown(scenario: Scenario) -> None:
    disk, begin = scenario.prepared()

    def check(vfs: SimVfs, journal: Journal) -> None:
        check_start(vfs, journal, begin)

    stops = 0
    for point, how, left, journal in first_stops(disk, scenario.run, POINTS, FIRST_OUTCOMES_MAX):
        stops += 1
        try:
            enumerate_crashes(
                second_run(journal, begin), check, disk=left, outcomes_max=SECOND_OUTCOMES_MAX
            )
        except AssertionError as error:
            raise AssertionError(f"{how} behind call {point}, then {error}") from error
    assert stops > 5
