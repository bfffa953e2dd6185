"""A topic as a stream: micro-batches that end at cuts.

S1  a micro-batch is a range of GLSNs that its end offset names, so a replay reads the same
S2  what the log is asked for is retried until the deadline: an error here ends the query
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.errors import LogError, OutOfRange, Trimmed
from tidelog.limits import READER_NAME_CHARS_MAX
from tidelog.spark.archive_topic import ReadTopic, opened
from tidelog.spark.connections import CONNECTIONS
from tidelog.spark.offsets import Offset
from tidelog.spark.options import ReadOptions
from tidelog.spark.source import plan, read_range, resolve, skip_lost

if TYPE_CHECKING:
    from tidelog.interface.positions import Position

_LOGGER = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of a topic.

    Spark makes two of it: one plans, in one process for as long as the query runs; the other one
    reads, in the executors' workers.  All that a task has to know is in its partition.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._reader = options.reader or process_name()
        self._turn = crc32(self._reader.encode())
        """Which replicas to begin with: queries spread over them, too."""
        self._start: int | None = None
        self._last: int | None = None
        """Where ``availableNow`` ends."""
        self._latest: int | None = None
        """The end of the topic when the log was asked last."""

    # -- limits ------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """That there is a bound; Spark cannot say both, so ``latestOffset`` looks at options."""
        if self._options.records_per_trigger:
            return ReadMaxRows(self._options.records_per_trigger)
        if self._options.bytes_per_trigger:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where the topic ends: what comes later is for the next run."""
        with self._topic() as topic:
            self._last = topic.position().high_watermark + 1

    # -- offsets -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        """Where the query starts if it has no checkpoint; asked for several times, found once."""
        if self._start is None:
            with self._topic() as topic:
                self._start = resolve(topic, self._options.start)
        return Offset(self._start, self._start).as_dict()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next micro-batch, at a cut; waits a little if there is nothing new."""
        begin = Offset.of(start).glsn
        if self._start is None and self._latest is None:
            _LOGGER.info("the checkpoint goes on at GLSN %d, wherever options start", begin)
        if self._last is not None and begin >= self._last:
            self._tell(begin)
            return start
        with self._topic() as topic:
            position = self._find_end(topic, begin, limit)
        self._latest = position.high_watermark + 1
        end = position.glsn if self._last is None else min(position.glsn, self._last)
        return Offset(end, begin).as_dict() if end > begin else start  # F2

    def _find_end(self, topic: ReadTopic, begin: int, limit: ReadLimit) -> Position:
        options = self._options
        bounded = not isinstance(limit, ReadAllAvailable)
        try:
            return topic.find_end(
                begin,
                records_max=options.records_per_trigger if bounded else 0,
                bytes_max=options.bytes_per_trigger if bounded else 0,
                wait=options.fetch_wait if self._last is None else 0.0,
                reader=self._reader,
            )
        except Trimmed as error:
            return self._find_end(topic, skip_lost(error, options), limit)
        except OutOfRange as error:
            raise OutOfRange(
                f"the query is at GLSN {begin}, but {error}: the checkpoint is not of this log"
            ) from error

    def _tell(self, begin: int) -> None:
        """Let the log know that all is read: its figures would show the last batch as missing."""
        with suppress(LogError), self._topic() as topic:
            topic.find_end(begin, reader=self._reader)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """The end of the topic, for the query's progress."""
        return None if self._latest is None else Offset(self._latest, self._latest).as_dict()

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: how far a query has come is in its checkpoint, and nowhere else."""

    def stop(self) -> None:
        """Hang up.  Spark may leave this out; then the connection ends with the process."""
        CONNECTIONS.close()

    # -- reading -----------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch; streams that were added meanwhile are among them."""
        offset = Offset.of(end)
        begin = offset.glsn if start == end else offset.begin  # F1
        with self._topic() as topic:
            return plan(topic, begin, offset.glsn, self._options, self._turn)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._columns, partition)

    def _topic(self) -> AbstractContextManager[ReadTopic]:
        known = self._start is not None or self._latest is not None
        return opened(self._options, soon=not known)


def process_name() -> str:
    """What a query is called that has no name: where the process runs that plans it."""
    return f"spark@{platform.node()}/{current_process().pid}"[:READER_NAME_CHARS_MAX]
