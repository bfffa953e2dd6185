"""A run of ``materialize``: micro-batches of the log, one commit of the table for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelog
from tidelog.errors import CorruptData, LogLocked
from tidelog.limits import MIB
from tidelog.pipeline.log_options import log_options
from tidelog.pipeline.materialization.batch_range import batch_range
from tidelog.pipeline.materialization.delta_table import DeltaFacts, delta_failures
from tidelog.pipeline.materialization.facts import Facts
from tidelog.pipeline.materialization.missed_deletes import (
    DeleteWatch,
    EntrySource,
    OnMissedDeletes,
    Rebuilder,
)
from tidelog.pipeline.materialization.parquet_table import ParquetFacts
from tidelog.pipeline.materialization.progress import BatchProgress, Counts, MaterializeSummary
from tidelog.pipeline.materialization.ranges import BatchLimits, log_ranges
from tidelog.pipeline.materialization.tables import Origin, Table
from tidelog.pipeline.session import is_remote
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog

ENTRY_COLUMNS: Final = (
    "glsn BIGINT, stream BIGINT, kind STRING, storage_id BIGINT, key BINARY, value BINARY, "
    "write_version BINARY, timestamp TIMESTAMP_LTZ"
)
"""What is read of the log.  TIMESTAMP alone means what the session says."""
BATCH_RECORDS_MAX: Final = 1_000_000
BATCH_BYTES_MAX: Final = 256 * MIB
"""What a batch comes down to passes through the driver: this bounds its memory."""
_LOCK: Final = "_lock"


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done; the fields are the arguments of ``materialize``."""

    url: str
    topic: str | None
    table: Path
    format: str
    checkpoint: Path
    once: bool
    max_records_per_trigger: int | None
    on_missed_deletes: OnMissedDeletes
    timeout: float


def run(
    spark: SparkSession, work: Work, progress: Callable[[BatchProgress], None] | None
) -> MaterializeSummary:
    """Do it; the table is locked meanwhile."""
    started = perf_counter()
    with (
        tidelog.connect(work.url, topic=work.topic, timeout=work.timeout) as log,
        _locked(work.table),
        delta_failures(work.table),
    ):
        stream = _Stream(spark, work, log, progress)
        begin = stream.table.position
        stream.run()
        return MaterializeSummary(
            topic=log.name,
            table=str(work.table),
            format=work.format,
            glsn_begin=begin,
            glsn_end=stream.table.position,
            batches=stream.batches,
            skipped_batches=stream.skipped,
            counts=stream.counts,
            missing=stream.missing,
            rebuilds=stream.rebuilds,
            table_rows=stream.table.row_count(),
            seconds=perf_counter() - started,
        )


def _open_table(spark: SparkSession, work: Work, log: RemoteLog, watch: DeleteWatch) -> Table:
    """The table; if it is a new one, it begins where the log does now."""
    kind = DeltaFacts if work.format == "delta" else ParquetFacts
    origin = Origin(log.log_id.hex(), log.name, log.versions == "explicit")
    table: Table = kind(spark, work.table, origin, watch.beginning())
    return table


@contextmanager
def _locked(table: Path) -> Iterator[None]:
    table.mkdir(parents=True, exist_ok=True)
    try:
        lock = OsVfs().lock(str(table / _LOCK))
    except BlockingIOError as error:
        raise LogLocked(f"another job writes to the table at {table}") from error
    try:
        yield
    finally:
        lock.release()


class _Stream:
    """One streaming query, and what became of its batches."""

    def __init__(
        self,
        spark: SparkSession,
        work: Work,
        log: RemoteLog,
        progress: Callable[[BatchProgress], None] | None,
    ) -> None:
        self._spark = spark
        self._work = work
        self._log = log
        self._records_max = work.max_records_per_trigger or BATCH_RECORDS_MAX
        self._watch = DeleteWatch(log)
        self.table: Final = _open_table(spark, work, log, self._watch)
        self._options = log_options(work.url, log.name, work.timeout)
        self._source = EntrySource(spark, self._options, ENTRY_COLUMNS)
        self._rebuilder = Rebuilder(self._source, self._watch, work.table, work.on_missed_deletes)
        self._progress = progress
        # Of another table in the same place this checkpoint would know nothing.
        self._checkpoint = work.checkpoint / self.table.table_id
        self._failure: BaseException | None = None
        self.batches = 0
        self.skipped = 0
        self.counts = Counts()
        self.missing = 0
        self.rebuilds = 0

    def run(self) -> None:
        if is_remote(self._spark):
            self._run_by_ranges()
        else:
            self._run_as_query()

    def _run_by_ranges(self) -> None:
        """Without a streaming query, whose batches Spark Connect hands to a process of the server:
        what is open here, the log, the table and its lock, is not there."""
        limits = BatchLimits(self._records_max, BATCH_BYTES_MAX)
        ranges = log_ranges(self._log, self.table.position, limits, once=self._work.once)
        try:
            for batch, (begin, end) in enumerate(ranges):
                self._apply(self._source.between(begin, end), batch, begin, end)
        except KeyboardInterrupt:
            if self._work.once:
                raise

    def _run_as_query(self) -> None:
        query = self._start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if self._failure is None:
                raise
            raise self._failure from error
        except KeyboardInterrupt:
            if self._work.once:
                raise
        finally:
            query.stop()

    def _start(self) -> StreamingQuery:
        reader = self._spark.readStream.format("tidelog").schema(ENTRY_COLUMNS)
        reader = reader.options(**self._options)
        reader = reader.option("startingOffsets", str(self.table.position))
        reader = reader.option("maxRecordsPerTrigger", str(self._records_max))
        reader = reader.option("maxBytesPerTrigger", str(BATCH_BYTES_MAX))
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if self._work.once:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def _take(self, entries: DataFrame, batch: int) -> None:
        try:
            self._apply(entries, batch, *batch_range(self._checkpoint, batch))
        except BaseException as error:
            self._failure = error
            raise

    def _apply(self, entries: DataFrame, batch: int, begin: int, end: int) -> None:
        started = perf_counter()
        position = self.table.position
        counts, skipped, rebuilt = Counts(), end <= position, False
        if begin > position:
            raise CorruptData(
                f"the checkpoint {self._checkpoint} goes on at GLSN {begin}, but the table holds "
                f"the log only below {position}: delete the checkpoint"
            )
        if skipped:
            self.skipped += 1
        else:
            counts, rebuilt = self._commit(entries, end)
            self.rebuilds += rebuilt
            first = self.table.beginning.glsn if rebuilt else begin
            self.missing += end - first - counts.entries
        self.batches += 1
        self.counts += counts
        if self._progress is not None:
            seconds = perf_counter() - started
            self._progress(BatchProgress(batch, begin, end, counts, seconds, skipped, rebuilt))

    def _commit(self, entries: DataFrame, end: int) -> tuple[Counts, bool]:
        """Bring the table up to ``end``; tells what was read, and whether it is a new table."""
        if not self._watch.missed_by(self.table):
            facts = Facts(entries)
            # Once more, and this is the answer that counts: only when all is read, nothing that
            # compaction drops can be missing from it unnoticed (H5).
            if not self._watch.missed_by(self.table):
                self.table.apply(facts, end)
                return facts.counts, False
        return self._rebuilder.rebuild(self.table, end), True
