"""What the driver makes of the log's word on a batch: it is in, was in before, or may come yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.rows import read_stream
from tidelog.errors import Busy, DeadlineExceeded, LogError, PartlyAppended
from tidelog.interface.positions import Published
from tidelog.spark import sink
from tidelog.spark.sink import Outcome, StagedRows, publish
from tidelog.spark.sink_options import batch_sink_options


def copy(spark: SparkSession, node: Node, source: str, target: str, checkpoint: Path) -> None:
    """Three batches at most of ten entries each."""
    rows = read_stream(
        spark, node.url(source), startingOffsets="earliest", maxRecordsPerTrigger=10
    ).select("value")
    writer = rows.writeStream.format("tidelog").option("endpoint", node.url(target))
    writer = writer.option("writerId", "copy").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def test_batches_below_those_of_another_query_are_not_dropped_in_silence(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    target = topic + "-copy"
    with node.connect() as log:
        made = log.create_topic(topic)
        for _ in range(3):
            made.append_batch([b"%d" % i for i in range(10)])
        copied = log.create_topic(target)
        copy(spark, node, topic, target, tmp_path / "first")
        assert len(list(copied.read())) == 30
        with pytest.raises(StreamingQueryException, match="another query write under the same"):
            copy(spark, node, topic, target, tmp_path / "second")
        assert len(list(copied.read())) == 30
        # The first one goes on, and may repeat its last batch.
        for note in (tmp_path / "first" / "commits").glob("*2*"):
            note.unlink()
        made.append_batch([b"%d" % i for i in range(10)])
        copy(spark, node, topic, target, tmp_path / "first")
        assert len(list(copied.read())) == 40


class SlowTopic:
    """Says these things of a batch, one after the other."""

    def __init__(self, *words: LogError | Published) -> None:
        self.words = list(words)

    def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        word = self.words.pop(0)
        if isinstance(word, LogError):
            raise word
        return word

    @contextmanager
    def connected(self, _: object) -> Iterator[SlowTopic]:
        yield self


def published(topic: SlowTopic, patch: pytest.MonkeyPatch) -> Outcome:
    patch.setattr(sink, "connected", topic.connected)
    options = batch_sink_options({"endpoint": "tidelog://nowhere:1/t"}, job="j")
    return publish(options, "w", 1, [StagedRows(0, "", (1,))])


def test_a_batch_that_is_still_being_published_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = [DeadlineExceeded("it goes on"), Busy("another publication is under way")] * 2
    topic = SlowTopic(*late, Published(1, duplicate=True))
    assert published(topic, monkeypatch) is Outcome.REPEATED
    assert not topic.words


def test_a_log_that_never_answers_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SlowTopic(*[DeadlineExceeded("it goes on")] * 11)
    with pytest.raises(DeadlineExceeded):
        published(topic, monkeypatch)
    assert len(topic.words) == 1


def test_what_somebody_has_to_mend_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PartlyAppended):
        published(SlowTopic(PartlyAppended("a log stream is sealed")), monkeypatch)
