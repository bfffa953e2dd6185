"""A cluster that nothing happens to: what clients are told, what it costs, what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from bench.failover import idle_figures
from tidelog.errors import Unauthorized, UnknownTopic, ValueTooLarge, WrongLog
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.net.security import ClientSecurity
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-this-test-that-is-long-enough"
OTHER_TOKEN = "a-token-of-another-cluster-that-is-as-long"
IDLE_SECONDS = 3.0
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
URL = re.compile(r"tidelog://[\w.:,/]+")
METRIC_ROW = re.compile(r"^\| `(tidelog_\w+)", re.MULTILINE)
METRIC_LINE = re.compile(r"^# TYPE (tidelog_\w+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, directory=directory, streams=2, token=TOKEN) as running:
        yield running


def test_an_idle_cluster_writes_nothing(cluster: LocalCluster) -> None:
    with cluster.connect() as log:
        log.append(b"something before the quiet")
    assert idle_figures(cluster, IDLE_SECONDS)["written_bytes"] == 0


def test_clients_are_told_what_they_did_wrong(cluster: LocalCluster) -> None:
    with cluster.connect() as log:
        with pytest.raises(UnknownTopic):
            log.topic("nobody-made-this")
        with pytest.raises(ValueTooLarge):
            log.append(bytes(VALUE_BYTES_MAX + 1))
    with pytest.raises(Unauthorized):
        tidelog.connect(cluster.url, security=ClientSecurity(token=OTHER_TOKEN), timeout=5.0)
    with pytest.raises(WrongLog):
        cluster.connect(log_id=bytes(16))


def test_the_metrics_are_those_of_the_reference(cluster: LocalCluster) -> None:
    status, text = cluster.nodes[0].page("/metrics")
    assert status == 200
    shown = set(METRIC_LINE.findall(text))
    listed = set(METRIC_ROW.findall((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    assert listed - shown == set(), "listed, but not shown"
    assert shown - listed == set(), "shown, but not listed"


def test_the_first_examples_of_the_docs_run(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    found = [code for code in PYTHON.findall(text) if "tidelog.connect(" in code]
    examples = [code for code in found if "tidelog.pipeline" not in code]  # tests/spark has it
    assert len(examples) == 2
    monkeypatch.setenv("TIDELOG_TOKEN", TOKEN)
    for code in examples:
        exec(URL.sub(cluster.url, code), {})
    shown = capsys.readouterr().out
    assert shown.count("order 3 placed") == 2, "once read and once subscribed to"


def test_the_pages_of_a_node_say_that_it_lives_and_serves(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        assert node.page("/healthz")[0] == 200
        assert node.page("/readyz")[0] == 200
