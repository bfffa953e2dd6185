"""Spark reads a whole topic, by whatever source there is for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.interface import Client, Reading
from bench.peers.processes import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Source:
    """How Spark gets at a topic."""

    name: str
    format: str
    options: Mapping[str, str]
    jars: Sequence[Path] | Unavailable = ()
    """What Spark needs for it, or why that is not there."""


class SparkReader(Client):
    """A session of its own, on this machine; rows come with all columns that the source has."""

    name = ""

    def __init__(self, source: Source, directory: Path) -> None:
        self.name = source.name  # type: ignore[misc]
        self._source = source
        self._directory = directory

    def open(self) -> None:
        from bench.spark_session import spark_session

        if isinstance(self._source.jars, Unavailable):
            raise self._source.jars
        self._directory.mkdir()
        self._stack = ExitStack()
        self._spark: SparkSession = self._stack.enter_context(
            spark_session(self._directory, self._source.jars)
        )

    def close(self) -> None:
        self._stack.close()

    def consume(self, count: int) -> Reading:
        """All of it, however much that is."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import count as number_of
        from pyspark.sql.functions import lit

        reading, seen = Reading(), Observation()
        reader: Any = self._spark.read.format(self._source.format)
        frame = reader.options(**self._source.options).load()
        counted = frame.observe(seen, number_of(lit(1)).alias("rows"))
        counted.write.format("noop").mode("overwrite").save()
        reading.took(seen.get["rows"])
        return reading
