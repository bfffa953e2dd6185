"""Sealing needs each part of the leader's word: without one the test that guards it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.mutation.left_out import Change, replaced
from tests.runtime.admin import test_sealing as guards
from tidelog.core.order.state import StreamOrder
from tidelog.interface.cluster_figures import ReplicaFacts
from tidelog.runtime.admin import agent, sealing

CAUGHT: Final = (AssertionError, pytest.fail.Exception)


def instead(function: Callable[..., bool]) -> Callable[[Any], Callable[..., bool]]:
    return lambda _: function


def leads_by_any_row(replica: ReplicaFacts, order: StreamOrder) -> bool:
    return (replica.stream, replica.term, replica.role) == (order.stream, order.term, "leader")


def leads_in_any_term(replica: ReplicaFacts, order: StreamOrder) -> bool:
    return replica.stream == order.stream and replica.role == "leader"


MUTANTS: Final[dict[str, tuple[Change, Callable[[], None]]]] = {
    "a leader that still takes appends": (
        replaced(sealing, "_is_spent", instead(lambda one: one.end_llsn == one.ordered_end_llsn)),
        lambda: guards.test_no_stream_is_sealed_whose_leader(guards.has_not_heard),
    ),
    "entries that wait for their order": (
        replaced(sealing, "_is_spent", instead(lambda one: one.is_sealed)),
        lambda: guards.test_no_stream_is_sealed_whose_leader(guards.has_not_ordered_all),
    ),
    "the word of a leader that is none any more": (
        replaced(sealing, "_leads", instead(leads_in_any_term)),
        lambda: guards.test_no_stream_is_sealed_whose_leader(guards.tells_of_an_older_term),
    ),
    "that a leader may speak of an older seal": (
        replaced(sealing, "_leads", instead(leads_by_any_row)),
        guards.test_no_stream_is_sealed_by_the_word_of_an_older_seal,
    ),
    "that a leader may not have heard of the seal that is taken back": (
        replaced(sealing, "_leads", instead(leads_by_any_row)),
        guards.test_who_unseals_is_not_told_so_by_the_word_of_an_older_row,
    ),
    "a leader that has not heard that the stream is unsealed": (
        replaced(sealing, "_takes_appends", instead(lambda _: True)),
        guards.test_who_unseals_is_told_when_the_leader_takes_appends,
    ),
}


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "FACTS_SECONDS", 0.05)
    monkeypatch.setattr(sealing, "LOOK_SECONDS", 0.001)


@pytest.mark.parametrize("overlooked", MUTANTS)
def test_sealing_that_overlooks(overlooked: str) -> None:
    change, guard = MUTANTS[overlooked]
    guard()
    with change(), pytest.raises(CAUGHT):
        guard()
