"""The queue before a connection that is not there yet (O1 to O3)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.net.pairs import run, until
from tidelog.errors import Unauthorized, Unreachable
from tidelog.net.connection import FrameConnection, FrameHandler
from tidelog.runtime import post_outgoing
from tidelog.runtime.post_counters import PostCounters
from tidelog.runtime.post_outgoing import Outgoing
from tidelog.types import NodeId


async def nobody(_: FrameHandler) -> FrameConnection:
    raise Unreachable("nobody is there")


def test_what_waits_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_outgoing, "POST_QUEUE_BYTES_MAX", 1_000)
    monkeypatch.setattr(post_outgoing, "POST_QUEUE_MESSAGES_MAX", 5)

    async def main() -> None:
        counters = PostCounters()
        never: asyncio.Future[FrameConnection] = asyncio.get_running_loop().create_future()

        async def slow(_: FrameHandler) -> FrameConnection:
            return await never

        outgoing = Outgoing(NodeId(2), slow, counters)
        for number in range(8):
            outgoing.send(bytes([number]))
        assert counters.dropped == 3
        outgoing.send(bytes(990))
        assert counters.dropped == 4
        outgoing.send(bytes(15))
        assert counters.dropped == 9, "only the newest fits"
        assert outgoing.queued_bytes == 15
        await outgoing.stop()

    run(main())


def test_the_pauses_grow_to_a_bound_and_refusals_are_met_with_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(post_outgoing, "PAUSE_MAX", 0.1)
    monkeypatch.setattr(post_outgoing, "PAUSE_REFUSED", 0.3)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tried: list[float] = []

        async def connect(handler: FrameHandler) -> FrameConnection:
            tried.append(loop.time())
            if len(tried) < 7:
                return await nobody(handler)
            raise Unauthorized("no")

        counters = PostCounters()
        outgoing = Outgoing(NodeId(2), connect, counters)
        while len(tried) < 8:
            outgoing.send(b"x")
            await asyncio.sleep(0.001)
        pauses = [after - before for before, after in pairwise(tried)]
        assert post_outgoing.PAUSE_FIRST <= 0.05, "the first attempt comes soon"
        expected = (0.025, 0.05, 0.1, 0.1, 0.1, 0.1, 0.3)
        for pause, at_least in zip(pauses, expected, strict=True):
            assert pause > 0.9 * at_least
        assert counters.dropped > 0
        await outgoing.stop()

    run(main())


def test_a_nudge_ends_the_pause() -> None:
    async def main() -> None:
        tried: list[int] = []

        async def connect(handler: FrameHandler) -> FrameConnection:
            tried.append(1)
            raise Unauthorized("no")

        outgoing = Outgoing(NodeId(2), connect, PostCounters())
        outgoing.send(b"x")
        await until(lambda: len(tried) == 1, "the first attempt")
        outgoing.send(b"x")
        outgoing.nudge()
        since = asyncio.get_running_loop().time()
        await until(lambda: len(tried) == 2, "the second one")
        assert asyncio.get_running_loop().time() - since < post_outgoing.PAUSE_REFUSED / 2
        await outgoing.stop()

    run(main())
