"""Writing a segment file: once, from its header to its trailer; from then on it never changes.

Names, renames and the sync of directories are the business of the caller's protocol.

  F1  Whatever goes wrong while a file is written, no part of it stays under its name.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from tidelog.formats.batch import Batch, decode_batch
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import (
    KeyRows,
    RowColumns,
    SegmentSummary,
    encode_key_pages,
    no_rows,
)
from tidelog.formats.segment import (
    BlockColumns,
    PageColumns,
    SegmentFooter,
    encode_footer,
    encode_segment_header,
)
from tidelog.invariants import check
from tidelog.storage.direct_file import PIECE_BYTES
from tidelog.storage.vfs import File, Vfs

_WRITE_BYTES: Final = PIECE_BYTES
"""Size of one write, which may so go past the page cache."""

SegmentBatch: TypeAlias = bytes | memoryview | Batch
"""A batch that was checked when it was decoded, or bytes that are to be."""


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """What goes into a new segment.

    ``batches`` may be a generator, so that no more than a write's worth is in memory.
    ``runs`` cover every LLSN in the batches and may go beyond them.  Either ``rows`` are the
    sorted rows of all keyed entries (None if there is none), or the writer makes them with
    ``hash_seed`` as the batches pass by.
    """

    number: int
    stream: int
    log_id: bytes
    batches: Iterable[SegmentBatch]
    runs: GlsnRuns
    rows: KeyRows | None = None
    hash_seed: int | None = None


def write_segment_file(
    vfs: Vfs, path: str, content: SegmentContent, *, sync: bool = True, is_awaited: bool = False
) -> SegmentFooter | None:
    """Create ``path`` and write a whole segment to it; FileExistsError if the name is taken.

    None, and no file, when there are no batches: a segment is never empty.  ``is_awaited``:
    somebody will read it soon, so it had better stay in the page cache.
    """
    batches = iter(content.batches)
    first = next(batches, None)
    if first is None:
        return None
    file = vfs.create(path, once=not is_awaited)
    try:
        footer = _Writer(file, content).write(chain((first,), batches))
        if sync:
            file.sync()
        file.close()
    except BaseException:
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            vfs.unlink(path)
        raise
    return footer


class _Columns:
    """Growing columns of a footer, one item type each."""

    def __init__(self, items: str) -> None:
        self.arrays: Final = [array(item) for item in items]

    def add(self, *row: int) -> None:
        for column, value in zip(self.arrays, row, strict=True):
            column.append(value)


class _Writer:
    """One pass over the content; collects the columns of the footer on its way."""

    def __init__(self, file: File, content: SegmentContent) -> None:
        self._file = file
        self._content = content
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes = 0
        self._written = 0
        self._summary = SegmentSummary()
        check(content.rows is None or content.hash_seed is None, "key rows come from one place")
        self._gathered = None if content.hash_seed is None else RowColumns(content.hash_seed)
        self._block_columns = _Columns("QQQQII")
        self._page_columns = _Columns("QQII")

    def write(self, batches: Iterable[SegmentBatch]) -> SegmentFooter:
        content = self._content
        self._add(encode_segment_header(content.number, content.stream, content.log_id))
        self._write_blocks(batches)
        blocks = BlockColumns(*self._block_columns.arrays)
        first_llsn, end_llsn = blocks.first_llsn[0], blocks.end_llsn[-1]
        runs = content.runs.restrict(first_llsn, end_llsn)
        special, stats = self._summary.finish(runs)
        rows = content.rows
        if self._gathered is not None:
            rows = self._gathered.sorted_rows(runs.glsns)
        rows = rows if rows is not None else no_rows()
        check(len(rows) == stats.keyed, "every keyed entry has its row")
        for page in encode_key_pages(rows, first_llsn, runs):
            self._page_columns.add(self._offset, page.fence, len(page.data), page.rows)
            self._add(page.data)
        footer = SegmentFooter(
            number=content.number,
            stream=content.stream,
            blocks=blocks,
            runs=runs,
            pages=PageColumns(*self._page_columns.arrays),
            specials=tuple(special),
            stats=stats,
        )
        self._add(encode_footer(footer))
        self._flush()
        return footer

    def _write_blocks(self, batches: Iterable[SegmentBatch]) -> None:
        end_llsn = 0
        stream, runs = self._content.stream, self._content.runs
        for given in batches:
            batch = _checked(given)
            check(batch.stream == stream, "a segment holds one stream")
            check(batch.first_llsn >= end_llsn, "S1: batches ascend and do not overlap")
            check(covers(runs, batch), "an entry of a segment has its GLSN")
            end_llsn = batch.end_llsn
            self._block_columns.add(
                batch.first_llsn, end_llsn, self._offset, batch.term, batch.length, batch.count
            )
            self._summary.add(batch)
            if self._gathered is not None:
                self._gathered.add(batch)
            self._add(batch.data)

    @property
    def _offset(self) -> int:
        return self._written + self._parts_bytes

    def _add(self, data: bytes | memoryview) -> None:
        self._parts.append(data)
        self._parts_bytes += len(data)
        if self._parts_bytes >= _WRITE_BYTES:
            self._flush(self._parts_bytes % _WRITE_BYTES)

    def _flush(self, kept_bytes: int = 0) -> None:
        """Write all but the last bytes, which are less than the last part has."""
        kept: list[bytes | memoryview] = []
        if kept_bytes:
            last = memoryview(self._parts[-1])
            self._parts[-1], kept = last[:-kept_bytes], [last[-kept_bytes:]]
        self._file.write_at(self._written, self._parts)
        self._written += self._parts_bytes - kept_bytes
        self._parts, self._parts_bytes = kept, kept_bytes


def _checked(given: SegmentBatch) -> Batch:
    """A batch whose bytes are those that it was made of, as late as possible before a copy."""
    if isinstance(given, Batch):
        given.check_body()
        return given
    batch = decode_batch(given)
    check(batch.length == len(given), "a batch is stored alone")
    return batch


def covers(runs: GlsnRuns, batch: Batch) -> bool:
    """Whether every entry of a batch has a GLSN."""
    if runs.covers(batch.first_llsn, batch.end_llsn):
        return True
    return not batch.dense and all(map(runs.glsn_of, batch.llsns()))
