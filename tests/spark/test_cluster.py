"""Jobs on a standalone cluster of Spark, as users start them there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.process.children import ROOT
from tests.spark.changes import CHANGES, check_jobs, check_table, make_changes
from tests.spark.clusters import HOSTS, standalone_cluster
from tests.spark.drivers import Driver
from tidelog.testing import LocalCluster

JOB_SECONDS = 180
pytestmark = [pytest.mark.timeout(JOB_SECONDS + 150), pytest.mark.soak]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as url:
        yield url


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_command_makes_a_table_on_a_cluster(
    cluster: LocalCluster, master: str, topic: str, tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    make_changes(cluster, topic)
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 2\n")
    table = tmp_path / "table"
    command = [sys.executable, "-m", "tidelog", "pipeline", "materialize", "--output", "json"]
    command += ["--from", cluster.url_of(topic), "--to", str(table), "--format", kind]
    done = subprocess.run(
        [*command, "--max-records", "50", "--spark-master", master],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": HOSTS[0], "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["puts"] + counts["deletes"] == CHANGES
    check_table(spark, cluster, topic, table)


def test_all_jobs_run_on_a_cluster(
    cluster: LocalCluster, master: str, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    make_changes(cluster, topic)
    with cluster.connect() as log:
        log.create_topic(f"{topic}-again", streams=2, replicas=3)
    urls = cluster.url_of(topic), cluster.url_of(f"{topic}-again")
    with Driver("all_jobs", master, tmp_path, *urls) as driver:
        driver.finish(JOB_SECONDS)
    check_jobs(spark, cluster, topic, tmp_path)
