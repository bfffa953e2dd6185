"""The rules by which entries become rows, as operations on Spark's data frames.  No state.

Everything is a **fact**: who (storage, stream, key), what (PUT, DELETE or DELETE_STORAGE) and when
(write version, then GLSN).  A DELETE_STORAGE has the empty key, which no entry can have.

  T1  of a key's facts the newest one counts, in whatever order they come
  T2  a DELETE_STORAGE kills the older rows of its storage in its own log stream
  T3  a fact that removes stays known, so that an older PUT which comes late stays dead
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WHO: Final = ("storage_id", "stream", "key")
WHEN: Final = ("write_version", "glsn")
ROW_COLUMNS: Final = ("storage_id", "key", "value", "write_version", "glsn", "stream", "timestamp")
"""The columns of a table."""
GRAVE_COLUMNS: Final = (*WHO, "kind", *WHEN)
"""The columns of what is known to be removed."""
FACT_COLUMNS: Final = (*WHO, "kind", *WHEN, "value", "timestamp")

ROW_SCHEMA: Final = (
    "storage_id BIGINT, key BINARY, value BINARY, write_version BINARY, glsn BIGINT, "
    "stream BIGINT, timestamp TIMESTAMP_LTZ"
)
GRAVE_SCHEMA: Final = (
    "storage_id BIGINT, stream BIGINT, key BINARY, kind STRING, write_version BINARY, glsn BIGINT"
)
FACT_SCHEMA: Final = GRAVE_SCHEMA + ", value BINARY, timestamp TIMESTAMP_LTZ"
COUNTED: Final = {
    "appends": "APPEND",
    "puts": "PUT",
    "deletes": "DELETE",
    "storage_deletes": "DELETE_STORAGE",
}
"""Columns that count entries, and the kinds that they count."""


def facts_of_entries(entries: DataFrame) -> DataFrame:
    """The newest fact of each key among entries of the log, with the counts of all of them.

    All APPEND entries become one row for each stream: they are no facts, and only counted.
    """
    is_append = F.col("kind") == "APPEND"
    rows = entries.select(
        F.when(is_append, None).otherwise(F.col("storage_id")).alias("storage_id"),
        "stream",
        F.when(is_append, None).otherwise(F.coalesce("key", F.lit(b""))).alias("key"),
        "kind",
        *WHEN,
        F.when(F.col("kind") == "PUT", F.coalesce("value", F.lit(b""))).alias("value"),
        "timestamp",
    )
    counts = [F.count_if(F.col("kind") == kind).alias(name) for name, kind in COUNTED.items()]
    return _newest(rows, *counts)


def newest_facts(*facts: DataFrame) -> DataFrame:
    """The newest fact about each key (T1)."""
    columns = [one.select(*FACT_COLUMNS) for one in facts]
    return _newest(reduce(lambda a, b: a.unionByName(b), columns))


def _newest(rows: DataFrame, *more: Column) -> DataFrame:
    what = [name for name in FACT_COLUMNS if name not in WHO]
    newest = F.max_by(F.struct(*what), F.struct(*WHEN)).alias("newest")
    grouped = rows.groupBy(*WHO).agg(newest, *more)
    added = [name for name in grouped.columns if name not in (*WHO, "newest")]
    return grouped.select(*WHO, "newest.*", *added)


def of_kind(facts: DataFrame, *kinds: str) -> DataFrame:
    return facts.where(F.col("kind").isin(*kinds))


def as_facts(rows: DataFrame) -> DataFrame:
    """The rows of a table, or graves, as the facts that made them."""
    if "value" in rows.columns:
        return rows.withColumn("kind", F.lit("PUT")).select(*FACT_COLUMNS)
    empty = rows.withColumn("value", F.lit(None).cast("binary"))
    return empty.withColumn("timestamp", F.lit(None).cast("timestamp_ltz")).select(*FACT_COLUMNS)


def outliving_keys(facts: DataFrame, graves: DataFrame) -> DataFrame:
    """The facts that no newer removal of their key kills."""
    dead = of_kind(graves, "DELETE").alias("grave")
    return facts.alias("fact").join(dead, _kills(WHO), "left_anti")


def outliving_storages(facts: DataFrame, graves: DataFrame) -> DataFrame:
    """The facts that no newer removal of their storage kills (T2)."""
    dead = F.broadcast(of_kind(graves, "DELETE_STORAGE")).alias("grave")
    return facts.alias("fact").join(dead, _kills(WHO[:2]), "left_anti")


def killed_rows(rows: DataFrame, graves: DataFrame) -> DataFrame:
    """A DELETE, as new as the removal of its storage, for each row that one kills (T2)."""
    dead = F.broadcast(of_kind(graves, "DELETE_STORAGE")).alias("grave")
    killed = rows.alias("fact").join(dead, _kills(WHO[:2]), "inner")
    return killed.select(
        *(F.col(f"fact.{name}") for name in WHO),
        F.lit("DELETE").alias("kind"),
        *(F.col(f"grave.{name}") for name in WHEN),
        F.lit(None).cast("binary").alias("value"),
        F.lit(None).cast("timestamp_ltz").alias("timestamp"),
    )


def _kills(who: tuple[str, ...]) -> Column:
    """Whether a grave and a fact have this in common, and the fact is older."""
    same = [F.col(f"fact.{name}") == F.col(f"grave.{name}") for name in who]
    older = _when("fact") < _when("grave")
    return reduce(lambda a, b: a & b, same) & older


def _when(alias: str) -> Column:
    return F.struct(*[F.col(f"{alias}.{name}").alias(name) for name in WHEN])
