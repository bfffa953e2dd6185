"""The tasks of a job wait for a node as long as the job was told to, and no longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

import pytest
from pyspark.sql import SparkSession

from tests.spark.nodes import Node, running_node
from tidelog.errors import LogError
from tidelog.formats.archive_manifest import ArchivedFile
from tidelog.pipeline import archive, compact_plan, materialize
from tidelog.pipeline.archiving.running import GlsnSpan
from tidelog.pipeline.archiving.tasks import SparkWriter
from tidelog.pipeline.compaction_plan.planning import Planning
from tidelog.pipeline.log_options import log_options

TIMEOUT = 0.5
SOON_SECONDS = 100.0
"""A task that has a connection already would wait two minutes if nobody told it otherwise."""


@pytest.fixture
def node() -> Iterator[Node]:
    """One that may be killed."""
    with running_node() as running:
        with running.connect() as log:
            for number in range(40):
                log.put(b"k%d" % number, b"v")
        yield running


@pytest.fixture(autouse=True)
def it_ends_soon() -> Iterator[None]:
    begun = monotonic()
    yield
    assert monotonic() - begun < SOON_SECONDS


def test_a_table_whose_node_is_gone(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot connect"):
        materialize(
            node.url(),
            tmp_path,
            max_records_per_trigger=10,
            progress=lambda _: node.kill(),
            spark=spark,
            timeout=TIMEOUT,
        )


def test_an_archive_whose_node_is_gone(
    spark: SparkSession, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(node.url(), tmp_path, up_to=20, spark=spark, timeout=TIMEOUT)
    write = SparkWriter.__call__

    def kill_and_write(self: SparkWriter, ranges: Sequence[GlsnSpan]) -> list[ArchivedFile]:
        node.kill()
        return write(self, ranges)

    monkeypatch.setattr(SparkWriter, "__call__", kill_and_write)
    with pytest.raises(LogError, match="cannot connect"):
        archive(node.url(), tmp_path, spark=spark, timeout=TIMEOUT)


def test_a_plan_whose_node_is_gone(
    spark: SparkSession, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_plan(node.url(), spark=spark, timeout=TIMEOUT)
    read = Planning.read

    def kill_and_read(self: Planning) -> int:
        node.kill()
        return read(self)

    monkeypatch.setattr(Planning, "read", kill_and_read)
    with pytest.raises(LogError, match="cannot connect"):
        compact_plan(node.url(), spark=spark, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(60.0, "60000"), (0.0004, "1"), (1.2345, "1235"), (float("inf"), str(365 * 86_400_000))],
)
def test_seconds_become_whole_milliseconds(seconds: float, milliseconds: str) -> None:
    assert log_options("tidelog://a:1", "t", seconds)["timeoutMs"] == milliseconds
