"""A client and a node, each in its process: appends and reads a second."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import tidelog
from bench.spark_session import Served, served, unshared_megabytes
from tidelog.net.loops import run

BATCH: Final = 1000
VALUE_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    singles: int = 2_000
    in_flight: int = 100
    entries: int = 300_000
    repeats: int = 3


QUICK = Scale(singles=50, entries=5_000, repeats=1)


def measure_client(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    place = directory / "client"
    place.mkdir()
    values = [random.Random(1).randbytes(VALUE_BYTES) for _ in range(BATCH)]
    with served(place, place / "log") as node:
        with tidelog.connect(node.url) as log:
            for name, count, work in _works(log, values, scale):
                yield name, _rate(count, work, scale)
        for name, count, tasks in (
            ("append, async, one in flight", scale.singles, 1),
            ("append, async, many in flight", scale.entries // 10, scale.in_flight),
        ):
            yield name, _rate(count, _async_appends(node, values[0], count, tasks), scale)
        yield "memory", {"node_megabytes": unshared_megabytes(node.processes[0])}


def _works(
    log: tidelog.RemoteLog, values: list[bytes], scale: Scale
) -> Iterator[tuple[str, int, Callable[[], None]]]:
    def singles() -> None:
        for _ in range(scale.singles):
            log.append(values[0])

    def batches() -> None:
        for _ in range(scale.entries // BATCH):
            log.append_batch(values)

    def pipelined() -> None:
        with log.appender() as appender:
            for _ in range(scale.entries // 10 // BATCH):
                for value in values:
                    appender.append(value)

    def read() -> None:
        for _ in log.read(log.high_watermark + 1 - scale.entries):
            pass

    def subscribe() -> None:
        end = log.high_watermark
        for record in log.subscribe(end + 1 - scale.entries):
            if record.glsn == end:
                return

    def read_arrow() -> None:
        for _ in log.read_arrow(log.high_watermark + 1 - scale.entries):
            pass

    yield "append, one by one", scale.singles, singles
    yield "appender", scale.entries // 10, pipelined
    yield f"append_batch of {BATCH}", scale.entries, batches
    yield "read", scale.entries, read
    yield "subscribe", scale.entries, subscribe
    yield "read_arrow", scale.entries, read_arrow


def _async_appends(node: Served, value: bytes, count: int, tasks: int) -> Callable[[], None]:
    async def some(log: tidelog.AsyncRemoteLog) -> None:
        for _ in range(count // tasks):
            await log.append(value)

    async def all_of_them() -> None:
        async with await tidelog.connect_async(node.url) as log:
            await asyncio.gather(*[some(log) for _ in range(tasks)])

    return lambda: run(all_of_them())


def _rate(count: int, work: Callable[[], None], scale: Scale) -> dict[str, float]:
    rates = []
    for _ in range(scale.repeats):
        begin = perf_counter()
        work()
        rates.append(count / (perf_counter() - begin))
    return {"records_per_second": median(rates)}
