"""``format("constant")``: rows with the columns of a log that cost nothing to make.

One record batch, made once in each task, is handed to Spark over and over.  So this is the most
that any Python data source with these columns can reach: what a log is slower by is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.formats.batch import decode_batch, encode_values, seal_batch
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.interface.arrow import ROWS, record_batches
from tidelog.spark.connections import settle_worker
from tidelog.spark.schema import default_schema

PARTITION_ROWS: Final = 1_000_000
"""As many as a partition of a log has by default."""


class ConstantSource(DataSource):
    """Takes the options ``rows`` and ``valueBytes``."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> StructType:
        return default_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConstantReader(int(self.options["rows"]), int(self.options["valueBytes"]))


class ConstantReader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int) -> None:
        self._rows = rows
        self._value_bytes = value_bytes

    def partitions(self) -> Sequence[InputPartition]:
        begins = range(0, self._rows, PARTITION_ROWS)
        return [InputPartition(min(PARTITION_ROWS, self._rows - begin)) for begin in begins]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        settle_worker()
        batch = constant_batch(self._value_bytes)
        for begin in range(0, partition.value, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, partition.value - begin))


def constant_batch(value_bytes: int) -> pa.RecordBatch:
    """What the source of a log hands over for un-keyed entries, in its usual size."""
    body = encode_values([bytes(value_bytes)] * ROWS, timestamp_us=1)
    header = seal_batch(body, stream=1, term=1, first_llsn=1)
    batch = decode_batch(header + body.data)
    runs = GlsnRuns([(1, 1, ROWS)])
    (made,) = record_batches([[(1, BatchSlice(batch, 0, ROWS, runs))]])
    return made
