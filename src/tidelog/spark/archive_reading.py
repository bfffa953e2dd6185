"""Record batches of a topic with an archive; runs in the Python workers of executors.

J3  what is trimmed while a partition is read is looked for in the archive, which may have grown
    since the read was planned: the log is trimmed behind a durable manifest only
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.errors import Trimmed
from tidelog.formats.archive_manifest import ArchivedFile
from tidelog.interface.arrow import record_batches
from tidelog.spark.archive_directory import read_manifest
from tidelog.spark.archive_files import archived_batches
from tidelog.spark.archive_topic import ArchivedRange
from tidelog.spark.connections import connected
from tidelog.spark.options import ReadOptions
from tidelog.spark.partitions import GlsnRange
from tidelog.spark.source import PAGE_BYTES, skip_lost
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.interface.arrow_columns import StreamSlice


def joined_batches(
    options: ReadOptions, columns: Sequence[str], partition: GlsnRange
) -> Iterator[Any]:
    """The entries of a partition, from wherever they are."""
    if isinstance(partition, ArchivedRange):
        return _archived(options, columns, partition, partition.files)
    return _live(options, columns, partition)


def _live(options: ReadOptions, columns: Sequence[str], wanted: GlsnRange) -> Iterator[Any]:
    begin = wanted.begin
    while begin < wanted.end:
        part = _LivePart(options, GlsnRange(begin, wanted.end, wanted.streams, wanted.turn))
        yield from record_batches(part.pages(), columns)
        if part.lost is None:
            return
        manifest = read_manifest(OsVfs(), options.archive)
        begin = part.position
        if manifest is None or not manifest.glsn_begin <= begin < manifest.glsn_end:
            begin = skip_lost(part.lost, options)
            continue
        end = min(manifest.glsn_end, wanted.end)
        found = GlsnRange(begin, end, wanted.streams)
        yield from _archived(options, columns, found, manifest.between(begin, end))
        begin = end


def _archived(
    options: ReadOptions,
    columns: Sequence[str],
    wanted: GlsnRange,
    files: Sequence[ArchivedFile],
) -> Iterator[Any]:
    vfs = OsVfs()
    for file in files:
        begin, end = max(wanted.begin, file.glsn_begin), min(wanted.end, file.glsn_end)
        if begin < end:
            yield from archived_batches(
                vfs, options.archive, file, begin, end, columns, wanted.streams
            )


class _LivePart:
    """Pages of a range of the log, up to where something of it was trimmed."""

    def __init__(self, options: ReadOptions, wanted: GlsnRange) -> None:
        self._options = options
        self._wanted = wanted
        self.position = wanted.begin
        """Everything below it was handed on."""
        self.lost: Trimmed | None = None

    def pages(self) -> Iterator[list[StreamSlice]]:
        wanted = self._wanted
        with connected(self._options.connection) as topic:
            pages = topic.read_pages(
                wanted.begin,
                wanted.end,
                streams=wanted.streams,
                bytes_max=PAGE_BYTES,
                turn=wanted.turn,
            )
            try:
                for page in pages:
                    self.position = max(self.position, _end_of(page))
                    yield page
            except Trimmed as error:
                # Pages ascend, and this one was not handed on: so nothing comes twice.
                self.lost = error


def _end_of(page: Sequence[StreamSlice]) -> int:
    """One past the last GLSN of a page."""
    ends = (
        piece.runs.glsn_of(piece.batch.llsn_at(piece.end - 1)) + 1
        for _, piece in page
        if piece.begin < piece.end
    )
    return max(ends, default=0)
