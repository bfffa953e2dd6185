"""What users try first with Spark: the table of the first steps, and the ledger example."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from examples.ledger import comparison, queries
from examples.ledger.branches import write_branch
from examples.ledger.model import Model
from examples.ledger.movements import Plan
from examples.ledger.pipeline import Pipeline
from tidelog.pipeline import read_table
from tidelog.testing import LocalCluster

GUIDE = Path(__file__).parents[2] / "docs" / "getting-started.md"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
ACCOUNTS = re.compile(r"tidelog://\S+/accounts")
PLAN = Plan(events=4_000, accounts=40, branches=2)


@pytest.fixture(scope="module")
def urls(cluster: LocalCluster) -> tuple[str, str]:
    """Topics for movements, which are all written, and for findings."""
    with cluster.connect() as log:
        log.create_topic("movements", streams=2, versions="explicit")
        log.create_topic("findings")
    found = cluster.url_of("movements"), cluster.url_of("findings")
    barrier = Barrier(PLAN.branches)
    with ThreadPoolExecutor(PLAN.branches) as threads:
        writing = [
            threads.submit(write_branch, found[0], PLAN, branch, barrier)
            for branch in range(PLAN.branches)
        ]
        for one in writing:
            one.result()
    return found


@pytest.fixture
def pipeline(spark: SparkSession, urls: tuple[str, str], tmp_path: Path) -> Iterator[Pipeline]:
    for name, value in queries.ROCKSDB.items():
        spark.conf.set(name, value)
    yield Pipeline(spark, *urls, tmp_path, records_per_trigger=2_500)
    for name in queries.ROCKSDB:
        spark.conf.unset(name)


def test_each_minute_has_the_sums_of_its_movements_however_late_or_often_they_came(
    pipeline: Pipeline,
) -> None:
    reached_ms = pipeline.sum_minutes()
    found = comparison.minutes(pipeline.spark, pipeline.minutes)
    assert found == Model.of(PLAN).minutes(reached_ms)
    assert len(found) >= 45, "all minutes but the last ten or so"


def test_the_check_finds_every_gap_and_every_overdrawn_account_once(pipeline: Pipeline) -> None:
    reached_ms = pipeline.check_balances()
    found = comparison.findings(pipeline.findings_url)
    assert sorted(found) == sorted(Model.of(PLAN).findings(reached_ms))
    kinds = Counter(finding.kind for _, finding in found)
    assert kinds["gap"] >= 1
    assert kinds["overdrawn"] >= 1


@pytest.mark.soak
def test_the_table_has_the_last_balance_of_each_account_that_is_open(pipeline: Pipeline) -> None:
    pipeline.keep_accounts()
    assert comparison.balances(pipeline.spark, pipeline.accounts) == Model.of(PLAN).balances


def test_the_first_table_of_the_docs_is_made(
    spark: SparkSession,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = (one for one in PYTHON.findall(GUIDE.read_text()) if "materialize(" in one)
    with cluster.connect() as log:
        log.create_topic("accounts", streams=2)
    monkeypatch.chdir(tmp_path)
    exec(ACCOUNTS.sub(cluster.url_of("accounts"), code), {})
    assert capsys.readouterr().out == "1 row: account-7 has 95\n"
    (row,) = read_table(spark, "accounts-table").select("key", "value").collect()
    assert (row.key, row.value) == (b"account-7", b"95")
