"""A storage node that stops at any call to its disk has a prefix of its writes, each whole."""

from __future__ import annotations

import pytest

from tests.storage_replica.crash_scenarios import OUTCOMES_MAX, SCENARIOS, Scenario
from tidelog.testing.crash import enumerate_crashes


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_leaves_a_prefix_of_the_writes(scenario: Scenario) -> None:
    disk, base = scenario.prepared()
    report = enumerate_crashes(
        scenario.run(base), scenario.check(base), disk=disk, outcomes_max=OUTCOMES_MAX
    )
    assert report.points >= 9
    assert report.outcomes >= 10
