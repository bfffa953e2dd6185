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

from tidelog.errors import LogError, OutOfRange, Trimmed, WrongLog
from tidelog.limits import READER_NAME_CHARS_MAX
from tidelog.spark.archive_topic import ReadTopic, opened
from tidelog.spark.connections import CONNECTIONS
from tidelog.spark.offsets import Offset, OffsetDict
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
        self._start: OffsetDict | None = None
        self._last: int | None = None
        """Where ``availableNow`` ends."""
        self._latest: OffsetDict | None = None
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

    def initialOffset(self) -> OffsetDict:
        """Where the query starts if it has no checkpoint; asked for several times, found once."""
        if self._start is None:
            with self._topic() as topic:
                begin = resolve(topic, self._options.start)
                self._start = _offset(topic, begin, begin)
        return self._start

    def latestOffset(self, start: OffsetDict, limit: ReadLimit) -> OffsetDict:
        """The end of the next micro-batch, at a cut; waits a little if there is nothing new."""
        begin = Offset.of(start).glsn
        if self._start is None and self._latest is None:
            _LOGGER.info("the checkpoint goes on at GLSN %d, wherever options start", begin)
        with self._topic() as topic:
            _check_origin(topic, start)
            if begin == self._last:
                self._tell(topic, begin)
                return start
            position = self._find_end(topic, begin, limit)
            latest = position.high_watermark + 1
            self._latest = _offset(topic, latest, latest)
            end = position.glsn if self._last is None else min(position.glsn, self._last)
            return _offset(topic, end, begin) if end > begin else start  # F2

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
                f"the query is at GLSN {begin}, but {error}: was the log put back from a backup? "
                "Give the query a checkpoint that is as old, or a new one"
            ) from error

    def _tell(self, topic: ReadTopic, begin: int) -> None:
        """Let the log know that all is read: its figures would show the last batch as missing."""
        with suppress(LogError):
            topic.find_end(begin, reader=self._reader)

    def reportLatestOffset(self) -> OffsetDict | None:
        """The end of the topic, for the query's progress."""
        return self._latest

    def commit(self, end: OffsetDict) -> None:
        """Nothing: how far a query has come is in its checkpoint, and nowhere else."""

    def stop(self) -> None:
        """Hang up.  Spark may leave this out; then the connection ends with the process."""
        CONNECTIONS.close()

    # -- reading -----------------------------------------------------------------------------

    def partitions(self, start: OffsetDict, end: OffsetDict) -> Sequence[InputPartition]:
        """The tasks of a micro-batch; streams that were added meanwhile are among them."""
        offset = Offset.of(end)
        begin = offset.glsn if start == end else offset.begin  # F1
        with self._topic() as topic:
            _check_origin(topic, end)
            return plan(topic, begin, offset.glsn, self._options, self._turn)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._columns, partition)

    def _topic(self) -> AbstractContextManager[ReadTopic]:
        known = self._start is not None or self._latest is not None
        return opened(self._options, soon=not known)


def _offset(topic: ReadTopic, glsn: int, begin: int) -> OffsetDict:
    return Offset(glsn, begin, topic.log_id.hex(), topic.name).as_dict()


def _check_origin(topic: ReadTopic, found: OffsetDict) -> None:
    """F3: a query that goes on with another topic, or log, would leave out what it has there."""
    offset, log = Offset.of(found), topic.log_id.hex()
    if (offset.log, offset.topic) != (log, topic.name):
        raise WrongLog(
            f"the checkpoint is of topic {offset.topic!r} of log {offset.log}, but the query reads "
            f"topic {topic.name!r} of log {log}: give it a checkpoint of its own"
        )


def process_name() -> str:
    """What a query is called that has no name: where the process runs that plans it."""
    return f"spark@{platform.node()}/{current_process().pid}"[:READER_NAME_CHARS_MAX]
