"""Executors, Python workers and drivers die in the middle of a batch: every row is there once.

Each of them is known to be in the middle, for it is held there, and gets a SIGKILL.  All reads and
writes are those of a cluster of three nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.spark.changes import check_table, make_changes
from tests.spark.cluster_job import BATCH_ROWS, PARTITIONS, ROWS, copy
from tests.spark.clusters import standalone_cluster
from tests.spark.drivers import Driver, Victim
from tests.spark.holds import HOLD_SECONDS, Holds, Point
from tidelog.testing import LocalCluster

ONE_EXECUTOR = "local-cluster[1,1,1024]"
"""A cluster inside of the driver's JVM, but with an executor in a JVM of its own."""
FINISH_SECONDS = 120.0
SPECULATION_SECONDS = 0.8 * HOLD_SECONDS
"""Less than a hold lasts, so that it is not its end which lets a second attempt begin."""
pytestmark = pytest.mark.timeout(400)

Life = Sequence[tuple[Victim, Point]]
"""The deaths under one driver, of which its own is the last."""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster with two hosts."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


@pytest.fixture(params=["standalone", "local-cluster[2,1,1024]"])
def master(request: pytest.FixtureRequest) -> str:
    if request.param == "standalone":
        return str(request.getfixturevalue("standalone"))
    return str(request.param)


@pytest.mark.soak
def test_a_copy_survives_the_death_of_its_executor_and_of_its_driver(
    cluster: LocalCluster, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The driver dies when the log has published a batch, and Spark has not noted it."""
    rows = 2 * BATCH_ROWS
    begin, end = topics(cluster, topic, rows)
    life = [(Victim.EXECUTOR, Point.READ), (Victim.DRIVER, Point.PUBLISHED)]
    live(life, "copy", ONE_EXECUTOR, tmp_path, begin, end)
    assert 0 < len(numbers(cluster, copy_of(topic))) < rows
    copy(spark, tmp_path, begin, end)
    check_copy(cluster, topic, rows)


@pytest.mark.soak
def test_a_copy_survives_deaths_at_every_point(
    cluster: LocalCluster, master: str, topic: str, tmp_path: Path
) -> None:
    rows = 12 * BATCH_ROWS
    urls = topics(cluster, topic, rows)
    for life in (
        [
            (Victim.EXECUTOR, Point.READ),
            (Victim.WORKER, Point.STAGED),
            (Victim.DRIVER, Point.PUBLISHING),
        ],
        [
            (Victim.WORKER, Point.READ),
            (Victim.EXECUTOR, Point.STAGED),
            (Victim.DRIVER, Point.PUBLISHED),
        ],
        [(Victim.DRIVER, Point.READ)],
    ):
        live(life, "copy", master, tmp_path, *urls)
    finish("copy", master, tmp_path, *urls)
    check_copy(cluster, topic, rows)


@pytest.mark.soak
def test_a_named_write_survives_deaths_at_every_point(
    cluster: LocalCluster, standalone: str, topic: str, tmp_path: Path
) -> None:
    with cluster.connect() as log:
        log.create_topic(topic, streams=PARTITIONS, replicas=3)
    url = cluster.url_of(topic)
    for life in (
        [
            (Victim.WORKER, Point.STAGED),
            (Victim.EXECUTOR, Point.STAGED),
            (Victim.DRIVER, Point.PUBLISHING),
        ],
        [(Victim.DRIVER, Point.PUBLISHED)],
    ):
        live(life, "write", standalone, tmp_path, url)
    assert numbers(cluster, topic) == list(range(ROWS)), "the last driver had published"
    finish("write", standalone, tmp_path, url)
    assert numbers(cluster, topic) == list(range(ROWS))


@pytest.mark.soak
def test_a_table_survives_deaths_at_every_point(
    cluster: LocalCluster, standalone: str, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    make_changes(cluster, topic, 6 * BATCH_ROWS)
    url = cluster.url_of(topic)
    for life in (
        [(Victim.EXECUTOR, Point.READ), (Victim.WORKER, Point.READ), (Victim.DRIVER, Point.READ)],
        [(Victim.DRIVER, Point.TABLE_COMMITTED)],
    ):
        live(life, "table", standalone, tmp_path, url)
    finish("table", standalone, tmp_path, url)
    check_table(spark, cluster, topic, tmp_path / "table")


@pytest.mark.soak
def test_a_batch_read_survives_the_death_of_its_executors(
    cluster: LocalCluster, standalone: str, topic: str, tmp_path: Path
) -> None:
    url, _ = topics(cluster, topic, ROWS)
    Holds(tmp_path / "holds").order(Point.READ)
    with Driver("files", standalone, tmp_path, url) as driver:
        driver.kill(Victim.EXECUTOR, Point.READ, then=Point.READ)
        driver.kill(Victim.WORKER, Point.READ)
        driver.finish(FINISH_SECONDS)
    files = parquet.read_table(tmp_path / "files")
    assert sorted(map(int, files["value"].to_pylist())) == list(range(ROWS))


@pytest.mark.soak
def test_of_two_attempts_that_staged_their_rows_one_is_published(
    cluster: LocalCluster, standalone: str, topic: str, tmp_path: Path
) -> None:
    """S1: Spark takes the first attempt, which is held, for slow, and starts another beside it."""
    with cluster.connect() as log:
        log.create_topic(topic, streams=PARTITIONS, replicas=3)
    Holds(tmp_path / "holds").order(Point.STAGED)
    with Driver("speculate", standalone, tmp_path, cluster.url_of(topic)) as driver:
        driver.wait_until_held(Point.STAGED)
        driver.finish(SPECULATION_SECONDS)
    assert numbers(cluster, topic) == list(range(ROWS))


def live(life: Life, story: str, master: str, place: Path, *urls: str) -> None:
    """Start a driver, and let its processes die, itself at last."""
    Holds(place / "holds").order(life[0][1])
    following = [point for _, point in life[1:]]
    with Driver(story, master, place, *urls) as driver:
        for (victim, point), then in zip(life, [*following, None], strict=True):
            driver.kill(victim, point, then=then)


def finish(story: str, master: str, place: Path, *urls: str) -> None:
    with Driver(story, master, place, *urls) as driver:
        driver.finish(FINISH_SECONDS)


def topics(cluster: LocalCluster, topic: str, rows: int) -> tuple[str, str]:
    """The URLs of a topic with numbers in its streams, in turn, and of an empty one."""
    with cluster.connect() as log:
        source = log.create_topic(topic, streams=PARTITIONS, replicas=3)
        log.create_topic(copy_of(topic), streams=PARTITIONS, replicas=3)
        for number in range(0, rows, 10):
            stream = source.streams[number // 10 % PARTITIONS]
            source.append_batch([b"%d" % (number + i) for i in range(10)], stream=stream)
    return cluster.url_of(topic), cluster.url_of(copy_of(topic))


def copy_of(topic: str) -> str:
    return f"{topic}-copy"


def check_copy(cluster: LocalCluster, topic: str, rows: int) -> None:
    """Nothing twice, nothing missing, and what was of one stream is in its order."""
    found = numbers(cluster, copy_of(topic))
    assert sorted(found) == list(range(rows))
    for stream in range(PARTITIONS):
        part = [number for number in found if number // 10 % PARTITIONS == stream]
        assert part == sorted(part)


def numbers(cluster: LocalCluster, topic: str) -> list[int]:
    with cluster.connect() as log:
        return [int(record.value) for record in log.topic(topic).read()]
