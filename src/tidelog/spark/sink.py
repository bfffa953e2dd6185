"""The log as a sink of Spark: every batch of a query is in the log exactly once.

Tasks **stage** their rows: the log keeps them, but shows them to nobody.  When all tasks are done,
the driver **publishes** the stages of those that count, in one decision that the log remembers by
writer and batch.  So:

  S1  rows of failed, repeated or speculative attempts are never published, and expire
  S2  a batch that is committed again, after whatever crash, is published once
  S3  in each log stream rows of a partition keep their order, and partitions follow each other by
      their number; rows without keys share one stream, so this is their total order
  S4  which stream that is, the driver decides for all tasks of a batch: one that is not sealed then
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidelog.errors import BadOption, Busy, DeadlineExceeded, LogError, Unreachable
from tidelog.interface.arrow_appends import ArrowAppends
from tidelog.interface.routing import producer_id
from tidelog.spark.connections import connected
from tidelog.spark.sink_options import (
    SinkOptions,
    batch_sink_options,
    check_sink_schema,
    stream_sink_options,
)

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic
    from tidelog.interface.appends import Part
    from tidelog.interface.positions import Published

LOGGER: Final = logging.getLogger(__name__)
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_STAGES_UNDER_WAY: Final = 3
"""Of one task: what becomes durable together costs the node's disk little more than one alone."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What the attempt of a task has staged."""

    partition: int
    query: str
    """The id of the streaming query, which only tasks are told; empty in a batch job."""
    stages: tuple[int, ...]


class Outcome(Enum):
    """What the log says of a batch that is to be published."""

    PUBLISHED = "published"
    REPEATED = "repeated"
    """It was the last one of its writer already."""
    OUTRUN = "outrun"
    """Later ones of its writer are there.  Spark commits a batch before it begins the next one."""


_PUBLISH_TRIES: Final = 10
"""Each may take as long as any call, ``timeoutMs``."""
Messages: TypeAlias = Sequence[WriterCommitMessage | None]


def make_writer(
    options: dict[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of ``df.write``."""
    if overwrite:
        raise BadOption("a log cannot be overwritten: use mode('append')")
    check_sink_schema(schema)
    return TidelogWriter(batch_sink_options(options, job=uuid4().hex))


def make_stream_writer(
    options: dict[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream``."""
    if overwrite:
        raise BadOption("a log cannot be overwritten: use outputMode('append'), not 'complete'")
    check_sink_schema(schema)
    return TidelogStreamWriter(stream_sink_options(options))


class _Staging:
    """What both writers do in tasks; the same object, copied, is there and in the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __getstate__(self) -> object:
        """On its way to the tasks: of a job, or of one batch and no other."""
        self._options = settled(self._options)
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return stage_rows(self._options, iterator)


class TidelogWriter(_Staging, DataSourceArrowWriter):
    """Writes the rows of one job."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(self._options, self._options.writer, self._options.batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard(self._options, messages)


class TidelogStreamWriter(_Staging, DataSourceStreamArrowWriter):
    """Writes micro-batches; Spark makes a new one for each call, so nothing is kept in it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = _staged(messages)
        writer = self._options.writer or next((f"query:{one.query}" for one in staged), "")
        if publish(self._options, writer, batchId, messages) is Outcome.OUTRUN:
            raise BadOption(
                f"{writer} has published batches after number {batchId}, so this one was not "
                "published: does another query write under the same 'writerId', or did a query "
                "begin again with a new checkpoint? Give it another 'writerId', or leave that out"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, messages)


def settled(options: SinkOptions) -> SinkOptions:
    """With what all tasks of a batch must agree on (S4); in the driver."""
    if options.homes:
        return options
    try:
        with connected(options.connection) as topic:
            return replace(options, homes=topic.open_streams or topic.streams)
    except LogError as error:
        # Raised here, it would reach the caller as a failure to pickle.  Tasks meet it as well.
        LOGGER.warning("the log could not be asked for its log streams: %s", error)
        return options


def stage_rows(options: SinkOptions, batches: Iterator[Any]) -> StagedRows:
    """Stage the rows of a task; in the task."""
    partition, query, batch = _task()
    writer = options.writer or query
    # All tasks of a batch take one stream for rows without keys, the next batch another.
    turn = producer_id(writer) + (options.batch if batch is None else batch)
    with connected(options.connection) as topic:
        if not options.homes:
            raise Unreachable("the driver could not ask the log for its log streams: try again")
        home = options.homes[turn % len(options.homes)]
        appends = ArrowAppends(topic, home=home, chunk_bytes=options.chunk_bytes)
        stages = _stage_all(topic, appends.chunks(batches))
    return StagedRows(partition, query, tuple(stages))


def _stage_all(topic: RemoteTopic, chunks: Iterator[list[Part]]) -> list[int]:
    """Stage some chunks while the next one is made; more than those never wait in memory."""
    stages: list[int] = []
    under_way: deque[Future[int]] = deque()
    with ThreadPoolExecutor(_STAGES_UNDER_WAY, "tidelog-stage") as threads:
        for parts in chunks:
            if len(under_way) == _STAGES_UNDER_WAY:
                stages.append(under_way.popleft().result())
            under_way.append(threads.submit(topic.stage, parts))
        stages += [stage.result() for stage in under_way]
    return stages


def _task() -> tuple[int, str, int | None]:
    """The partition of this task; in a streaming query also its id and the batch's number."""
    context = TaskContext.get()
    if context is None:
        return 0, "", None
    batch = context.getLocalProperty(_BATCH_ID)
    return (
        context.partitionId(),
        context.getLocalProperty(_QUERY_ID) or "",
        int(batch) if batch else None,
    )


def publish(options: SinkOptions, writer: str, batch: int, messages: Messages) -> Outcome:
    """Let all readers see what the tasks staged, once (S2); in the driver."""
    staged = _staged(messages)
    stages = [stage for one in staged for stage in one.stages]
    if not stages:
        return Outcome.PUBLISHED
    with connected(options.connection) as topic:
        published = _published(topic, writer, batch, stages)
    if not published.duplicate:
        return Outcome.PUBLISHED
    LOGGER.info("batch %d of %s was in the log already", batch, writer)
    # How many entries a batch had is known of a writer's last one only.
    return Outcome.REPEATED if published.entries else Outcome.OUTRUN


def _published(topic: RemoteTopic, writer: str, batch: int, stages: Sequence[int]) -> Published:
    """Publish, and ask again while that goes on: a large batch takes longer than an answer may.

    To give up would be to fail a batch that is in the log a moment later.
    """
    for _ in range(_PUBLISH_TRIES - 1):
        try:
            return topic.publish(writer, batch, stages)
        except (DeadlineExceeded, Busy) as error:
            LOGGER.info("batch %d of %s: %s", batch, writer, error)
    return topic.publish(writer, batch, stages)


def discard(options: SinkOptions, messages: Messages) -> None:
    """Give back the room of stages that will not be published.

    Spark also aborts a batch whose commit took effect before it failed: the log keeps what was
    published, whatever is discarded.  What is not discarded expires.
    """
    stages = [stage for one in _staged(messages) for stage in one.stages]
    if not stages:
        return
    try:
        with connected(options.connection) as topic:
            topic.discard(stages)
    except LogError as error:
        LOGGER.warning("%d stages stay until they expire: %s", len(stages), error)


def _staged(messages: Messages) -> list[StagedRows]:
    """What the tasks that succeeded told, by partition (S3)."""
    found = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(found, key=lambda one: one.partition)
