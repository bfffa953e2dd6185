"""Tables replayed into a log: every row is there once, whatever ended the runs before."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from tests.spark.nodes import Node
from tidelog.cli.pipeline_replay import command
from tidelog.client.blocking import RemoteTopic
from tidelog.errors import BadEntry, BadOption, LogError
from tidelog.pipeline import ReplaySummary, materialize, read_table, replay
from tidelog.pipeline.materialization.job import TableFormat
from tidelog.pipeline.replaying.running import Replay
from tidelog.pipeline.replaying.tables import open_version


def fill(topic: RemoteTopic) -> None:
    explicit = topic.versions == "explicit"
    for number in range(60):
        version = 1000 - number if explicit and number % 2 else number + 1
        topic.put(
            f"k{number % 25}".encode(),
            f"v{number}".encode(),
            storage_id=number % 2 * ((1 << 64) - 1),
            write_version=version if explicit else None,
        )
    topic.delete(b"k3", storage_id=0, write_version=2000 if explicit else None)


def state(frame: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


class Interrupted(LogError):
    """What stands for the end of a process."""


@pytest.fixture
def rows_table(spark: SparkSession, tmp_path: Path) -> Path:
    """A plain Parquet table of four files."""
    frame = spark.range(0, 100, 1, 4).selectExpr("id", "id * 2 AS twice", "concat('n', id) AS name")
    frame.write.parquet(str(tmp_path / "rows"))
    return tmp_path / "rows"


def replay_rows(table: Path, url: str, spark: SparkSession, chunk_rows: int) -> ReplaySummary:
    return replay(table, url, key="name", chunk_rows=chunk_rows, spark=spark)


def test_a_copy_of_a_delta_table_that_went_its_own_way_is_another_table(tmp_path: Path) -> None:
    table, moved, changed = (tmp_path / name for name in ("table", "moved", "changed"))
    write_deltalake(table, pa.table({"n": [1]}))
    copytree(table, moved)
    copytree(table, changed)
    assert open_version(moved).identity == open_version(table).identity
    write_deltalake(table, pa.table({"n": [2]}), mode="append")
    write_deltalake(changed, pa.table({"n": [3]}), mode="append")
    assert open_version(changed).identity != open_version(table).identity


# -- round trip ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table_format", "versions"),
    [("delta", "explicit"), pytest.param("parquet", "log", marks=pytest.mark.soak)],
)
def test_a_table_comes_back_from_the_log_that_it_was_replayed_into(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, table_format: str, versions: str
) -> None:
    columns = ["storage_id", "key", "value", "timestamp"]
    columns += ["write_version"] if versions == "explicit" else []
    form: TableFormat = "delta" if table_format == "delta" else "parquet"
    with node.connect() as log:
        fill(log.create_topic(topic, streams=2, versions=versions))
        copy = log.create_topic(f"{topic}-copy", streams=3, versions=versions)
        materialize(node.url(topic), tmp_path / "a", format=form, spark=spark)
        summary = replay(tmp_path / "a", node.url(copy.name), spark=spark)
        again = replay(tmp_path / "a", node.url(copy.name), spark=spark)
        materialize(node.url(copy.name), tmp_path / "b", format=form, spark=spark)
        assert copy.high_watermark == summary.rows
    first = read_table(spark, str(tmp_path / "a"))
    second = read_table(spark, str(tmp_path / "b"))
    assert state(second, *columns) == state(first, *columns)
    assert summary.rows == summary.table_rows == first.count() == 49
    assert (again.rows, again.chunks_before) == (0, summary.chunks)


def test_a_newer_version_of_a_delta_table_is_replayed_as_a_whole(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic)
        for version, (number, text) in enumerate([(1, "one"), (2, "two")], 1):
            rows = pa.table({"number": [number], "text": [text]})
            write_deltalake(tmp_path / "table", rows, mode="append")
            for expected in (version, 0):
                summary = replay(
                    tmp_path / "table", node.url(topic), key="number", value="text", spark=spark
                )
                assert (summary.format, summary.rows) == ("delta", expected)
        found = [(record.key, record.value) for record in made.read()]
    assert sorted(found) == [(b"1", b"one"), (b"1", b"one"), (b"2", b"two")]


def test_a_delta_table_with_partitions_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"number": [1], "day": ["monday"]})
    write_deltalake(tmp_path / "table", rows, partition_by=["day"])
    with pytest.raises(BadOption, match="has partitions"):
        open_version(tmp_path / "table")


# -- any table -------------------------------------------------------------------------------------


def test_rows_of_any_table_become_json_under_their_keys(
    spark: SparkSession, node: Node, topic: str, rows_table: Path
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic)
        summary = replay(rows_table, node.url(topic), key="name", storage_id=7, spark=spark)
        found = made.get(b"n42", storage_id=7)
    assert (summary.rows, summary.format) == (100, "parquet")
    assert found is not None
    assert found.value == b'{"id":42,"twice":84}'


def test_rows_without_keys_keep_the_order_that_was_asked_for(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(0, 50, 1, 3).selectExpr("id", "(id * 37) % 50 AS place")
    frame.write.format("parquet").save(str(tmp_path / "rows"))
    with node.connect() as log:
        made = log.create_topic(topic, streams=2)
        summary = replay(
            tmp_path / "rows", node.url(topic), value="place", order_by=["place"], spark=spark
        )
        values = [int(record.value) for record in made.read()]
    assert values == list(range(50))
    assert summary.chunks == 1


# -- exactly once ----------------------------------------------------------------------------------


class Stopping:
    """A step that ends its process the second time it is taken."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        self._calls = 0

    def __get__(self, owner: object, kind: type | None = None) -> Callable[..., Any]:
        return partial(self._call, owner)

    def _call(self, *arguments: Any) -> Any:
        self._calls += 1
        if self._calls == 2:
            raise Interrupted("killed")
        return self._step(*arguments)


@pytest.mark.parametrize(("step", "before"), [("_publish", 1), ("_note", 1)])
def test_a_run_that_ended_before_a_chunk_or_before_its_note_is_gone_on_with(
    spark: SparkSession,
    node: Node,
    topic: str,
    rows_table: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    before: int,
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic)
        with monkeypatch.context() as patch:
            patch.setattr(Replay, step, Stopping(getattr(Replay, step)))
            with pytest.raises(Interrupted):
                replay_rows(rows_table, node.url(topic), spark, chunk_rows=25)
        summary = replay_rows(rows_table, node.url(topic), spark, chunk_rows=1000)
        keys = sorted(record.key for record in made.read())
    assert keys == sorted(f"n{number}".encode() for number in range(100))
    # The size of chunks is that of the first run.
    assert (summary.chunks, summary.chunks_before) == (4, before)


def test_what_cannot_be_replayed_is_refused_before_anything_is_written(
    spark: SparkSession, node: Node, topic: str, rows_table: Path, tmp_path: Path
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic, versions="explicit")
        url = node.url(topic)
        with pytest.raises(BadOption, match="no column 'nobody'"):
            replay(rows_table, url, key="nobody", version="id", spark=spark)
        with pytest.raises(BadOption, match="which column"):
            replay(rows_table, url, key="name", spark=spark)
        with pytest.raises(BadOption, match="no table at"):
            replay(tmp_path / "nothing", url, spark=spark)
        with pytest.raises(BadOption, match="give key"):
            replay(rows_table, url, storage_id=1, spark=spark)
        assert made.high_watermark == 0
        assert open_version(rows_table).rows == 100


def test_the_command_tells_how_many_rows_it_appended(
    spark: SparkSession, node: Node, topic: str, rows_table: Path
) -> None:
    with node.connect() as log:
        log.create_topic(topic)
    arguments = ["--from", str(rows_table), "--to", node.url(topic), "--key", "name"]
    arguments += ["--chunk-rows", "50"]
    told = CliRunner().invoke(command, arguments)
    assert told.exit_code == 0, told.stderr
    assert "rows appended        100" in told.stdout
    assert "chunk 2 of 2: 50 rows" in told.stderr
    again = json.loads(CliRunner().invoke(command, [*arguments, "-o", "json"]).stdout)
    assert (again["rows"], again["table_rows"], again["chunks_before"]) == (0, 100, 2)


def test_a_row_without_a_key_is_refused_and_nothing_of_its_chunk_is_appended(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr("nullif(id, 7) AS id", "'x' AS text")
    frame.write.parquet(str(tmp_path / "rows"))
    with node.connect() as log:
        made = log.create_topic(topic)
        with pytest.raises(BadEntry):
            replay(tmp_path / "rows", node.url(topic), key="id", spark=spark)
        assert made.high_watermark == 0
