"""What is told of an append of which some parts failed."""

from __future__ import annotations

import pytest

from tidelog.errors import (
    Busy,
    DeadlineExceeded,
    LeaderLost,
    LogError,
    NotLeader,
    PartlyAppended,
    Sealed,
    StaleWrite,
    StorageFailed,
)
from tidelog.interface.records import Ack, Receipt
from tidelog.runtime.gateway.append_shares import joint_error

TAKEN = Receipt("events", 1, 1, 1, 1, Ack.ORDERED, False)
SEALED = Sealed("stream 2 is sealed")
STALE = StaleWrite("too old")
FULL = Busy("full")
NOBODY = NotLeader("nobody leads")
LOST = LeaderLost("deposed")
FAILED = StorageFailed("the disk failed")
LATE = DeadlineExceeded("too late")


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([FULL], LeaderLost),
        ([LOST, NOBODY], LeaderLost),
        ([SEALED], PartlyAppended),
        ([FULL, SEALED], PartlyAppended),
        ([SEALED, LOST], PartlyAppended),
        ([FAILED], StorageFailed),
        ([FULL, LATE], DeadlineExceeded),
    ],
)
def test_half_an_append_is_never_definite_and_names_what_is_there(
    errors: list[LogError], told: type[LogError]
) -> None:
    found = joint_error(errors, [TAKEN])
    assert type(found) is told
    assert not found.definite
    assert "log streams [1] have their parts" in str(found)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([SEALED, LOST], PartlyAppended),
        ([LOST, SEALED], PartlyAppended),
        ([SEALED, FAILED], PartlyAppended),
        ([NOBODY, LOST], LeaderLost),
        ([FULL, FAILED], StorageFailed),
    ],
)
def test_what_may_be_there_in_part_is_never_definite(
    errors: list[LogError], told: type[LogError]
) -> None:
    found = joint_error(errors, [])
    assert type(found) is told
    assert not found.definite
    assert "some parts may be in the log" in str(found)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ([SEALED], SEALED),
        ([LOST], LOST),
        ([FULL, NOBODY], FULL),
        ([FULL, SEALED, STALE], SEALED),
    ],
)
def test_what_is_certain_of_all_parts_is_told_as_it_is(
    errors: list[LogError], told: LogError
) -> None:
    assert joint_error(errors, []) is told
