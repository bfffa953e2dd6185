"""``tidelog bench pair``: log sessions of a datastore and its replica, each made durable on both.

The replica is a process of its own on this machine.  In the same run the same number of bytes goes
the shortest way (``bench_plain_peer``): what is lost to that is the price of the protocol.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any, Final

from tidelog.cli.bench_plain_peer import PlainPair
from tidelog.cli.output import print_json, print_table
from tidelog.cli.progress import Progress
from tidelog.core.session.options import FlushAt
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.options import DatastoreOptions
from tidelog.datastore.spans import SpanFigures

EPOCH_SECONDS: Final = 0.003
"""How long an epoch lasts."""
KEY_BYTES: Final = 16
_STOP_SECONDS: Final = 30.0

MODES: Final = {
    "parallel": DatastoreOptions(),
    "serial": DatastoreOptions(parallel_append=False, parallel_flush=False, parallel_commit=False),
    "flush at group commit": DatastoreOptions(flush_at=FlushAt.GROUP_COMMIT),
}
"""The ways to replicate that are measured."""

Commit = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Work:
    """Log sessions of ``entries`` with values of ``size`` bytes, on ``channels`` at once."""

    size: int
    entries: int
    channels: int

    @property
    def bytes(self) -> int:
        return self.entries * (self.size + KEY_BYTES)

    @property
    def name(self) -> str:
        channels = f", {self.channels} channels" if self.channels > 1 else ""
        return f"{self.entries} × {self.size} B{channels}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Outcome of one run."""

    sessions_per_second: float
    p50_us: float
    p99_us: float


def run(
    *, data: str | None, works: Sequence[Work], seconds: float, spans: bool, output: str
) -> int:
    """Measure and print; 0 when all went well."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=data or "."))
    tables: list[tuple[str, tuple[SpanFigures, ...]]] = []
    rows: list[dict[str, Any]] = []
    try:
        with Progress("measurements") as progress:
            for work in works:
                for row, table in measure(directory, work, seconds):
                    rows.append(row)
                    if table:
                        tables.append((f"{row['mode']}, {work.name}", table))
                    progress.update(len(rows))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _print(rows, tables if spans else [], seconds, output)
    return 0


def measure(
    directory: Path, work: Work, seconds: float
) -> Iterator[tuple[dict[str, Any], tuple[SpanFigures, ...]]]:
    """A row for the plain way and one for each mode, with the spans of that mode."""
    plain = _measure_plain(directory, work, seconds)
    yield _row("plain", work, plain, plain), ()
    for mode, options in MODES.items():
        measured, spans = _measure_mode(directory, work, options, seconds)
        yield _row(mode, work, measured, plain), spans


# -- the plain way --------------------------------------------------------------------------------


def _measure_plain(directory: Path, work: Work, seconds: float) -> Measured:
    place = _fresh(directory)
    command = [sys.executable, "-m", "tidelog.cli.bench_plain_peer", str(place)]
    content = random.Random(1).randbytes(work.bytes)  # noqa: S311
    with ExitStack() as stack:
        port = int(stack.enter_context(_started(command)))
        commits: list[Commit] = []
        for number in range(work.channels):
            pair = PlainPair(place / f"master-{number}", port)
            stack.callback(pair.close)
            commits.append(partial(_commit_plainly, pair, content))
        return _measure(commits, seconds)


def _commit_plainly(pair: PlainPair, content: bytes, _: int) -> None:
    pair.commit(content)


# -- a datastore and its replica ------------------------------------------------------------------


def _measure_mode(
    directory: Path, work: Work, options: DatastoreOptions, seconds: float
) -> tuple[Measured, tuple[SpanFigures, ...]]:
    place = _fresh(directory)
    listen = ["--listen", "tcp://127.0.0.1:0", "--http", "none"]
    command = [sys.executable, "-m", "tidelog", "replica", "--data", str(place / "replica")]
    with ExitStack() as stack:
        endpoint = stack.enter_context(_started([*command, *listen]))
        store = Datastore(place / "master", replicas=[endpoint], options=options)
        stack.callback(store.close)
        channels = [store.create_channel() for _ in range(work.channels)]
        store.ready()
        stack.enter_context(_epochs(store))
        measured = _measure([_sessions(channel, work) for channel in channels], seconds)
        return measured, store.spans()


def _sessions(channel: LogChannel, work: Work) -> Commit:
    """Function that runs log session number ``i``."""
    chance = random.Random(channel.number)  # noqa: S311
    keys = [chance.randbytes(KEY_BYTES) for _ in range(work.entries)]
    value = chance.randbytes(work.size)

    def session(number: int) -> None:
        channel.begin_session()
        for key in keys:
            channel.add_entry(1, key, value, number + 1)
        channel.end_session()

    return session


@contextmanager
def _epochs(store: Datastore) -> Iterator[None]:
    """Switch epochs all the time."""
    store.switch_epoch(1)
    stopping = threading.Event()

    def switch() -> None:
        while not stopping.wait(EPOCH_SECONDS):
            store.switch_epoch(store.epoch + 1)

    thread = threading.Thread(target=switch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(_STOP_SECONDS)
        last = store.epoch
        store.switch_epoch(last + 1)
        store.wait_for(last, timeout=_STOP_SECONDS)


# -- measuring ------------------------------------------------------------------------------------


def _measure(commits: Sequence[Commit], seconds: float) -> Measured:
    """Call each again and again in a thread of its own, after a while to warm up."""
    found: list[list[float]] = [[] for _ in commits]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            found[number] = _repeat(commits[number], seconds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(commits))]
    begin = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    took = perf_counter() - begin
    durations = sorted(duration for each in found for duration in each)
    cuts = quantiles(durations, n=100)
    return Measured(len(durations) / took, cuts[49] * 1e6, cuts[98] * 1e6)


def _repeat(commit: Commit, seconds: float) -> list[float]:
    durations: list[float] = []
    end = perf_counter() + seconds
    number = 0
    while (begin := perf_counter()) < end or number < 100:
        commit(number)
        durations.append(perf_counter() - begin)
        number += 1
    return durations


@contextmanager
def _started(command: list[str]) -> Iterator[str]:
    """A process that says "ready SOMETHING" in its first line; what it says."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        line = process.stdout.readline() if process.stdout else ""
        word, _, place = line.strip().partition(" ")
        if word != "ready":
            raise RuntimeError(f"{command[2]} did not start: it said {line!r}")
        yield place
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)
        if process.stdout:
            process.stdout.close()


def _fresh(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=directory))


# -- output ---------------------------------------------------------------------------------------


def _row(mode: str, work: Work, measured: Measured, plain: Measured) -> dict[str, Any]:
    return {
        "mode": mode,
        "entries": work.entries,
        "value_bytes": work.size,
        "channels": work.channels,
        "sessions_per_second": round(measured.sessions_per_second, 1),
        "megabytes_per_second": round(measured.sessions_per_second * work.bytes / 1e6, 3),
        "p50_us": round(measured.p50_us, 1),
        "p99_us": round(measured.p99_us, 1),
        "ratio_to_plain": round(measured.sessions_per_second / plain.sessions_per_second, 3),
    }


def _print(
    rows: list[dict[str, Any]],
    tables: Sequence[tuple[str, tuple[SpanFigures, ...]]],
    seconds: float,
    output: str,
) -> None:
    if output == "json":
        spans = {name: [_span_row(figures) for figures in table] for name, table in tables}
        print_json({"seconds": seconds, "results": rows, "spans": spans})
        return
    headers = ("mode", "log session", "sessions/s", "MB/s", "p50 us", "p99 us", "of plain")
    print_table(headers, (_cells(row) for row in rows))
    for name, table in tables:
        print_table(
            (name, "count", "p50 us", "p99 us", "total ms"),
            (
                (
                    one.span,
                    one.count,
                    round(one.p50_us),
                    round(one.p99_us),
                    round(one.total_us / 1e3),
                )
                for one in table
                if one.count
            ),
        )


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["mode"],
        Work(row["value_bytes"], row["entries"], row["channels"]).name,
        round(row["sessions_per_second"]),
        f"{row['megabytes_per_second']:.1f}",
        round(row["p50_us"]),
        round(row["p99_us"]),
        f"{100 * row['ratio_to_plain']:.0f} %",
    )


def _span_row(figures: SpanFigures) -> dict[str, Any]:
    return {
        "span": figures.span,
        "count": figures.count,
        "p50_us": round(figures.p50_us, 1),
        "p99_us": round(figures.p99_us, 1),
        "total_us": round(figures.total_us, 1),
    }
