"""Spark and a log on three nodes: the measurements of one node again, and each job of the pipeline.

All three nodes, Spark and its workers share the cores of one machine, so the figures are what the
whole of it costs, not what a cluster on machines of its own would reach.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

from pyspark.sql import SparkSession

import tidelog
from bench import spark_read, spark_write
from bench.spark_session import Served, resident_megabytes, served_by_cluster, spark_session
from tidelog.pipeline import archive, audit, compact_plan, materialize, replay

VALUE_BYTES: Final = 100
BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    reads: spark_read.Scale = field(
        default_factory=lambda: spark_read.Scale(
            entries=500_000, triggers=30, rate_triggers=10, appends=40
        )
    )
    writes: spark_write.Scale = field(default_factory=lambda: spark_write.Scale(rows=300_000))
    changes: int = 300_000
    keys: int = 60_000


QUICK = Scale(spark_read.QUICK, spark_write.QUICK, changes=20_000, keys=4_000)


def measure_spark_on_cluster(
    directory: Path, scale: Scale
) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    place = directory / "spark-cluster"
    place.mkdir()
    with served_by_cluster(place / "nodes") as log, spark_session(place) as spark:
        with tidelog.connect(log.url) as connected:
            spark_read.fill(connected, scale.reads)
        spark_write.settle(log)
        yield from spark_read.read_figures(spark, log, place, scale.reads)
        yield from spark_write.write_figures(spark, log, place, scale.writes)
        yield from _jobs(spark, log, place, scale)


def _jobs(
    spark: SparkSession, log: Served, place: Path, scale: Scale
) -> Iterator[tuple[str, dict[str, float]]]:
    """Every job over one topic of changes to keys."""
    _fill_changes(log, scale)
    spark_write.settle(log)
    changes, copy, table = log.topic("changes"), log.topic("copy"), place / "table"
    with tidelog.connect(log.url) as connected:
        connected.create_topic("copy")
    works: dict[str, Callable[[], object]] = {
        "materialize": lambda: materialize(changes, table, spark=spark),
        "replay": lambda: replay(table, copy, spark=spark),
        "archive": lambda: archive(changes, place / "archive", spark=spark),
        "compact-plan": lambda: compact_plan(changes, spark=spark),
        "audit": lambda: audit(changes, topics=("changes",), spark=spark),
    }
    for name, work in works.items():
        begin = perf_counter()
        work()
        seconds = perf_counter() - begin
        entries = scale.keys if name == "replay" else scale.changes
        yield (
            f"job {name}",
            {"entries": float(entries), "seconds": seconds, **resident_megabytes(spark, log)},
        )


def _fill_changes(log: Served, scale: Scale) -> None:
    """PUTs of random keys, so that every key is written about ``changes / keys`` times."""
    chance = random.Random(2)
    value = chance.randbytes(VALUE_BYTES)
    with tidelog.connect(log.url) as connected:
        topic = connected.create_topic("changes", streams=2)
        for _ in range(scale.changes // BATCH):
            keys = (b"%08d" % chance.randrange(scale.keys) for _ in range(BATCH))
            topic.put_batch([(key, value) for key in keys])
