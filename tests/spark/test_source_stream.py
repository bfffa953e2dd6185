"""``spark.readStream.format("tidelog")``: micro-batches follow each other in total order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.nodes import Node
from tests.spark.rows import DEADLINE_SECONDS, Batches, fill, log_rows, read_stream


@contextmanager
def running(
    frame: DataFrame,
    sink: Callable[[DataFrame, int], None],
    checkpoint: Path,
    **trigger: Any,
) -> Iterator[StreamingQuery]:
    """A query that feeds ``sink``; it is stopped at the end."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def run_to_end(frame: DataFrame, checkpoint: Path) -> Batches:
    """All that is there now, in as many micro-batches as the limits make of it."""
    found = Batches()
    with running(frame, found, checkpoint, availableNow=True) as query:
        query.awaitTermination()
    return found


def test_micro_batches_follow_each_other_in_total_order(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    found = Batches()
    with node.connect() as log:
        events = log.create_topic(topic, streams=3)
        fill(events, 100)
        frame = read_stream(
            spark, node.url(topic), startingOffsets="earliest", maxRecordsPerTrigger=60
        )
        with running(frame, found, tmp_path) as query:
            fill(events, 100, prefix=b"w")
            found.wait_for(query, 200)
            fill(events, 50, prefix=b"x")
            found.wait_for(query, 250)
        wanted = log_rows(events.read())
    assert found.rows == wanted
    assert len(found.found) >= 4
    for (_, rows), (_, later) in pairwise(part for part in found.found if part[1]):
        assert rows[-1][0] + 1 == later[0][0]


def test_available_now_keeps_the_limit_and_ends_where_the_log_ended(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        for i in range(100):
            events.append_batch([b"%d" % i] * 10, stream=events.streams[i % 2])
        wanted = log_rows(events.read())
        frame = read_stream(
            spark, node.url(topic), startingOffsets="earliest", maxRecordsPerTrigger=400
        )
        found = Batches()

        def more(batch: DataFrame, number: int) -> None:
            events.append(b"too late")
            found(batch, number)

        with running(frame, more, tmp_path, availableNow=True) as query:
            query.awaitTermination()
    assert found.rows == wanted
    assert [len(rows) for _, rows in found.found] == [400, 400, 200]


def test_bytes_limit_a_trigger_too(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        for _ in range(20):
            events.append_batch([bytes(1000)] * 10)
        wanted = log_rows(events.read())
    frame = read_stream(
        spark, node.url(topic), startingOffsets="earliest", maxBytesPerTrigger=50_000
    )
    found = run_to_end(frame, tmp_path)
    assert found.rows == wanted
    assert max(len(rows) for _, rows in found.found) <= 60
    assert len(found.found) >= 4


def test_streams_that_are_added_while_a_query_runs_are_read(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    found = Batches()
    with node.connect() as log:
        events = log.create_topic(topic)
        frame = read_stream(spark, node.url(topic), startingOffsets="earliest", minPartitions=3)
        with running(frame, found, tmp_path) as query:
            events.append_batch([b"before"] * 10)
            found.wait_for(query, 10)
            wider = log.add_streams(topic, 2)
            for stream in wider.streams:
                wider.append_batch([b"after"] * 10, stream=stream)
            found.wait_for(query, 40)
            wanted, streams = log_rows(wider.read()), wider.streams
    assert sorted(found.rows) == wanted
    assert {row[2] for row in found.rows} == set(streams)


def test_a_restarted_query_goes_on_where_it_was(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    frame = read_stream(spark, node.url(topic), startingOffsets="earliest")
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        fill(events, 50)
        first = run_to_end(frame, tmp_path)
        fill(events, 50, prefix=b"w")
        second = run_to_end(frame, tmp_path)
        third = run_to_end(frame, tmp_path)
        wanted = log_rows(events.read())
    assert first.rows + second.rows == wanted
    assert third.rows == []


class Crash(Exception):
    """Thrown into a query."""


def test_a_start_at_the_end_survives_a_crash_before_the_first_batch_is_committed(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    """Spark replays the first batch, and by then the end of the log is somewhere else."""
    frame = read_stream(spark, node.url(topic), startingOffsets="latest", fetchWaitMs=20_000)
    seen = Batches()
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        fill(events, 20, prefix=b"old")

        def crash(batch: DataFrame, number: int) -> None:
            seen(batch, number)
            raise Crash

        with running(frame, crash, tmp_path) as query:
            # The query may or may not have looked where the end is: it waits for one more.
            while query.isActive and not seen.found:
                events.append(b"in the crashed batch")
                seen.wait(0.1)
            with pytest.raises(StreamingQueryException, match="Crash"):
                query.awaitTermination()
        events.append_batch([b"while it was down"] * 5)
        found = run_to_end(frame, tmp_path)
        wanted = log_rows(events.read())
    assert seen.rows, "there is data in the crashed batch"
    assert found.found[0] == (0, seen.rows), "the replayed batch is the crashed one"
    assert found.rows == wanted[seen.rows[0][0] - 1 :]
    assert found.values[-1] == b"while it was down"


def test_a_batch_that_is_replayed_has_the_same_rows(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    frame = read_stream(spark, node.url(topic), startingOffsets="earliest", maxRecordsPerTrigger=40)
    seen = Batches()

    def crash_in_the_second(batch: DataFrame, number: int) -> None:
        seen(batch, number)
        if number == 1:
            raise Crash

    with node.connect() as log:
        events = log.create_topic(topic, streams=3)
        fill(events, 100)
        with (
            running(frame, crash_in_the_second, tmp_path) as query,
            pytest.raises(StreamingQueryException, match="Crash"),
        ):
            query.awaitTermination()
        log.add_streams(topic, 1)
        fill(events, 20, prefix=b"more")
        found = run_to_end(frame, tmp_path)
        wanted = log_rows(events.read())
    assert found.found[0] == seen.found[1]
    assert seen.found[0][1] + found.rows == wanted


class Producer(threading.Thread):
    """Appends numbered records until it is told to stop, through whatever happens to the node."""

    def __init__(self, node: Node, topic: str, name: str) -> None:
        super().__init__(name=name)
        self._node, self._topic = node, topic
        self._enough = threading.Event()
        self.acknowledged: list[bytes] = []

    def run(self) -> None:
        with self._node.connect(self._topic) as topic:
            while not self._enough.is_set():
                value = f"{self.name} {len(self.acknowledged)}".encode()
                topic.append(value)
                self.acknowledged.append(value)

    def stop(self) -> None:
        self._enough.set()
        self.join(DEADLINE_SECONDS)
        assert not self.is_alive()


def test_nothing_is_lost_or_doubled_while_the_node_is_killed_again_and_again(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    found = Batches()
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        frame = read_stream(spark, node.url(topic), startingOffsets="earliest", minPartitions=2)
        producers = [Producer(node, topic, name) for name in ("one", "two")]
        with running(frame, found, tmp_path) as query:
            for producer in producers:
                producer.start()
            for _ in range(4):
                found.wait_for(query, len(found.rows) + 20)
                node.kill()
                node.start()
            for producer in producers:
                producer.stop()
            found.wait_for(query, events.high_watermark)
        wanted = log_rows(events.read())
    assert sorted(found.rows) == wanted
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    assert sorted(found.values) == sorted(acknowledged)
    for (_, rows), (_, later) in pairwise(part for part in found.found if part[1]):
        assert max(rows)[0] + 1 == min(later)[0]


def test_a_trimmed_range_ends_a_query_or_is_skipped(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    strict = read_stream(spark, node.url(topic), startingOffsets="earliest")
    lax = read_stream(spark, node.url(topic), startingOffsets="earliest", failOnDataLoss="false")
    with node.connect() as log:
        events = log.create_topic(topic)
        events.append_batch([b"read"] * 10)
        assert len(run_to_end(strict, tmp_path / "strict").rows) == 10
        assert len(run_to_end(lax, tmp_path / "lax").rows) == 10
        events.append_batch([b"lost"] * 10)
        events.append_batch([b"kept"] * 10)
        events.trim(21)
        found = run_to_end(lax, tmp_path / "lax")
        with pytest.raises(
            StreamingQueryException, match=r"GLSN 11 .*the first available is 21.*failOnDataLoss"
        ):
            run_to_end(strict, tmp_path / "strict")
    assert found.values == [b"kept"] * 10


def test_the_offset_of_a_progress_is_a_start(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        fill(events, 100)
        wanted = log_rows(events.read())
    frame = read_stream(spark, node.url(topic), startingOffsets="earliest", maxRecordsPerTrigger=30)
    found = Batches()
    with running(frame, found, tmp_path / "one", availableNow=True) as query:
        query.awaitTermination()
        sources = [progress.sources[0] for progress in query.recentProgress]
    assert json.loads(sources[0].latestOffset)["glsn"] == 101, "how far behind it is shows"
    end = sources[0].endOffset
    rest = read_stream(spark, node.url(topic), startingOffsets=end)
    found = run_to_end(rest, tmp_path / "two")
    assert found.rows == wanted[json.loads(end)["glsn"] - 1 :]


def test_a_timestamp_is_a_start(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    with node.connect() as log:
        events = log.create_topic(topic)
        for i in range(10):
            events.append(b"%d" % i)
        wanted = log_rows(events.read())
    moment = datetime.fromtimestamp(wanted[4][8] / 1e6, UTC).isoformat()
    found = run_to_end(read_stream(spark, node.url(topic), startingTimestamp=moment), tmp_path)
    assert found.rows == wanted[4:]


def test_columns_can_be_chosen(spark: SparkSession, node: Node, topic: str, tmp_path: Path) -> None:
    with node.connect() as log:
        log.create_topic(topic).append_batch([b"%d" % i for i in range(10)])
    reader = spark.readStream.format("tidelog").options(
        endpoint=node.url(topic), startingOffsets="earliest"
    )
    rows: list[tuple[Any, ...]] = []
    frame = reader.schema("value BINARY, glsn BIGINT").load()
    with running(
        frame,
        lambda batch, _: rows.extend(map(tuple, batch.collect())),
        tmp_path,
        availableNow=True,
    ) as query:
        query.awaitTermination()
    assert rows == [(b"%d" % i, i + 1) for i in range(10)]


def test_what_is_wrong_is_told(spark: SparkSession, node: Node, topic: str, tmp_path: Path) -> None:
    with node.connect() as log:
        log.create_topic(topic).append_batch([b"x"] * 10)
        log.create_topic(topic + "-shorter").append(b"y")
    wrong = [
        (node.url("nowhere"), {}, "nowhere"),
        (node.url(topic), {"endingOffsets": "5"}, "spark.read only"),
        (node.url(topic), {"maxRecordsPerTrigger": "all"}, "whole number"),
        ("tidelog://127.0.0.1:1/x", {"connectTimeoutMs": "300"}, "Unreachable"),
    ]
    for i, (url, options, says) in enumerate(wrong):
        with pytest.raises(StreamingQueryException, match=says):
            run_to_end(read_stream(spark, url, **options), tmp_path / str(i))
    earliest = {"startingOffsets": "earliest"}
    assert (
        len(run_to_end(read_stream(spark, node.url(topic), **earliest), tmp_path / "a").rows) == 10
    )
    other = read_stream(spark, node.url(topic + "-shorter"), **earliest)
    with (
        pytest.raises(StreamingQueryException, match="give it a checkpoint of its own"),
        running(other, Batches(), tmp_path / "a") as query,
    ):
        query.awaitTermination()
