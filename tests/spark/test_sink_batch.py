"""``df.write.format("tidelog")``: the rows of a job are in the log, once, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.faulty_sink import EVERY_TASK, INSIDE_COMMIT, TASK, FaultyDataSource
from tests.spark.nodes import Node
from tests.spark.rows import fill, frame_rows, log_rows, read
from tidelog.interface.records import Record


def write(frame: DataFrame, url: str, *, format: str = "tidelog", **options: object) -> None:
    writer = frame.write.format(format).mode("append").option("endpoint", url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def records(node: Node, topic: str) -> list[Record]:
    with node.connect(topic) as log:
        return list(log.read())


def make_topic(node: Node, topic: str, **options: Any) -> str:
    with node.connect() as log:
        log.create_topic(topic, **options)
    return node.url(topic)


def test_rows_keep_their_order_inside_and_across_partitions(
    spark: SparkSession, node: Node, topic: str
) -> None:
    """S3, in chunks that are much smaller than a partition."""
    url = make_topic(node, topic, streams=3)
    frame = spark.range(0, 20_000, 1, 4).select(
        F.format_string("row %d %s", "id", F.repeat(F.lit("x"), 40)).alias("value")
    )
    write(frame, url, batchBytes=64 * 1024)
    values = [row.value.encode() for row in frame.collect()]
    assert [record.value for record in records(node, topic)] == values


def test_a_table_goes_to_the_log_and_comes_back(
    spark: SparkSession, node: Node, topic: str
) -> None:
    url = make_topic(node, topic, streams=2)
    rows = [
        ("PUT", "a", "1", 7), ("PUT", "b", "2", 7), ("DELETE", "a", None, 7),
        (None, "c", "3", None), (None, None, "4", None), ("APPEND", "d", "5", 1),
        ("DELETE_STORAGE", None, None, -1),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, "kind string, key string, value string, storage_id long")
    write(frame.coalesce(1), url)
    text = [F.col(name).cast("string").alias(name) for name in ("kind", "key", "value")]
    back = read(spark, url).select(*text, "storage_id", "stream")
    found = [tuple(row)[:4] for row in back.collect()]
    # A storage is deleted in each stream that has keys.
    expected = [
        ("PUT", "a", "1", 7), ("PUT", "b", "2", 7), ("DELETE", "a", None, 7), ("PUT", "c", "3", 0),
        ("APPEND", None, "4", 0), ("APPEND", "d", "5", 1),
        ("DELETE_STORAGE", None, None, -1), ("DELETE_STORAGE", None, None, -1),
    ]  # fmt: skip
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_one_log_can_be_copied_into_another(spark: SparkSession, node: Node, topic: str) -> None:
    """All columns of the source are taken; those that only a log gives are given anew."""
    source, target = make_topic(node, topic), make_topic(node, topic + "-copy")
    with node.connect(topic) as log:
        fill(log, 60)
    write(read(spark, source), target)
    same = ["kind", "storage_id", "key", "value", "timestamp"]
    copied = frame_rows(read(spark, target).select("glsn", *same))
    assert [row[1:] for row in copied] == [
        row[1:] for row in frame_rows(read(spark, source).select("glsn", *same))
    ]


def test_explicit_versions_are_kept(spark: SparkSession, node: Node, topic: str) -> None:
    url = make_topic(node, topic, versions="explicit")
    frame = spark.createDataFrame(
        [("k", "old", 5), ("k", "new", 9), ("k", "late", 7)],
        "key string, value string, write_version long",
    )
    write(frame.coalesce(1), url)
    assert [record.write_version for record in records(node, topic)] == [5, 9, 7]
    with node.connect(topic) as log:
        newest = log.get(b"k")
    assert newest is not None
    assert newest.value == b"new"


def test_a_transaction_is_written_once(spark: SparkSession, node: Node, topic: str) -> None:
    url = make_topic(node, topic)
    frame = spark.range(100).select(F.col("id").cast("string").alias("value"))
    for version in (1, 1, 2, 1):
        write(frame, url, txnAppId="nightly", txnVersion=version)
    write(frame, url, txnAppId="other", txnVersion=1)
    write(frame, url)
    write(frame, url)
    assert len(records(node, topic)) == 500


def test_no_rows_are_no_error(spark: SparkSession, node: Node, topic: str) -> None:
    url = make_topic(node, topic)
    write(spark.createDataFrame([], "value string"), url)
    assert records(node, topic) == []


def test_a_failed_task_is_tried_again_and_its_rows_are_there_once(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    """S1: the first attempt had staged all of its rows."""
    spark.dataSource.register(FaultyDataSource)
    url = make_topic(node, topic)
    frame = spark.range(0, 1000, 1, 4).select(F.col("id").cast("string").alias("value"))
    write(frame, url, format="tidelog-faulty", fault=TASK, faults=tmp_path)
    assert (tmp_path / TASK).exists()
    assert [int(record.value) for record in records(node, topic)] == list(range(1000))


def test_a_failed_job_leaves_nothing(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(FaultyDataSource)
    url = make_topic(node, topic)
    frame = spark.range(0, 100, 1, 1).select(F.col("id").cast("string").alias("value"))
    with pytest.raises(PySparkException, match="staged its rows"):
        write(frame, url, format="tidelog-faulty", fault=EVERY_TASK, faults=tmp_path)
    assert records(node, topic) == []


def test_a_transaction_that_took_effect_unnoticed_is_not_written_again(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    """Spark aborts it, which takes nothing away (S2); then the job is run again."""
    spark.dataSource.register(FaultyDataSource)
    url = make_topic(node, topic)
    frame = spark.range(0, 100, 1, 4).select(F.col("id").cast("string").alias("value"))
    options = {"fault": INSIDE_COMMIT, "faults": tmp_path, "txnAppId": "a", "txnVersion": 4}
    with pytest.raises(PySparkException, match="took effect"):
        write(frame, url, format="tidelog-faulty", **options)
    write(frame.repartition(3), url, format="tidelog-faulty", **options)
    assert [int(record.value) for record in records(node, topic)] == list(range(100))


def test_a_log_is_not_overwritten(spark: SparkSession, node: Node) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("tidelog").mode("overwrite").option("endpoint", node.url()).save()


def test_bad_rows_and_unknown_topics_fail_the_job_with_our_words(
    spark: SparkSession, node: Node
) -> None:
    bad = spark.createDataFrame([("UPSERT", "x")], "kind string, value string").coalesce(1)
    with pytest.raises(PySparkException, match="takes no column 'colour'"):
        write(bad.withColumnRenamed("kind", "colour"), node.url())
    with pytest.raises(PySparkException, match="UnknownTopic"):
        write(bad.select("value"), node.url("nowhere"))


def test_log_rows_are_what_the_source_shows(spark: SparkSession, node: Node, topic: str) -> None:
    url = make_topic(node, topic, streams=2)
    frame = spark.range(500).select(
        F.concat(F.lit("k"), F.col("id") % 50).alias("key"),
        F.col("id").cast("string").alias("value"),
    )
    write(frame, url)
    assert frame_rows(read(spark, url).orderBy("glsn")) == log_rows(records(node, topic))
