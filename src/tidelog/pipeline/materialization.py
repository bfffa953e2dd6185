"""A run of ``materialize``: micro-batches of the log, one commit of the table for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidelog
from tidelog import errors
from tidelog.errors import CorruptData, LogError, LogLocked
from tidelog.limits import MIB
from tidelog.pipeline.batch_range import batch_range
from tidelog.pipeline.delta_table import DeltaFacts
from tidelog.pipeline.facts import Facts
from tidelog.pipeline.parquet_table import ParquetFacts
from tidelog.pipeline.progress import BatchProgress, Counts, MaterializeSummary
from tidelog.pipeline.tables import Origin, Table
from tidelog.storage.os_vfs import OsVfs

ENTRY_COLUMNS: Final = (
    "glsn BIGINT, stream BIGINT, kind STRING, storage_id BIGINT, key BINARY, value BINARY, "
    "write_version BINARY, timestamp TIMESTAMP"
)
"""What is read of the log."""
BATCH_RECORDS_MAX: Final = 1_000_000
BATCH_BYTES_MAX: Final = 256 * MIB
"""What a batch comes down to passes through the driver: this bounds its memory."""
_LOCK: Final = "_lock"
_OURS: Final = re.compile(r"tidelog\.errors\.(\w+): ([^\n]*)")


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
    timeout: float


def run(
    spark: SparkSession, work: Work, progress: Callable[[BatchProgress], None] | None
) -> MaterializeSummary:
    """Do it; the table is locked meanwhile."""
    started = perf_counter()
    origin, first = _origin(work)
    with _locked(work.table):
        kind = DeltaFacts if work.format == "delta" else ParquetFacts
        table: Table = kind(spark, work.table, origin, first)
        stream = _Stream(spark, work, origin.topic, table, progress)
        begin = table.position
        stream.run()
        return MaterializeSummary(
            topic=origin.topic,
            table=str(work.table),
            format=work.format,
            glsn_begin=begin,
            glsn_end=table.position,
            batches=stream.batches,
            skipped_batches=stream.skipped,
            counts=stream.counts,
            missing=stream.missing,
            table_rows=table.row_count(),
            seconds=perf_counter() - started,
        )


def _origin(work: Work) -> tuple[Origin, int]:
    """What the table is made from, and where that begins."""
    with tidelog.connect(work.url, topic=work.topic, timeout=work.timeout) as log:
        origin = Origin(log.log_id.hex(), log.name, log.versions == "explicit")
        return origin, log.position().first_available


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
        topic: str,
        table: Table,
        progress: Callable[[BatchProgress], None] | None,
    ) -> None:
        self._spark = spark
        self._work = work
        self._topic = topic
        self._table = table
        self._progress = progress
        # Of another table in the same place this checkpoint would know nothing.
        self._checkpoint = work.checkpoint / table.table_id
        self._failure: BaseException | None = None
        self.batches = 0
        self.skipped = 0
        self.counts = Counts()
        self.missing = 0

    def run(self) -> None:
        query = self._start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise _typed(error, self._failure) from error
        except KeyboardInterrupt:
            if self._work.once:
                raise
        finally:
            query.stop()

    def _start(self) -> StreamingQuery:
        reader = self._spark.readStream.format("tidelog").schema(ENTRY_COLUMNS)
        reader = reader.option("endpoint", self._work.url).option("topic", self._topic)
        reader = reader.option("startingOffsets", str(self._table.position))
        records = self._work.max_records_per_trigger or BATCH_RECORDS_MAX
        reader = reader.option("maxRecordsPerTrigger", str(records))
        reader = reader.option("maxBytesPerTrigger", str(BATCH_BYTES_MAX))
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if self._work.once:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def _take(self, entries: DataFrame, batch: int) -> None:
        try:
            self._apply(entries, batch)
        except BaseException as error:
            self._failure = error
            raise

    def _apply(self, entries: DataFrame, batch: int) -> None:
        started = perf_counter()
        begin, end = batch_range(self._checkpoint, batch)
        position = self._table.position
        counts, skipped = Counts(), end <= position
        if begin > position:
            raise CorruptData(
                f"the checkpoint {self._checkpoint} goes on at GLSN {begin}, but the table holds "
                f"the log only below {position}: delete the checkpoint"
            )
        if skipped:
            self.skipped += 1
        else:
            counts = self._commit(entries, end)
            self.missing += end - begin - counts.entries
        self.batches += 1
        self.counts += counts
        if self._progress is not None:
            seconds = perf_counter() - started
            self._progress(BatchProgress(batch, begin, end, counts, seconds, skipped))

    def _commit(self, entries: DataFrame, end: int) -> Counts:
        facts = Facts(entries)
        self._table.apply(facts, end)
        return facts.counts


def _typed(error: StreamingQueryException, failure: BaseException | None) -> BaseException:
    """What went wrong as an error of ours, whichever process it happened in."""
    if failure is not None:
        return failure
    found = _OURS.search(str(error))
    kind = getattr(errors, found[1], LogError) if found else LogError
    message = found[2] if found else f"the query failed: {str(error).strip().splitlines()[0]}"
    if kind is errors.Trimmed:
        return errors.Trimmed(message, first_available=0)
    raised: LogError = kind(message)
    return raised
