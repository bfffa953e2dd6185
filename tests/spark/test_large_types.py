"""Source, sink and jobs in a session whose Arrow has strings and bytes with offsets of 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.rows import fill, frame_rows, log_rows, read
from tests.spark.test_sink_batch import write
from tidelog.pipeline import archive, audit, compact_plan, materialize, read_table, replay
from tidelog.pipeline.materialization.job import TableFormat

SETTING = "spark.sql.execution.arrow.useLargeVarTypes"


@pytest.fixture
def large(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture
def filled(node: Node, topic: str) -> str:
    """The URL of a topic with entries of all kinds."""
    with node.connect() as log:
        made = log.create_topic(topic, streams=2)
        fill(made, 60)
        made.delete_storage(7)
        made.put_batch([(b"k%d" % number, b"v") for number in range(30)])
    return node.url(topic)


def test_rows_go_to_the_log_and_come_back(
    large: SparkSession, node: Node, topic: str, filled: str
) -> None:
    with node.connect() as log:
        wanted = log_rows(log.topic(topic).read())
        copy = log.create_topic(f"{topic}-copy", streams=2)
        rows = read(large, filled)
        assert sorted(frame_rows(rows.drop("blobs", "rewritten"))) == sorted(wanted)
        write(rows, node.url(copy.name))
        # A storage is deleted in each stream that has keys, by each row that says so.
        copied = {row[3:7] for row in log_rows(copy.read())}
        assert copied == {row[3:7] for row in wanted}


def test_an_archive_is_read_back(
    large: SparkSession, node: Node, topic: str, filled: str, tmp_path: Path
) -> None:
    archive(filled, tmp_path, range_entries=50, spark=large)
    with node.connect() as log:
        wanted = log_rows(log.topic(topic).read())
    found = frame_rows(read(large, filled, archive=str(tmp_path)).drop("blobs", "rewritten"))
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_is_made_rebuilt_and_replayed(
    large: SparkSession, node: Node, topic: str, filled: str, tmp_path: Path, kind: TableFormat
) -> None:
    def table() -> dict[bytes, bytes]:
        return {
            bytes(row.key): bytes(row.value) for row in read_table(large, str(tmp_path)).collect()
        }

    materialize(filled, tmp_path, format=kind, spark=large)
    with node.connect() as log:
        made = log.topic(topic)
        for number in range(15):
            made.delete(b"k%d" % number)
        materialize(filled, tmp_path, format=kind, spark=large)
        assert table() == {b"k%d" % number: b"v" for number in range(15, 30)}
        for number in range(15, 20):
            made.delete(b"k%d" % number)
        for _ in range(3):  # A delete goes when nothing that it hides is left.
            made.put(b"last", b"v")
            made.compact(full=True)
        assert materialize(filled, tmp_path, format=kind, spark=large).rebuilds == 1
        assert len(table()) == 11
        copy = log.create_topic(f"{topic}-again")
        assert replay(tmp_path, node.url(copy.name), spark=large).rows == 11


def test_a_plan_is_made_and_taken(large: SparkSession, node: Node, topic: str, filled: str) -> None:
    summary = compact_plan(filled, apply=True, full=True, spark=large)
    assert summary.dead > 0
    assert [outcome.refused for outcome in summary.outcomes] == [""] * 2
    with node.connect() as log:
        assert log.topic(topic).get(b"k1") is not None


def test_an_audit_finds_nothing(large: SparkSession, node: Node, filled: str) -> None:
    summary = audit(filled, spark=large)
    assert summary.is_sound
    assert summary.entries > 60
