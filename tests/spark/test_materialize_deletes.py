"""A table that lags behind compaction keeps no deleted key: it is rebuilt, or the run fails."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.test_materialize import Job
from tidelog.errors import MissedDeletes
from tidelog.interface.figures import TopicStats
from tidelog.pipeline import BatchProgress, read_table
from tidelog.pipeline.materialization import missed_deletes
from tidelog.pipeline.materialization.delta_table import DeltaFacts
from tidelog.pipeline.materialization.missed_deletes import DeleteWatch, Rebuilder
from tidelog.pipeline.materialization.parquet_table import ParquetFacts

KEYS = [b"kept", b"deleted", b"deleted too"]


class LaggingJob(Job):
    def put_and_run(self) -> None:
        """The table has read the keys before any of them is deleted."""
        with self.node.connect(self.topic) as log:
            for key in KEYS:
                log.put(key, b"1")
        assert self.run().rebuilds == 0

    def drop_delete(self, key: bytes) -> TopicStats:
        """Delete a key, and compact until neither the key nor its delete is left."""
        with self.node.connect(self.topic) as log:
            before = log.stats().dropped_deletes
            log.delete(key)
            for number in range(3):
                log.put(b"another %d" % number, b"")
                log.compact(full=True)
            assert key not in {record.key for record in log.read()}
            assert log.stats().dropped_deletes > before
            return log.stats()

    def held(self) -> set[bytes]:
        return {row[1] for row in self.rows()}


@pytest.fixture(params=["delta", pytest.param("parquet", marks=pytest.mark.soak)])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def job(spark: SparkSession, node: Node, topic: str, tmp_path: Path, kind: Any) -> LaggingJob:
    with node.connect() as log:
        log.create_topic(topic, streams=2)
    made = LaggingJob(spark, node, topic, tmp_path, kind)
    made.put_and_run()
    return made


def test_a_table_whose_delete_was_dropped_is_rebuilt(job: LaggingJob) -> None:
    stats = job.drop_delete(b"deleted")
    told: list[BatchProgress] = []
    summary = job.run(progress=told.append)
    assert [one.rebuilt for one in told] == [True]
    assert summary.rebuilds == 1
    assert summary.missing > 0
    assert summary.glsn_end == stats.high_watermark + 1
    assert summary.table_rows == len(job.rows())
    assert {b"kept", b"deleted too"} < job.held()
    job.check()
    with job.node.connect(job.topic) as log:
        (kept,) = [record for record in log.read() if record.key == b"kept"]
        log.put(b"kept", b"2")
    (row,) = read_table(job.spark, str(job.table)).where("key = binary('kept')").collect()
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(kept.timestamp_us / 1e6, UTC)
    # From there on it is a table like any other.
    assert job.run().rebuilds == 0
    job.check()


@pytest.mark.soak
def test_a_rebuild_is_not_repeated_when_the_run_ends_before_spark_knows(job: LaggingJob) -> None:
    job.drop_delete(b"deleted")
    job.run()
    job.forget_last_commit()
    summary = job.run()
    assert (summary.rebuilds, summary.skipped_batches) == (0, 1)
    job.check()


@pytest.mark.soak
def test_a_rebuild_that_fails_leaves_the_old_table_and_is_made_up_for(
    job: LaggingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.drop_delete(b"deleted")
    before = job.rows()

    def fail(*_: object) -> None:
        raise RuntimeError("the driver fails")

    with monkeypatch.context() as broken:
        overwrite = DeltaFacts._overwrite
        broken.setattr(
            DeltaFacts,
            "_overwrite",
            lambda self, table, *rest: (fail if table is self._table else overwrite)(
                self, table, *rest
            ),
        )
        broken.setattr(ParquetFacts, "_point_to", fail)
        with pytest.raises(RuntimeError, match="the driver fails"):
            job.run()
    assert job.rows() == before
    assert job.run().rebuilds == 1
    job.check()


def test_a_run_that_shall_not_rebuild_fails_and_says_what_to_do(job: LaggingJob) -> None:
    stats = job.drop_delete(b"deleted")
    before = job.rows()
    told = rf"below GLSN 4, .* up to GLSN {stats.delete_horizon - 1} .*--on-missed-deletes rebuild"
    with pytest.raises(MissedDeletes, match=told):
        job.run(on_missed_deletes="fail")
    assert job.rows() == before
    assert job.run(on_missed_deletes="rebuild").rebuilds == 1
    job.check()


def test_a_delete_dropped_while_its_batch_is_read_is_noticed(
    job: LaggingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked before the read, the log had nothing to tell; the answer from after it counts."""
    with job.node.connect(job.topic) as log:
        log.put(b"so that there is a batch", b"")
    asked = DeleteWatch.missed_by
    answers: list[bool] = []

    def ask(watch: DeleteWatch, table: Any) -> bool:
        answers.append(asked(watch, table))
        if len(answers) == 1:
            job.drop_delete(b"deleted")
        return answers[-1]

    monkeypatch.setattr(DeleteWatch, "missed_by", ask)
    assert job.run().rebuilds == 1
    assert answers[:2] == [False, True]
    job.run()
    job.check()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["parquet"])
def test_a_delete_dropped_while_the_table_is_rebuilt_is_noticed(
    job: LaggingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The horizon need not move for that: it may be an older delete than the last one."""
    job.drop_delete(b"deleted")
    staged = Rebuilder._staged
    begins: list[int] = []

    def stage(self: Rebuilder, begin: int, end: int) -> Any:
        begins.append(begin)
        if len(begins) == 1:
            job.drop_delete(b"deleted too")
        return staged(self, begin, end)

    monkeypatch.setattr(Rebuilder, "_staged", stage)
    assert job.run().rebuilds == 1
    assert begins == [1, 1]
    job.run()
    job.check()
    assert b"deleted too" not in job.held()


@pytest.mark.parametrize("kind", ["parquet"])
def test_a_rebuild_that_compaction_always_gets_in_the_way_of_ends(
    job: LaggingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.drop_delete(b"deleted")
    before = job.rows()
    monkeypatch.setattr(missed_deletes, "REBUILDS_MAX", 1)
    staged = Rebuilder._staged

    def stage(self: Rebuilder, begin: int, end: int) -> Any:
        job.drop_delete(b"deleted too")
        return staged(self, begin, end)

    monkeypatch.setattr(Rebuilder, "_staged", stage)
    with pytest.raises(MissedDeletes, match="run again when less is compacted"):
        job.run()
    assert job.rows() == before


@pytest.mark.parametrize("kind", ["delta"])
def test_rows_of_what_was_trimmed_are_not_thrown_away(job: LaggingJob) -> None:
    """They may be in the table alone: whether it is made anew is for its owner to say."""
    stats = job.drop_delete(b"deleted")
    before = job.rows()
    with job.node.connect(job.topic) as log:
        log.trim(2)
    assert stats.delete_horizon > 4
    with pytest.raises(MissedDeletes, match="trimmed below GLSN 2"):
        job.run()
    assert job.rows() == before


@pytest.mark.parametrize("kind", ["delta"])
def test_a_new_table_of_an_old_log_is_not_rebuilt_on_its_way(
    job: LaggingJob, tmp_path: Path
) -> None:
    """Its first batches lie before the horizon, but all that was dropped went before it began."""
    job.drop_delete(b"deleted")
    other = LaggingJob(job.spark, job.node, job.topic, tmp_path / "other", job.kind)
    summary = other.run(max_records_per_trigger=2)
    assert (summary.rebuilds, summary.batches > 2) == (0, True)
    other.check()
