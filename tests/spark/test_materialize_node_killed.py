"""The node is killed while a table is made from its log: the table is that of the log."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.nodes import Node
from tests.spark.test_materialize import Job
from tidelog.pipeline import BatchProgress

CHANGES = 120
DOWN_SECONDS = 0.5


class Killer:
    """Kills the node with SIGKILL when a micro-batch is done, and starts it again a bit later."""

    def __init__(self, node: Node, times: int) -> None:
        self._node = node
        self._left = times
        self._starting: list[threading.Timer] = []

    def __call__(self, progress: BatchProgress) -> None:
        self.join()
        if self._left:
            self._left -= 1
            self._node.kill()
            # Meanwhile the next micro-batch is planned: it finds nobody there.
            self._starting.append(threading.Timer(DOWN_SECONDS, self._node.start))
            self._starting[-1].start()

    @property
    def kills(self) -> int:
        return len(self._starting)

    def join(self) -> None:
        for timer in self._starting:
            timer.join()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_survives_kills_of_the_node_between_its_batches(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, kind: str
) -> None:
    job = made(spark, node, topic, tmp_path, kind)
    killer = Killer(node, times=3)
    try:
        summary = job.run(max_records_per_trigger=CHANGES // 6, progress=killer)
    finally:
        killer.join()
    assert killer.kills == 3
    assert (summary.counts.entries, summary.glsn_end) == (CHANGES, CHANGES + 1)
    job.check()


@pytest.mark.soak
def test_a_table_survives_kills_of_the_node_inside_its_batches(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path
) -> None:
    """Nobody knows what the job does when the node dies; it may read, plan or commit."""
    job = made(spark, node, topic, tmp_path, "delta")
    done = threading.Event()

    def kill_now_and_then() -> None:
        while not done.wait(0.7):
            node.kill()
            node.start()

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        summary = job.run(max_records_per_trigger=CHANGES // 6)
    finally:
        done.set()
        killer.join()
    assert summary.counts.entries == CHANGES
    job.check()


def made(spark: SparkSession, node: Node, topic: str, place: Path, kind: str) -> Job:
    """A job whose topic has its changes already."""
    with node.connect() as log:
        log.create_topic(topic, streams=2)
    job = Job(spark, node, topic, place, kind)
    job.write(0, CHANGES)
    return job
