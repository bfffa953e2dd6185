"""``tidelog bench append|tail|e2e``: a served log or a cluster, as its clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from secrets import token_bytes
from time import perf_counter
from typing import Any, Final

import click

from tidelog.cli.bench_latencies import PERCENTILES, histogram_lines, latency_fields
from tidelog.cli.bench_open_loop import Offered, OpenLoop
from tidelog.cli.output import print_fields, print_json
from tidelog.cli.progress import Progress
from tidelog.cli.security_options import client_security
from tidelog.client.log import AsyncRemoteLog, connect_async_log
from tidelog.net.loops import run

RUN_BYTES: Final = 8
HEADER_BYTES: Final = 16
"""A run's own name and the number of the record, so that nobody else's are counted."""
ARRIVE_SECONDS: Final = 10.0
"""How long to wait for what was appended to come out at the other end."""


@dataclass(frozen=True, slots=True)
class Work:
    """What to do: calls of ``batch`` records of ``size`` bytes, ``rate`` records per second."""

    url: str
    topic: str
    rate: float
    seconds: float
    size: int
    batch: int
    connections: int


def bench_append(work: Work, output: str) -> int:
    """Appends: from the planned time to the receipt."""
    offered = run(_append(work))
    _report("append", work, offered, offered.latencies, output)
    return 1 if offered.errors else 0


def bench_e2e(work: Work, output: str) -> int:
    """Appends and a subscription: from the planned time until the record is there."""
    offered, latencies, missing = run(_e2e(work))
    _report("e2e", work, offered, latencies, output, missing=missing)
    return 1 if offered.errors or missing else 0


def bench_tail(work: Work, output: str) -> int:
    """Reads from the beginning, as fast as it goes."""
    records, size, seconds = run(_tail(work))
    fields = {
        "bench": "tail",
        "url": work.url,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds, 1),
        "megabytes_per_second": round(size / seconds / 1e6, 3),
    }
    if output == "json":
        print_json(fields)
    else:
        click.echo(
            f"read {records:,} records in {seconds:.2f} s: {fields['records_per_second']:,.0f} "
            f"records/s, {fields['megabytes_per_second']:,.1f} MB/s"
        )
    return 0


# -- runs ----------------------------------------------------------------------------------------


async def _append(work: Work) -> Offered:
    async with AsyncExitStack() as stack:
        logs = await _connect(stack, work)
        values = [token_bytes(work.size)] * work.batch

        async def call(number: int, planned: float) -> None:
            await _append_once(logs[number % len(logs)], values)

        with Progress("calls") as progress:
            return await _loop(work, call, progress.update).run()


async def _e2e(work: Work) -> tuple[Offered, list[float], int]:
    name, planned_at = token_bytes(RUN_BYTES), dict[int, float]()
    latencies: list[float] = []
    filler = token_bytes(max(work.size - HEADER_BYTES, 0))
    async with AsyncExitStack() as stack:
        logs = await _connect(stack, work)
        reader = (await _connect(stack, work))[0]
        begin = (await reader.position()).high_watermark + 1
        reading = asyncio.create_task(_collect(reader, begin, name, planned_at, latencies))

        async def call(number: int, planned: float) -> None:
            first = number * work.batch
            planned_at.update(dict.fromkeys(range(first, first + work.batch), planned))
            values = [
                name + (first + i).to_bytes(HEADER_BYTES - RUN_BYTES) + filler
                for i in range(work.batch)
            ]
            await _append_once(logs[number % len(logs)], values)

        with Progress("calls") as progress:
            offered = await _loop(work, call, progress.update).run()
        sent = len(offered.latencies) * work.batch
        await _wait_until(lambda: len(latencies) >= sent or reading.done())
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    return offered, latencies, max(sent - len(latencies), 0)


async def _collect(
    log: AsyncRemoteLog,
    begin: int,
    name: bytes,
    planned_at: dict[int, float],
    latencies: list[float],
) -> None:
    async for record in log.subscribe(begin):
        now = perf_counter()
        if record.value[:RUN_BYTES] == name:
            number = int.from_bytes(record.value[RUN_BYTES:HEADER_BYTES])
            latencies.append(now - planned_at.pop(number))


async def _tail(work: Work) -> tuple[int, int, float]:
    async with AsyncExitStack() as stack:
        (log,) = await _connect(stack, work)
        records = size = 0
        begin = perf_counter()
        with Progress("records") as progress:
            async for record in log.read():
                records += 1
                size += len(record.value) + len(record.key)
                if records % 1024 == 0:
                    progress.update(records)
                    if perf_counter() - begin >= work.seconds:
                        break
        return records, size, perf_counter() - begin


def _loop(
    work: Work, call: Callable[[int, float], Awaitable[None]], told: Callable[[int], None]
) -> OpenLoop:
    return OpenLoop(call, rate=work.rate / work.batch, seconds=work.seconds, told=told)


async def _connect(stack: AsyncExitStack, work: Work) -> list[AsyncRemoteLog]:
    logs = []
    for _ in range(work.connections):
        log = await connect_async_log(
            work.url, topic=work.topic, create=True, security=client_security()
        )
        logs.append(await stack.enter_async_context(log))
    return logs


async def _append_once(log: AsyncRemoteLog, values: Sequence[bytes]) -> None:
    if len(values) == 1:
        await log.append(values[0])
    else:
        await log.append_batch(values)


async def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = perf_counter() + ARRIVE_SECONDS
    while not is_so() and perf_counter() < deadline:
        await asyncio.sleep(0.01)


# -- reports -------------------------------------------------------------------------------------


def _report(
    bench: str,
    work: Work,
    offered: Offered,
    latencies: Sequence[float],
    output: str,
    *,
    missing: int = 0,
) -> None:
    records = len(offered.latencies) * work.batch
    fields: dict[str, Any] = {
        "bench": bench,
        "url": work.url,
        "record_bytes": work.size,
        "batch_records": work.batch,
        "connections": work.connections,
        "rate_asked": work.rate,
        "records": records,
        "seconds": round(offered.seconds, 3),
        "records_per_second": round(records / offered.seconds, 1),
        "megabytes_per_second": round(records * work.size / offered.seconds / 1e6, 3),
        "errors": dict(sorted(offered.errors.items())),
        "dropped_calls": offered.dropped,
        "missing_records": missing,
        "latency": latency_fields(latencies),
    }
    if output == "json":
        print_json(fields)
    else:
        _print(fields)


def _print(fields: dict[str, Any]) -> None:
    latency, asked = fields["latency"], fields["rate_asked"]
    loop = f"open loop, {asked:,.0f}/s asked" if asked else "as many as go"
    rows: list[tuple[str, object]] = [
        ("records", f"{fields['records']:,} in {fields['seconds']:.2f} s ({loop})"),
        (
            "rate",
            f"{fields['records_per_second']:,.0f}/s, {fields['megabytes_per_second']:.2f} MB/s",
        ),
    ]
    if latency["count"]:
        names = [*(f"{name.replace('.', '')}_ms" for name, _ in PERCENTILES), "max_ms"]
        labels = [*(name for name, _ in PERCENTILES), "max"]
        told = [f"{label} {latency[name]:,.2f}" for label, name in zip(labels, names, strict=True)]
        rows.append(("latency", f"{', '.join(told)} ms"))
    for name in ("errors", "dropped_calls", "missing_records"):
        if fields[name]:
            rows.append((name.replace("_", " "), fields[name]))
    print_fields(rows)
    for line in histogram_lines(latency["histogram"]):
        click.echo(line)
