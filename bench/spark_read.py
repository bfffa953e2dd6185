"""Spark reads a log: a batch of it against Parquet, its triggers against Spark's ``rate`` source,
and how long a record takes from its append to ``foreachBatch``."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import tidelog
from bench.constant_source import ConstantSource
from bench.spark_session import CORES, Served, resident_megabytes, served, spark_session

BATCH: Final = 1000
VALUE_BYTES: Final = 100
TRIGGER_ROWS: Final = 10
WAIT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done for each figure."""

    entries: int = 10_000_000
    repeats: int = 3
    triggers: int = 100
    rate_triggers: int = 20
    """The rate source has one in a second."""
    appends: int = 100


QUICK = Scale(entries=50_000, repeats=1, triggers=10, rate_triggers=3, appends=10)


def measure_spark_reads(directory: Path, scale: Scale) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and figures of each measurement."""
    place = directory / "spark"
    place.mkdir()
    data = place / "log"
    with tidelog.open(str(data)) as log:
        fill(log, scale)
    with served(place, data) as node, spark_session(place) as spark:
        yield from read_figures(spark, node, place, scale)


def read_figures(
    spark: SparkSession, log: Served, place: Path, scale: Scale
) -> Iterator[tuple[str, dict[str, float]]]:
    """All measurements of reading, of a log that was filled."""
    yield "batch read", _batch_read(spark, log, place, scale)
    yield "triggers", _triggers(spark, log, place, scale)
    yield "latency", _latency(spark, log, place, scale)
    yield "memory", resident_megabytes(spark, log)


def fill(log: tidelog.Log | tidelog.RemoteLog, scale: Scale) -> None:
    """Streams for all cores with random values, and a backlog of small cuts."""
    values = [random.Random(1).randbytes(VALUE_BYTES) for _ in range(BATCH)]
    large = log.create_topic("large", streams=CORES)
    streams = large.streams
    for i in range(scale.entries // BATCH):
        large.append_batch(values, stream=streams[i % CORES])
    small = log.create_topic("small")
    for _ in range(scale.triggers):
        small.append_batch(values[:TRIGGER_ROWS])
    log.create_topic("one")


def _seconds(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin


def _to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


# ---- batches


def _batch_read(spark: SparkSession, node: Served, place: Path, scale: Scale) -> dict[str, float]:
    """All columns; the same rows in Parquet, and the same columns for nothing: the ceiling."""

    def log() -> DataFrame:
        return spark.read.format("tidelog").options(endpoint=node.url, topic="large").load()

    def constant() -> DataFrame:
        reader = spark.read.format("constant").option("rows", scale.entries)
        return reader.option("valueBytes", VALUE_BYTES).load()

    spark.dataSource.register(ConstantSource)
    frames: dict[str, Callable[[], DataFrame]] = {"tidelog": log, "ceiling": constant}
    for compression in ("none", "snappy"):
        path = str(place / compression)
        log().write.option("compression", compression).parquet(path)
        frames[f"parquet_{compression}"] = lambda path=path: spark.read.parquet(path)  # type: ignore[misc]
    found: dict[str, list[float]] = {name: [] for name in frames}
    for turn in range(scale.repeats + 1):
        for name, frame in frames.items():
            seconds = _seconds(lambda frame=frame: _to_nothing(frame()))  # type: ignore[misc]
            if turn:  # The first turn warms everything up.
                found[name].append(scale.entries / seconds)
    rates = {f"{name}_rows_per_second": median(rates) for name, rates in found.items()}
    ours = rates["tidelog_rows_per_second"]
    return {
        **rates,
        "share_of_parquet": ours / rates["parquet_none_rows_per_second"],
        "share_of_ceiling": ours / rates["ceiling_rows_per_second"],
    }


# ---- streams


def _triggers(spark: SparkSession, node: Served, place: Path, scale: Scale) -> dict[str, float]:
    """Milliseconds of a trigger with ten rows and nothing to wait for."""
    backlog = (
        spark.readStream.format("tidelog")
        .options(endpoint=node.url, topic="small", startingOffsets="earliest")
        .option("maxRecordsPerTrigger", TRIGGER_ROWS)
        .load()
    )
    rate = spark.readStream.format("rate").option("rowsPerSecond", TRIGGER_ROWS).load()
    ours = _trigger_ms(backlog, place / "small", scale.triggers)
    theirs = _trigger_ms(rate, place / "rate", scale.rate_triggers)
    return {"tidelog_ms": ours, "rate_ms": theirs, "times": ours / theirs}


def _trigger_ms(frame: DataFrame, checkpoint: Path, triggers: int) -> float:
    times: list[float] = []
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        known, deadline = -1, perf_counter() + WAIT_SECONDS
        while len(times) < triggers and perf_counter() < deadline:
            query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress.batchId > known and progress.numInputRows:
                    known = progress.batchId
                    times.append(progress.durationMs["triggerExecution"])
    finally:
        query.stop()
    return median(times[len(times) // 5 :])  # The first ones compile.


def _latency(spark: SparkSession, node: Served, place: Path, scale: Scale) -> dict[str, float]:
    """Milliseconds from before an append until ``foreachBatch`` has the row."""
    came = threading.Semaphore(0)
    arrivals: list[float] = []

    def note(frame: DataFrame, _: int) -> None:
        for _row in frame.collect():
            arrivals.append(perf_counter())
            came.release()

    frame = (
        spark.readStream.format("tidelog")
        .options(endpoint=node.url, topic="one", startingOffsets="earliest")
        .load()
    )
    writer = frame.writeStream.foreachBatch(note)
    query = writer.option("checkpointLocation", str(place / "one")).start()
    times: list[float] = []
    pause, chance = threading.Event(), random.Random(3)
    try:
        with tidelog.connect(node.url, topic="one") as log:
            for _ in range(scale.appends + scale.appends // 4):
                pause.wait(chance.uniform(0.02, 0.2))
                begin = perf_counter()
                log.append(b"now")
                if not came.acquire(timeout=WAIT_SECONDS):
                    raise RuntimeError(f"a record did not arrive: {query.exception()}")
                times.append(1e3 * (arrivals[-1] - begin))
    finally:
        query.stop()
    measured = times[scale.appends // 4 :]
    return {"p50_ms": median(measured), "p95_ms": quantiles(measured, n=20)[-1]}
