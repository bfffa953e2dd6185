"""Real kills while an archive is made: of the job, and of the leader that it reads from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.children import Child
from tests.spark.archive_main import RANGE_ENTRIES
from tests.spark.nodes import Node
from tests.spark.rows import frame_rows, log_rows, read
from tidelog.pipeline import ArchiveProgress, archive
from tidelog.pipeline.archiving import running
from tidelog.runtime.local_nodes import LocalNode
from tidelog.testing.local_cluster import LocalCluster

VALUES = [b"%d" % i for i in range(300)]


@pytest.mark.soak
@pytest.mark.parametrize("manifests", [0, 1, 2, 3])
def test_a_job_that_is_killed_between_files_and_manifest_loses_and_doubles_nothing(
    spark: SparkSession, node: Node, topic: str, tmp_path: Path, manifests: int
) -> None:
    url, directory = node.url(topic), tmp_path / "archive"
    with node.connect() as log:
        events = log.create_topic(topic, streams=2)
        for begin in range(0, len(VALUES), 30):
            events.append_batch(VALUES[begin : begin + 30])
        wanted = log_rows(events.read())
    with Child("tests.spark.archive_main", url, str(directory), str(manifests)) as child:
        child.wait_for(b"held")
    written = len(list(directory.glob("*.parquet")))
    summary = archive(url, directory, range_entries=RANGE_ENTRIES, trim=True, spark=spark)
    archived_before = 2 * max(manifests - 1, 0)
    assert summary.leftovers == written - archived_before == (2 if manifests else 0)
    assert (summary.archive_files, summary.archive_rows) == (6, 300)
    assert summary.first_available == 301
    assert frame_rows(read(spark, url, archive=str(directory)).orderBy("glsn")) == wanted
    assert len(list(directory.glob("*.parquet"))) == 6


@pytest.mark.soak
def test_an_archive_is_whole_although_leaders_were_killed_on_the_way(
    spark: SparkSession,
    cluster: LocalCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "STEP_RANGES", 1)
    url, directory = cluster.url_of(topic), tmp_path / "archive"
    with cluster.connect() as log:
        events = log.create_topic(topic, streams=2, replicas=3)
        for begin in range(0, len(VALUES), 30):
            events.append_batch(VALUES[begin : begin + 30])
        wanted = log_rows(events.read())
        streams = list(events.streams)
    down: list[LocalNode] = []

    def kill_a_leader(progress: ArchiveProgress) -> None:
        if streams:
            for node in down:
                node.start()
            cluster.wait_until_ready()
            down[:] = [cluster.leader_of(streams.pop())]
            down[0].kill()

    archive(
        url, directory, range_entries=100, trim=True, keep=50, spark=spark, progress=kill_a_leader
    )
    assert not streams
    assert frame_rows(read(spark, url, archive=str(directory)).orderBy("glsn")) == wanted
    for node in down:
        node.start()
    cluster.wait_until_ready()
