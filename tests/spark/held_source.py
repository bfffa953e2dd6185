"""``format("tidelog")`` with the points of ``holds`` in it; else it is what users have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.spark.holds import Point, hold_here
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.options import batch_options, stream_options
from tidelog.spark.schema import chosen_columns
from tidelog.spark.source import BatchReader
from tidelog.spark.stream_source import StreamReader

Messages = list[WriterCommitMessage | None]


class HeldBatchReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _held_within(super().read(partition))


class HeldStreamReader(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _held_within(super().read(partition))


def _held_within(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        hold_here(Point.READ)


class HeldWriter(DataSourceArrowWriter):
    def __init__(self, inner: DataSourceArrowWriter) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = self._inner.write(iterator)
        hold_here(Point.STAGED)
        return message

    def commit(self, messages: Messages) -> None:
        hold_here(Point.PUBLISHING)
        self._inner.commit(messages)
        hold_here(Point.PUBLISHED)

    def abort(self, messages: Messages) -> None:
        self._inner.abort(messages)


class HeldStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: DataSourceStreamArrowWriter) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        message = self._inner.write(iterator)
        hold_here(Point.STAGED)
        return message

    def commit(self, messages: Messages, batchId: int) -> None:
        hold_here(Point.PUBLISHING)
        self._inner.commit(messages, batchId)
        hold_here(Point.PUBLISHED)

    def abort(self, messages: Messages, batchId: int) -> None:
        self._inner.abort(messages, batchId)


class HeldDataSource(TidelogDataSource):
    """The same name, the same options."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return HeldBatchReader(batch_options(self.options), chosen_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HeldStreamReader(stream_options(self.options), chosen_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return HeldWriter(super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return HeldStreamWriter(super().streamWriter(schema, overwrite))
