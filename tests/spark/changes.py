"""A topic of a cluster with a history of few keys, and what must come of it."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from tests.pipeline.model import state_of
from tests.spark.cluster_job import TOLD
from tests.spark.test_materialize import rows_of
from tidelog.pipeline import read_table
from tidelog.testing import LocalCluster

CHANGES = 120
KEYS = 40


def make_changes(cluster: LocalCluster, topic: str, count: int = CHANGES) -> None:
    """A new topic with puts and deletes, in which every part of the history matters."""
    with cluster.connect() as log:
        changed = log.create_topic(topic, streams=2, replicas=3)
        for number in range(count):
            key = b"key %d" % (number * 7 % KEYS)
            if number % 5 == 4:
                changed.delete(key)
            else:
                changed.put(key, b"value %d" % number)


def check_table(spark: SparkSession, cluster: LocalCluster, topic: str, table: Path) -> None:
    """The table is the state of the topic."""
    with cluster.connect() as log:
        assert rows_of(read_table(spark, str(table))) == state_of(log.topic(topic).read())


def check_jobs(spark: SparkSession, cluster: LocalCluster, topic: str, place: Path) -> None:
    """What ``cluster_job.all_jobs`` did with a topic of changes."""
    check_table(spark, cluster, topic, place / "table")
    rows = read_table(spark, str(place / "table")).count()
    told = json.loads((place / TOLD).read_text())
    assert told == {
        "archived": CHANGES,
        "replayed": rows,
        "sound": True,
        "dead": told["dead"],
    }
    assert 0 < told["dead"] <= CHANGES - rows
    with cluster.connect() as log:
        assert len(list(log.topic(f"{topic}-again").read())) == rows
