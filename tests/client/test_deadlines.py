"""A call that makes several requests has its timeout once, not once for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.client.fake_nodes import FakeCluster, HangUp
from tests.client.test_cluster_errors import with_cluster
from tests.server.raw import until
from tidelog import AsyncRemoteLog
from tidelog.client.channel import Channel
from tidelog.formats.messages import Get

SLOW_SECONDS: Final = 0.01
"""What the loop's clock notices."""
Call = Callable[[AsyncRemoteLog], Awaitable[object]]


@pytest.fixture(name="times")
def times_of_requests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each request may take."""
    times: list[float] = []
    ask = Channel.ask

    async def noted(self: Channel, *request: Any, seconds: float, **options: Any) -> Any:
        times.append(seconds)
        await asyncio.sleep(SLOW_SECONDS)
        return await ask(self, *request, seconds=seconds, **options)

    monkeypatch.setattr(Channel, "ask", noted)
    return times


def is_shared(log: AsyncRemoteLog, times: list[float]) -> bool:
    """Whether later requests have what earlier ones left of the call's time."""
    return times == sorted(set(times), reverse=True) and times[0] == log.session.timeout


CALLS: Final[list[tuple[str, Call]]] = [
    ("a position", lambda log: log.store_position("reader", 7, expected=0)),
    ("a topic", lambda log: log.create_topic("other", streams=2)),
]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_finding_out_what_became_of_a_try_takes_no_time_of_its_own(
    times: list[float], call: Call
) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        [node] = cluster.nodes
        node.script.append(HangUp(took=True))
        times.clear()
        await call(log)
        assert len(times) == 3
        assert is_shared(log, times), times

    with_cluster(work, nodes=1)


def test_a_leader_that_hangs_up_leaves_no_more_time_to_others(times: list[float]) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(1)
        await log.append(b"a")
        pool = log.session.pool
        await until(lambda: pool.towards("default", 1, 0) is not log.session.channel, "it is there")
        cluster.nodes[1].unreadable = (Get,)
        times.clear()
        assert await log.get(b"k") is None
        assert len(times) == 2
        assert is_shared(log, times), times

    with_cluster(work)
