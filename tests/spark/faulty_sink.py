"""``format("tidelog-faulty")``: the sink, stopped once at a chosen point.

Writers live in processes of Spark's, so a test tells them what to do by options, and by files of a
directory that both know: each fault happens once, and leaves its name there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.sink import make_stream_writer, make_writer

TASK = "task"
"""A task fails when it has staged its rows."""
EVERY_TASK = "every task"
"""The same, however often it is tried."""
BEFORE_COMMIT = "before commit"
INSIDE_COMMIT = "inside commit"
"""The driver fails when the log has published, and before Spark knows."""
HELD_COMMIT = "held commit"
"""The commit waits for a file named ``go``."""
WATCHED_COMMIT = "watched commit"
"""The commit only leaves its name, and goes on."""

Messages = list[WriterCommitMessage | None]
HOLD_SECONDS = 60.0


class Fault:
    """One thing that goes wrong, once."""

    def __init__(self, name: str, directory: str) -> None:
        self._name = name
        self._directory = Path(directory)

    def is_due(self, *names: str) -> bool:
        """Whether the fault is one of these, and has not happened yet."""
        if self._name not in names:
            return False
        try:
            (self._directory / self._name).touch(exist_ok=False)
        except FileExistsError:
            return self._name == EVERY_TASK
        return True

    def wait(self, name: str) -> None:
        """Until there is a file of this name."""
        deadline = monotonic() + HOLD_SECONDS
        while not (self._directory / name).exists():
            Event().wait(0.02)
            if monotonic() > deadline:
                raise TimeoutError(f"nobody makes {name!r}")

    def commit(self, work: Callable[[], None]) -> None:
        if self.is_due(BEFORE_COMMIT):
            raise RuntimeError("the driver fails before it commits")
        if self.is_due(HELD_COMMIT):
            self.wait("go")
        self.is_due(WATCHED_COMMIT)
        work()
        if self.is_due(INSIDE_COMMIT):
            raise RuntimeError("the driver fails when the commit took effect")

    def write(self, work: Callable[[], WriterCommitMessage]) -> WriterCommitMessage:
        message = work()
        if self.is_due(TASK, EVERY_TASK):
            raise RuntimeError("the task fails when it has staged its rows")
        return message


class FaultyWriter(DataSourceArrowWriter):
    def __init__(self, inner: DataSourceArrowWriter, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._fault.write(lambda: self._inner.write(iterator))

    def commit(self, messages: Messages) -> None:
        self._fault.commit(lambda: self._inner.commit(messages))

    def abort(self, messages: Messages) -> None:
        self._inner.abort(messages)


class FaultyStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: DataSourceStreamArrowWriter, fault: Fault, batch: int) -> None:
        self._inner = inner
        self._fault = fault
        self._batch = batch

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._fault.write(lambda: self._inner.write(iterator))

    def commit(self, messages: Messages, batchId: int) -> None:
        if batchId != self._batch:
            self._inner.commit(messages, batchId)
        else:
            self._fault.commit(lambda: self._inner.commit(messages, batchId))

    def abort(self, messages: Messages, batchId: int) -> None:
        self._inner.abort(messages, batchId)


class FaultyDataSource(TidelogDataSource):
    """Takes the options ``fault``, ``faults`` (the directory) and ``faultyBatch`` on top."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-faulty"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options, fault, _ = self._parts()
        return FaultyWriter(make_writer(options, schema, overwrite), fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options, fault, batch = self._parts()
        return FaultyStreamWriter(make_stream_writer(options, schema, overwrite), fault, batch)

    def _parts(self) -> tuple[dict[str, str], Fault, int]:
        options = dict(self.options)
        fault = Fault(options.pop("fault", ""), options.pop("faults", ""))
        return options, fault, int(options.pop("faultybatch", "1"))
