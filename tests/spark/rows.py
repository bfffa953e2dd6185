"""Rows of DataFrames and records of a log, in a form in which they can be compared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_micros
from pyspark.sql.streaming.query import StreamingQuery

from tidelog.formats.entry import Kind
from tidelog.interface.records import Record

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic

DEADLINE_SECONDS = 60.0
Row = tuple[Any, ...]


def row_of(record: Record) -> Row:
    """The default columns of a record."""
    deletes = record.kind in (Kind.DELETE, Kind.DELETE_STORAGE)
    return (
        record.glsn,
        record.llsn,
        record.stream,
        record.kind.name,
        record.storage_id,
        record.key or None,
        None if deletes else record.value,
        record.write_version.to_bytes(16, "big"),
        record.timestamp_us,
    )


def log_rows(records: Iterable[Record]) -> list[Row]:
    return [row_of(record) for record in records]


def frame_rows(frame: DataFrame) -> list[Row]:
    """The rows of a DataFrame with the default columns, in the order in which it has them."""
    return [tuple(row) for row in frame.withColumn("timestamp", unix_micros("timestamp")).collect()]


def read(spark: SparkSession, url: str, **options: str | int) -> DataFrame:
    return spark.read.format("tidelog").options(endpoint=url, **options).load()


def read_stream(spark: SparkSession, url: str, **options: str | int) -> DataFrame:
    return spark.readStream.format("tidelog").options(endpoint=url, **options).load()


def fill(topic: RemoteTopic, count: int, *, prefix: bytes = b"v") -> None:
    """About ``count`` entries of all kinds, over all streams of the topic."""
    for begin in range(0, count, 10):
        values = [b"%b%d" % (prefix, begin + i) for i in range(5)]
        streams = topic.streams
        topic.append_batch(values, stream=streams[begin // 10 % len(streams)])
        topic.put_batch([(b"key %d" % (begin + i), values[i]) for i in range(3)], storage_id=7)
        topic.delete(b"key %d" % (begin + 1), storage_id=7)
        topic.append(b"", key=b"empty value")


class Batches:
    """Collects micro-batches: give it to ``foreachBatch``."""

    def __init__(self) -> None:
        self.found: list[tuple[int, list[Row]]] = []
        self._changed = threading.Condition()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame_rows(frame)
        with self._changed:
            self.found.append((batch, rows))
            self._changed.notify_all()

    @property
    def rows(self) -> list[Row]:
        return [row for _, rows in self.found for row in rows]

    @property
    def values(self) -> list[bytes]:
        return [row[6] for row in self.rows]

    def wait(self, seconds: float) -> None:
        """For the next batch, but no longer than this."""
        with self._changed:
            self._changed.wait(seconds)

    def wait_for(self, query: StreamingQuery, rows: int) -> None:
        """Until so many rows came; fails if the query ends before, or says nothing for long."""
        self.wait_until(query, lambda: len(self.rows) >= rows)

    def wait_until(self, query: StreamingQuery, condition: Callable[[], bool]) -> None:
        deadline = monotonic() + DEADLINE_SECONDS
        with self._changed:
            while not self._changed.wait_for(condition, 0.5):
                assert query.isActive, f"the query ended: {query.exception()}"
                assert monotonic() < deadline, f"only {len(self.rows)} rows came"
