"""Every operation survives a crash at every call that it makes to the disk.

Each call is crashed after it returned and while it ran; of what was not synced then, every mixture
of lost, kept and torn effects is tried up to ``OUTCOMES_MAX`` mixtures, and beyond that those that
``crash_outcomes`` names.
"""

from __future__ import annotations

import pytest

from tests.crash.scenarios import OUTCOMES_MAX, SCENARIOS, Scenario
from tidelog.testing.crash import enumerate_crashes

SAMPLED_EVERY = 2
"""Of long operations every second call is crashed, but in a soak each."""
PARTS = [
    pytest.param(scenario, part, id=f"{scenario.name} {part + 1}/{scenario.parts}")
    for scenario in SCENARIOS
    for part in range(scenario.parts)
]


@pytest.mark.soak
@pytest.mark.parametrize(("scenario", "part"), PARTS)
def test_a_crash_at_any_call_loses_nothing_acknowledged(scenario: Scenario, part: int) -> None:
    disk, base = scenario.prepared()
    report = enumerate_crashes(
        scenario.run,
        scenario.check(base),
        disk=disk,
        outcomes_max=OUTCOMES_MAX,
        points=scenario.points(part),
    )
    assert report.points > 1


@pytest.mark.parametrize(("scenario", "part"), PARTS)
def test_a_crash_loses_nothing_acknowledged(scenario: Scenario, part: int) -> None:
    disk, base = scenario.prepared()
    report = enumerate_crashes(
        scenario.run,
        scenario.check(base),
        disk=disk,
        outcomes_max=OUTCOMES_MAX,
        points=scenario.points(part, SAMPLED_EVERY if scenario.parts > 1 else 1),
    )
    assert report.points > 1
    assert report.outcomes > 1
