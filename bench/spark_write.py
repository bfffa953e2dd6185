"""Spark writes to a log: the same rows to Parquet and to a topic, un-keyed and keyed.

All rows are durable in the log when a write returns; Spark's Parquet writer syncs nothing.  By then
some of them are in the WAL only.  The node moves these into segments before the next measurement
begins; a second figure counts that too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from statistics import median
from threading import Event
from time import perf_counter
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from bench.spark_session import CORES, Served, resident_megabytes, served, spark_session

VALUE_BYTES: Final = 100
LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    rows: int = 5_000_000
    repeats: int = 3


QUICK = Scale(rows=100_000, repeats=1)


def measure_spark_writes(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    place = directory / "spark-write"
    place.mkdir()
    with served(place, place / "log") as node, spark_session(place) as spark:
        yield from write_figures(spark, node, place, scale)
    rmtree(place)


def write_figures(
    spark: SparkSession, log: Served, place: Path, scale: Scale
) -> Iterator[tuple[str, dict[str, float]]]:
    """All measurements of writing."""
    rows = make_rows(spark, place, scale)
    yield "batch write", _batch_write(rows.select("value"), log, place, scale)
    yield "keyed batch write", _batch_write(rows, log, place, scale)
    yield "write memory", resident_megabytes(spark, log)


def make_rows(spark: SparkSession, place: Path, scale: Scale) -> DataFrame:
    """Keys of 8 bytes and values of 100, from uncompressed Parquet: reading must not count."""
    digest = F.sha2(F.col("id").cast("string"), 256)
    value = F.substring(F.concat(digest, digest), 1, VALUE_BYTES)
    frame = spark.range(0, scale.rows, 1, CORES).select(
        F.format_string("%08d", "id").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )
    path = str(place / "rows")
    frame.write.option("compression", "none").parquet(path)
    return spark.read.parquet(path)


def _batch_write(rows: DataFrame, node: Served, place: Path, scale: Scale) -> dict[str, float]:
    """Rows a second; the writers take turns."""
    path = str(place / "copy")

    def to_parquet() -> None:
        rows.write.mode("overwrite").option("compression", "none").parquet(path)

    def to_log() -> None:
        _fresh_topic(node, "written")
        writer = rows.write.format("tidelog").mode("append")
        writer.options(endpoint=node.url, topic="written").save()

    writers: dict[str, Callable[[], None]] = {"tidelog": to_log, "parquet": to_parquet}
    found: dict[str, list[float]] = {name: [] for name in ("tidelog", "settled", "parquet")}
    for turn in range(scale.repeats + 1):
        for name, write in writers.items():
            begin = perf_counter()
            write()
            seconds = perf_counter() - begin
            settle(node)
            if turn:  # The first turn warms everything up.
                found[name].append(scale.rows / seconds)
                if name == "tidelog":
                    found["settled"].append(scale.rows / (perf_counter() - begin))
    rates = {f"{name}_rows_per_second": median(rates) for name, rates in found.items()}
    share = rates["tidelog_rows_per_second"] / rates["parquet_rows_per_second"]
    return {**rates, "share_of_parquet": share}


def settle(log: Served) -> None:
    """Wait until all that rolled out of the WAL is in segments."""
    while _backlog(log):
        Event().wait(LOOK_SECONDS)


def _backlog(log: Served) -> int:
    with tidelog.connect(log.url) as connected:
        if len(log.processes) == 1:
            return connected.log_stats().wal_backlog_files
        nodes = connected.admin.status().nodes
        return sum(node.facts.wal_backlog_files for node in nodes if node.facts is not None)


def _fresh_topic(node: Served, name: str) -> None:
    """The topic, emptied: the disk should not fill with what was measured before."""
    with tidelog.connect(node.url, topic=name, create=True) as log:
        log.trim(log.high_watermark + 1)
