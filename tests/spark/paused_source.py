"""``format("tidelog-paused")``: the source, whose tasks wait once in the middle of their rows.

Tasks run in processes of Spark's, so a test meets them in a directory that both know.  A task that
has read its first page leaves there which node it reads from, and waits to be let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark import source
from tidelog.spark.connections import connected
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.options import ReadOptions, stream_options
from tidelog.spark.partitions import GlsnRange
from tidelog.spark.schema import chosen_columns
from tidelog.spark.stream_source import StreamReader

GO = "go"
BEGUN, PAUSED, DONE = "begun", "paused", "done"
PAGE_BYTES = 1
"""Of a page: as little as a node may send, which is a batch."""
WAIT_SECONDS = 60.0


class Pauses:
    """The directory, for both sides."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    # -- for tasks ----------------------------------------------------------------------------

    def note(self, partition: GlsnRange, kind: str, text: str = "") -> None:
        """Leave a file of this kind, once for each attempt of a task."""
        context = TaskContext.get()
        assert context is not None
        streams = "+".join(f"{stream:06}" for stream in partition.streams)
        name = f"{partition.begin:09}-{streams}-{context.attemptNumber()}"
        unfinished = self._directory / f".{name}"
        unfinished.write_text(text)
        unfinished.rename(self._directory / f"{name}.{kind}")

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = monotonic() + WAIT_SECONDS
        while not condition():
            Event().wait(0.01)
            if monotonic() > deadline:
                raise TimeoutError("nobody lets this task go on")

    @property
    def are_over(self) -> bool:
        return (self._directory / GO).exists()

    # -- for tests ----------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        """Where the tasks read that have come to their pause so far, in the order of partitions."""
        return self._noted(PAUSED)

    @property
    def pages_left(self) -> list[int]:
        """What each of them had still to read there."""
        return [int(text) for text in self._noted(DONE)]

    @property
    def attempts(self) -> set[int]:
        """The numbers of all attempts of tasks, paused or not."""
        return {int(file.stem.rsplit("-", 1)[1]) for file in self._directory.glob(f"*.{BEGUN}")}

    def let_go(self) -> None:
        """From now on nobody waits."""
        (self._directory / GO).touch()

    def _noted(self, kind: str) -> list[str]:
        return [file.read_text() for file in sorted(self._directory.glob(f"*.{kind}"))]


class PausedReader(StreamReader):
    def __init__(self, options: ReadOptions, columns: Any, pauses: Pauses) -> None:
        super().__init__(options, columns)
        self._pauses = pauses

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, GlsnRange)
        self._pauses.note(partition, BEGUN)
        pages = source._pages

        def paused(options: ReadOptions, wanted: GlsnRange) -> Iterator[Any]:
            return self._paused(wanted, pages(options, wanted))

        # Between pages: the source joins small ones, and hands on nothing before the last.
        with patch.object(source, "PAGE_BYTES", PAGE_BYTES), patch.object(source, "_pages", paused):
            yield from super().read(partition)

    def _paused(self, partition: GlsnRange, pages: Iterator[Any]) -> Iterator[Any]:
        pauses = self._pauses
        yield from islice(pages, 1)
        if pauses.are_over:
            yield from pages
            return
        pauses.note(partition, PAUSED, self._node_of(partition))
        pauses.wait(lambda: pauses.are_over)
        left = 0
        for page in pages:
            left += 1
            yield page
        pauses.note(partition, DONE, str(left))

    def _node_of(self, partition: GlsnRange) -> str:
        """The node that the rest of the partition is read from, once the way there is open."""
        with connected(self._options.connection) as topic:
            pool = topic._topic._session.pool
            where = topic.name, partition.streams, partition.turn
            wanted = pool.routes.holders(*where)[0]

            async def is_open() -> bool:
                return pool.reading(*where).endpoint == wanted

            self._pauses.wait(lambda: topic._thread.run(is_open()))
        return str(wanted)


class PausedDataSource(TidelogDataSource):
    """Takes the option ``pauses`` (the directory) on top."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-paused"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = dict(self.options)
        pauses = Pauses(Path(options.pop("pauses")))
        return PausedReader(stream_options(options), chosen_columns(schema), pauses)
