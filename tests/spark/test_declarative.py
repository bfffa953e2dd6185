"""The declarative example: its spec and definitions; `make soak` runs all of it."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import pytest
from pyspark.pipelines.cli import load_pipeline_spec
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output, Sink
from pyspark.sql import SparkSession

from examples.declarative.__main__ import PROJECT, STORAGE
from tidelog.testing import LocalCluster


class Definitions(GraphElementRegistry):
    """What the files of a project define."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise AssertionError("the example has no such flow")

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError("only Spark registers these")


@pytest.fixture
def definitions(
    spark: SparkSession, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> Definitions:
    del spark  # It is the active one while the definitions are loaded and used.
    nodes = cluster.url.removeprefix("tidelog://").partition("/")[0]
    monkeypatch.setenv("TIDELOG_NODES", nodes)
    found = Definitions()
    with graph_element_registration_context(found):
        run_path(str(PROJECT / "transformations" / "orders.py"))
    return found


def test_the_spec_is_one_that_spark_takes_and_the_example_moves_its_storage() -> None:
    spec = load_pipeline_spec(PROJECT / "spark-pipeline.yml")
    assert spec.storage == STORAGE, "the example replaces it by a place of its own"
    found = [path.name for one in spec.libraries for path in PROJECT.glob(one.include)]
    assert {"orders.py", "revenue.sql"} <= set(found)


def test_the_flows_read_from_the_log_and_have_the_columns_that_the_sink_takes(
    definitions: Definitions, spark: SparkSession, cluster: LocalCluster
) -> None:
    with cluster.connect() as log:
        log.create_topic("orders")
    orders = definitions.flows["orders"].func()
    assert orders.isStreaming
    assert orders.columns == ["glsn", "number", "country", "cents"]
    orders.createOrReplaceTempView("orders")
    try:
        large = definitions.flows["find_large_orders"].func()
        assert large.isStreaming
        assert large.columns == ["key", "value"]
    finally:
        spark.catalog.dropTempView("orders")
    sink = definitions.outputs["large_orders"]
    assert isinstance(sink, Sink)
    assert sink.format == "tidelog"
    assert sink.options == {"endpoint": cluster.url_of("large-orders")}
