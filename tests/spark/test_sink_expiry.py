"""What tasks staged and no driver published is forgotten after a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.embedded.logs import in_thread
from tests.spark.faulty_sink import EVERY_TASK, HELD_COMMIT, FaultyDataSource
from tests.spark.nodes import Node, running_node
from tests.spark.rows import DEADLINE_SECONDS
from tests.spark.test_sink_batch import make_topic, records, write
from tidelog.embedded.stages import STAGE_TOPIC

STAGE_SECONDS = 1.0


@pytest.fixture
def node() -> Iterator[Node]:
    with running_node(stage_seconds=STAGE_SECONDS) as running:
        yield running


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    spark.dataSource.register(FaultyDataSource)
    return spark.range(0, 100, 1, 2).select(F.col("id").cast("string").alias("value"))


def stages(node: Node) -> tuple[int, int]:
    """How many stages were ever made, and how many of them are still there."""
    with node.connect() as log:
        found = [topic for topic in log.log_stats().topics if topic.topic == STAGE_TOPIC]
    if not found:
        return 0, 0
    return found[0].high_watermark, found[0].high_watermark + 1 - found[0].first_available


def wait_until_none_is_left(node: Node, made_before: int) -> None:
    """Until stages were made, and all of them are gone."""
    deadline = monotonic() + DEADLINE_SECONDS
    while True:
        made, left = stages(node)
        if made > made_before and not left:
            return
        assert monotonic() < deadline, f"{left} of {made - made_before} new stages are left"
        Event().wait(0.05)


def test_rows_of_a_job_that_failed_disappear(
    frame: DataFrame, node: Node, topic: str, tmp_path: Path
) -> None:
    """All attempts had staged their rows, and none of them could tell the driver where."""
    url = make_topic(node, topic)
    made, _ = stages(node)
    with pytest.raises(PySparkException, match="staged its rows"):
        write(frame, url, format="tidelog-faulty", fault=EVERY_TASK, faults=tmp_path)
    wait_until_none_is_left(node, made)
    assert records(node, topic) == []


@pytest.mark.soak
def test_a_driver_that_commits_too_late_fails_and_its_job_can_be_run_again(
    frame: DataFrame, node: Node, topic: str, tmp_path: Path
) -> None:
    """Nothing of it is published, for half of it might be gone."""
    url = make_topic(node, topic)
    made, _ = stages(node)

    def let_go_when_it_is_too_late() -> None:
        try:
            wait_until_none_is_left(node, made)
        finally:
            (tmp_path / "go").touch()

    with in_thread(let_go_when_it_is_too_late) as late:
        options = {"fault": HELD_COMMIT, "faults": tmp_path, "txnAppId": "late", "txnVersion": 1}
        with pytest.raises(PySparkException, match="stage the batches again"):
            write(frame, url, format="tidelog-faulty", **options)
        late.result(DEADLINE_SECONDS)
    assert records(node, topic) == []
    node.kill()
    node.stage_seconds = None
    node.start()
    write(frame, url, txnAppId="late", txnVersion=1)
    assert [int(record.value) for record in records(node, topic)] == list(range(100))
