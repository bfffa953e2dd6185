"""A second stop during recovery, or soon after it, loses nothing either.

Bounds: the first stop is tried behind every sixth call (in a soak behind every call, or every few
where a scenario says so), as a kill and as a power loss with up to ``FIRST_OUTCOMES_MAX`` mixtures
of what was not synced (``SAMPLED_OUTCOMES_MAX`` but in a soak); the second one at every call of
recovery and of what follows, in both variants, with ``SECOND_OUTCOMES_MAX`` mixtures in full (where
there are more, those of ``crash_outcomes``).
"""

from __future__ import annotations

import pytest

from tests.crash.nested import Nested, first_stops
from tests.crash.scenarios import SCENARIOS, Scenario, scenario
from tests.crash.steps import snapshot_once_more

FIRST_OUTCOMES_MAX = 4
SAMPLED_OUTCOMES_MAX = 1
SECOND_OUTCOMES_MAX = 4
SAMPLED_EVERY = 6

PARTS = [
    pytest.param(scenario, part, id=f"{scenario.name} {part + 1}/{scenario.parts}")
    for scenario in SCENARIOS
    for part in range(scenario.parts)
]


def check_second_stops(
    nested: Nested, points: range, outcomes_max: int = FIRST_OUTCOMES_MAX
) -> None:
    disk, _ = nested.scenario.prepared()
    stops = first_stops(disk, nested.scenario.run, points, outcomes_max)
    for point, how, left, journal in stops:
        try:
            nested.check_second_stops(left, journal)
        except AssertionError as error:
            raise AssertionError(f"{how} behind call {point}, then {error}") from error
    assert nested.checked > 1


@pytest.mark.parametrize(("scenario", "part"), PARTS)
def test_a_second_stop_loses_nothing(scenario: Scenario, part: int) -> None:
    _, base = scenario.prepared()
    nested = Nested(scenario, base, SECOND_OUTCOMES_MAX)
    points = scenario.points(part, SAMPLED_EVERY * scenario.two_stops_every)
    check_second_stops(nested, points, SAMPLED_OUTCOMES_MAX)


@pytest.mark.soak
@pytest.mark.parametrize(("scenario", "part"), PARTS)
def test_a_second_stop_behind_any_call_loses_nothing(scenario: Scenario, part: int) -> None:
    _, base = scenario.prepared()
    nested = Nested(scenario, base, SECOND_OUTCOMES_MAX)
    check_second_stops(nested, scenario.points(part, scenario.two_stops_every))


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_what_was_deleted_stays_deleted_over_two_stops(part: int) -> None:
    deletes = scenario("two snapshots over deletes")
    _, base = deletes.prepared()
    nested = Nested(deletes, base, SECOND_OUTCOMES_MAX, snapshot_once_more)
    check_second_stops(nested, deletes.points(part, 2))
