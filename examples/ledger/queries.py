"""The streaming queries: what Spark makes of the log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.ledger.balance_check import FINDING_COLUMNS, BalanceCheck

WATERMARK: Final = "10 minutes"
"""How much later than the newest movement another one may come, and still count."""
ROCKSDB: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""Where queries keep what they remember; a check of our own asks for it."""


def movements(spark: SparkSession, url: str, records_per_trigger: int) -> DataFrame:
    """The log's entries as movements: account, sequence, timestamp, closes, amount, balance."""
    entries = (
        spark.readStream.format("tidelog")
        .option("endpoint", url)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", records_per_trigger)
        .schema("kind STRING, key BINARY, value BINARY, write_version BINARY, timestamp TIMESTAMP")
        .load()
    )
    line = f.from_json(f.col("value").cast("string"), "amount BIGINT, balance BIGINT")
    return entries.select(
        f.col("key").cast("string").alias("account"),
        # The last 8 of 16 bytes are more than any account needs.
        f.conv(f.hex(f.substring("write_version", 9, 8)), 16, 10).cast("bigint").alias("sequence"),
        "timestamp",
        (f.col("kind") == "DELETE").alias("closes"),
        line.alias("line"),
    ).select("account", "sequence", "timestamp", "closes", "line.*")


def per_minute(found: DataFrame) -> DataFrame:
    """How much was paid in and out in each minute; each movement counts once."""
    amount = f.col("amount")
    return (
        found.where("NOT closes")
        .withWatermark("timestamp", WATERMARK)
        .dropDuplicatesWithinWatermark(["account", "sequence"])
        .groupBy(f.window("timestamp", "1 minute").alias("window"))
        .agg(
            f.count("*").alias("movements"),
            f.sum(f.greatest(amount, f.lit(0))).alias("paid_in"),
            f.sum(f.least(amount, f.lit(0))).alias("paid_out"),
        )
        .select(f.col("window.start").alias("minute"), "movements", "paid_in", "paid_out")
    )


def findings(found: DataFrame) -> DataFrame:
    """What the check has to say, as rows for the log."""
    checked = (
        found.withWatermark("timestamp", WATERMARK)
        .select(
            "account",
            "sequence",
            "timestamp",
            f.unix_millis("timestamp").alias("at_ms"),
            f.coalesce("amount", f.lit(0)).alias("amount"),
            f.coalesce("balance", f.lit(0)).alias("balance"),
        )
        .groupBy("account")
        .transformWithState(BalanceCheck(), FINDING_COLUMNS, "Append", "eventTime")
    )
    return checked.select(
        f.lit("APPEND").alias("kind"),
        f.col("account").cast("binary").alias("key"),
        f.to_json(f.struct("account", "kind", "sequence", "detail")).cast("binary").alias("value"),
    )


def to_files(rows: DataFrame, directory: Path, checkpoint: Path) -> StreamingQuery:
    """Parquet files, exactly once, until the end that the log has now."""
    writer = rows.writeStream.format("parquet").option("path", str(directory))
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def to_log(rows: DataFrame, url: str, checkpoint: Path) -> StreamingQuery:
    """Entries of another topic, exactly once, until the end that the log has now."""
    writer = rows.writeStream.format("tidelog").option("endpoint", url)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def watermark_ms(query: StreamingQuery) -> int:
    """How far the query's time had come in its last micro-batch."""
    progress: Any = query.lastProgress
    return round(datetime.fromisoformat(progress["eventTime"]["watermark"]).timestamp() * 1000)
