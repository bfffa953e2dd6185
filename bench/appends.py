"""Appends, one by one and in batches: Tidelog, SQLite, LMDB, RocksDB and the bare disk.

Engines take turns within each repeat, so that all of them meet the same moods of the machine;
the median over the repeats counts.  Every engine is warmed up until it reuses its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tidelog.cli.bench_engines import ENGINES, PEERS, Engine
from tidelog.cli.bench_measure import WARM_BYTES, Measured, Payload, Work, measure, warm_up


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    repeats: int = 3
    batched_bytes: int = 1_000_000_000
    """For one work, over all repeats: many WAL files, so that what is put off weighs little."""
    single_calls: int = 6_000
    seconds_max: float = 8.0
    """A slow engine may do less in one repeat."""
    warm_bytes: int = WARM_BYTES


QUICK = Scale(
    repeats=1, batched_bytes=4_000_000, single_calls=50, seconds_max=1, warm_bytes=1 << 20
)


@dataclass(frozen=True, slots=True)
class Figure:
    """The medians of one engine's repeats."""

    engine: str
    work: Work
    records_per_second: float
    megabytes_per_second: float
    p50_us: float
    p99_us: float
    calls: int

    @classmethod
    def of(cls, engine: str, runs: Sequence[Measured]) -> Figure:
        return cls(
            engine=engine,
            work=runs[0].work,
            records_per_second=median(run.records_per_second for run in runs),
            megabytes_per_second=median(run.megabytes_per_second for run in runs),
            p50_us=median(run.p50_us for run in runs),
            p99_us=median(run.p99_us for run in runs),
            calls=sum(run.calls for run in runs),
        )


def engines_for(work: Work) -> list[str]:
    """Those of which a work tells something."""
    left_out: set[str] = set()
    if work.threads > 1:
        left_out |= {"disk-twice", "appender"}  # They are about what one thread can do.
    if work.batch == 1:
        left_out.add("disk-twice")  # No file is filled.
    return [name for name in ENGINES if name not in left_out]


def works() -> list[Work]:
    return [
        Work(size, batch, keyed, threads)
        for batch_of in ({100: 1, 1024: 1}, {100: 1000, 1024: 100})
        for size, batch in batch_of.items()
        for keyed in (False, True)
        for threads in (1, 4)
    ]


def measure_appends(
    directory: Path, scale: Scale, before_each: Callable[[], None] = lambda: None
) -> Iterator[list[Figure]]:
    """For each work the figures of all engines, the disk first.

    ``before_each`` work, the machine is brought into the same state.
    """
    for work in works():
        before_each()
        yield _measure_work(directory, work, scale)


def _measure_work(directory: Path, work: Work, scale: Scale) -> list[Figure]:
    place = directory / "appends"
    place.mkdir()
    runs: dict[str, list[Measured]] = {name: [] for name in engines_for(work)}
    payload = Payload(work)
    calls = _calls(work, scale)
    try:
        with ExitStack() as stack:
            engines = {name: _open(stack, name, place, scale) for name in runs}
            for _ in range(scale.repeats):
                for name, engine in engines.items():
                    os.sync()  # Nobody pays for what others left to be written.
                    # The disk has one head: four threads that sync one file show nothing.
                    mine = work if name != "disk" else _alone(work)
                    runs[name].append(
                        measure(engine, mine, payload, seconds=scale.seconds_max, calls=calls)
                    )
    finally:
        shutil.rmtree(place)
    return [Figure.of(name, found) for name, found in runs.items()]


def _open(stack: ExitStack, name: str, place: Path, scale: Scale) -> Engine:
    engine: Engine = ENGINES[name](place)
    stack.callback(engine.close)
    warm_up(engine, scale.warm_bytes)
    return engine


def _alone(work: Work) -> Work:
    return Work(work.size, work.batch, work.keyed)


def _calls(work: Work, scale: Scale) -> int:
    if work.batch == 1:
        return scale.single_calls // scale.repeats
    return -(-scale.batched_bytes // work.call_bytes // scale.repeats)


def best_peer(figures: Sequence[Figure]) -> Figure:
    return max(
        (figure for figure in figures if figure.engine in PEERS),
        key=lambda figure: figure.records_per_second,
    )
