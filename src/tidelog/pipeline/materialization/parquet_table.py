"""A table of plain Parquet files: every batch writes a new version, and a pointer moves to it.

    _current              which version counts, how far it is, what it was made from
    v-<position>/         rows; in _tombstones below it the removals that stay known
    _lock                 held by the job that writes

The pointer is replaced atomically when all files of the new version are durable, so a crash leaves
the old version or the new one.  The version before stays until the next one is there, for readers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from pyarrow import ArrowInvalid, parquet
from pyspark.sql import DataFrame, SparkSession

from tidelog.errors import BadOption, CorruptData, WrongLog
from tidelog.pipeline.directories import literal, remove_tree, sync_tree
from tidelog.pipeline.materialization.changes import (
    GRAVE_COLUMNS,
    GRAVE_SCHEMA,
    ROW_COLUMNS,
    ROW_SCHEMA,
    as_facts,
    newest_facts,
    of_kind,
    outliving_storages,
)
from tidelog.pipeline.materialization.facts import Facts, frame_of
from tidelog.pipeline.materialization.tables import Beginning, Origin
from tidelog.storage.atomic_file import read_file, replace_file
from tidelog.storage.os_vfs import OsVfs

CURRENT: Final = "_current"
GRAVES: Final = "_tombstones"
_POINTER_BYTES_MAX: Final = 64 * 1024
_VERSION: Final = "v-"
_DELTA_LOG: Final = "_delta_log"


class Pointer(msgspec.Struct, frozen=True):
    """What ``_current`` holds, as JSON."""

    table_id: str
    origin: Origin
    position: int
    version: str = ""
    """The directory of the rows; empty while there is none."""
    previous: str = ""
    rows: int = 0
    removals: int = 0
    """Rows of what stays known to be removed."""
    beginning: Beginning = Beginning()


class ParquetFacts:
    """The table of a topic's state in versioned directories of Parquet files."""

    def __init__(
        self, spark: SparkSession, path: Path, origin: Origin, beginning: Beginning
    ) -> None:
        """Open the table, or make one that begins here."""
        self._spark = spark
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        found = _pointer(path)
        if found is None:
            if any(path.glob("[!_.]*")) or (path / _DELTA_LOG).exists():
                raise BadOption(f"{path} holds something else than a table: use another directory")
            found = Pointer(uuid4().hex, origin, beginning.glsn, beginning=beginning)
            self._point_to(found)
        if found.origin != origin:
            raise WrongLog(
                f"the table at {path} was made from topic {found.origin.topic!r} of log "
                f"{found.origin.log_id}, not from topic {origin.topic!r} of log {origin.log_id}: "
                "use another directory"
            )
        self._current = found
        self._remove_others()

    @property
    def table_id(self) -> str:
        return self._current.table_id

    @property
    def position(self) -> int:
        return self._current.position

    @property
    def beginning(self) -> Beginning:
        return self._current.beginning

    def apply(self, facts: Facts, position: int) -> None:
        if position <= self.position:
            return
        if not len(facts):
            self._point_to(replace(self._current, position=position))
            return
        changes = frame_of(self._spark, facts.table)
        known = newest_facts(changes, as_facts(self.rows()), as_facts(self._graves())).persist()
        try:
            self._write(known, position, self.beginning)
        finally:
            known.unpersist()

    def rebuild(self, facts: DataFrame, position: int, beginning: Beginning) -> None:
        self._write(facts, position, beginning)

    def rows(self) -> DataFrame:
        return _rows(self._spark, self._path, self._current)

    def row_count(self) -> int:
        return self._current.rows

    def _graves(self) -> DataFrame:
        below = self._path / self._current.version / GRAVES
        return _frame(self._spark, below, self._current.removals, GRAVE_SCHEMA)

    def _write(self, known: DataFrame, position: int, beginning: Beginning) -> None:
        name = f"{_VERSION}{position}"
        directory = self._path / name
        graves = of_kind(known, "DELETE", "DELETE_STORAGE")
        rows = outliving_storages(of_kind(known, "PUT"), graves).select(*ROW_COLUMNS)
        rows.write.mode("overwrite").parquet(str(directory))
        graves.select(*GRAVE_COLUMNS).write.mode("overwrite").parquet(str(directory / GRAVES))
        sync_tree(directory)
        self._point_to(
            replace(
                self._current,
                position=position,
                version=name,
                previous=self._current.version,
                rows=sum(rows_of_files(directory).values()),
                removals=sum(rows_of_files(directory / GRAVES).values()),
                beginning=beginning,
            )
        )
        self._remove_others()

    def _point_to(self, pointer: Pointer) -> None:
        replace_file(OsVfs(), str(self._path), CURRENT, msgspec.json.encode(pointer))
        self._current = pointer

    def _remove_others(self) -> None:
        """Delete versions that no pointer names: old ones, and what a crash left half done."""
        kept = (self._current.version, self._current.previous)
        for directory in self._path.glob(f"{_VERSION}*"):
            if directory.name not in kept:
                remove_tree(directory)


def is_parquet_table(path: str) -> bool:
    return Path(path, CURRENT).is_file()


def current_version(path: Path) -> Pointer:
    """Which version of the Parquet table at ``path`` counts."""
    found = _pointer(path)
    if found is None:
        raise BadOption(f"there is no table at {path}")
    return found


def parquet_rows(spark: SparkSession, path: str) -> DataFrame:
    """The rows of the Parquet table at ``path``."""
    return _rows(spark, Path(path), current_version(Path(path)))


def _pointer(path: Path) -> Pointer | None:
    data = read_file(OsVfs(), str(path / CURRENT), _POINTER_BYTES_MAX)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Pointer)
    except msgspec.DecodeError as error:
        raise CorruptData(f"{path / CURRENT}: {error}") from error


def _rows(spark: SparkSession, path: Path, pointer: Pointer) -> DataFrame:
    return _frame(spark, path / pointer.version, pointer.rows, ROW_SCHEMA)


def _frame(spark: SparkSession, directory: Path, rows: int, schema: str) -> DataFrame:
    if not rows:
        return spark.createDataFrame([], schema)
    complete_files(directory, rows)
    return spark.read.schema(schema).parquet(literal(directory))


def complete_files(directory: Path, rows: int) -> dict[Path, int]:
    """The files of a directory with their rows; CorruptData unless they have so many together.

    Spark takes the files that are there for all that there are.
    """
    found = rows_of_files(directory)
    if sum(found.values()) != rows:
        raise CorruptData(
            f"the files in {directory} have {sum(found.values())} rows, but the table has {rows}: "
            "put them back from a backup, or delete the table and make it again"
        )
    return found


def rows_of_files(directory: Path) -> dict[Path, int]:
    """How many rows each file in a directory has, by name."""
    return {file: row_count(file) for file in sorted(directory.glob("*.parquet"))}


def row_count(file: Path) -> int:
    try:
        return int(parquet.read_metadata(file).num_rows)
    except (ArrowInvalid, OSError) as error:
        raise CorruptData(f"{file}: {error}") from error
