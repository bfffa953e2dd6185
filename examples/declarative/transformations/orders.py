"""From the log, and back to it."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

NODES = os.environ.get("TIDELOG_NODES", "127.0.0.1:7447,127.0.0.1:7457,127.0.0.1:7467")
ORDERS = f"tidelog://{NODES}/orders"
LARGE_ORDERS = f"tidelog://{NODES}/large-orders"

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """A streaming table: each run appends what has come to the log since the last one."""
    entries = (
        spark.readStream.format("tidelog")
        .option("endpoint", ORDERS)
        .option("startingOffsets", "earliest")
        .schema("glsn BIGINT, value BINARY")
        .load()
    )
    order = f.from_json(
        f.col("value").cast("string"), "number BIGINT, country STRING, cents BIGINT"
    )
    return entries.select("glsn", order.alias("order")).select("glsn", "order.*")


dp.create_sink("large_orders", "tidelog", {"endpoint": LARGE_ORDERS})


@dp.append_flow(target="large_orders")
def find_large_orders() -> DataFrame:
    """A flow into the log: every large order once, however often the pipeline runs."""
    found = spark.readStream.table("orders").where("cents >= 90000")
    return found.select(
        f.col("number").cast("string").alias("key"),
        f.to_json(f.struct("number", "country", "cents", "glsn")).alias("value"),
    )
