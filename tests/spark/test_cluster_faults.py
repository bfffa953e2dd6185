"""A cluster's nodes die in the middle of what Spark does: exactly once, in both directions.

Tasks wait in the middle of their pages for the fault, and a held commit waits between stage and
publish.  A watched commit goes on: the fault comes while it publishes, or right after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from pyspark.sql import SparkSession

from tests.spark.faulty_sink import HELD_COMMIT, WATCHED_COMMIT
from tests.spark.nodes import OnCluster
from tests.spark.paused_source import PausedDataSource, Pauses
from tests.spark.rows import DEADLINE_SECONDS, Batches, log_rows
from tests.spark.test_sink_stream import Copy, ended, wait_for
from tidelog.client.blocking import RemoteTopic
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.testing import LocalCluster, LocalNode

BATCHES, BATCH_ENTRIES = 40, 10


class Paused:
    """A query that reads a topic of two log streams, both of its tasks in the middle of it."""

    def __init__(
        self, spark: SparkSession, cluster: LocalCluster, topic: RemoteTopic, place: Path
    ) -> None:
        spark.dataSource.register(PausedDataSource)
        (place / "pauses").mkdir()
        self.pauses = Pauses(place / "pauses")
        self.found = Batches()
        self._cluster = cluster
        self._topic = topic
        frame = (
            spark.readStream.format("tidelog-paused")
            .options(endpoint=cluster.url_of(topic.name), pauses=str(place / "pauses"))
            .options(startingOffsets="earliest", minPartitions=2)
            .load()
        )
        writer = frame.writeStream.foreachBatch(self.found)
        self.query = writer.option("checkpointLocation", str(place / "checkpoint")).start()

    def wait_for_tasks(self) -> None:
        deadline = monotonic() + DEADLINE_SECONDS
        while len(self.pauses.nodes) < 2:
            Event().wait(0.01)
            assert self.query.isActive, f"the query ended: {self.query.exception()}"
            assert monotonic() < deadline, "the tasks did not come to the middle"

    def finish(self) -> None:
        """Let the tasks go on; more comes, is read too, and all of it is what the log has."""
        self.pauses.let_go()
        fill(self._topic, b"after", 5)
        self.found.wait_for(self.query, (BATCHES + 5) * BATCH_ENTRIES)
        assert sorted(self.found.rows) == log_rows(self._topic.read())
        assert min(self.pauses.pages_left) > 5, "it was the middle"
        assert self.pauses.attempts == {0}, "no task had to be tried again"

    @property
    def stream_read(self) -> int:
        """The log stream that the first task reads."""
        return self._topic.streams[0]

    @property
    def node_read(self) -> LocalNode:
        """The node that it reads from."""
        address = self.pauses.nodes[0].removeprefix("tcp://")
        (node,) = [node for node in self._cluster.nodes if node.url.endswith(address)]
        return node


def fill(topic: RemoteTopic, word: bytes, batches: int = BATCHES) -> None:
    for number in range(batches):
        values = [b"%b %d %d" % (word, number, i) for i in range(BATCH_ENTRIES)]
        topic.append_batch(values, stream=topic.streams[number % 2])


@contextmanager
def paused(spark: SparkSession, cluster: LocalCluster, topic: str, place: Path) -> Iterator[Paused]:
    with cluster.connect() as log:
        made = log.create_topic(topic, streams=2, replicas=3)
        fill(made, b"before")
        work = Paused(spark, cluster, made, place)
        with ended(work.query):
            work.wait_for_tasks()
            yield work


@contextmanager
def killed(cluster: LocalCluster, node: LocalNode) -> Iterator[None]:
    """A node is dead for a while."""
    node.kill()
    try:
        yield
    finally:
        node.start()
        cluster.wait_until_ready()


# -- from the log ---------------------------------------------------------------------------------


def test_a_task_goes_on_elsewhere_when_the_follower_dies_that_it_reads(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with paused(spark, cluster, topic, tmp_path) as work:
        assert work.node_read is not cluster.leader_of(work.stream_read), "followers come first"
        with killed(cluster, work.node_read):
            work.finish()


def test_a_micro_batch_is_read_on_when_the_leader_of_a_log_stream_dies(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with (
        paused(spark, cluster, topic, tmp_path) as work,
        killed(cluster, cluster.leader_of(work.stream_read)),
    ):
        work.finish()


def test_a_micro_batch_is_read_on_when_the_leader_of_the_metadata_dies(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with (
        paused(spark, cluster, topic, tmp_path) as work,
        killed(cluster, cluster.metadata_leader()),
    ):
        work.finish()


def test_a_task_goes_on_elsewhere_when_the_replica_is_swapped_that_it_reads(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    new = cluster.add_node()
    with paused(spark, cluster, topic, tmp_path) as work, cluster.connect() as log:
        cluster.wait_until_ready()
        stream, old = work.stream_read, work.node_read.id
        for _ in log.admin.swap(stream, old, new.id):
            pass
        placed = log.admin.status().stream(stream)
        assert placed is not None
        assert new.id in placed.ensemble
        assert old not in placed.ensemble
        work.finish()


# -- into the log ---------------------------------------------------------------------------------


class Victim(Enum):
    LEADER = "the leader of a log stream that is written to"
    PUBLISHER = "the node that publishes"
    METADATA = "the leader of the metadata"
    FOLLOWER = "a node that leads none of the topic's log streams, if there is one"

    def find(self, cluster: LocalCluster, topic: str) -> LocalNode:
        if self is Victim.METADATA:
            return cluster.metadata_leader()
        streams = streams_of(cluster, PUBLISH_TOPIC if self is Victim.PUBLISHER else topic)
        leaders = [cluster.leader_of(stream) for stream in streams]
        if self is Victim.FOLLOWER:
            return next((node for node in cluster.nodes if node not in leaders), leaders[0])
        return leaders[0]


def streams_of(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    (found,) = [one for one in cluster.status().topics if one.name == topic]
    return found.streams


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        (Victim.LEADER, HELD_COMMIT),
        (Victim.METADATA, WATCHED_COMMIT),
        *(
            pytest.param(victim, moment, marks=pytest.mark.soak)
            for victim, moment in [
                (Victim.PUBLISHER, WATCHED_COMMIT),
                (Victim.LEADER, WATCHED_COMMIT),
                (Victim.PUBLISHER, HELD_COMMIT),
                (Victim.METADATA, HELD_COMMIT),
                (Victim.FOLLOWER, HELD_COMMIT),
                (Victim.FOLLOWER, WATCHED_COMMIT),
            ]
        ),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Victim) else value,
)
def test_a_batch_is_published_once_whoever_dies_meanwhile(
    spark: SparkSession,
    cluster: LocalCluster,
    topic: str,
    tmp_path: Path,
    victim: Victim,
    moment: str,
) -> None:
    """``held commit``: all rows are staged; ``watched commit``: they are published about now."""
    copy = Copy(spark, OnCluster(cluster), topic, tmp_path)
    copy.add_batches(2)
    with ended(copy.start(fault=moment)) as query:
        wait_for(query, copy, moment)
        with killed(cluster, victim.find(cluster, topic)):
            (copy.faults / "go").touch()
            query.awaitTermination()
    copy.check()
