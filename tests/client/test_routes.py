"""Hints of nodes, the order of addresses, and appends that are waited for together."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from tidelog.client.joined import Joined
from tidelog.client.rounds import ENDPOINTS_MAX, Rounds
from tidelog.client.routes import NODES_MAX, Routes
from tidelog.errors import DeadlineExceeded, LogError, PartlyAppended, StaleWrite
from tidelog.formats.message_fields import Placement
from tidelog.formats.messages import TopicDescription
from tidelog.interface.records import Receipt
from tidelog.net.endpoint import TcpEndpoint

A, B, C = (TcpEndpoint(name, 1) for name in "abc")


def described(*placements: Placement) -> TopicDescription:
    streams = tuple(placement.stream for placement in placements)
    return TopicDescription(1, "t", streams, len(streams), "log", 1, 0, placements)


# -- hints ----------------------------------------------------------------------------------------


def test_a_description_with_places_is_that_of_a_cluster() -> None:
    alone, several = Routes(), Routes()
    alone.learn(described())
    several.learn(described(Placement(1, "", ())))
    assert (alone.is_cluster, several.is_cluster) == (False, True)
    assert several.leader("t", 1) is None


def test_the_last_word_on_a_leader_counts() -> None:
    routes = Routes()
    routes.learn(described(Placement(1, str(A), (str(A), str(B)))))
    assert routes.leader("t", 1) == A
    routes.led_by("t", 1, str(B))
    assert routes.leader("t", 1) == B
    routes.led_by("t", 1, "")
    assert routes.leader("t", 1) == B
    routes.not_led_by("t", 1, A)
    assert routes.leader("t", 1) == B
    routes.not_led_by("t", 1, B)
    assert routes.leader("t", 1) is None


def test_a_hint_that_cannot_be_read_is_none() -> None:
    routes = Routes()
    routes.learn(described(Placement(1, "quic://a:1", ("a:1", str(B)))))
    assert routes.leader("t", 1) is None
    assert routes.holders("t", (1,)) == (B,)
    assert routes.nodes == (B,)


def test_nodes_that_have_all_of_some_log_streams_are_found() -> None:
    routes = Routes()
    routes.learn(described(Placement(1, "", (str(A), str(B))), Placement(2, "", (str(B), str(C)))))
    assert routes.holders("t", (1,)) == (A, B)
    assert routes.holders("t", (1, 2)) == (B,)
    assert routes.holders("t", (1, 3)) == ()
    assert routes.holders("t", ()) == (B,), "all log streams of the topic are meant"
    assert routes.holders("another", ()) == ()


def test_followers_come_before_leaders_and_take_turns() -> None:
    routes = Routes()
    everywhere = (str(A), str(B), str(C))
    routes.learn(described(Placement(1, str(A), everywhere), Placement(2, str(B), everywhere)))
    assert routes.holders("t", (1,)) == (B, C, A)
    assert routes.holders("t", (1,), turn=1) == (C, B, A)
    assert routes.holders("t", (1,), turn=2) == (B, C, A)
    assert routes.holders("t", (1, 2)) == (C, A, B)
    assert routes.holders("t", (), turn=1) == (C, B, A), "two lead, and share what is left"
    routes.led_by("t", 1, str(C))
    assert routes.holders("t", (1,)) == (A, B, C)


def test_no_more_nodes_are_remembered_than_anybody_needs() -> None:
    routes = Routes()
    for number in range(2 * NODES_MAX):
        routes.led_by("t", number, f"tcp://node-{number}:1")
    assert len(routes.nodes) == NODES_MAX
    assert routes.leader("t", NODES_MAX) is None


# -- the order of addresses -----------------------------------------------------------------------


def tried(rounds: Rounds, number: int) -> str:
    names = []
    for _ in range(number):
        assert isinstance(rounds.next, TcpEndpoint)
        names.append(rounds.next.host)
        rounds.failed()
    return "".join(names)


def test_all_addresses_are_tried_before_one_is_tried_again() -> None:
    rounds = Rounds((A, B, C), first=1)
    assert tried(rounds, 2) == "bc"
    assert rounds.rounds == 0
    assert tried(rounds, 4) == "abca"
    assert rounds.rounds == 2


def test_an_address_that_works_is_kept_and_one_that_was_lost_comes_last() -> None:
    rounds = Rounds((A, B, C))
    rounds.failed()
    rounds.worked()
    assert (rounds.next, rounds.rounds) == (B, 0)
    rounds.lost()
    assert tried(rounds, 3) == "cab"


def test_addresses_that_were_heard_of_come_behind_and_are_bounded() -> None:
    rounds = Rounds((A,))
    rounds.add((B, A, C, B))
    assert rounds.endpoints == (A, B, C)
    rounds.add([TcpEndpoint("n", port) for port in range(2 * ENDPOINTS_MAX)])
    assert rounds.size == ENDPOINTS_MAX


# -- several appends at once ----------------------------------------------------------------------


def joined(*outcomes: LogError | None) -> Future[tuple[Receipt, ...]]:
    """What the caller is told when these are the outcomes, the last one first."""
    waiter: Future[tuple[Receipt, ...]] = Future()
    both = Joined(waiter, len(outcomes))
    for number, error in reversed(list(enumerate(outcomes))):
        assert not waiter.done()
        if error is None:
            both.part(number).set_result((Receipt("t", number, 1, 1),))
        else:
            both.part(number).set_exception(error)
    return waiter


def test_receipts_of_several_appends_come_in_their_order() -> None:
    receipts = joined(None, None, None).result(0)
    assert [receipt.stream for receipt in receipts] == [0, 1, 2]


def test_if_nothing_happened_anywhere_that_is_told() -> None:
    with pytest.raises(StaleWrite):
        joined(StaleWrite("a"), StaleWrite("b")).result(0)


def test_if_something_happened_nobody_is_told_that_nothing_did() -> None:
    with pytest.raises(PartlyAppended, match=r"\[1\].*too old"):
        joined(StaleWrite("too old"), None).result(0)
    with pytest.raises(DeadlineExceeded):
        joined(StaleWrite("too old"), DeadlineExceeded("late"), None).result(0)


def test_a_caller_that_gave_up_is_not_told() -> None:
    waiter: Future[tuple[Receipt, ...]] = Future()
    both = Joined(waiter, 1)
    waiter.cancel()
    both.part(0).set_result(())
    assert waiter.cancelled()
