"""Jobs and queries on a cluster: how far they are is seen, and they survive its nodes."""

from __future__ import annotations

import json
import threading
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.nodes import OnCluster
from tests.spark.rows import DEADLINE_SECONDS, read_stream
from tests.spark.test_materialize import Job
from tests.spark.test_sink_stream import ended
from tidelog.interface.readers import ReaderFacts
from tidelog.pipeline import BatchProgress
from tidelog.testing import LocalCluster, LocalNode

CHANGES = 120
SOAK_ROUNDS = 12


def test_a_query_shows_its_lag_in_its_progress_and_in_the_status(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with cluster.connect() as log:
        events = log.create_topic(topic, streams=2)
        for number in range(10):
            events.append_batch([b"v"] * 10, stream=events.streams[number % 2])
    shown: list[ReaderFacts] = []

    def look(_: DataFrame, __: int) -> None:
        shown.extend(one for one in cluster.status().readers if one.topic == topic)

    frame = read_stream(
        spark,
        cluster.url_of(topic),
        startingOffsets="earliest",
        maxRecordsPerTrigger=40,
        readerName="report",
    )
    writer = frame.writeStream.foreachBatch(look).trigger(availableNow=True)
    with ended(writer.option("checkpointLocation", str(tmp_path)).start()) as query:
        query.awaitTermination()
        told = [progress.sources[0] for progress in query.recentProgress]
        look(frame, -1)
    begins = [1, *(json.loads(source.endOffset)["glsn"] for source in told)]
    assert [(one.name, one.glsn) for one in shown] == [("report", begin) for begin in begins]
    assert [one.lag for one in shown] == [101 - begin for begin in begins]
    assert [json.loads(source.latestOffset)["glsn"] for source in told] == [101] * len(told)
    assert shown[-1].lag == 0


class Reaper:
    """Kills a node of the cluster after a micro-batch, and brings it back after the next one."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._dead: LocalNode | None = None
        self.victims: list[LocalNode] = []

    def __call__(self, _: BatchProgress) -> None:
        if self._dead is not None:
            self.revive()
        elif len(self.victims) < 2:
            self._dead = self._next_victim()
            self.victims.append(self._dead)
            self._dead.kill()

    def _next_victim(self) -> LocalNode:
        if self.victims:
            return self._cluster.metadata_leader()
        (found,) = [one for one in self._cluster.status().topics if one.name == self._topic]
        return self._cluster.leader_of(found.streams[0])

    def revive(self) -> None:
        if self._dead is not None:
            self._dead.start()
            self._cluster.wait_until_ready()
            self._dead = None


def test_a_table_is_that_of_the_log_although_leaders_die_on_the_way(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    with cluster.connect() as log:
        log.create_topic(topic, streams=2)
    job = Job(spark, OnCluster(cluster), topic, tmp_path, "delta")
    job.write(0, CHANGES)
    reaper = Reaper(cluster, topic)
    try:
        summary = job.run(max_records_per_trigger=CHANGES // 6, progress=reaper)
    finally:
        reaper.revive()
    assert len(reaper.victims) == 2
    assert summary.counts.entries == CHANGES
    job.check()


class Producer(threading.Thread):
    """Appends numbered records until it is told to stop, through whatever happens."""

    def __init__(self, cluster: LocalCluster, topic: str, name: str) -> None:
        super().__init__(name=name)
        self._cluster, self._topic = cluster, topic
        self._enough = threading.Event()
        self.acknowledged: list[bytes] = []

    def run(self) -> None:
        with OnCluster(self._cluster).connect(self._topic) as topic:
            while not self._enough.is_set():
                value = f"{self.name} {len(self.acknowledged)}".encode()
                topic.append(value, timeout=DEADLINE_SECONDS)
                self.acknowledged.append(value)

    def stop(self) -> None:
        self._enough.set()
        self.join(DEADLINE_SECONDS)
        assert not self.is_alive()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_topic_is_copied_exactly_once_through_many_deaths(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Nobody knows what the query does when a node dies; nodes die one after the other."""
    copied = f"{topic}-copied"
    with cluster.connect() as log:
        log.create_topic(topic, streams=2)
        target = log.create_topic(copied, streams=2)
        frame = read_stream(
            spark, cluster.url_of(topic), startingOffsets="earliest", minPartitions=2
        )
        writer = frame.select("value").writeStream.format("tidelog")
        writer = writer.options(endpoint=cluster.url_of(copied), checkpointLocation=str(tmp_path))
        producers = [Producer(cluster, topic, name) for name in ("one", "two")]
        for producer in producers:
            producer.start()
        records = target.subscribe(1, timeout=DEADLINE_SECONDS)
        found: list[bytes] = []
        with ended(writer.start()) as query:
            for _, victim in zip(range(SOAK_ROUNDS), cycle(cluster.nodes), strict=False):
                found.extend(next(records).value for _ in range(50))
                victim.kill()
                found.extend(next(records).value for _ in range(50))
                victim.start()
                cluster.wait_until_ready()
                assert query.isActive, query.exception()
            for producer in producers:
                producer.stop()
            written = [value for producer in producers for value in producer.acknowledged]
            found.extend(next(records).value for _ in range(len(written) - len(found)))
            query.processAllAvailable()
        assert sorted(found) == sorted(written)
        assert sum(1 for _ in target.read()) == len(written)
