"""``spark.read.format("tidelog")``: the rows are the log's, whatever is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, spark_partition_id

import tidelog
from tests.process.children import Child
from tests.spark.nodes import Node
from tests.spark.rows import fill, frame_rows, log_rows, read


def test_the_rows_are_the_log_in_total_order(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=3)
        fill(orders, 400)
        orders.delete_storage(7)
        wanted = log_rows(orders.read())
    assert frame_rows(read(spark, node.url(topic))) == wanted


def test_many_partitions_have_all_rows_once_and_each_is_in_order(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=3)
        fill(orders, 1000)
        wanted = log_rows(orders.read())
    frame = read(spark, node.url(topic), minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert sorted(frame_rows(frame)) == wanted
    places = frame.select(spark_partition_id(), "glsn").collect()
    for partition in {place[0] for place in places}:
        glsns = [place[1] for place in places if place[0] == partition]
        assert glsns == sorted(glsns)
    few = read(spark, node.url(topic), maxRecordsPerPartition=500)
    assert few.rdd.getNumPartitions() == 2
    assert sorted(frame_rows(few)) == wanted


def test_partitions_of_one_stream_follow_each_other_in_order(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"%d" % i for i in range(5000)])
        wanted = log_rows(events.read())
    frame = read(spark, node.url(topic), minPartitions=5)
    assert frame_rows(frame) == wanted


def test_a_schema_chooses_the_columns(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=2)
        orders.put(b"k", b"v", blobs=(4, 5))
        orders.append(b"w")
    reader = spark.read.format("tidelog").option("endpoint", node.url(topic))
    pruned = reader.schema("value BINARY, blobs ARRAY<BIGINT>, rewritten BOOLEAN, glsn BIGINT")
    rows = [tuple(row) for row in pruned.load().collect()]
    assert rows == [(b"v", [4, 5], False, 1), (b"w", [], False, 2)]
    assert [row.kind for row in reader.schema("kind STRING").load().collect()] == ["PUT", "APPEND"]


def test_explicit_write_versions_sort_as_bytes(spark: SparkSession, node: Node, topic: str) -> None:
    versions = [5, (1 << 127) + 3, 1 << 64]
    with node.connect() as log:
        orders = log.create_topic(topic, versions="explicit")
        for version in versions:
            orders.put(b"k", b"%d" % version, write_version=version)
    rows = read(spark, node.url(topic)).orderBy("write_version").collect()
    assert [int(row.value) for row in rows] == sorted(versions)
    assert rows[0].write_version == (5).to_bytes(16, "big")


def test_offsets_choose_the_range(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        fill(events, 100)
        wanted = log_rows(events.read())
    url = node.url(topic)
    assert frame_rows(read(spark, url, startingOffsets=31)) == wanted[30:]
    assert frame_rows(read(spark, url, endingOffsets=31)) == wanted[:30]
    progress = '{"glsn":21,"from":3}'
    some = read(spark, url, startingOffsets=progress, endingOffsets='{"glsn":41}')
    assert frame_rows(some) == wanted[20:40]
    assert frame_rows(read(spark, url, startingOffsets=41, endingOffsets=41)) == []
    assert frame_rows(read(spark, url, startingOffsets=len(wanted) + 1)) == []


def test_timestamps_choose_the_range(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        for i in range(10):
            events.append(b"%d" % i, stream=events.streams[i % 2])
        wanted = log_rows(events.read())
    moments = [datetime.fromtimestamp(row[8] / 1e6, UTC).isoformat() for row in wanted]
    some = read(spark, node.url(topic), startingTimestamp=moments[3], endingTimestamp=moments[7])
    assert frame_rows(some) == wanted[3:7]
    later = str(wanted[-1][8] // 1000 + 1)
    assert frame_rows(read(spark, node.url(topic), startingTimestamp=later)) == []
    assert frame_rows(read(spark, node.url(topic), startingTimestamp="0")) == wanted


def test_a_filtered_frame_that_is_used_again_has_the_right_rows(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        log.create_topic(topic).append_batch([b"%d" % i for i in range(1000)])
    frame = read(spark, node.url(topic))
    assert frame.filter("glsn > 900").count() == 100
    assert frame.count() == 1000
    both = frame.filter("glsn <= 10").union(frame.filter("glsn > 990"))
    assert sorted(row.glsn for row in both.collect()) == [*range(1, 11), *range(991, 1001)]
    assert frame.filter(col("kind") == "PUT").count() == 0
    assert frame.join(frame.select("glsn"), "glsn").count() == 1000


def test_a_frame_is_a_snapshot(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"old"] * 10)
        frame = read(spark, node.url(topic))
        assert frame.count() == 10
        events.append_batch([b"new"] * 5)
        assert frame.count() == 10
        assert frame.filter("value = 'new'").count() == 0
        assert read(spark, node.url(topic)).count() == 15


def test_an_empty_topic_has_no_rows(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        log.create_topic(topic, streams=2)
    assert frame_rows(read(spark, node.url(topic), minPartitions=4)) == []


def test_what_compaction_removed_is_not_there(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=2)
        for version in range(20):
            orders.put_batch([(b"k%d" % i, b"%d" % version) for i in range(10)])
        orders.compact(full=True)
        wanted = log_rows(orders.read())
    assert len(wanted) < 200
    assert frame_rows(read(spark, node.url(topic))) == wanted


def test_sql_reads_a_topic_as_a_view(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        log.create_topic(topic).append_batch([b"%d" % i for i in range(100)])
    options = f"OPTIONS (endpoint '{node.url(topic)}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW events USING tidelog {options}")
    found = spark.sql("SELECT sum(cast(cast(value AS STRING) AS INT)) FROM events").collect()
    assert found[0][0] == 4950


def test_a_log_is_read_over_tcp(spark: SparkSession, tmp_path: Path) -> None:
    with Child("tests.spark.node_main", str(tmp_path / "log"), "tcp://127.0.0.1:0") as child:
        address = child.wait_for_lines()[0].decode()
        url = address.replace("tcp://", "tidelog://") + "/default"
        with tidelog.connect(url) as log:
            fill(log, 100)
            wanted = log_rows(log.read())
        assert frame_rows(read(spark, url)) == wanted


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_trimmed_range_is_an_error_that_names_the_first_available(
    spark: SparkSession, node: Node, topic: str
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"%d" % i for i in range(50)])
        events.trim(21)
        wanted = log_rows(events.read())
    url = node.url(topic)
    with pytest.raises(PySparkException, match=r"the first available is 21.*failOnDataLoss=false"):
        read(spark, url, startingOffsets=1).count()
    some = read(spark, url, startingOffsets=1, failOnDataLoss="false")
    assert frame_rows(some) == wanted
    assert frame_rows(read(spark, url)) == wanted
    gone = read(spark, url, startingOffsets=1, endingOffsets=11, failOnDataLoss="false")
    assert frame_rows(gone) == []


def test_a_trim_between_plan_and_read(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"%d" % i for i in range(50)])
        strict = read(spark, node.url(topic))
        lax = read(spark, node.url(topic), failOnDataLoss="false")
        assert strict.count() == lax.count() == 50  # Both are planned now.
        events.trim(21)
        with pytest.raises(PySparkException, match="the first available is 21"):
            strict.count()
        assert frame_rows(lax) == log_rows(events.read())


def test_wrong_options_and_schemas_are_told(spark: SparkSession, node: Node, topic: str) -> None:
    with node.connect() as log:
        log.create_topic(topic)
    url = node.url(topic)
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        read(spark, url, startingOfsets="1").count()
    with pytest.raises(PySparkException, match="'endpoint' is missing"):
        spark.read.format("tidelog").load().count()
    with pytest.raises(PySparkException, match="did you mean 'value'"):
        spark.read.format("tidelog").schema("valu BINARY").option("url", url).load().count()
    with pytest.raises(PySparkException, match="it is binary; cast it after the read"):
        spark.read.format("tidelog").schema("value STRING").option("url", url).load().count()
    with pytest.raises(PySparkException, match="has not reached GLSN 7"):
        read(spark, url, startingOffsets="7").count()


def test_an_unknown_topic_and_a_wrong_endpoint_are_told(spark: SparkSession, node: Node) -> None:
    with pytest.raises(PySparkException, match="nowhere"):
        read(spark, node.url("nowhere")).count()
    # The longer deadline, of two minutes, is for logs that were there once.
    with pytest.raises(PySparkException, match="Unreachable"):
        read(spark, "tidelog://127.0.0.1:1/x", connectTimeoutMs=500).count()
