"""Runs the jobs on Spark: each goes on to the end that the log has now, and tells how far it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.ledger import queries
from examples.ledger.saying import say
from tidelog.pipeline import BatchProgress, materialize

SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **queries.ROCKSDB,
}
"""For Spark in this process; none of them is Tidelog's."""


@contextmanager
def spark_session(master: str, log: Path) -> Iterator[SparkSession]:
    """A session for all jobs; what Spark has to say goes to the file ``log``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("ledger")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with _errors_to(log):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their errors there."""
    kept = os.dup(sys.stderr.fileno())
    with path.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        os.dup2(kept, sys.stderr.fileno())
        os.close(kept)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From one topic to three results below ``place``; what runs again goes on where it ended."""

    spark: SparkSession
    url: str
    findings_url: str
    place: Path
    records_per_trigger: int

    @property
    def accounts(self) -> Path:
        return self.place / "accounts"

    @property
    def minutes(self) -> Path:
        return self.place / "minutes"

    def keep_accounts(self) -> None:
        """A Delta table with the newest movement of each account that is not closed."""
        done = materialize(
            self.url,
            self.accounts,
            max_records_per_trigger=self.records_per_trigger,
            progress=_show_batch,
            spark=self.spark,
        )
        _show_rate(done.counts.entries, done.seconds)
        say(
            f"{done.counts.puts:,} movements and {done.counts.deletes:,} closings became "
            f"{done.table_rows:,} rows"
        )

    def sum_minutes(self) -> int:
        """Parquet files with a row for each minute that is over; returns the time reached."""
        rows = queries.per_minute(self._movements())
        return _finish(queries.to_files(rows, self.minutes, self.place / "minutes.checkpoint"))

    def check_balances(self) -> int:
        """Findings as entries of a topic of their own; returns the time reached."""
        rows = queries.findings(self._movements())
        return _finish(queries.to_log(rows, self.findings_url, self.place / "check.checkpoint"))

    def _movements(self) -> DataFrame:
        return queries.movements(self.spark, self.url, self.records_per_trigger)


def _show_batch(batch: BatchProgress) -> None:
    say(f"batch {batch.batch}: {batch.counts.entries:,} entries in {batch.seconds:.1f} s")


def _finish(query: StreamingQuery) -> int:
    """Wait for the end that the log had when the query began; returns its watermark."""
    started, shown, entries = perf_counter(), -1, 0
    while True:
        ended = query.awaitTermination(1)
        for progress in query.recentProgress:
            if progress["batchId"] > shown:
                shown = progress["batchId"]
                entries += progress["numInputRows"]
                _show_progress(progress)
        if ended:
            _show_rate(entries, perf_counter() - started)
            return queries.watermark_ms(query)


def _show_progress(progress: Any) -> None:
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    state = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
    say(
        f"batch {progress['batchId']}: {progress['numInputRows']:,} entries in {seconds:.1f} s, "
        f"{state:,} rows of state"
    )


def _show_rate(entries: int, seconds: float) -> None:
    say(f"{entries:,} entries in {seconds:.0f} s, {entries / seconds:,.0f} a second")
