"""A datastore that stops at any call to its disk shows exactly the epochs that were recorded.

All of an epoch whose ``record`` returned, nothing of one whose ``record`` was not begun, and all
or nothing of one that was under way.
"""

from __future__ import annotations

import pytest

from tests.datastore_store.crash_scenarios import OUTCOMES_MAX, SCENARIOS, Scenario
from tidelog.testing.crash import enumerate_crashes


def hunt(scenario: Scenario, every: int) -> None:
    disk, base = scenario.prepared()
    report = enumerate_crashes(
        scenario.run(base),
        scenario.check(base),
        disk=disk,
        outcomes_max=OUTCOMES_MAX,
        points=range(1, 1000, every),
    )
    assert report.points > 10
    assert report.outcomes > report.points


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_crash_shows_the_recorded_epochs_and_nothing_else(scenario: Scenario) -> None:
    hunt(scenario, scenario.every)


@pytest.mark.soak
@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in SCENARIOS if scenario.every > 1],
    ids=lambda scenario: scenario.name,
)
def test_a_crash_at_any_call_shows_the_recorded_epochs_and_nothing_else(scenario: Scenario) -> None:
    hunt(scenario, 1)
