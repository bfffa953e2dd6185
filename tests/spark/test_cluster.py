"""On a cluster, with executors in processes of their own: all rows are there once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.children import ROOT
from tests.spark.cluster_job import COPIED, PARTITIONS, ROWS, SPECULATED, TOPICS, WRITTEN
from tests.spark.clusters import standalone_cluster
from tests.spark.faulty_sink import GAVE_UP, attempts_that_staged
from tests.spark.nodes import Node

JOB_SECONDS = 180
pytestmark = [pytest.mark.timeout(JOB_SECONDS + 120), pytest.mark.soak]
"""Half a minute when nothing else runs; five JVMs take their time beside other tests."""


@pytest.fixture(scope="module")
def job(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a driver that has done its work on a cluster."""
    with node.connect() as log:
        for topic in TOPICS:
            log.create_topic(topic)
    place = tmp_path_factory.mktemp("driver")
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as master:
        command = [sys.executable, "-m", "tests.spark.cluster_job", master, str(place)]
        command += [node.url(topic) for topic in TOPICS]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=JOB_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        yield place


def numbers(node: Node, topic: str) -> list[int]:
    with node.connect(topic) as log:
        return [int(record.value) for record in log.read()]


@pytest.mark.usefixtures("job")
def test_rows_go_through_a_cluster_as_a_batch_and_as_a_stream(node: Node) -> None:
    assert numbers(node, WRITTEN) == list(range(ROWS))
    assert numbers(node, COPIED) == list(range(ROWS))


def test_of_two_attempts_that_staged_their_rows_one_is_published(node: Node, job: Path) -> None:
    """S1: Spark took the first attempt for slow and started another one beside it."""
    assert not (job / GAVE_UP).exists(), "the second attempt came only when the first had failed"
    assert attempts_that_staged(job, partition=0) == [0, 1]
    assert all(attempts_that_staged(job, partition) for partition in range(PARTITIONS))
    assert numbers(node, SPECULATED) == list(range(ROWS))
