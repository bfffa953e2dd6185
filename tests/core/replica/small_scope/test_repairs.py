"""Each repair of a follower, with each fault at each of its messages, then an election."""

from __future__ import annotations

import pytest

from tests.core.replica.small_scope.repairs import Repair, tell
from tests.core.replica.small_scope.trouble import Fault, Trouble

MESSAGES_MIN = {
    Repair.LOST_LOG: 4,
    Repair.TRIMMED: 6,
    Repair.FOREIGN: 6,
    Repair.BEHIND: 2,
}
"""A repair has at least so many messages; without trouble that is all."""


@pytest.mark.parametrize("repair", Repair)
def test_a_repair_without_trouble_keeps_what_is_acknowledged_after_it(repair: Repair) -> None:
    group = tell(repair, Trouble(), restarts=False)
    assert group.count >= MESSAGES_MIN[repair]


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
@pytest.mark.parametrize("repair", Repair)
def test_a_repair_with_one_message_in_trouble_keeps_what_is_acknowledged_after_it(
    repair: Repair, fault: Fault
) -> None:
    for number in range(MESSAGES_MIN[repair]):
        group = tell(repair, Trouble(fault, number), restarts=number % 2 == 0)
        assert group.count > number, "the message was sent"


@pytest.mark.parametrize("repair", Repair)
def test_a_message_of_a_repair_that_comes_again_after_a_restart_does_no_harm(
    repair: Repair,
) -> None:
    for number in range(MESSAGES_MIN[repair]):
        tell(repair, Trouble(Fault.TWICE_VERY_LATE, number), restarts=True)
