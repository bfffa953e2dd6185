"""Deletes that compaction dropped before a table had read them: notice it, make the table anew.

A table follows the rule for readers (``core.compaction.horizon``, H5).  Two questions make the
difference, and each has its moment: what the horizon is, *after* entries were read; and how many
deletes are dropped, *before* the first entry of a new beginning is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import MissedDeletes
from tidelog.pipeline.directories import literal, remove_tree
from tidelog.pipeline.materialization.changes import COUNTED, FACT_COLUMNS, facts_of_entries
from tidelog.pipeline.materialization.progress import Counts
from tidelog.pipeline.materialization.tables import Beginning, Table

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic

OnMissedDeletes = Literal["rebuild", "fail"]
REBUILDS_MAX: Final = 5
"""How often a rebuild is tried that compaction gets in the way of."""
STAGE: Final = "_rebuild"
"""Where below the table the facts of a rebuild lie meanwhile."""


class DeleteWatch:
    """What a log tells of the deletes that it dropped."""

    def __init__(self, log: RemoteTopic) -> None:
        self._log = log

    def beginning(self) -> Beginning:
        """The beginning of a table that reads from here on."""
        stats = self._log.stats()
        return Beginning(stats.first_available, stats.delete_mark)

    def horizon(self) -> DeleteHorizon:
        stats = self._log.stats()
        return DeleteHorizon(stats.delete_horizon, stats.delete_mark)

    def missed_by(self, table: Table) -> bool:
        """Whether the table may lack a delete, as far as anything was read when this is asked."""
        return self.horizon().is_missed_by(table.position, table.beginning.dropped_deletes)


class Rebuilder:
    """Makes a table anew from all that the log has."""

    def __init__(
        self, entries: EntrySource, watch: DeleteWatch, path: Path, wish: OnMissedDeletes
    ) -> None:
        self._entries = entries
        self._watch = watch
        self._path = path
        self._wish = wish

    def rebuild(self, table: Table, end: int) -> Counts:
        """Replace the table by the state of the log below ``end``; returns what was read for it."""
        if self._wish == "fail":
            raise MissedDeletes(
                f"{self._lag(table)}: let the table be rebuilt (on_missed_deletes='rebuild', "
                f"--on-missed-deletes rebuild), or delete {self._path} and run again"
            )
        for _ in range(REBUILDS_MAX):
            beginning = self._watch.beginning()
            self._check_untrimmed(table, beginning)
            with self._staged(beginning.glsn, end) as facts:
                # What was dropped while the log was read may be missing from what was read.
                if self._watch.horizon().dropped == beginning.dropped_deletes:
                    table.rebuild(facts.select(*FACT_COLUMNS), end, beginning)
                    return _counts(facts)
        raise MissedDeletes(
            f"{self._lag(table)}, and while the table was being rebuilt it dropped more, "
            f"{REBUILDS_MAX} times in a row: run again when less is compacted"
        )

    def _check_untrimmed(self, table: Table, beginning: Beginning) -> None:
        """What was trimmed since the table was begun may be in no other place."""
        if beginning.glsn > table.beginning.glsn:
            raise MissedDeletes(
                f"{self._lag(table)}; and it cannot be rebuilt as it was, for the log was trimmed "
                f"below GLSN {beginning.glsn} since: if the rows of what was trimmed are not "
                f"needed, delete {self._path} and run again"
            )

    def _lag(self, table: Table) -> str:
        return (
            f"the table at {self._path} holds the log below GLSN {table.position}, but the log has "
            f"dropped deletes up to GLSN {self._watch.horizon().glsn - 1} before they were read, "
            "so the table may keep deleted keys"
        )

    @contextmanager
    def _staged(self, begin: int, end: int) -> Iterator[DataFrame]:
        """The facts of a range, read from the log once and kept until they are in the table."""
        stage = self._path / STAGE / "facts"
        try:
            facts = facts_of_entries(self._entries.between(begin, end))
            facts.write.mode("overwrite").parquet(str(stage))
            yield self._entries.spark.read.schema(facts.schema).parquet(literal(stage))
        finally:
            remove_tree(self._path / STAGE)


class EntrySource:
    """The entries of a topic, for batch reads."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], columns: str) -> None:
        """``options`` are those of the source."""
        self.spark: Final = spark
        self._options = dict(options)
        self._columns = columns

    def between(self, begin: int, end: int) -> DataFrame:
        """Those with GLSNs in ``[begin, end)``, read anew by every action on the frame."""
        reader = self.spark.read.format("tidelog").schema(self._columns).options(**self._options)
        return reader.option("startingOffsets", begin).option("endingOffsets", end).load()


def _counts(facts: DataFrame) -> Counts:
    sums = facts.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTED))
    row = sums.collect()[0]
    return Counts(**{name: int(row[name]) for name in COUNTED})
