"""What is told of a change that several metadata nodes were asked for (C2, K1, K2)."""

from __future__ import annotations

import asyncio

import pytest

from tests.net.pairs import run
from tidelog.errors import DeadlineExceeded, LogClosed, RevisionConflict
from tidelog.formats.cluster_messages import ChangeAnswer
from tidelog.runtime.metadata_ask import Ask
from tidelog.types import NodeId

A, B = NodeId(1), NodeId(2)


def made(attempt: int = 1) -> ChangeAnswer:
    return ChangeAnswer(7, attempt)


def refused(attempt: int = 1, error: str = "RevisionConflict") -> ChangeAnswer:
    return ChangeAnswer(7, attempt, error, "why")


def asked(*nodes: NodeId) -> Ask:
    ask = Ask()
    for node in nodes:
        ask.attempt(node)
    return ask


def test_one_that_made_it_is_enough_whatever_the_others_say() -> None:
    ask = asked(A, B)
    ask.answered(B, refused(2))
    assert not ask.is_over(), "the other one may have made it, and that be why"
    ask.answered(A, made())
    assert ask.is_over()
    ask.outcome()


def test_a_refusal_counts_once_all_that_were_asked_refused() -> None:
    ask = asked(A, B)
    ask.answered(A, refused())
    ask.answered(B, refused(2))
    with pytest.raises(RevisionConflict):
        ask.outcome()


def test_a_refusal_beside_an_unknown_outcome_is_unknown() -> None:
    ask = asked(A, B)
    ask.answered(A, refused(error="DeadlineExceeded"))
    ask.answered(B, refused(2))
    with pytest.raises(DeadlineExceeded):
        ask.outcome()


def test_a_refusal_of_a_node_that_did_not_see_the_first_time_is_unknown() -> None:
    ask = asked(A, A)
    ask.answered(A, refused(attempt=2))
    with pytest.raises(DeadlineExceeded, match="may have been made before"):
        ask.outcome()


def test_a_node_that_has_no_time_has_not_answered() -> None:
    ask = asked(A)
    ask.answered(A, refused(error="Busy"))
    assert ask.is_busy
    assert not ask.is_over()
    assert not ask.has_answered(A)
    ask.answered(A, made())
    ask.outcome()


def test_an_answer_of_a_node_that_was_not_asked_is_left() -> None:
    ask = asked(A)
    ask.answered(B, made())
    assert not ask.is_over()


def test_one_that_stays_silent_beside_a_refusal_leaves_the_outcome_unknown() -> None:
    async def main() -> None:
        ask = asked(A, B)
        ask.answered(A, refused())
        await ask.wait_for_silent(0.01)
        with pytest.raises(DeadlineExceeded, match="silent"):
            ask.outcome()
        late = asked(A, B)
        late.answered(A, refused())
        waiting = asyncio.ensure_future(late.wait_for_silent(20))
        await asyncio.sleep(0)
        late.answered(B, made(2))
        await waiting
        late.outcome()

    run(main())


def test_when_the_process_stops_who_waits_is_told() -> None:
    async def main() -> None:
        ask = asked(A)
        waiting = asyncio.ensure_future(ask.wait(20))
        await asyncio.sleep(0)
        ask.fail(LogClosed("stopping"))
        await waiting
        with pytest.raises(LogClosed):
            ask.outcome()

    run(main())
