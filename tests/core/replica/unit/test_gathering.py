"""Behind enough messages on their way, a leader gathers what comes for a follower (C4)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.replica.unit.alone import ME, STREAM, Alone
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    FollowerHead,
    Message,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import Llsn, NodeId, Term

FOLLOWER = NodeId(2)
OPTIONS = ReplicaOptions(inflight_messages=2, gather_bytes=1_000, resend_ticks=3)


def leader() -> Alone:
    """Of one follower that answers only what it is told to answer."""
    alone = Alone(OPTIONS)
    alone.lead(1, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, NO_ENTRY, True),))
    return alone


def sizes(messages: Sequence[Message]) -> list[int]:
    """How many batches each message has that brings any."""
    sent = [one for one in messages if isinstance(one, AddEntriesRequest)]
    return [len(one.batches) for one in sent if one.batches]


def append(alone: Alone, data: bytes = b"x") -> list[int]:
    alone.sent.clear()
    alone.append(data)
    return sizes(alone.sent)


def answer(alone: Alone, confirmed: int) -> list[int]:
    return sizes(alone.step(AddEntriesResponse(FOLLOWER, ME, STREAM, Term(1), Llsn(confirmed))))


def test_what_comes_behind_enough_messages_leaves_with_the_next_answer() -> None:
    alone = leader()
    assert [append(alone) for _ in range(5)] == [[1], [1], [], [], []]
    assert answer(alone, 1) == [3], "together"


def test_an_answer_that_is_no_news_lets_nothing_leave() -> None:
    alone = leader()
    assert [append(alone) for _ in range(3)] == [[1], [1], []]
    assert answer(alone, 0) == []


def test_much_does_not_wait() -> None:
    alone = leader()
    assert [append(alone) for _ in range(3)] == [[1], [1], []]
    assert append(alone, b"y" * 1_000) == [2]


def test_what_waits_leaves_again_when_no_answer_comes() -> None:
    alone = leader()
    assert [append(alone) for _ in range(3)] == [[1], [1], []]
    assert sizes(alone.tick(OPTIONS.resend_ticks)) == [3], "all that is not confirmed"
