"""The part of ``archive`` that runs on Spark: each task writes the files of one range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidelog.formats.archive_manifest import ArchivedFile
from tidelog.pipeline.archiving.file_writing import write_range
from tidelog.pipeline.archiving.running import GlsnSpan
from tidelog.spark.options import batch_options
from tidelog.spark.partitions import GlsnRange
from tidelog.spark.schema import COLUMNS
from tidelog.spark.source import read_range
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkWriter:
    """Writes ranges with the tasks of a Spark job, one for each."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], directory: str) -> None:
        """``options`` are those of the source; all machines of Spark see ``directory``."""
        self._spark = spark
        self._options = dict(options)
        self._directory = directory

    def __call__(self, ranges: Sequence[GlsnSpan]) -> list[ArchivedFile]:
        options, directory, planned = self._options, self._directory, list(ranges)

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _write(options, directory, *planned[number])

        numbers = self._spark.range(0, len(planned), 1, len(planned))
        rows = numbers.mapInArrow(task, "file STRING").collect()
        files = [msgspec.json.decode(row.file, type=ArchivedFile) for row in rows]
        return sorted(files, key=lambda file: file.glsn_begin)


def _write(options: Mapping[str, str], directory: str, begin: int, end: int) -> Iterator[Any]:
    """Write one range; runs in a Python worker of an executor."""
    wanted = GlsnRange(begin, end, turn=begin)
    batches = read_range(batch_options(options), tuple(COLUMNS), wanted)
    for file in write_range(OsVfs(), directory, begin, end, batches):
        told = msgspec.json.encode(file).decode()
        yield pa.RecordBatch.from_arrays([pa.array([told])], names=["file"])
