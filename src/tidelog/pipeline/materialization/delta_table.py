"""A Delta table through delta-rs: rows by MERGE, the position in the same commit.

A rebuild overwrites all rows in one commit.  What Spark made of the log gets there through files,
so that its size is not bounded by the driver's memory.

Removals are kept in a second Delta table below the first one.  Its rows only grow newer, so
writing them first, and again after a crash, is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import dataset
from pyspark.sql import DataFrame, SparkSession

from tidelog.errors import BadOption, LogError, WrongLog
from tidelog.pipeline.directories import literal, remove_tree
from tidelog.pipeline.materialization.changes import (
    FACT_COLUMNS,
    GRAVE_COLUMNS,
    GRAVE_SCHEMA,
    ROW_COLUMNS,
    ROW_SCHEMA,
    killed_rows,
    newest_facts,
    of_kind,
    outliving_keys,
    outliving_storages,
)
from tidelog.pipeline.materialization.facts import Facts, frame_of, may_be_late
from tidelog.pipeline.materialization.parquet_table import is_parquet_table
from tidelog.pipeline.materialization.tables import Beginning, Origin

GRAVES: Final = "_tombstones"
STAGE: Final = "_overwrite"
"""What is to replace all rows; below a table while that is being done."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    "storage_id": pa.int64(),
    "stream": pa.int64(),
    "key": pa.binary(),
    "kind": pa.string(),
    "value": pa.binary(),
    "write_version": pa.binary(),
    "glsn": pa.int64(),
    "timestamp": _TIME,
}
_STAGED: Final = dataset.ParquetFileFormat(
    read_options=dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")
)
"""As Spark writes times; in nanoseconds only those from 1677 to 2262 would fit."""
_SAME: Final = "t.storage_id = s.storage_id AND t.stream = s.stream AND t.key = s.key"
_NEWER: Final = (
    "(s.write_version > t.write_version OR (s.write_version = t.write_version AND s.glsn > t.glsn))"
)


class DeltaFacts:
    """The table of a topic's state in Delta's format."""

    def __init__(
        self, spark: SparkSession, path: Path, origin: Origin, beginning: Beginning
    ) -> None:
        """Open the table, or make one that begins here."""
        if is_parquet_table(str(path)):
            raise BadOption(
                f"{path} holds a table of the format parquet: give that format, or use another "
                "directory"
            )
        if "%" in str(path):  # delta-rs takes it for an escape, and looks in another directory.
            raise BadOption(f"{path} has a % in it: use another directory, or the format parquet")
        self._spark = spark
        self._path = path
        self._explicit = origin.explicit
        self._app = origin.app
        self._table = self._opened(path, ROW_COLUMNS, origin, beginning)
        self._graves = self._opened(path / GRAVES, GRAVE_COLUMNS, origin, beginning)

    def _opened(
        self, path: Path, columns: tuple[str, ...], origin: Origin, beginning: Beginning
    ) -> DeltaTable:
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            schema = pa.schema([(name, _TYPES[name]) for name in columns])
            text = f"made by tidelog from topic {origin.topic} of log {origin.log_id}"
            made = self._beginning_anew(beginning.glsn, beginning)
            return DeltaTable.create(path, schema, description=text, commit_properties=made)
        table = DeltaTable(path)
        if table.transaction_version(self._app) is None:
            raise WrongLog(
                f"the table at {path} was not made from topic {origin.topic!r} of this log "
                f"({table.metadata().description or 'it tells no origin'}): use another directory"
            )
        return table

    @property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def position(self) -> int:
        return int(self._table.transaction_version(self._app) or 0)

    @property
    def beginning(self) -> Beginning:
        found = (self._table.transaction_version(app) for app in self._beginning_apps)
        return Beginning(*(number for number in found if number is not None))

    def apply(self, facts: Facts, position: int) -> None:
        self._look_again()
        if position <= self.position:
            return
        graves = facts.removals.select(GRAVE_COLUMNS)
        if graves.num_rows:
            self._bury(graves, position)
        changes = self._changes(facts)
        if changes.num_rows:
            self._merge(changes, position)
        if self.position < position:  # A MERGE without effect commits nothing.
            self._table.create_write_transaction(
                [], "append", self._table.schema(), commit_properties=self._moving_to(position)
            )
            self._table.update_incremental()

    def rebuild(self, facts: DataFrame, position: int, beginning: Beginning) -> None:
        self._look_again()
        graves = of_kind(facts, "DELETE", "DELETE_STORAGE")
        rows = outliving_storages(of_kind(facts, "PUT"), graves)
        commit = self._beginning_anew(position, beginning)
        # Removals first: a crash before the rows follow leaves a table that is rebuilt again.
        self._overwrite(self._graves, graves.select(*GRAVE_COLUMNS), commit)
        self._overwrite(self._table, rows.select(*ROW_COLUMNS), commit)

    def _look_again(self) -> None:
        """Others tidy tables up, as OPTIMIZE does; a commit behind theirs must know of them."""
        self._table.update_incremental()
        self._graves.update_incremental()

    def _overwrite(self, table: DeltaTable, rows: DataFrame, commit: CommitProperties) -> None:
        stage = self._path / STAGE
        try:
            rows.write.mode("overwrite").parquet(str(stage))
            schema = pa.schema([(name, _TYPES[name]) for name in rows.columns])
            made = dataset.dataset(stage, schema, format=_STAGED).scanner().to_reader()
            write_deltalake(table, made, mode="overwrite", commit_properties=commit)
        finally:
            remove_tree(stage)
        table.update_incremental()

    def rows(self) -> DataFrame:
        return _frame(self._spark, self._table, ROW_SCHEMA)

    def row_count(self) -> int:
        return int(self._table.count())

    def _changes(self, facts: Facts) -> Any:
        """What becomes of each key that the facts are about, once for each."""
        killing = facts.storage_deletes.num_rows > 0
        if not (killing or self._may_be_dead(facts.puts)):
            return pa.concat_tables([facts.puts, facts.deletes])
        graves = _frame(self._spark, self._graves, GRAVE_SCHEMA)
        puts = outliving_keys(frame_of(self._spark, facts.puts), graves)
        changes = [
            outliving_storages(puts, graves),
            frame_of(self._spark, facts.deletes),
        ]
        if killing:
            storages = frame_of(self._spark, facts.storage_deletes)
            changes.append(killed_rows(self.rows(), storages))
        return newest_facts(*changes).select(*FACT_COLUMNS).toArrow()

    def _may_be_dead(self, puts: Any) -> bool:
        """Whether a removal may be newer than one of these writes, which came after it (T3)."""
        if not puts.num_rows or not self._graves.count():
            return False
        return self._explicit or may_be_late(puts)

    def _bury(self, graves: Any, position: int) -> None:
        merge = self._graves.merge(
            graves,
            _SAME,
            source_alias="s",
            target_alias="t",
            commit_properties=self._moving_to(position),
        )
        columns = {name: f"s.{name}" for name in GRAVE_COLUMNS}
        merge.when_matched_update(columns, _NEWER).when_not_matched_insert(columns).execute()

    def _merge(self, changes: Any, position: int) -> None:
        merge = self._table.merge(
            changes,
            _SAME,
            source_alias="s",
            target_alias="t",
            commit_properties=self._moving_to(position),
        )
        columns = {name: f"s.{name}" for name in ROW_COLUMNS}
        (
            merge.when_matched_delete(f"s.kind = 'DELETE' AND {_NEWER}")
            .when_matched_update(columns, f"s.kind = 'PUT' AND {_NEWER}")
            .when_not_matched_insert(columns, "s.kind = 'PUT'")
            .execute()
        )

    def _moving_to(self, position: int) -> CommitProperties:
        return CommitProperties(app_transactions=[Transaction(self._app, position)])

    def _beginning_anew(self, position: int, beginning: Beginning) -> CommitProperties:
        numbers = (beginning.glsn, beginning.dropped_deletes)
        noted = zip(self._beginning_apps, numbers, strict=True)
        return CommitProperties(
            app_transactions=[Transaction(self._app, position), *(Transaction(*n) for n in noted)]
        )

    @property
    def _beginning_apps(self) -> tuple[str, str]:
        """The names under which the table remembers how the log was when it began."""
        return f"{self._app}:begin", f"{self._app}:dropped"


@contextmanager
def delta_failures(path: Path) -> Iterator[None]:
    """What delta-rs fails with leaves as an error of this package, without its own stack."""
    try:
        yield
    except DeltaError as error:
        told = str(error).splitlines() or [type(error).__name__]
        raise LogError(f"the Delta table at {path}: {told[0]}") from error


def delta_rows(spark: SparkSession, path: str) -> DataFrame | None:
    """The rows of the Delta table at ``path``; None if there is none."""
    if not DeltaTable.is_deltatable(path):
        return None
    with delta_failures(Path(path)):
        table = DeltaTable(path)
        if not {field.name for field in table.schema().fields}.issuperset(ROW_COLUMNS):
            raise BadOption(
                f"{path} holds a Delta table that `tidelog pipeline materialize` did not make: "
                "read it with Delta's own reader"
            )
        return _frame(spark, table, ROW_SCHEMA)


def _frame(spark: SparkSession, table: DeltaTable, schema: str) -> DataFrame:
    """Copy-on-write leaves whole Parquet files: Spark needs no Delta to read them."""
    files = delta_files(table)
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(literal, files))


def delta_files(table: DeltaTable) -> list[str]:
    """The paths of a table's files, which delta-rs tells as parts of a URL."""
    return [unquote(uri) for uri in table.file_uris()]
