"""Points of curves that show what a record costs, and how one is measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any, Final, TypeVar

from bench.peers.lean import Frame, Link, PeerError
from bench.peers.processes import Pids
from bench.peers.tidelog import LeanTidelog, TidelogLink
from tidelog.net.loops import loop_factory
from tidelog.testing import LocalCluster

Figures = dict[str, float]
T = TypeVar("T")

SMALL: Final = 100
KILO: Final = 1_000
WARM_SHARE: Final = 0.1
"""Of a measurement's time, before it."""


class Curve(Enum):
    """What grows."""

    STREAMS = "log streams"
    CLIENTS = "clients"
    SIZES = "record size"
    LENGTH = "log length"


@dataclass(frozen=True, slots=True)
class Point:
    """Figures at one size; none if it could not be reached."""

    value: int
    figures: Figures
    cut_short: str = ""

    @property
    def text(self) -> str:
        return f"{self.value:,}" + (f" ({self.cut_short})" if self.cut_short else "")


@dataclass(frozen=True, slots=True)
class Scale:
    """What is measured, and for how long."""

    streams: tuple[int, ...] = (1, 10, 100, 1_000)
    clients: tuple[int, ...] = (1, 10, 100, 500)
    sizes: tuple[int, ...] = (SMALL, KILO, 10 * KILO, 100 * KILO, 1_000 * KILO)
    lengths: tuple[int, ...] = (100_000, 1_000_000, 10_000_000, 100_000_000)
    seconds: float = 5.0
    """For each measurement at a point."""
    ready_seconds: float = 60.0
    """In which the log streams of a point must have leaders."""
    length_seconds: float = 180.0
    """For all appends, reads and restarts of the longest log."""


QUICK = Scale(
    streams=(1, 10),
    clients=(1, 10),
    sizes=(SMALL, 100 * KILO),
    lengths=(10_000, 100_000),
    seconds=0.5,
    length_seconds=30.0,
)


async def cost_of(
    pids: Pids, links: Sequence[Link], frame: Frame, window: int, seconds: float
) -> Figures:
    """Have appends of one record under way on all links for a while."""
    warm = perf_counter() + WARM_SHARE * seconds
    await at_once(link.pump_until(frame, warm, window) for link in links)
    before, begin = pids.cpu_seconds(), perf_counter()
    sent = await at_once(link.pump_until(frame, begin + seconds, window) for link in links)
    return cost(sum(sent), perf_counter() - begin, pids.cpu_seconds() - before)


def cost(records: int, seconds: float, spent: float) -> Figures:
    """Of so many records, which took so long and so much time of processors."""
    return {"records_per_second": records / seconds, "node_cpu_us": 1e6 * spent / records}


def client_of(cluster: LocalCluster) -> LeanTidelog:
    """A lean client of the first stream's leader."""
    with cluster.connect() as log:
        stream = log.append(b"").stream
    port = cluster.leader_of(stream).ports.clients
    return LeanTidelog(port, "default", stream, "ordered")


def pids_of(cluster: LocalCluster) -> Pids:
    return Pids([node.pid for node in cluster.nodes if node.pid is not None])


@asynccontextmanager
async def connected(made: Sequence[tuple[TidelogLink, int]]) -> AsyncIterator[list[TidelogLink]]:
    """Connected and welcome."""
    links: list[TidelogLink] = []
    try:
        for link, port in made:
            await link.greet(port)
            links.append(link)
        yield links
    finally:
        close(links)


async def at_once(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All at the same time; the first failure ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def close(links: Sequence[Link]) -> None:
    for link in links:
        with suppress(PeerError):
            link.transport.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)
