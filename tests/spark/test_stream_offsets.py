"""What the offsets in a query's checkpoint are of.  No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.spark.nodes import Node, running_node
from tidelog.errors import OutOfRange, WrongLog
from tidelog.spark.connections import CONNECTIONS
from tidelog.spark.options import stream_options
from tidelog.spark.stream_source import StreamReader


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    yield
    CONNECTIONS.close()


def reader_of(node: Node, topic: str) -> StreamReader:
    given = {"endpoint": node.url(topic), "startingOffsets": "earliest"}
    return StreamReader(stream_options(given), ("glsn",))


def filled(node: Node, topic: str, entries: int) -> None:
    with node.connect() as log:
        log.create_topic(topic).append_batch([b"x"] * entries)


def check_refused(reader: StreamReader, offset: dict[str, object], says: str) -> None:
    """Where a query goes on behind a batch, where it does one again, and where it ends."""
    with pytest.raises(WrongLog, match=says):
        reader.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(WrongLog, match=says):
        reader.partitions(offset, offset)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(WrongLog, match=says):
        reader.latestOffset(offset, ReadAllAvailable())


def test_a_checkpoint_of_another_topic_is_refused(node: Node, topic: str) -> None:
    filled(node, topic, 3)
    filled(node, f"{topic}-other", 9)
    reader = reader_of(node, topic)
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert (offset["glsn"], offset["topic"]) == (4, topic)
    reader.stop()
    check_refused(
        reader_of(node, f"{topic}-other"),
        offset,
        f"is of topic '{topic}' .* a checkpoint of its own",
    )
    again = reader_of(node, topic)
    assert again.latestOffset(offset, ReadAllAvailable()) == offset
    assert len(again.partitions(offset, offset)) == 1


def test_a_checkpoint_of_a_log_that_was_made_anew_is_refused() -> None:
    """Its GLSNs would be taken for those of the log before, and its first entries left out."""
    with running_node() as node:
        filled(node, "events", 3)
        reader = reader_of(node, "events")
        offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        reader.stop()
        node.kill()
        shutil.rmtree(node.data)
        node.start()
        filled(node, "events", 9)
        check_refused(reader_of(node, "events"), offset, f"of log {offset['log']}")
        CONNECTIONS.close()


def test_a_log_that_is_shorter_than_the_checkpoint_says_is_told(node: Node, topic: str) -> None:
    """As one that was put back from a backup."""
    filled(node, topic, 3)
    reader = reader_of(node, topic)
    offset = reader.initialOffset() | {"glsn": 9, "from": 5}
    for _ in range(2):
        with pytest.raises(OutOfRange, match=r"at GLSN 9, but .* put back from a backup"):
            reader.latestOffset(offset, ReadAllAvailable())
        reader.prepareForTriggerAvailableNow()
