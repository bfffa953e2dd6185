"""What a driver does on a cluster: ``python -m tests.spark.cluster_job MASTER DIRECTORY URL...``.

The URLs are those of the topics ``TOPICS``.  The driver has a process and a JVM of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.process.children import ROOT
from tests.spark.faulty_sink import SLOW_ATTEMPT, FaultyDataSource
from tests.spark.sessions import LOG4J, SETTINGS

TOPICS = WRITTEN, COPIED, SPECULATED = ("written", "copied", "speculated")
ROWS = 3000
PARTITIONS = 3
QUICK_JVM = f"-Dlog4j2.configurationFile={LOG4J} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ON_CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # A task that takes longer than the first one that is done is tried a second time.
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
}


def main() -> None:
    master, directory, *urls = sys.argv[1:]
    written, copied, speculated = urls
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("tidelog cluster test")
    for name, value in (SETTINGS | ON_CLUSTER).items():
        builder = builder.config(name, value)
    place = Path(directory)
    builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
    spark = builder.config("spark.local.dir", str(place / "local")).getOrCreate()
    try:
        spark.dataSource.register(FaultyDataSource)
        write(rows(spark), endpoint=written)
        copy(spark, written, copied, place / "checkpoint")
        faults = {"fault": SLOW_ATTEMPT, "faults": str(place)}
        write(rows(spark), "tidelog-faulty", endpoint=speculated, **faults)
    finally:
        spark.stop()


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, PARTITIONS).selectExpr("string(id) AS value")


def write(frame: DataFrame, form: str = "tidelog", **options: str) -> None:
    frame.write.format(form).mode("append").options(**options).save()


def copy(spark: SparkSession, begin: str, end: str, checkpoint: Path) -> None:
    """From one topic to the other, as a stream of several micro-batches."""
    source = spark.readStream.format("tidelog").options(endpoint=begin, startingOffsets="earliest")
    source = source.option("maxRecordsPerTrigger", str(ROWS // PARTITIONS))
    sink = source.load().select("value").writeStream.format("tidelog").option("endpoint", end)
    sink = sink.option("checkpointLocation", str(checkpoint))
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
