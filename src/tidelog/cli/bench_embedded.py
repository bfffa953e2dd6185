"""``tidelog bench embedded``: a few seconds of appends, next to what the disk itself can do.

Figures of one run can be compared with one another, not with those of another day or machine.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.bench_engines import ENGINES, PEERS, Engine
from tidelog.cli.bench_measure import Measured, Payload, Work, measure, warm_up
from tidelog.cli.output import print_json, print_table
from tidelog.cli.progress import Progress

BATCH_BYTES: Final = 100_000
"""About so many bytes are in one batch, whatever the size of its records."""
_HEADERS: Final = ("engine", "work", "records/s", "MB/s", "p50 us", "p99 us", "of disk")


def run(*, data: str | None, sizes: list[int], seconds: float, peers: bool, output: str) -> int:
    """Measure and print; 0 when all went well."""
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=data or "."))
    try:
        rows = list(_measure_all(directory, list(_works(sizes)), seconds, _names(peers)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if output == "json":
        print_json({"seconds": seconds, "results": rows})
    else:
        print_table(_HEADERS, (_cells(row) for row in rows))
    return 0


def _names(peers: bool) -> list[str]:
    """The engines to measure; of the peers those that are installed."""
    names = ["disk", "tidelog"]
    if peers:
        names += [name for name in PEERS if _is_installed(name)]
    return names


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    module = {"sqlite": "sqlite3", "lmdb": "lmdb", "rocksdb": "rocksdict"}[name]
    if find_spec(module) is None:
        click.echo(f"{name} is left out: install tidelog[bench] to measure it", err=True)
        return False
    return True


def _works(sizes: Iterable[int]) -> Iterable[Work]:
    for size in sizes:
        for batch in (1, max(BATCH_BYTES // size, 2)):
            for keyed in (False, True):
                yield Work(size, batch, keyed)


def _measure_all(
    directory: Path, works: list[Work], seconds: float, names: list[str]
) -> Iterable[dict[str, Any]]:
    """One work after the other, the engines side by side: the disk is not the same all day."""
    with ExitStack() as stack, Progress("measurements") as progress:
        engines = {name: _open(stack, directory, name) for name in names}
        done = 0
        for work in works:
            payload = Payload(work)
            disk = 0.0
            for name, engine in engines.items():
                measured = measure(engine, work, payload, seconds=seconds)
                disk = disk or measured.records_per_second
                yield _row(name, measured, disk)
                done += 1
                progress.update(done)


def _open(stack: ExitStack, directory: Path, name: str) -> Engine:
    engine: Engine = ENGINES[name](directory)
    stack.callback(engine.close)
    warm_up(engine)
    return engine


def _row(name: str, measured: Measured, disk: float) -> dict[str, Any]:
    work = measured.work
    return {
        "engine": name,
        "record_bytes": work.size,
        "batch_records": work.batch,
        "keyed": work.keyed,
        "records_per_second": round(measured.records_per_second, 1),
        "megabytes_per_second": round(measured.megabytes_per_second, 3),
        "p50_us": round(measured.p50_us, 1),
        "p99_us": round(measured.p99_us, 1),
        "ratio_to_disk": round(measured.records_per_second / disk, 3),
    }


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    work = Work(row["record_bytes"], row["batch_records"], row["keyed"])
    return (
        row["engine"],
        work.name,
        round(row["records_per_second"]),
        f"{row['megabytes_per_second']:.1f}",
        round(row["p50_us"]),
        round(row["p99_us"]),
        f"{100 * row['ratio_to_disk']:.0f} %",
    )
