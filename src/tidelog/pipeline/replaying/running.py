"""A run of ``replay``: a table goes to the log chunk by chunk, each of them once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

import tidelog
from tidelog.errors import BadOption
from tidelog.pipeline.directories import literal
from tidelog.pipeline.log_options import log_options
from tidelog.pipeline.replaying.ledger import CHUNKS_END, Ledger, Note
from tidelog.pipeline.replaying.mapping import Mapping, entries, materialized_entries, ordered
from tidelog.pipeline.replaying.progress import ReplayProgress, ReplaySummary
from tidelog.pipeline.replaying.tables import TableFile, TableVersion, open_version

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done; the fields are the arguments of ``replay``."""

    table: Path
    url: str
    topic: str | None
    mapping: Mapping
    chunk_rows: int
    timeout: float


def run(
    spark: SparkSession, work: Work, progress: Callable[[ReplayProgress], None] | None
) -> ReplaySummary:
    """Bring all chunks to the log that it has not got yet."""
    started = perf_counter()
    version = open_version(work.table)
    with tidelog.connect(work.url, topic=work.topic, timeout=work.timeout) as log:
        replay = Replay(spark, work, version, log)
        replay.check()
        before, chunks, rows = replay.run(progress)
        return ReplaySummary(
            table=str(work.table),
            format=version.format,
            topic=log.name,
            table_rows=version.rows,
            rows=rows,
            chunks=chunks,
            chunks_before=before,
            seconds=perf_counter() - started,
        )


class Replay:
    """The chunks of one version of a table, on their way to one topic."""

    def __init__(
        self, spark: SparkSession, work: Work, version: TableVersion, log: RemoteLog
    ) -> None:
        self._spark = spark
        self._work = work
        self._version = version
        self._log = log
        self._name = replay_name(version, work.mapping)
        self._ledger = Ledger(log, self._name)
        self._as_materialized = version.is_materialized and work.mapping.is_empty

    def check(self) -> None:
        """Raise unless the topic takes what the table has."""
        mapping, explicit = self._work.mapping, self._log.versions == "explicit"
        if explicit and not self._as_materialized and mapping.key and mapping.version is None:
            raise BadOption(
                f"topic {self._log.name!r} has explicit versions: say which column has them"
            )
        if mapping.version is not None and not (explicit and mapping.key):
            raise BadOption(
                f"topic {self._log.name!r} takes no versions here: they go with keys, in topics "
                "with explicit versions"
            )
        if self._version.files:
            mapping.check(self._schema.fieldNames())

    def run(self, progress: Callable[[ReplayProgress], None] | None) -> tuple[int, int, int]:
        """How many chunks were there before, how many there are, and the rows of this run."""
        # Rows in an order of their own are one publication: chunks would have to keep it.
        note = self._ledger.open(0 if self._work.mapping.order_by else self._work.chunk_rows)
        chunks = self._version.chunks(note.chunk_rows)
        if len(chunks) >= CHUNKS_END:
            raise BadOption(f"{len(chunks)} chunks are too many: make them larger")
        before, rows = note.done, 0
        for number in range(before, len(chunks)):
            started = perf_counter()
            self._publish(chunks[number], number)
            note = self._note(note, number + 1)
            count = sum(file.rows for file in chunks[number])
            rows += count
            if progress is not None:
                seconds = perf_counter() - started
                progress(ReplayProgress(number + 1, len(chunks), count, seconds))
        return before, len(chunks), rows

    def _publish(self, files: Sequence[TableFile], number: int) -> None:
        rows = ordered(self._rows(files), self._work.mapping.order_by)
        if self._as_materialized:
            made = materialized_entries(rows, explicit=self._log.versions == "explicit")
        else:
            made = entries(rows, self._work.mapping)
        writer = made.write.format("tidelog").mode("append")
        work = self._work
        writer = writer.options(**log_options(work.url, self._log.name, work.timeout))
        writer = writer.option("txnAppId", self._name).option("txnVersion", str(number))
        writer.save()

    def _note(self, note: Note, chunks: int) -> Note:
        return self._ledger.done(note, chunks)

    def _rows(self, files: Sequence[TableFile]) -> DataFrame:
        """Rows with the columns of the whole table, whatever these files have of them."""
        paths = [literal(file.path) for file in files]
        return self._reader().schema(self._schema).parquet(*paths)

    @cached_property
    def _schema(self) -> StructType:
        every = [literal(file.path) for file in self._version.files]
        return self._reader().option("mergeSchema", "true").parquet(*every).schema

    def _reader(self) -> DataFrameReader:
        return self._spark.read.option("basePath", str(self._base()))

    def _base(self) -> Path:
        """Below it directories may be named after columns."""
        path = self._version.path
        return path if path.is_dir() else path.parent


def replay_name(version: TableVersion, mapping: Mapping) -> str:
    """The name under which the log knows the replay of a table's version in this way."""
    way = msgspec.json.encode(mapping)
    return f"replay:{sha256(version.identity.encode() + way).hexdigest()[:32]}"
