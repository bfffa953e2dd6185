"""A replay whose driver is killed, for real, goes on where it was: every row is there once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster_job import BATCH_ROWS, ROWS, replayed
from tests.spark.drivers import Driver, Victim
from tests.spark.holds import Point
from tidelog.testing import LocalCluster


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_replay_survives_the_death_of_its_driver_at_every_point(
    spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    """Before a chunk is published, and when it was and nobody has noted it."""
    with cluster.connect() as log:
        made = log.create_topic(topic, streams=2, replicas=3)
        url = cluster.url_of(topic)
        spark.range(0, ROWS, 1, ROWS // BATCH_ROWS).write.parquet(str(tmp_path / "rows"))
        for point in (Point.STAGED, Point.PUBLISHING, Point.PUBLISHED):
            with Driver("replayed", "local[2]", tmp_path, url) as driver:
                driver.holds.order(point)
                driver.kill(Victim.DRIVER, point)
        assert made.position().high_watermark > 0
        summary = replayed(spark, tmp_path, url)
        assert summary.chunks == ROWS // BATCH_ROWS
        found = sorted(int(record.key) for record in made.read())
    assert found == list(range(ROWS))
