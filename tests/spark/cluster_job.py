"""What a driver does: ``python -m tests.spark.cluster_job STORY MASTER DIRECTORY URL...``.

It has a process of its own, and a JVM unless it is a client of Spark Connect.  Run again with the
same arguments it goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.holds import HOLDS, Point, hold_here
from tests.spark.sessions import LOG4J, SETTINGS
from tidelog.pipeline import ReplaySummary, archive, audit, compact_plan, materialize, replay
from tidelog.pipeline.session import is_remote
from tidelog.pipeline.session import session as job_session

ROWS = 200
PARTITIONS = 2
BATCH_ROWS = 50
TOLD = "told.json"
"""What the jobs told, in the directory of the story."""
QUICK_JVM = f"-Dlog4j2.configurationFile={LOG4J} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ON_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    f"spark.executorEnv.{HOLDS}": os.environ.get(HOLDS, ""),
}
SPECULATION = {
    # On two hosts from the start: a second attempt is made on another one than the first.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # A task that takes longer than the first one that is done is tried a second time.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
}


def main() -> None:
    story, master, directory, *urls = sys.argv[1:]
    place = Path(directory)
    more = SPECULATION if story == speculate.__name__ else {}
    with session(master, place, more) as spark:
        STORIES[story](spark, place, *urls)


@contextmanager
def session(master: str, place: Path, more: dict[str, str]) -> Iterator[SparkSession]:
    if master.startswith("sc://"):
        with job_session(None, master, "cluster test") as spark:
            assert is_remote(spark)
            yield spark
        return
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("tidelog cluster test")
    for name, value in (SETTINGS | ON_CLUSTER | more).items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
    spark = builder.config("spark.local.dir", str(place / "local")).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def write(spark: SparkSession, place: Path, end: str) -> None:
    """Rows → topic, as one batch that has a name."""
    rows(spark).write.format("tidelog").mode("append").options(
        endpoint=end, txnAppId="rows", txnVersion="1"
    ).save()


def speculate(spark: SparkSession, place: Path, end: str) -> None:
    """The same without a name; slow tasks are tried twice."""
    rows(spark).write.format("tidelog").mode("append").options(endpoint=end).save()


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr("string(id) AS value")


def files(spark: SparkSession, place: Path, begin: str) -> None:
    """Topic → files, as one batch."""
    reader = spark.read.format("tidelog").options(endpoint=begin, minPartitions=str(PARTITIONS))
    reader.load().write.mode("overwrite").parquet(str(place / "files"))


def copy(spark: SparkSession, place: Path, begin: str, end: str) -> None:
    """Topic → topic, as a stream of several micro-batches."""
    source = spark.readStream.format("tidelog").options(
        endpoint=begin,
        startingOffsets="earliest",
        maxRecordsPerTrigger=str(BATCH_ROWS),
        minPartitions=str(PARTITIONS),
    )
    sink = source.load().select("value").writeStream.format("tidelog").option("endpoint", end)
    sink = sink.option("checkpointLocation", str(place / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()


def table(spark: SparkSession, place: Path, begin: str) -> None:
    """Topic → table, as a stream of several micro-batches."""
    materialize(
        begin,
        place / "table",
        spark=spark,
        max_records_per_trigger=BATCH_ROWS,
        progress=lambda _: hold_here(Point.TABLE_COMMITTED),
    )


def all_ways(spark: SparkSession, place: Path, written: str, copied: str, changed: str) -> None:
    """The sink as a batch, source and sink as a stream, the source as batches of a job."""
    write(spark, place, written)
    copy(spark, place, written, copied)
    table(spark, place, changed)


def all_jobs(spark: SparkSession, place: Path, changed: str, replayed: str) -> None:
    """Every job once; what they tell is in a file."""
    table(spark, place, changed)
    archived = archive(changed, place / "archive", range_entries=BATCH_ROWS, spark=spark)
    again = replay(place / "table", replayed, spark=spark)
    audited = audit(changed, spark=spark)
    planned = compact_plan(changed, apply=True, spark=spark)
    told = {
        "archived": archived.rows,
        "replayed": again.rows,
        "sound": audited.is_sound,
        "dead": sum(stream.dead for stream in planned.streams),
    }
    (place / TOLD).write_text(json.dumps(told))


def replayed(spark: SparkSession, place: Path, end: str) -> ReplaySummary:
    """Table of plain rows → topic, in chunks."""
    return replay(place / "rows", end, key="id", chunk_rows=BATCH_ROWS, spark=spark)


STORIES: dict[str, Callable[..., object]] = {
    story.__name__: story
    for story in (write, speculate, files, copy, table, all_ways, all_jobs, replayed)
}


if __name__ == "__main__":
    main()
