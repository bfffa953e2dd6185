"""``archive`` on Spark, and Spark reading archive and log as one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.rows import Batches, Row, fill, frame_rows, log_rows, read, read_stream
from tests.spark.test_source_stream import run_to_end, running
from tidelog.cli.pipeline_archive import command
from tidelog.errors import Trimmed
from tidelog.pipeline import ArchiveProgress, archive
from tidelog.pipeline.archiving.tasks import SparkWriter
from tidelog.pipeline.session import session
from tidelog.spark.archive_directory import read_manifest
from tidelog.storage.os_vfs import OsVfs
from tidelog.testing.local_cluster import LocalCluster


def test_archive_and_log_are_read_as_one(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    url, directory, told = node.url(topic), tmp_path / "deep" / "archive", list[ArchiveProgress]()
    with node.connect() as log:
        orders = log.create_topic(topic, streams=3)
        for i in range(20):
            orders.append_batch([b"%d" % (i * 50 + j) for j in range(50)])
        before = log_rows(orders.read())
        first = archive(url, directory, up_to=801, range_entries=300, spark=spark)
        summary = archive(
            url, directory, range_entries=300, trim=True, spark=spark, progress=told.append
        )
        fill(orders, 50)
        wanted = before + log_rows(orders.read())
        assert orders.first_available == 1001
    assert (first.rows, first.files, first.first_available) == (800, 3, 1)
    assert (summary.glsn_begin, summary.glsn_end, summary.archive_rows) == (801, 1001, 1000)
    assert [(step.glsn_begin, step.glsn_end, step.rows) for step in told] == [(801, 1001, 200)]
    frame = read(spark, url, archive=str(directory), minPartitions=4)
    assert frame_rows(frame.orderBy("glsn")) == wanted
    assert frame.rdd.getNumPartitions() >= 4
    stream = read_stream(
        spark,
        url,
        archive=str(directory),
        startingOffsets="earliest",
        maxRecordsPerTrigger=350,
    )
    found = run_to_end(stream, tmp_path / "checkpoint")
    assert found.rows == wanted
    assert [len(rows) for _, rows in found.found] == [350, 350, 300, len(wanted) - 1000]


def test_a_query_goes_on_while_the_log_is_archived_and_trimmed_under_it(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    url, found = node.url(topic), Batches()
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        fill_plainly = [b"%d" % i for i in range(100)]
        events.append_batch(fill_plainly)
        archive(url, tmp_path / "archive", range_entries=30, spark=spark)
        frame = read_stream(
            spark, url, archive=str(tmp_path / "archive"), startingOffsets=1, readerName="q"
        )
        with running(frame, found, tmp_path / "checkpoint") as query:
            found.wait_for(query, 100)
            events.append_batch(fill_plainly)
            found.wait_for(query, 200)
        events.append_batch(fill_plainly)
        archive(url, tmp_path / "archive", range_entries=30, trim=True, spark=spark)
        events.append_batch(fill_plainly)
        with running(frame, found, tmp_path / "checkpoint") as query:
            found.wait_until(query, lambda: bool(found.rows) and found.rows[-1][0] == 400)
    # The last batch before the stop may have come again, and then from the archive.
    batches: dict[int, list[Row]] = {}
    for batch, rows in found.found:
        assert batches.setdefault(batch, rows) == rows
    whole = [row for rows in batches.values() for row in rows]
    assert [row[6] for row in whole] == fill_plainly * 4
    assert [row[0] for row in whole] == list(range(1, 401))


def test_other_programs_can_read_the_files(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=2)
        fill(orders, 60)
        orders.put(b"k", b"v", blobs=(4, 5))
        wanted = log_rows(orders.read())
    archive(node.url(topic), tmp_path, range_entries=25, spark=spark)
    frame = spark.read.parquet(str(tmp_path)).orderBy("glsn")
    assert frame_rows(frame.drop("blobs", "rewritten")) == wanted
    assert frame.tail(1)[0].blobs == [4, 5]
    manifest = read_manifest(OsVfs(), str(tmp_path))
    assert manifest is not None
    for file in manifest.files:
        facts = parquet.ParquetFile(tmp_path / file.name)
        glsn = facts.metadata.row_group(0).column(0)
        assert glsn.compression == "ZSTD"
        assert (glsn.statistics.min, glsn.statistics.max) == (file.glsn_begin, file.glsn_end - 1)
        assert facts.schema_arrow.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_an_error_of_a_task_is_the_error_of_the_log(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"x"] * 10)
        events.trim(5)
    options = {"endpoint": node.url(topic)}
    with (
        pytest.raises(Trimmed, match="GLSN 3 of topic") as raised,
        session(spark, "local", "archive") as opened,
    ):
        SparkWriter(opened, options, str(tmp_path))([(3, 8), (8, 11)])
    assert raised.value.first_available == 5


def test_the_command_archives_and_tells_what_it_did(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        orders = log.create_topic(topic, streams=2)
        orders.append_batch([b"x"] * 90)
        orders.put(b"k", b"v")
        orders.append_batch([b"x"] * 9)
    where = ["--from", node.url(topic), "--to", str(tmp_path / "archive")]
    some = ["--up-to", "81", "--range-entries", "50", "--trim", "--keep", "10"]
    ran = CliRunner().invoke(command, [*where, *some, "-o", "json"], catch_exceptions=False)
    summary = json.loads(ran.stdout)
    assert (summary["rows"], summary["files"], summary["glsn_end"]) == (80, 2, 81)
    assert summary["first_available"] == 71
    assert "GLSN 1 to 80 of 80: 80 entries in 2 files" in ran.stderr
    ran = CliRunner().invoke(command, [*where, "--trim"], catch_exceptions=False)
    assert "100 entries from GLSN 1 on in 3 files" in ran.stdout
    assert "to GLSN 91, where entries with keys begin" in ran.stdout


def test_a_cluster_is_archived_and_read_with_its_archive(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    url, directory = cluster.url_of(topic), tmp_path / "archive"
    with cluster.connect() as log:
        orders = log.create_topic(topic, streams=2, replicas=3)
        for i in range(10):
            orders.append_batch([b"%d" % (i * 20 + j) for j in range(20)])
        before = log_rows(orders.read())
        summary = archive(url, directory, range_entries=60, trim=True, keep=30, spark=spark)
        orders.append_batch([b"later"] * 10)
        wanted = before + [row for row in log_rows(orders.read()) if row[0] >= summary.glsn_end]
        assert orders.first_available == summary.glsn_end - 30
    assert summary.rows == 200
    # Control entries take positions too.
    assert summary.glsn_end == summary.rows + summary.missing + 1
    frame = read(spark, url, archive=str(directory))
    assert frame_rows(frame.orderBy("glsn")) == wanted
    stream = read_stream(
        spark, url, archive=str(directory), startingOffsets="earliest", maxRecordsPerTrigger=70
    )
    assert run_to_end(stream, tmp_path / "checkpoint").rows == wanted
