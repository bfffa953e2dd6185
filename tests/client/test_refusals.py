"""Refusals become the errors that they stand for; pauses between attempts grow and vary."""

from __future__ import annotations

import pytest

from tidelog import errors
from tidelog.client.refusals import error_of
from tidelog.client.retries import Reconnect
from tidelog.errors import LogError, ReplicaRefused, Trimmed
from tidelog.formats.messages import Refused
from tidelog.server.refusals import refused

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type)
    and issubclass(value, LogError)
    and value not in (LogError, ReplicaRefused)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_it_was_sent(kind: type[LogError]) -> None:
    if kind is Trimmed:
        sent: LogError = Trimmed("gone", first_available=7)
    else:
        sent = kind("what happened")
    arrived = error_of(refused(sent))
    assert type(arrived) is kind
    assert str(arrived) == str(sent)
    if isinstance(arrived, Trimmed):
        assert arrived.first_available == 7


@pytest.mark.parametrize(
    "name", ["LogError", "ErrorOfALaterRelease", "ReplicaRefused", "Exception", "annotations"]
)
def test_what_has_no_name_here_may_have_had_an_effect(name: str) -> None:
    error = error_of(Refused(name, "what happened"))
    assert isinstance(error, LogError)
    assert not error.definite
    assert "what happened" in str(error)


def test_pauses_grow_up_to_a_bound_and_differ_between_clients() -> None:
    calm = Reconnect(pause_first=1.0, pause_max=10.0, chance=lambda: 1.0)
    assert [calm.pause(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert calm.pause(10_000) == 10
    hasty = Reconnect(pause_first=1.0, pause_max=10.0, chance=lambda: 0.0)
    assert [hasty.pause(failures) for failures in range(1, 4)] == [0.5, 1, 2]
