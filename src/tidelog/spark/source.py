"""Reads of a topic from Spark: one range of GLSNs as a batch, and what batch and stream share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.errors import OutOfRange, Trimmed
from tidelog.spark.archive_topic import ArchivedTopic, ReadTopic, opened
from tidelog.spark.connections import connected, settle_worker
from tidelog.spark.offsets import Anchor, Place
from tidelog.spark.options import ReadOptions
from tidelog.spark.partitions import GlsnRange, plan_partitions

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic
    from tidelog.interface.arrow_columns import StreamSlice

PAGE_BYTES: Final = 8 << 20
"""Larger than a page is by default: a task reads far, and each page costs the node a look."""
_LOGGER = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """All entries between two places, as the log is when Spark plans the read."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with opened(options, soon=True) as topic:
            begin = resolve(topic, options.start)
            end = resolve(topic, options.end)
            return plan(topic, begin, end, options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._columns, partition)


def resolve(topic: ReadTopic, place: Place) -> int:
    """The GLSN that a place means now."""
    if place.anchor is Anchor.TIME:
        return topic.find_time(place.number).glsn
    position = topic.position()
    end = position.high_watermark + 1
    if place.anchor is Anchor.LATEST:
        return end
    if place.anchor is Anchor.EARLIEST:
        return min(position.first_available, end)
    if place.number > end:
        raise OutOfRange(
            f"topic {topic.name!r} has not reached GLSN {place.number}: it ends at {end - 1}; "
            "give an offset of this topic, or wait until it is there"
        )
    return place.number


def plan(
    topic: ReadTopic, begin: int, end: int, options: ReadOptions, turn: int = 0
) -> list[GlsnRange]:
    """Partitions of ``[begin, end)``, as far as that was not trimmed."""
    if begin < end:
        begin = min(available(topic.first_available, begin, topic.name, options), end)
    if isinstance(topic, ArchivedTopic):
        return _plan_joined(topic, begin, end, options, turn)
    return _plan_live(topic, begin, end, options, turn)


def _plan_live(
    topic: RemoteTopic, begin: int, end: int, options: ReadOptions, turn: int
) -> list[GlsnRange]:
    return plan_partitions(
        begin,
        max(begin, end),
        topic.streams,
        records_max=options.records_per_partition,
        count_min=options.partitions_min,
        turn=turn,
    )


def _plan_joined(
    topic: ArchivedTopic, begin: int, end: int, options: ReadOptions, turn: int
) -> list[GlsnRange]:
    """Partitions of what is archived, then of the rest, which is in the log."""
    topic.check_deletes(begin, end, options)
    edge = min(topic.archive_end, end)
    archived: list[GlsnRange] = []
    if begin < edge:
        wanted = options.partitions_min
        count = -(-wanted * (edge - begin) // (end - begin))
        archived = topic.plan(begin, edge, options, count)
        if edge == end:
            return archived
        begin, options = edge, replace(options, partitions_min=max(wanted - count, 1))
    if begin < end:
        begin = min(available(topic.log_first, begin, topic.name, options), end)
    return archived + _plan_live(topic.live, begin, end, options, turn)


def available(first: int, begin: int, topic: str, options: ReadOptions) -> int:
    """Where to begin instead of ``begin`` if that was trimmed, unless that is an error."""
    if begin >= first:
        return begin
    lost = f"GLSN {begin} of topic {topic!r} was trimmed; the first available is {first}"
    return skip_lost(Trimmed(lost, first_available=first), options)


def skip_lost(lost: Trimmed, options: ReadOptions) -> int:
    """The first GLSN that is still there, or the error if a query should know of the loss."""
    first = lost.first_available
    if options.fail_on_data_loss:
        raise Trimmed(
            f"{lost}. Start there, or set failOnDataLoss=false to leave out what is gone",
            first_available=first,
        ) from lost
    _LOGGER.warning("%s; going on there, for failOnDataLoss is false", lost)
    return first


def read_range(
    options: ReadOptions, columns: Sequence[str], partition: InputPartition
) -> Iterator[Any]:
    """The record batches of a partition; runs in a Python worker of an executor."""
    # Late: the driver's processes plan reads, and need no Arrow for that.
    from tidelog.interface.arrow import record_batches  # noqa: PLC0415

    settle_worker()
    if not isinstance(partition, GlsnRange):
        raise TypeError(f"Spark handed over {partition!r}, which is no partition of this source")
    if options.archive:
        from tidelog.spark.archive_reading import joined_batches  # noqa: PLC0415

        return joined_batches(options, columns, partition)
    return record_batches(_pages(options, partition), columns)


def _pages(options: ReadOptions, wanted: GlsnRange) -> Iterator[list[StreamSlice]]:
    """The pages of a range; goes on behind what is trimmed meanwhile, unless that is an error."""
    begin = wanted.begin
    if begin == wanted.end:
        return
    with connected(options.connection) as topic:
        while begin < wanted.end:
            try:
                yield from topic.read_pages(
                    begin,
                    wanted.end,
                    streams=wanted.streams,
                    bytes_max=PAGE_BYTES,
                    turn=wanted.turn,
                )
                return
            except Trimmed as error:
                # All pages before the lost one were handed on, and what is available begins
                # behind it: so nothing comes twice.
                begin = skip_lost(error, options)
