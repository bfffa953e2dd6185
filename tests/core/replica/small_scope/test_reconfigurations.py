"""Each kind of reconfiguration, with each fault at each of its messages, then an election."""

from __future__ import annotations

import pytest

from tests.core.replica.small_scope.reconfigurations import tell
from tests.core.replica.small_scope.trouble import Fault, Trouble
from tidelog.core.replica.messages import ChangeKind

MESSAGES_MIN = {ChangeKind.SWAP: 12, ChangeKind.EXPAND: 12, ChangeKind.CONTRACT: 7}
"""A reconfiguration has at least so many messages; without trouble that is all."""


@pytest.mark.parametrize("kind", ChangeKind)
def test_a_reconfiguration_without_trouble_is_done(kind: ChangeKind) -> None:
    group = tell(kind, Trouble())
    assert group.is_done(1)
    assert group.count >= MESSAGES_MIN[kind]
    size = {ChangeKind.SWAP: 3, ChangeKind.EXPAND: 4, ChangeKind.CONTRACT: 3}[kind]
    assert len(group.row.ensemble) == size


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE])
@pytest.mark.parametrize("kind", ChangeKind)
def test_a_reconfiguration_with_one_message_in_trouble_loses_nothing(
    kind: ChangeKind, fault: Fault
) -> None:
    for number in range(MESSAGES_MIN[kind]):
        group = tell(kind, Trouble(fault, number))
        assert group.count > number, "the message was sent"
