"""What a job asks of a table, whatever its format; and how to read one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from tidelog.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.materialization.facts import Facts


class Origin(msgspec.Struct, frozen=True):
    """The topic of a log that a table is made from; a table has one for all its life."""

    log_id: str
    topic: str
    explicit: bool = False
    """Writers give the versions, in any order; else they are GLSNs."""

    @property
    def app(self) -> str:
        """The name under which the table remembers how far it is."""
        return f"tidelog:{self.log_id}:{self.topic}"


class Beginning(msgspec.Struct, frozen=True):
    """How the log was when the table began with nothing."""

    glsn: int = 1
    """The first position that the log had."""
    dropped_deletes: int = 0
    """How many deletes it had dropped; what went before concerns no table that begins now."""


class Table(Protocol):
    """A table that holds the state of a topic below ``position``.

    P1  ``position`` moves in the same commit as the rows, so a crash leaves both or neither
    P2  a batch at or below ``position`` changes nothing
    P3  a rebuild is one commit too: readers see the old rows or the new ones
    """

    @property
    def table_id(self) -> str:
        """Its own name, given once: another table in the same place has another one."""
        ...

    @property
    def position(self) -> int: ...

    @property
    def beginning(self) -> Beginning: ...

    def apply(self, facts: Facts, position: int) -> None:
        """Take in what the entries below ``position`` come down to, and move there."""
        ...

    def rebuild(self, facts: DataFrame, position: int, beginning: Beginning) -> None:
        """Hold what these facts come down to and nothing else, as a table begun then would."""
        ...

    def rows(self) -> DataFrame: ...

    def row_count(self) -> int: ...


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """The rows of a table that ``materialize`` made, as they are now."""
    from tidelog.pipeline.materialization.delta_table import delta_rows  # noqa: PLC0415
    from tidelog.pipeline.materialization.parquet_table import is_parquet_table, parquet_rows  # noqa: PLC0415

    if is_parquet_table(path):
        return parquet_rows(spark, path)
    found = delta_rows(spark, path)
    if found is None:
        raise BadOption(f"there is no table at {path}: make it with `tidelog pipeline materialize`")
    return found
