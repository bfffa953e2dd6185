"""``df.writeStream.format("tidelog")``: every row of a table is in the log exactly once.

The table is a directory of Parquet files, one for each micro-batch.  The second batch, which has
rows, meets each of the faults; afterwards a new query goes on from the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.faulty_sink import (
    BEFORE_COMMIT,
    HELD_COMMIT,
    INSIDE_COMMIT,
    TASK,
    WATCHED_COMMIT,
    FaultyDataSource,
)
from tests.spark.nodes import Node, Served
from tests.spark.rows import DEADLINE_SECONDS, read

ROWS = 300
"""Of each batch."""
SCHEMA = "id long, key string, value string"


class Copy:
    """A query that copies a table into a topic, batch by batch; may be started again."""

    def __init__(self, spark: SparkSession, node: Served, topic: str, place: Path) -> None:
        spark.dataSource.register(FaultyDataSource)
        with node.connect() as log:
            log.create_topic(topic, streams=2)
        self._spark = spark
        self.url = node.url(topic)
        self._place = place
        self.checkpoint = place / "checkpoint"
        self.faults = place / "faults"
        self.faults.mkdir()
        (place / "table").mkdir()
        self._batches = 0

    def add_batches(self, count: int) -> None:
        """One file for each; names ascend, so that Spark takes them in this order."""
        for _ in range(count):
            first = self._batches * ROWS
            rows = self._spark.range(first, first + ROWS, 1, 1).select(
                "id",
                F.concat(F.lit("key "), F.col("id") % 7).alias("key"),
                F.concat(F.lit("value "), "id").alias("value"),
            )
            written = self._place / f"written-{self._batches}"
            rows.write.parquet(str(written))
            (file,) = written.glob("*.parquet")
            file.rename(self._place / "table" / f"{self._batches:03}.parquet")
            self._batches += 1

    def start(self, *, fault: str = "", partitions: int = 2) -> StreamingQuery:
        table = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        rows = table.parquet(str(self._place / "table")).repartition(partitions, "key")
        writer = rows.select("key", "value").writeStream.format("tidelog-faulty")
        options = {"endpoint": self.url, "fault": fault, "faults": str(self.faults)}
        writer = writer.options(**options).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start()

    def run(self, *, fault: str = "", partitions: int = 2) -> None:
        with ended(self.start(fault=fault, partitions=partitions)) as query:
            query.awaitTermination()

    def happened(self, fault: str) -> bool:
        return (self.faults / fault).exists()

    def check(self) -> None:
        """All rows are there once; each key's in their order."""
        rows = read(self._spark, self.url).orderBy("glsn").selectExpr("string(value)").collect()
        found = [int(row[0].removeprefix("value ")) for row in rows]
        assert len(found) == self._batches * ROWS
        assert set(found) == set(range(self._batches * ROWS))
        for batch in range(self._batches):
            mine = found[batch * ROWS : (batch + 1) * ROWS]
            assert set(mine) == set(range(batch * ROWS, (batch + 1) * ROWS)), "batches are whole"


@contextmanager
def ended(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


@pytest.fixture
def copy(spark: SparkSession, node: Node, topic: str, tmp_path: Path) -> Copy:
    made = Copy(spark, node, topic, tmp_path)
    made.add_batches(2)
    return made


@pytest.mark.parametrize("fault", [BEFORE_COMMIT, INSIDE_COMMIT])
def test_a_crash_of_the_driver_in_a_commit(copy: Copy, fault: str) -> None:
    """S2; the batch is written again by another number of tasks."""
    with pytest.raises(StreamingQueryException, match="the driver fails"):
        copy.run(fault=fault)
    assert copy.happened(fault)
    copy.add_batches(1)
    copy.run(partitions=5)
    copy.check()


def test_a_crash_of_the_driver_after_the_commit(copy: Copy) -> None:
    """The log has published batch 1, and Spark's own note that it is done was never written."""
    copy.run()
    for note in (copy.checkpoint / "commits").glob("*1*"):
        note.unlink()
    copy.add_batches(1)
    copy.run(partitions=3)
    copy.check()


def test_a_task_that_is_tried_again(copy: Copy) -> None:
    copy.run(fault=TASK)
    assert copy.happened(TASK)
    copy.check()


def test_the_node_is_killed_between_stage_and_publish(copy: Copy, node: Node) -> None:
    with ended(copy.start(fault=HELD_COMMIT)) as query:
        wait_for(query, copy, HELD_COMMIT)
        node.kill()
        node.start()
        (copy.faults / "go").touch()
        query.awaitTermination()
    copy.check()


def test_the_node_is_killed_while_it_publishes(copy: Copy, node: Node) -> None:
    """Whether it had published or not: the driver asks again, and the log knows."""
    with ended(copy.start(fault=WATCHED_COMMIT)) as query:
        wait_for(query, copy, WATCHED_COMMIT)
        node.kill()
        node.start()
        query.awaitTermination()
    copy.check()


def test_another_output_mode_is_refused(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    rows = counts.selectExpr("string(value) AS value")
    writer = rows.writeStream.format("tidelog").option("endpoint", node.url())
    writer = writer.option("checkpointLocation", str(tmp_path)).outputMode("complete")
    with (
        pytest.raises(StreamingQueryException, match="outputMode\\('append'\\)"),
        ended(writer.start()) as query,
    ):
        query.awaitTermination()


def wait_for(query: StreamingQuery, copy: Copy, fault: str) -> None:
    deadline = monotonic() + DEADLINE_SECONDS
    while not copy.happened(fault):
        Event().wait(0.01)
        assert query.isActive, f"the query ended before its fault: {query.exception()}"
        assert monotonic() < deadline, "the fault did not happen"
