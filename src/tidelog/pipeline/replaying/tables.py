"""Tables that can be replayed: which files they are made of, and what tells one state from another.

R1  a version of a table has an identity, and the same files in the same order, whenever it is
    looked at: so a run that goes on for another one finds the same chunks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tidelog.errors import BadOption
from tidelog.pipeline.materialization.changes import ROW_COLUMNS
from tidelog.pipeline.materialization.parquet_table import (
    complete_files,
    current_version,
    is_parquet_table,
    row_count,
)

_FORMAT_HELP: Final = "a table that `materialize` made, a Delta table or a directory of Parquet"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a table."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One state of a table (R1)."""

    path: Path
    format: str
    identity: str
    """No other table has it, nor another version of this one."""
    files: tuple[TableFile, ...]
    is_materialized: bool
    """``materialize`` made it: it has keys, values, storage ids and versions."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def chunks(self, rows_max: int) -> list[list[TableFile]]:
        """Its files in groups of about so many rows, oldest name first; 0: all in one."""
        groups: list[list[TableFile]] = []
        room = 0
        for file in self.files:
            if not groups or (rows_max and file.rows > room):
                groups.append([])
                room = rows_max
            groups[-1].append(file)
            room -= file.rows
        return groups


def open_version(path: Path) -> TableVersion:
    """The table at ``path`` as it is now."""
    if is_parquet_table(str(path)):
        return _materialized_parquet(path)
    found = _delta(path)
    if found is not None:
        return found
    return _plain_parquet(path)


def _materialized_parquet(path: Path) -> TableVersion:
    current = current_version(path)
    files = complete_files(path / current.version, current.rows) if current.rows else {}
    return TableVersion(
        path=path,
        format="parquet",
        identity=f"{current.table_id}:{current.position}:{current.version}",
        files=tuple(TableFile(str(file), rows) for file, rows in files.items()),
        is_materialized=True,
    )


def _delta(path: Path) -> TableVersion | None:
    try:
        from deltalake import DeltaTable  # noqa: PLC0415

        from tidelog.pipeline.materialization.delta_table import (  # noqa: PLC0415
            delta_failures,
            delta_files,
        )
    except ImportError:
        if (path / "_delta_log").is_dir():
            raise
        return None
    if not DeltaTable.is_deltatable(str(path)):
        return None
    with delta_failures(path):
        table = DeltaTable(path)
    metadata = table.metadata()
    if metadata.partition_columns or table.protocol().min_reader_version > 1:
        raise BadOption(
            f"the Delta table at {path} has partitions, deletion vectors or mapped columns: read "
            "it with Delta's own reader and write it with format('tidelog')"
        )
    names = tuple(field.name for field in table.schema().fields)
    files = [Path(file) for file in sorted(delta_files(table))]
    # A copy of a table has its id, and goes its own way: no two files ever have one name.
    digest = sha256("\0".join(file.name for file in files).encode())
    return TableVersion(
        path=path,
        format="delta",
        identity=f"{metadata.id}:{table.version()}:{digest.hexdigest()}",
        files=_counted(files),
        is_materialized=names == ROW_COLUMNS,
    )


def _plain_parquet(path: Path) -> TableVersion:
    """A table without an identity of its own: its files stand for it, with their times."""
    files = [path] if path.is_file() else list(_parquet_files(path))
    if not files:
        raise BadOption(f"there is no table at {path}: give {_FORMAT_HELP}")
    digest = sha256()
    for file in files:
        found = file.stat()
        digest.update(f"{file.relative_to(path)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return TableVersion(path, "parquet", digest.hexdigest(), _counted(files), is_materialized=False)


def _parquet_files(directory: Path) -> Iterator[Path]:
    """What Spark would read: no names that begin with a dot or an underscore."""
    for place in sorted(directory.rglob("*.parquet")):
        hidden = any(part.startswith(("_", ".")) for part in place.relative_to(directory).parts)
        if not hidden and place.is_file():
            yield place


def _counted(files: Iterable[Path]) -> tuple[TableFile, ...]:
    return tuple(TableFile(str(file), row_count(file)) for file in files)
