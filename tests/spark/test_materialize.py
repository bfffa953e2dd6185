"""``materialize`` from a served log: the table is the log's state, whatever happened on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.model import Row, Step, few, histories, state_of
from tests.spark.nodes import Node, Served
from tests.spark.rows import DEADLINE_SECONDS
from tidelog.errors import (
    BadOption,
    CorruptData,
    LogLocked,
    UnknownTopic,
    Unreachable,
    WrongLog,
)
from tidelog.formats.entry import Entry, Kind
from tidelog.pipeline import BatchProgress, MaterializeSummary, materialize, read_table
from tidelog.pipeline.materialization.delta_table import DeltaFacts
from tidelog.pipeline.materialization.parquet_table import ParquetFacts
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic

KEYS = 40
NUMBERS = count(1)


@pytest.fixture(params=["delta", pytest.param("parquet", marks=pytest.mark.soak)])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


class Job:
    """A table and the topic that it is made from."""

    def __init__(
        self, spark: SparkSession, node: Served, topic: str, place: Path, kind: Any
    ) -> None:
        self.spark = spark
        self.node = node
        self.topic = topic
        self.table = place / "table"
        self.checkpoint = place / "checkpoint"
        self.kind = kind

    def run(self, **options: Any) -> MaterializeSummary:
        given = {"format": self.kind, "checkpoint": self.checkpoint, "spark": self.spark}
        return materialize(self.node.url(self.topic), self.table, **{**given, **options})

    def rows(self) -> list[Row]:
        return rows_of(read_table(self.spark, str(self.table)))

    def check(self) -> None:
        with self.node.connect(self.topic) as log:
            assert self.rows() == state_of(log.read())

    def write(self, begin: int, end: int) -> None:
        """Puts and deletes of few keys, so that every part of the history matters."""
        with self.node.connect(self.topic) as log:
            for number in range(begin, end):
                key = b"key %d" % (number * 7 % KEYS)
                if number % 5 == 4:
                    log.delete(key)
                else:
                    log.put(key, b"value %d" % number)

    def forget_last_commit(self) -> None:
        """As if the driver had ended between the table's commit and Spark's."""
        (commits,) = self.checkpoint.glob("*/commits")
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()


@pytest.fixture
def job(spark: SparkSession, node: Node, topic: str, tmp_path: Path, kind: Any) -> Job:
    with node.connect() as log:
        log.create_topic(topic, streams=2)
    return Job(spark, node, topic, tmp_path, kind)


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(
        (row.storage_id, bytes(row.key), bytes(row.value),
         int.from_bytes(row.write_version, "big"), row.glsn, row.stream)
        for row in frame.collect()
    )  # fmt: skip


def write_steps(topic: RemoteTopic, steps: Sequence[Step]) -> None:
    with topic.appender() as appender:
        for step in steps:
            if step.kind is Kind.APPEND:
                appender.append(step.value)
            elif step.kind is Kind.DELETE_STORAGE:
                appender.flush()
                topic.delete_storage(step.storage_id, write_version=step.version)
            else:
                entry = Entry(step.kind, step.value, step.key, step.storage_id, step.version)
                topic.write([entry])


@pytest.mark.parametrize(
    ("versions", "kind"),
    [("log", "delta"), pytest.param("explicit", "parquet", marks=pytest.mark.soak)],
)
@few()
@given(data=st.data())
def test_random_histories_make_the_table_of_the_model(
    spark: SparkSession,
    node: Node,
    tmp_path_factory: pytest.TempPathFactory,
    versions: str,
    kind: str,
    data: st.DataObject,
) -> None:
    """Many keys at once over several streams, in several micro-batches and two runs."""
    steps = data.draw(histories(explicit=versions == "explicit", size=450))
    topic = f"history-{versions}-{next(NUMBERS)}"
    job = Job(spark, node, topic, tmp_path_factory.mktemp(kind), kind)
    with node.connect() as log:
        written = log.create_topic(topic, streams=3, versions=versions)
        for part in (steps[:300], steps[300:]):
            write_steps(written, part)
            summary = job.run(max_records_per_trigger=250)
            job.check()
            assert summary.glsn_end == written.high_watermark + 1
            assert summary.counts.entries == summary.glsn_end - summary.glsn_begin
            assert (summary.missing, summary.table_rows) == (0, len(job.rows()))


def test_a_crash_between_the_tables_commit_and_sparks(job: Job) -> None:
    job.write(0, 60)
    first = job.run()
    job.forget_last_commit()
    job.write(60, 80)
    told: list[BatchProgress] = []
    second = job.run(progress=told.append)
    assert (first.counts.entries, second.counts.entries) == (60, 20)
    assert [one.skipped for one in told] == [True, False]
    assert second.skipped_batches == 1
    job.check()


@pytest.mark.soak
def test_a_crash_before_the_tables_commit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What removes is written by then, in Delta's case: it is written again, which is harmless."""
    job.write(0, 30)
    job.run()
    job.write(30, 90)

    def fail(*_: object) -> None:
        raise RuntimeError("the driver fails")

    with monkeypatch.context() as broken:
        broken.setattr(DeltaFacts, "_merge", fail)
        broken.setattr(ParquetFacts, "_point_to", fail)
        with pytest.raises(RuntimeError, match="the driver fails"):
            job.run()
    again = job.run()
    assert again.counts.entries == 60
    job.check()


def test_a_deleted_checkpoint_loses_and_doubles_nothing(job: Job) -> None:
    job.write(0, 40)
    job.run()
    rmtree(job.checkpoint)
    job.write(40, 60)
    summary = job.run()
    assert (summary.glsn_begin, summary.counts.entries) == (41, 20)
    job.check()
    rmtree(job.checkpoint)
    assert job.run().counts.entries == 0
    job.check()


@pytest.mark.parametrize("kind", ["delta"])
def test_a_deleted_table_is_made_again_in_spite_of_its_checkpoint(job: Job) -> None:
    job.write(0, 40)
    job.run()
    rmtree(job.table)
    assert job.run().counts.entries == 40
    job.check()


@pytest.mark.parametrize("kind", ["delta"])
def test_a_table_older_than_its_checkpoint_is_refused(job: Job, tmp_path: Path) -> None:
    """Someone put an old copy back: going on would leave a hole."""
    job.write(0, 20)
    job.run()
    copytree(job.table, tmp_path / "copy")
    job.write(20, 40)
    job.run()
    rmtree(job.table)
    copytree(tmp_path / "copy", job.table)
    job.write(40, 45)
    with pytest.raises(CorruptData, match="delete the checkpoint"):
        job.run()
    rmtree(job.checkpoint)
    assert job.run().counts.entries == 25
    job.check()


def test_a_table_of_another_topic_or_held_by_another_job_is_refused(job: Job) -> None:
    job.run()
    with job.node.connect() as log:
        log.create_topic(job.topic + "-other")
    with pytest.raises(WrongLog, match="use another directory"):
        materialize(job.node.url(job.topic + "-other"), job.table, format=job.kind, spark=job.spark)
    lock = OsVfs().lock(str(job.table / "_lock"))
    try:
        with pytest.raises(LogLocked, match="another job"):
            job.run()
    finally:
        lock.release()


def test_a_table_can_follow_its_log(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        log.create_topic(topic)
    job = Job(spark, node, topic, tmp_path, "delta")
    job.write(0, 10)
    reached = Reached()
    summaries: list[MaterializeSummary] = []
    follower = threading.Thread(
        target=lambda: summaries.append(job.run(once=False, progress=reached))
    )
    follower.start()
    try:
        reached.wait(11)
        job.write(10, 30)
        reached.wait(31)
    finally:
        for query in spark.streams.active:
            query.stop()
        follower.join(DEADLINE_SECONDS)
    assert [summary.glsn_end for summary in summaries] == [31]
    job.check()


class Reached:
    """Waits for a position that the progress of a job tells."""

    def __init__(self) -> None:
        self._position = 0
        self._changed = threading.Condition()

    def __call__(self, progress: BatchProgress) -> None:
        with self._changed:
            self._position = progress.glsn_end
            self._changed.notify_all()

    def wait(self, position: int) -> None:
        with self._changed:
            there: Callable[[], bool] = lambda: self._position >= position  # noqa: E731
            assert self._changed.wait_for(there, DEADLINE_SECONDS), f"still at {self._position}"


def test_what_cannot_be_done_is_told_with_its_remedy(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    with pytest.raises(UnknownTopic, match="nowhere"):
        materialize(node.url("nowhere"), table, spark=spark)
    with pytest.raises(Unreachable):
        materialize(f"tidelog+unix://{tmp_path}/none.sock", table, spark=spark, timeout=0.2)
    with pytest.raises(BadOption, match="format is 'csv'"):
        materialize(node.url(), table, format="csv", spark=spark)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="directories of this machine"):
        materialize(node.url(), "s3://bucket/table", spark=spark)
    with pytest.raises(BadOption, match="at least 1"):
        materialize(node.url(), table, spark=spark, max_records_per_trigger=0)
    with pytest.raises(BadOption, match="on_missed_deletes is 'ignore'"):
        materialize(node.url(), table, spark=spark, on_missed_deletes="ignore")  # type: ignore[arg-type]
    assert not table.exists()


@pytest.mark.soak
def test_the_command_makes_a_table_with_a_session_of_its_own(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        log.create_topic(topic)
    job = Job(spark, node, topic, tmp_path, "delta")
    job.write(0, 50)
    command = [sys.executable, "-m", "tidelog", "pipeline", "materialize", "-o", "json"]
    command += ["--from", node.url(topic), "--to", str(job.table), "--spark-master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["counts"] == {"appends": 0, "puts": 40, "deletes": 10, "storage_deletes": 0}
    assert summary["table_rows"] == len(job.rows())
    assert "batch 0: GLSN 1 to 50, 50 entries" in done.stderr
    job.check()
