"""What a job tells while it runs and when it ends."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """Entries of the log that were read, by kind."""

    appends: int = 0
    """Not part of a keyed table: ignored."""
    puts: int = 0
    deletes: int = 0
    storage_deletes: int = 0

    @property
    def entries(self) -> int:
        return self.appends + self.puts + self.deletes + self.storage_deletes

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.appends + other.appends,
            self.puts + other.puts,
            self.deletes + other.deletes,
            self.storage_deletes + other.storage_deletes,
        )


class BatchProgress(msgspec.Struct, frozen=True):
    """One micro-batch is in the table."""

    batch: int
    glsn_begin: int
    glsn_end: int
    counts: Counts
    seconds: float
    skipped: bool = False
    """The table had it already: a run ended between the table's commit and Spark's."""
    rebuilt: bool = False
    """The table had missed deletes, and was made anew up to here; the counts are of all that."""


class MaterializeSummary(msgspec.Struct, frozen=True):
    """What a run did, and where the table is now."""

    topic: str
    table: str
    format: str
    glsn_begin: int
    """Where the run began."""
    glsn_end: int
    """The table holds the state of the log below this position."""
    batches: int
    skipped_batches: int
    counts: Counts
    missing: int
    """Positions whose entries the log's compaction had removed before the run came to them."""
    rebuilds: int
    """How often the table was made anew, because deletes were among these."""
    table_rows: int
    seconds: float
