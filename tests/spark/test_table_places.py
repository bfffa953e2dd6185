"""Tables in all sorts of places, sessions and times, and what jobs on them fail with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import unix_micros

from tests.spark.nodes import Node
from tidelog.errors import BadOption, Trimmed
from tidelog.pipeline import materialize, read_table, replay
from tidelog.pipeline.materialization import running
from tidelog.pipeline.materialization.changes import facts_of_entries
from tidelog.pipeline.materialization.delta_table import DeltaFacts
from tidelog.pipeline.materialization.running import ENTRY_COLUMNS
from tidelog.pipeline.materialization.tables import Beginning, Origin

NAME = "a b [1] {x,y} #?*"


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_name_is_no_pattern_and_no_url(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, format: Any
) -> None:
    table, url = tmp_path / NAME / "table", node.url(topic)
    with node.connect() as log:
        made, again = log.create_topic(topic), log.create_topic(topic + "-again")
        # A removal of a storage, and a write that comes late: both look into the files.
        for number in range(3):
            made.put_batch([(b"k%d" % i, b"%d" % number) for i in range(5)], storage_id=number)
            made.delete_storage(number)
            made.put(b"k", b"%d" % number, storage_id=number)
            materialize(url, table, format=format, spark=spark)
        rows = read_table(spark, str(table)).select("storage_id", "value").collect()
        assert sorted(tuple(row) for row in rows) == [(i, b"%d" % i) for i in range(3)]
        assert replay(table, node.url(topic + "-again"), spark=spark).rows == 3
        assert sorted(record.value for record in again.read()) == [b"0", b"1", b"2"]


def test_rows_of_a_table_whose_name_a_pattern_fits_are_not_read(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    url = node.url(topic)
    with node.connect() as log:
        made = log.create_topic(topic)
        made.put_batch([(b"k%d" % i, b"v") for i in range(4)])
        for name in ("t1", "t[12]"):
            materialize(url, tmp_path / name, format="parquet", spark=spark)
        made.delete(b"k0")
        materialize(url, tmp_path / "t1", format="parquet", spark=spark)
        made.delete(b"k1")
        materialize(url, tmp_path / "t[12]", format="parquet", spark=spark)
    rows = read_table(spark, str(tmp_path / "t[12]")).collect()
    assert sorted(row.key for row in rows) == [b"k2", b"k3"]


def test_what_delta_cannot_name_is_refused(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="has a % in it: use another directory"):
        materialize(node.url(), tmp_path / "50% off", spark=spark)
    assert materialize(node.url(), tmp_path / "50% off", format="parquet", spark=spark).batches


def test_what_a_task_of_a_batch_fails_with_is_an_error_of_ours(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise PySparkException("tidelog.errors.Trimmed: gone; the first available is 7")

    with node.connect() as log:
        log.put(b"k", b"v")
    monkeypatch.setattr(running, "Facts", fail)
    with pytest.raises(Trimmed) as failed:
        materialize(node.url(), tmp_path / "table", format="parquet", spark=spark)
    assert failed.value.first_available == 7


@pytest.mark.parametrize(("first", "second"), [("delta", "parquet"), ("parquet", "delta")])
def test_a_directory_holds_a_table_of_one_format(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, first: Any, second: Any
) -> None:
    """Of two tables in one place readers would see the one that nobody brings up to date."""
    with node.connect() as log:
        log.create_topic(topic)
    materialize(node.url(topic), tmp_path / "table", format=first, spark=spark)
    with pytest.raises(BadOption, match="use another directory"):
        materialize(node.url(topic), tmp_path / "table", format=second, spark=spark)


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_times_have_a_zone_whatever_the_session_says(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, format: Any
) -> None:
    with node.connect() as log:
        log.create_topic(topic).put(b"k", b"v")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        summary = materialize(node.url(topic), tmp_path / "table", format=format, spark=spark)
        [row] = read_table(spark, str(tmp_path / "table")).collect()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert summary.table_rows == 1
    assert row.timestamp is not None


def test_a_rebuild_keeps_times_of_every_year(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes them in a way that Arrow reads as nanoseconds, unless it is told otherwise."""
    times = [253_402_300_799_999_999, -62_135_596_800_000_000, 1 << 62]
    rows = spark.createDataFrame(
        [(glsn, b"k%d" % glsn, time) for glsn, time in enumerate(times, 1)],
        "glsn BIGINT, key BINARY, time BIGINT",
    ).selectExpr(
        "glsn", "1L AS stream", "'PUT' AS kind", "0L AS storage_id", "key", "key AS value",
        "cast('0123456789abcdef' AS binary) AS write_version",
        "timestamp_micros(time) AS timestamp",
    )  # fmt: skip
    assert rows.columns == [name.split()[0] for name in ENTRY_COLUMNS.split(", ")]
    table = DeltaFacts(spark, tmp_path / "table", Origin("00" * 16, "t"), Beginning())
    table.rebuild(facts_of_entries(rows), 4, Beginning())
    found = table.rows().orderBy("glsn").select(unix_micros("timestamp").alias("time")).collect()
    assert [row.time for row in found] == times
