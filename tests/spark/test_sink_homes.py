"""Rows without keys of one batch share a log stream, whatever happens to streams meanwhile (S4)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from tests.spark.nodes import Node
from tests.spark.rows import read_stream
from tests.spark.test_sink_batch import write
from tidelog.errors import Sealed
from tidelog.interface.routing import stream_of_key
from tidelog.spark.connections import CONNECTIONS
from tidelog.spark.sink import StagedRows, make_writer
from tidelog.testing.local_cluster import LocalCluster

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic

Messages = list[WriterCommitMessage | None]
SCHEMA = StructType().add("value", StringType())


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Writers that are used here keep their connections in this process."""
    yield
    CONNECTIONS.close()


def planned(url: str, batch: int) -> DataSourceArrowWriter:
    """The writer of a batch, as it is before anything is sent to tasks."""
    options = {"endpoint": url, "txnAppId": "nightly", "txnVersion": str(batch)}
    return make_writer(options, SCHEMA, overwrite=False)


def staged(sent: bytes, partition: int, *values: str) -> StagedRows:
    """What the task of a partition stages with the writer that was sent to it."""
    writer = pickle.loads(sent)
    message = writer.write(iter([pa.RecordBatch.from_pydict({"value": list(values)})]))
    assert isinstance(message, StagedRows)
    return replace(message, partition=partition)


def found(topic: RemoteTopic) -> list[tuple[int, bytes]]:
    return [(record.stream, record.value) for record in topic.read()]


def in_order(values: Sequence[tuple[int, bytes]], *wanted: str) -> None:
    """The values are these, and all in one log stream."""
    assert [value.decode() for _, value in values] == list(wanted)
    assert len({stream for stream, _ in values}) == 1


@pytest.mark.parametrize("batch", range(6))
def test_streams_that_are_added_between_tasks_change_nothing(
    node: Node, topic: str, batch: int
) -> None:
    with node.connect() as log:
        made = log.create_topic(topic, streams=2)
        writer = planned(node.url(topic), batch)
        sent = pickle.dumps(writer)
        late = staged(sent, 2, "e")
        log.add_streams(topic, 1)
        early = staged(sent, 0, "a", "b")
        log.add_streams(topic, 1)
        middle = staged(sent, 1, "c", "d")
        writer.commit([late, early, middle])
        in_order(found(made), *"abcde")


def test_a_stream_that_was_just_added_may_be_the_one(node: Node, topic: str) -> None:
    """Tasks whose process knows the topic from before send their rows there all the same."""
    with node.connect() as log:
        made = log.create_topic(topic)
        staged(pickle.dumps(planned(node.url(topic), 0)), 0, "never published")
        log.add_streams(topic, 1)
        for batch in range(2):
            writer = planned(node.url(topic), batch)
            writer.commit([staged(pickle.dumps(writer), 0, f"{batch}")])
        assert {stream for stream, _ in found(made)} == set(made.streams)


def test_a_query_goes_on_in_the_streams_that_are_not_sealed(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with cluster.connect() as log:
        values = [b"%d" % number for number in range(40)]
        log.create_topic(topic).append_batch(values)
        copy = log.create_topic(f"{topic}-copy", streams=2)
        log.admin.seal(copy.streams[1])
        rows = read_stream(
            spark, cluster.url_of(topic), startingOffsets="earliest", maxRecordsPerTrigger=10
        ).select("value")
        writer = rows.writeStream.format("tidelog").option("endpoint", cluster.url_of(copy.name))
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert found(copy) == [(copy.streams[0], value) for value in values]


def test_a_stream_that_is_sealed_before_its_batch_is_published_is_left_by_the_next_try(
    cluster: LocalCluster, topic: str
) -> None:
    with cluster.connect() as log:
        made = log.create_topic(topic, streams=2)
        url = cluster.url_of(topic)
        for batch in range(4):
            writer = planned(url, batch)
            messages: Messages = [staged(pickle.dumps(writer), 0, f"{batch}")]
            for stream in made.streams:
                log.admin.seal(stream)
            with pytest.raises(Sealed, match="nothing was published"):
                writer.commit(messages)
            writer.abort(messages)
            left = made.streams[batch // 2]
            log.admin.unseal(left)
            writer = planned(url, batch)
            writer.commit([staged(pickle.dumps(writer), 0, f"{batch}")])
            assert found(made)[-1] == (left, b"%d" % batch)
            for stream in made.streams:
                log.admin.unseal(stream)


def test_rows_whose_keys_belong_to_a_sealed_stream_are_an_error(
    spark: SparkSession, cluster: LocalCluster, topic: str
) -> None:
    with cluster.connect() as log:
        made = log.create_topic(topic, streams=2)
        log.admin.seal(made.streams[1])
        manifest = made._topic.known.manifest
        keys = [f"k{number}" for number in range(20)]
        homes = {key: stream_of_key(manifest, key.encode()) for key in keys}
        for stream in made.streams:
            mine = [(key, "v") for key in keys if homes[key] == stream]
            frame = spark.createDataFrame(mine, "key string, value string")
            if stream == made.streams[0]:
                write(frame, cluster.url_of(topic))
                continue
            text = f"log stream {stream} is sealed, nothing was staged: unseal it"
            with pytest.raises(PySparkException, match=text):
                write(frame, cluster.url_of(topic))
        assert {stream for stream, _ in found(made)} == {made.streams[0]}
