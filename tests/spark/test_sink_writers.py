"""Two queries that write under one name: the one that comes second is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.rows import read_stream


def copy(spark: SparkSession, node: Node, source: str, target: str, checkpoint: Path) -> None:
    """Three batches at most of ten entries each."""
    rows = read_stream(
        spark, node.url(source), startingOffsets="earliest", maxRecordsPerTrigger=10
    ).select("value")
    writer = rows.writeStream.format("tidelog").option("endpoint", node.url(target))
    writer = writer.option("writerId", "copy").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_batches_below_those_of_another_query_are_not_dropped_in_silence(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    target = topic + "-copy"
    with node.connect() as log:
        made = log.create_topic(topic)
        for _ in range(3):
            made.append_batch([b"%d" % i for i in range(10)])
        copied = log.create_topic(target)
        copy(spark, node, topic, target, tmp_path / "first")
        assert len(list(copied.read())) == 30
        with pytest.raises(StreamingQueryException, match="another query write under the same"):
            copy(spark, node, topic, target, tmp_path / "second")
        assert len(list(copied.read())) == 30
        # The first one goes on, and may repeat its last batch.
        for note in (tmp_path / "first" / "commits").glob("*2*"):
            note.unlink()
        made.append_batch([b"%d" % i for i in range(10)])
        copy(spark, node, topic, target, tmp_path / "first")
        assert len(list(copied.read())) == 40
