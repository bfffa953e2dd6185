"""Benchmarks at an address: loads that do not wait, and what is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import run, run_json, spawned
from tidelog.cli.bench_latencies import histogram, histogram_lines, latency_fields, percentile
from tidelog.cli.bench_open_loop import OpenLoop
from tidelog.errors import Busy


def test_percentiles_are_latencies_that_were_measured() -> None:
    ordered = [number / 1000 for number in range(1, 101)]
    assert percentile(ordered, 50) == 0.050
    assert percentile(ordered, 99) == 0.099
    assert percentile(ordered, 99.9) == 0.100
    assert percentile([0.5], 50) == 0.5


def test_every_latency_is_in_one_step_of_the_histogram() -> None:
    latencies = [0.0001, 0.0003, 0.0003, 0.010]

    rows = histogram(latencies)

    assert sum(row["count"] for row in rows) == 4
    assert rows[0] == {"up_to_ms": 0.125, "count": 1}
    assert rows[-1] == {"up_to_ms": 16.0, "count": 1}
    assert len(list(histogram_lines(rows))) == len(rows)


def test_a_run_without_success_has_no_latencies() -> None:
    assert latency_fields([]) == {"count": 0, "histogram": []}


def test_a_stall_counts_for_all_that_was_planned_meanwhile() -> None:
    async def go() -> list[float]:
        gate = asyncio.Event()

        async def call(number: int, planned: float) -> None:
            if number == 0:
                asyncio.get_running_loop().call_later(0.2, gate.set)
            await gate.wait()

        return (await OpenLoop(call, rate=100, seconds=0.1).run()).latencies

    latencies = asyncio.run(go())

    assert len(latencies) == 10
    assert min(latencies) > 0.09


def test_calls_that_fail_are_counted_by_their_error() -> None:
    async def call(number: int, planned: float) -> None:
        if number % 2:
            raise Busy("no room")

    offered = asyncio.run(OpenLoop(call, rate=200, seconds=0.05).run())

    assert (len(offered.latencies), offered.errors) == (5, {"Busy": 5})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("bench") / "log"
    arguments = ("--listen", "tcp://127.0.0.1:0", "--http", "none")
    with spawned("serve", "-d", data, *arguments) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().split()[1].replace("tcp://", "tidelog://")


def test_appends_are_measured_and_are_in_the_log(url: str) -> None:
    found = run_json("bench", "append", "-d", f"{url}/a", "--rate", "200", "--seconds", "0.5")

    assert (found["records"], found["errors"]) == (100, {})
    assert found["latency"]["p50_ms"] <= found["latency"]["p99_ms"] <= found["latency"]["max_ms"]
    assert run_json("topic", "describe", "a", "-d", url)["high_watermark"] == 100


def test_all_that_goes_in_comes_out_at_the_other_end(url: str) -> None:
    found = run_json("bench", "e2e", "-d", f"{url}/e", "--rate", "200", "--seconds", "0.5")

    assert found["latency"]["count"] == 100
    assert found["missing_records"] == 0


def test_a_load_without_a_rate_goes_as_fast_as_it_can(url: str) -> None:
    arguments = ("--rate", "0", "--batch", "10", "--seconds", "0.2")
    assert "as many as go" in run("bench", "append", "-d", f"{url}/f", *arguments).stdout
    assert "records/s" in run("bench", "tail", "-d", f"{url}/f").stdout


def test_a_directory_is_measured_by_another_command(tmp_path: Path) -> None:
    assert "bench embedded" in run("bench", "append", "-d", tmp_path, code=2).stderr
