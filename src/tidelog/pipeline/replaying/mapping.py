"""How the rows of a table become entries of a log, as operations on Spark's data frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from tidelog.errors import BadOption


@dataclass(frozen=True, slots=True)
class Mapping:
    """Which columns make an entry; without any, those of a table that ``materialize`` made."""

    key: str | None = None
    value: str | None = None
    version: str | None = None
    storage_id: int = 0
    order_by: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said of columns, so that those of a materialized table count."""
        return self.key is None and self.value is None and self.version is None

    def check(self, columns: Sequence[str]) -> None:
        """Raise unless the table has all columns that are named."""
        named = [name for name in (self.key, self.value, self.version) if name is not None]
        for name in (*named, *self.order_by):
            if name not in columns:
                raise BadOption(f"the table has no column {name!r}, only {', '.join(columns)}")


def materialized_entries(rows: DataFrame, *, explicit: bool) -> DataFrame:
    """PUTs with the keys, values, storage ids, times and, if wanted, versions of the table."""
    versions = ["write_version"] if explicit else []
    return rows.select(
        F.lit("PUT").alias("kind"), "key", "value", "storage_id", "timestamp", *versions
    )


def entries(rows: DataFrame, mapping: Mapping) -> DataFrame:
    """The entries of any table: PUTs if there is a key, else entries that stay until trimmed."""
    used = [name for name in (mapping.key, mapping.version) if name is not None]
    columns: list[Column] = [_value(rows, mapping, used).alias("value")]
    if mapping.key is not None:
        columns.append(F.lit("PUT").alias("kind"))  # A row without a key must not pass.
        columns.append(_as_bytes(rows, mapping.key).alias("key"))
        columns.append(F.lit(_signed(mapping.storage_id)).cast("bigint").alias("storage_id"))
    if mapping.version is not None:
        columns.append(F.col(_quoted(mapping.version)).alias("write_version"))
    return rows.select(*columns)


def _value(rows: DataFrame, mapping: Mapping, used: Sequence[str]) -> Column:
    if mapping.value is not None:
        return _as_bytes(rows, mapping.value)
    rest = [F.col(_quoted(name)) for name in rows.columns if name not in used]
    return F.to_json(F.struct(*rest)) if rest else F.lit("{}")


def _as_bytes(rows: DataFrame, name: str) -> Column:
    kind, column = rows.schema[name].dataType, F.col(_quoted(name))
    return column if isinstance(kind, BinaryType | StringType) else column.cast("string")


def _quoted(name: str) -> str:
    """A name for ``F.col``, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def _signed(word: int) -> int:
    """A word of 64 bits as Spark's long."""
    return word - (1 << 64) if word >= 1 << 63 else word


def ordered(rows: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """The rows in this order over all partitions."""
    return rows.orderBy(*(F.col(_quoted(name)) for name in order_by)) if order_by else rows
