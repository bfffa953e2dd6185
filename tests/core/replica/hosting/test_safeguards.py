"""Each safeguard of the hosting is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.replica.hosting import test_cuts, test_ends, test_placements
from tidelog.core.replica import hosting
from tidelog.core.replica.hosting import Hosting
from tidelog.invariants import InvariantViolation


@pytest.mark.parametrize(
    ("owner", "name", "without", "test"),
    [
        (
            Hosting,
            "_knows_placements",
            lambda *_: True,
            test_placements.test_silence_about_a_stream_counts_only_under_known_placements,
        ),
        (
            Hosting,
            "_misses_before",
            lambda *_: False,
            test_cuts.test_a_result_that_takes_a_replica_to_know_more_than_it_does_is_refused,
        ),
        (
            Hosting,
            "_knows_more",
            lambda *_: False,
            test_cuts.test_a_replica_that_is_told_to_ask_others_but_knows_more_by_now_does_not,
        ),
        (
            Hosting,
            "_go_back",
            lambda *_: None,
            test_cuts.test_a_replica_that_was_filled_up_by_its_leader_goes_on_from_there,
        ),
        (
            hosting,
            "can_listen",
            lambda _: True,
            test_cuts.test_an_incomplete_replica_is_told_nothing_and_holds_nobody_back,
        ),
        (
            Hosting,
            "_note_ends",
            lambda *_: None,
            test_cuts.test_a_replica_that_was_filled_up_to_the_newest_cut_costs_no_round_trip,
        ),
        (
            Hosting,
            "_raise_end",
            lambda *_: None,
            test_ends.test_what_a_replica_learnt_from_its_leader_moves_its_end,
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_safeguard_is_missed(
    owner: object,
    name: str,
    without: object,
    test: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test()
    monkeypatch.setattr(owner, name, without)
    with pytest.raises((AssertionError, InvariantViolation)):
        test()
