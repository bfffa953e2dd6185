"""A topic whose beginning lies in an archive, with the names of one that is all in the log.

Reads below the archive's end come from its files, the rest from the log, as one sequence:

  J1  every entry of a range is read from exactly one of the two
  J2  whoever reads from the archive on into the log is told if the log dropped a delete between
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import BadOption, MissedDeletes, Trimmed, WrongLog
from tidelog.formats.archive_manifest import ArchivedFile, ArchiveManifest
from tidelog.formats.messages import Position
from tidelog.spark.archive_directory import check_origin, read_manifest
from tidelog.spark.connections import connected
from tidelog.spark.options import ReadOptions
from tidelog.spark.partitions import GlsnRange
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog

_LOGGER = logging.getLogger(__name__)


@dataclass
class ArchivedRange(GlsnRange):
    """The entries of all streams with GLSNs in ``[begin, end)``, from files of an archive."""

    files: tuple[ArchivedFile, ...] = ()


class ArchivedTopic:
    """An archive, and the log behind it."""

    def __init__(self, live: RemoteLog, directory: str) -> None:
        self.live: Final = live
        self._directory = directory
        # In this order: what is trimmed behind the archive is in a manifest that is read later.
        self.log_first: Final = live.first_available
        """The first GLSN that was in the log."""
        self._manifest = self._read()
        self._check_length()

    def _check_length(self) -> None:
        """A log that is shorter than its archive will give its GLSNs once more."""
        if not self._manifest.files:
            return
        end = self.live.position().glsn
        if end < self.archive_end:
            raise WrongLog(
                f"topic {self.name!r} ends at GLSN {end - 1}, but the archive in "
                f"{self._directory} goes to {self.archive_end - 1}: was the log put back from a "
                "backup? Read it without the archive, or the files of the archive without it"
            )

    def _read(self) -> ArchiveManifest:
        """The archive as it is now."""
        found = read_manifest(OsVfs(), self._directory)
        if found is None:
            raise BadOption(
                f"the option 'archive' is {self._directory!r}, but there is no archive: "
                "make it with `tidelog pipeline archive`"
            )
        check_origin(found, self._directory, self.live.log_id.hex(), self.live.name)
        return found

    @property
    def name(self) -> str:
        return self.live.name

    @property
    def log_id(self) -> bytes:
        return self.live.log_id

    @property
    def archive_end(self) -> int:
        """Where the log takes over."""
        return self._manifest.glsn_end

    @property
    def first_available(self) -> int:
        """The first GLSN of the archive, or of the log if nothing is archived."""
        return self.position().first_available

    def position(self) -> Position:
        """Where the topic ends now, with the first GLSN of the archive."""
        found = self.live.position()
        if not self._manifest.files:
            return found
        return Position(found.glsn, self._manifest.glsn_begin, found.high_watermark)

    def find_time(self, timestamp_us: int) -> Position:
        """The first position from which on no entry is older, in the log or in the archive."""
        found = self.live.find_time(timestamp_us)
        latest = max(found.first_available, self.archive_end)
        if not self._manifest.files or found.glsn > latest:
            return found
        return Position(
            self._find_time(timestamp_us), self._manifest.glsn_begin, found.high_watermark
        )

    def _find_time(self, timestamp_us: int) -> int:
        # Late: most reads ask for no moment, and planning them needs no Arrow.
        from tidelog.spark.archive_files import last_older  # noqa: PLC0415

        for file in reversed(self._manifest.files):
            found = last_older(OsVfs(), self._directory, file, timestamp_us)
            if found:
                return found + 1
        return self._manifest.glsn_begin

    def find_end(
        self,
        glsn_begin: int,
        *,
        records_max: int = 0,
        bytes_max: int = 0,
        wait: float = 0.0,
        reader: str = "",
    ) -> Position:
        """Where to end a read from ``glsn_begin``; within bounds it ends with the archive."""
        if glsn_begin >= self.archive_end:
            try:
                return self.live.find_end(
                    glsn_begin,
                    records_max=records_max,
                    bytes_max=bytes_max,
                    wait=wait,
                    reader=reader,
                )
            except Trimmed:
                self._manifest = self._read()
                if glsn_begin >= self.archive_end:
                    raise
        place = self.position()
        if glsn_begin < place.first_available:
            raise Trimmed(
                f"GLSN {glsn_begin} of topic {self.name!r} is not in the archive, which begins at "
                f"{place.first_available}",
                first_available=place.first_available,
            )
        end = place.glsn
        if records_max:
            end = min(glsn_begin + records_max, self.archive_end)
        if bytes_max:
            end = min(end, self._byte_bound(glsn_begin, bytes_max))
        return Position(end, place.first_available, place.high_watermark)

    def _byte_bound(self, begin: int, bytes_max: int) -> int:
        """About where ``[begin, archive_end)`` exceeds the bound, but never at its beginning."""
        left = bytes_max
        for file in self._manifest.between(begin, self.archive_end):
            first = max(begin, file.glsn_begin)
            length = file.glsn_end - file.glsn_begin
            size = file.data_bytes * (file.glsn_end - first) // length
            if size > left:
                return max(first + left * length // file.data_bytes, begin + 1)
            left -= size
        return self.archive_end

    def plan(self, begin: int, end: int, options: ReadOptions, count_min: int) -> list[GlsnRange]:
        """Partitions of an archived range, at file edges unless files are too large for one."""
        target = min(options.records_per_partition, -(-(end - begin) // count_min))
        planned: list[GlsnRange] = []
        group: list[ArchivedFile] = []
        for file in self._manifest.between(begin, end):
            if group and min(file.glsn_end, end) - max(group[0].glsn_begin, begin) > target:
                planned += _cut(group, begin, end, target)
                group = []
            group.append(file)
        return [*planned, *_cut(group, begin, end, target)]

    def check_deletes(self, begin: int, end: int, options: ReadOptions) -> None:
        """J2: whether ``[begin, end)`` tells of keys whose deletes are neither here nor there."""
        missed = self._manifest.missed_before
        if begin >= end or begin > self.archive_end or not self._manifest.files:
            return
        if end > self.archive_end:
            stats = self.live.stats()
            horizon = DeleteHorizon(stats.delete_horizon, stats.delete_mark)
            if horizon.is_missed_by(self.archive_end, self._manifest.dropped_deletes):
                missed = max(missed, horizon.glsn)
        if begin >= missed:
            return
        lost = (
            f"compaction of topic {self.name!r} has dropped deletes below GLSN {missed} before "
            f"they were archived in {self._directory}, so deleted keys may seem to be there"
        )
        if options.fail_on_data_loss:
            raise MissedDeletes(
                f"{lost}. Start there, read without the archive, or set failOnDataLoss=false"
            )
        _LOGGER.warning("%s; going on, for failOnDataLoss is false", lost)


ReadTopic: TypeAlias = "RemoteLog | ArchivedTopic"


@contextmanager
def opened(options: ReadOptions, *, soon: bool = False) -> Iterator[ReadTopic]:
    """The topic of a read, with its archive as that is now, if one was named."""
    with connected(options.connection, soon=soon) as topic:
        yield ArchivedTopic(topic, options.archive) if options.archive else topic


def _cut(files: list[ArchivedFile], begin: int, end: int, target: int) -> list[GlsnRange]:
    """Partitions of neighbouring files, as many as it takes for ``target`` GLSNs in each."""
    begin, end = max(begin, files[0].glsn_begin), min(end, files[-1].glsn_end)
    rows = end - begin
    count = -(-rows // target)
    edges = [begin + rows * i // count for i in range(count + 1)]
    return [ArchivedRange(edges[i], edges[i + 1], files=tuple(files)) for i in range(count)]
