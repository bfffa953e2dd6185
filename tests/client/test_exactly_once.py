"""Two nodes that refuse, hang up, fall silent and hand the lead over as chance has it.

Whatever they do, every append is acknowledged once, lies where its receipt says, and lies there
once; and what one client appended to a log stream stands in the order in which it was appended.
"""

from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

import tidelog
from tests.client.fake_nodes import (
    Act,
    FakeCluster,
    HangUp,
    Hold,
    MoveLeader,
    Refuse,
    Take,
    fake_cluster,
)
from tidelog.client.retries import Reconnect
from tidelog.errors import (
    Busy,
    ConnectionLost,
    LeaderLost,
    LogClosed,
    LogError,
    NotLeader,
    OutOfOrder,
    Unreachable,
)
from tidelog.interface.records import Receipt
from tidelog.net.loops import run

WAIT_SECONDS = 10.0
STREAMS = 2
HASTY = Reconnect(pause_first=0.0005, pause_max=0.002, retry_max=0.001, chance=lambda: 0.0)
ERRORS: list[LogError] = [
    NotLeader("not here"),
    OutOfOrder("too early"),
    LeaderLost("deposed"),
    Busy("too much"),
    Unreachable("the leader cannot be reached"),
    ConnectionLost("passed on, and lost"),
    LogClosed("stopping"),
]
acts: st.SearchStrategy[Act] = st.one_of(
    st.just(Take()),
    st.just(Take()),
    st.just(Hold()),
    st.sampled_from(ERRORS).map(Refuse),
    st.booleans().map(HangUp),
    st.integers(-1, 1).map(MoveLeader),
)
scripts = st.lists(acts, max_size=25)


@settings(max_examples=60)
@given(
    first=scripts,
    second=scripts,
    passes_on=st.booleans(),
    hints=st.booleans(),
    placed=st.booleans(),
    count=st.integers(1, 40),
)
def test_every_append_is_there_once_and_in_order(
    first: list[Act], second: list[Act], passes_on: bool, hints: bool, placed: bool, count: int
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            fake_cluster(2, STREAMS, placed=placed) as cluster,
            await tidelog.connect_async(cluster.url, reconnect=HASTY) as log,
        ):
            for node, script in zip(cluster.nodes, (first, second), strict=True):
                node.script = deque(script)
                node.passes_on, node.hints = passes_on, hints
            leading = asyncio.create_task(keep_somebody_leading(cluster))
            receipts = await append(log, count)
            leading.cancel()
            check(cluster, receipts, count)

    run(main())


async def keep_somebody_leading(cluster: FakeCluster) -> None:
    """An operator: who was without a leader for a moment gets one."""
    while True:
        await asyncio.sleep(0.003)
        for stream in cluster.streams.values():
            stream.leader = max(stream.leader, 0)


async def append(log: tidelog.AsyncRemoteLog, count: int) -> list[Receipt]:
    async with log.appender() as appender:
        futures = []
        for number in range(count):
            stream = log.streams[number % STREAMS]
            futures.append(await appender.append(b"%d" % number, stream=stream))
            if number % 3:
                await asyncio.sleep(0)
    return [await future for future in futures]


def check(cluster: FakeCluster, receipts: list[Receipt], count: int) -> None:
    assert len(cluster.entries) == count
    for number, receipt in enumerate(receipts):
        expected = (receipt.stream, receipt.llsn, b"%d" % number)
        assert cluster.entries[receipt.glsn - 1] == expected
    for stream in cluster.streams:
        numbers = [int(value) for value in cluster.values(stream)]
        assert numbers == sorted(numbers)
