"""Spark Connect: clients without a JVM, and a server that reads from and writes to a cluster.

The JVM of the tests' session is the server; a client is a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.changes import check_jobs, check_table, make_changes
from tests.spark.cluster_job import ROWS
from tests.spark.drivers import Driver
from tests.spark.sessions import connect_service
from tidelog.testing import LocalCluster

FINISH_SECONDS = 150.0
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    with connect_service(spark) as url:
        yield url


@pytest.mark.soak
def test_rows_go_over_connect_in_all_ways(
    cluster: LocalCluster, topic: str, tmp_path: Path, spark: SparkSession, server: str
) -> None:
    written, copied, changed = (f"{topic}-{name}" for name in ("written", "copied", "changed"))
    with cluster.connect() as log:
        for name in (written, copied):
            log.create_topic(name, streams=2, replicas=3)
    make_changes(cluster, changed)
    urls = [cluster.url_of(name) for name in (written, copied, changed)]
    with Driver("all_ways", server, tmp_path, *urls) as client:
        client.finish(FINISH_SECONDS)
    assert numbers(cluster, written) == list(range(ROWS))
    assert sorted(numbers(cluster, copied)) == list(range(ROWS))
    check_table(spark, cluster, changed, tmp_path / "table")


@pytest.mark.soak
def test_all_jobs_run_over_connect(
    cluster: LocalCluster, topic: str, tmp_path: Path, spark: SparkSession, server: str
) -> None:
    make_changes(cluster, topic)
    with cluster.connect() as log:
        log.create_topic(f"{topic}-again", streams=2, replicas=3)
    urls = cluster.url_of(topic), cluster.url_of(f"{topic}-again")
    with Driver("all_jobs", server, tmp_path, *urls) as client:
        client.finish(FINISH_SECONDS)
    check_jobs(spark, cluster, topic, tmp_path)


def numbers(cluster: LocalCluster, topic: str) -> list[int]:
    with cluster.connect() as log:
        return [int(record.value) for record in log.topic(topic).read()]
