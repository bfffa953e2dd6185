"""Safeguards of the client are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.client import (
    test_cluster_errors,
    test_cluster_reading,
    test_lanes,
    test_lanes_together,
    test_pool,
    test_reading_in_turns,
    test_routes,
    test_several_streams,
)
from tests.mutation.left_out import replaced
from tests.mutation.mutant import Mutant, constant, instead
from tidelog.client import joined, pages, routes
from tidelog.client.channel import Channel
from tidelog.client.lanes import Lane
from tidelog.client.pages import PageReader
from tidelog.client.rounds import Rounds
from tidelog.client.routes import Routes
from tidelog.client.run import Run
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation

CAUGHT: Final = (
    AssertionError,
    InvariantViolation,
    LogError,
    TimeoutError,
    KeyError,
    pytest.fail.Exception,
)
"""How a test fails; the last one is for what was to be raised and was not."""


def always_certain(put_off: Callable[..., None]) -> Callable[..., None]:
    return lambda lane, sequence, **_: put_off(lane, sequence, is_certain=True)


def by_count(_: Any) -> Callable[[Lane], bool]:
    return lambda lane: len(lane._under_way) < lane._window


async def _same(*_: Any) -> None:
    """Does nothing."""


class _Uncounted:
    """What counts nothing, whatever is added to it."""

    def __get__(self, *_: object) -> int:
        return 0

    def __set__(self, *_: object) -> None:
        """Forget it."""


async def _leave_patiently(channel: Channel, link: Any, error: LogError, **_: Any) -> None:
    await channel.leave(link, error)


MUTANTS: Final = (
    Mutant(
        "a client hangs up on what must not be repeated",
        instead(Channel, "_unrepeatable", _Uncounted()),
        test_cluster_errors.test_a_node_that_reaches_nobody_is_left_behind_what_must_not_be_repeated,
    ),
    Mutant(
        "a shipment names nobody",
        replaced(Lane, "_before", constant(0)),
        test_lanes.test_a_shipment_names_the_one_before_it_only_while_that_is_unanswered,
    ),
    Mutant(
        "what touches several log streams names nobody",
        replaced(Lane, "_before", constant(0)),
        test_several_streams.test_it_is_overtaken_by_nothing_if_it_is_refused_for_now,
    ),
    Mutant(
        "what touches several log streams leaves before what lies before it",
        replaced(Lane, "_has_next", constant(True)),
        test_lanes_together.test_a_whole_leaves_when_it_comes_next_in_each_of_its_streams,
    ),
    Mutant(
        "in one of its log streams it is sent again before what lies before it",
        replaced(Lane, "_is_clear", constant(True)),
        test_lanes_together.test_after_a_loss_all_of_it_is_sent_again_in_order,
    ),
    Mutant(
        "nobody wakes the lane that sends",
        replaced(Lane, "_wake_next", constant(None)),
        test_lanes_together.test_a_lane_is_woken_when_what_it_waits_for_is_gone,
    ),
    Mutant(
        "what was forgotten does not count for the window",
        replaced(Lane, "_has_room", by_count),
        test_lanes.test_what_was_forgotten_in_between_counts_for_the_window,
    ),
    Mutant(
        "every refusal is proof",
        replaced(Lane, "put_off", always_certain),
        lambda: test_lanes.test_what_was_only_ever_refused_certainly_had_no_effect(False, True),
    ),
    Mutant(
        "what nobody waits for fills the window",
        replaced(Lane, "_drop_unwanted", constant(None)),
        test_lanes.test_a_full_window_that_nobody_waits_for_holds_nobody_back,
    ),
    Mutant(
        "all shipments are sent to somebody who refuses",
        replaced(Run, "_is_probing", constant(False)),
        test_cluster_errors.test_nobody_leads_for_a_while,
    ),
    Mutant(
        "a node that does not lead is asked again",
        replaced(Routes, "not_led_by", constant(None)),
        test_routes.test_the_last_word_on_a_leader_counts,
    ),
    Mutant(
        "an address that was lost is tried first",
        replaced(Rounds, "lost", constant(None)),
        test_routes.test_an_address_that_works_is_kept_and_one_that_was_lost_comes_last,
    ),
    Mutant(
        "hints lead away from TLS",
        replaced(Channel, "_has_tls", lambda _: property(lambda _: False)),
        lambda: test_pool.test_a_hint_never_leads_away_from_tls_nor_to_where_it_was_not_prepared(
            True
        ),
    ),
    Mutant(
        "half a success is called none",
        replaced(joined, "_is_definite", constant(False)),
        test_routes.test_if_something_happened_nobody_is_told_that_nothing_did,
    ),
    Mutant(
        "a node that is behind is never left",
        replaced(PageReader, "_look_elsewhere", lambda _: _same),
        test_cluster_reading.test_a_node_that_is_behind_is_left,
    ),
    Mutant(
        "all turns are the same",
        replaced(routes, "_rotated", lambda _: lambda nodes, _turn: nodes),
        test_reading_in_turns.test_they_spread_over_followers_and_spare_the_leader,
    ),
    Mutant(
        "a reader waits until a node that stops is back",
        replaced(Channel, "_leave_stopping", lambda _: _leave_patiently),
        test_reading_in_turns.test_a_node_that_stops_in_order_keeps_nobody_waiting,
    ),
    Mutant(
        "a reader bears with a silent node as if there were no other",
        replaced(Channel, "_keep_alive_beside", constant(60.0)),
        test_reading_in_turns.test_a_node_that_has_gone_deaf_keeps_nobody_waiting_for_long,
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_cluster_errors, "WAIT_SECONDS", 3.0)
    monkeypatch.setattr(pages, "CLUSTER_WAIT_SECONDS", 0.03)
    monkeypatch.setattr(pages, "BEHIND_SECONDS", 0.01)
    with mutant.change(), pytest.raises(CAUGHT):
        mutant.test()
