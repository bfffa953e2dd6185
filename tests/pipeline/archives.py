"""Archives without Spark: a topic in memory, and tasks that run where they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.errors import Trimmed
from tidelog.formats.archive_manifest import ArchivedFile
from tidelog.interface.arrow import arrow_schema
from tidelog.interface.positions import Position
from tidelog.pipeline.archiving.file_writing import write_range
from tidelog.pipeline.archiving.home import locked_home
from tidelog.pipeline.archiving.progress import ArchiveSummary
from tidelog.pipeline.archiving.running import GlsnSpan, Plan, WriteRanges, run
from tidelog.pipeline.archiving.starting import make_directory
from tidelog.pipeline.archiving.topic import ArchivableTopic
from tidelog.spark.archive_directory import read_manifest
from tidelog.spark.archive_files import archived_batches
from tidelog.spark.schema import COLUMNS
from tidelog.storage.vfs import Vfs

ALL = tuple(COLUMNS)
LOG_ID = "0123456789abcdef"
DIRECTORY = "/archive"
Rows = list[dict[str, Any]]


@dataclass
class Figures:
    first_available: int = 1
    delete_horizon: int = 1
    delete_mark: int = 0


@dataclass
class MemoryTopic:
    """Entries that are there at once, without the ones whose GLSNs are ``removed``."""

    length: int
    removed: frozenset[int] = frozenset()
    keyed: frozenset[int] = frozenset()
    figures: Figures = field(default_factory=Figures)
    on_trim: Callable[[int], None] = lambda glsn: None
    name: str = "orders"
    streams: int = 2
    begin_us: int = 0
    """Entries are as many microseconds younger as their GLSNs say."""

    @property
    def first_available(self) -> int:
        return self.figures.first_available

    def stats(self) -> Figures:
        return self.figures

    def position(self) -> Position:
        return Position(self.length + 1, self.first_available, self.length)

    def find_time(self, timestamp_us: int) -> Position:
        glsn = min(max(timestamp_us, self.first_available), self.length + 1)
        return Position(glsn, self.first_available, self.length)

    def rows(self, begin: int, end: int) -> Rows:
        return [self._row(glsn) for glsn in range(begin, end) if glsn not in self.removed]

    def _row(self, glsn: int) -> dict[str, Any]:
        keyed = glsn in self.keyed
        return {
            "glsn": glsn,
            "llsn": 1 + glsn // self.streams,
            "stream": 1 + glsn % self.streams,
            "kind": "PUT" if keyed else "APPEND",
            "storage_id": 7,
            "key": b"key %d" % glsn if keyed else None,
            "value": b"value %d" % glsn,
            "write_version": glsn.to_bytes(16, "big"),
            "timestamp": self.begin_us + glsn,
            "blobs": [glsn, 5] if glsn % 3 == 0 else [],
            "rewritten": glsn % 5 == 0,
        }

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Any]:
        begin = from_glsn or self.first_available
        end = to_glsn or self.length + 1
        if begin < self.first_available:
            raise Trimmed("gone", first_available=self.first_available)
        rows = self.rows(begin, end)
        # Several batches, so that row groups are put together from more than one.
        for first in range(0, len(rows), 3):
            yield pa.RecordBatch.from_pylist(rows[first : first + 3], arrow_schema(columns))

    def trim(self, before_glsn: int) -> int:
        self.figures.first_available = max(self.first_available, before_glsn)
        self.on_trim(self.first_available)
        return self.first_available


def writing_here(
    vfs: Vfs, topic: ArchivableTopic, *, directory: str = DIRECTORY, file_bytes: int = 1 << 20
) -> WriteRanges:
    """What Spark's tasks do, one after the other; the names are the same in every run."""
    tokens = count(1)

    def write(ranges: Sequence[GlsnSpan]) -> list[ArchivedFile]:
        return [
            file
            for begin, end in ranges
            for file in write_range(
                vfs,
                directory,
                begin,
                end,
                topic.read_arrow(begin, end, columns=ALL),
                token=lambda: f"{topic.first_available}-{next(tokens)}",
                file_bytes=file_bytes,
            )
        ]

    return write


def archived(
    vfs: Vfs,
    topic: ArchivableTopic,
    *,
    directory: str = DIRECTORY,
    log_id: str = LOG_ID,
    up_to: int | None = None,
    older_than: float | None = None,
    range_entries: int = 4,
    trim: bool = False,
    keep: int = 0,
    now_us: int = 0,
    write: WriteRanges | None = None,
) -> ArchiveSummary:
    """One run of the job."""
    plan = Plan(up_to, older_than, range_entries, trim, keep)
    write = write or writing_here(vfs, topic, directory=directory)
    make_directory(vfs, Path(directory))
    with locked_home(vfs, directory) as home:
        return run(topic, log_id, home, write, plan, now_us=now_us)


def archive_rows(vfs: Vfs, columns: Sequence[str] = ALL) -> Rows:
    """All entries that an archive holds, as its manifest says."""
    manifest = read_manifest(vfs, DIRECTORY)
    if manifest is None:
        return []
    return [
        row
        for file in manifest.files
        for batch in archived_batches(vfs, DIRECTORY, file, file.glsn_begin, file.glsn_end, columns)
        for row in plain_rows(batch)
    ]


def plain_rows(batch: Any) -> Rows:
    """Rows of a record batch, with times as numbers."""
    names = batch.schema.names
    if "timestamp" in names:
        place = names.index("timestamp")
        batch = batch.set_column(place, "timestamp", batch.column(place).cast(pa.int64()))
    rows: Rows = batch.to_pylist()
    return rows
