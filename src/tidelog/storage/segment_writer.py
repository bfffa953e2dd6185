"""Turns what a WAL file held of a stream into a numbered, immutable segment.

Entries that the published snapshot knows to be dead, or that were trimmed, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidelog.errors import CorruptData
from tidelog.formats.batch import Batch
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_rows import KeyRows
from tidelog.formats.segment import SegmentFooter
from tidelog.invariants import check
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX
from tidelog.storage.memtable import Memtable
from tidelog.storage.rebatch import rebatch
from tidelog.storage.segment_content import SegmentContent, write_segment_file
from tidelog.storage.segments import Segment, segment_name
from tidelog.storage.snapshot_store import SnapshotState
from tidelog.storage.vfs import Vfs


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where a stream's segments lie and whose they are."""

    directory: str
    stream: int
    log_id: bytes
    hash_seed: int


def kept_batches(
    batches: Iterable[Batch], snapshot: SnapshotState, begin: int, end: int
) -> Iterator[tuple[Batch, Sequence[int]]]:
    """Each batch with the positions of its entries in ``[begin, end)`` that are not dead."""
    for batch in batches:
        yield batch, snapshot.kept_positions(batch, begin, end)


def write_segment(
    vfs: Vfs,
    place: SegmentPlace,
    path: str,
    number: int,
    kept: Iterable[tuple[Batch, Sequence[int]]],
    runs: GlsnRuns,
    rows: KeyRows | None = None,
    *,
    is_awaited: bool = False,
) -> SegmentFooter | None:
    """Write and sync a segment file at ``path``; None, and no file, when nothing is kept.

    ``rows`` are those of what is kept, sorted, if they are known; ``is_awaited``: somebody will
    read it soon.
    """
    content = SegmentContent(
        number=number,
        stream=place.stream,
        log_id=place.log_id,
        batches=rebatch(kept),
        runs=runs,
        rows=rows,
        hash_seed=place.hash_seed if rows is None else None,
    )
    return write_segment_file(vfs, path, content, is_awaited=is_awaited)


def flush_memtable(
    vfs: Vfs,
    place: SegmentPlace,
    number: int,
    table: Memtable,
    snapshot: SnapshotState,
    trim_llsn_end: int,
    *,
    is_awaited: bool = False,
) -> Segment | None:
    """Write the segment of a memtable under its final name; None when everything in it is dead.

    The name is durable when this returns.  ``is_awaited``: somebody will read it soon.
    """
    check(table.runs.llsn_end >= table.end_llsn, "M2: a memtable is flushed once it is ordered")
    final = f"{place.directory}/{segment_name(number)}"
    temporary = final + TEMPORARY_SUFFIX
    if vfs.stat(temporary) is not None:
        vfs.unlink(temporary)
    batches = (stored.view() for stored in table.batches)
    kept = kept_batches(batches, snapshot, trim_llsn_end, table.end_llsn)
    rows = _known_rows(table, snapshot, trim_llsn_end)
    footer = write_segment(
        vfs, place, temporary, number, kept, table.runs, rows, is_awaited=is_awaited
    )
    if footer is None:
        return None
    vfs.rename(temporary, final)
    vfs.sync_dir(place.directory)
    found = vfs.stat(final)
    if found is None:
        raise CorruptData(f"{final} vanished right after it was written")
    return Segment.of(place.directory, footer, found.size)


def _known_rows(table: Memtable, snapshot: SnapshotState, trim_llsn_end: int) -> KeyRows | None:
    """The rows of what is kept of a memtable, if a snapshot has looked at all of it."""
    content = table.content_of(len(table.batches))
    if content is None:
        return None
    rows = content.rows
    kept = snapshot.keeps_all(rows.llsn)
    kept &= rows.llsn >= np.uint64(trim_llsn_end)
    return rows if bool(kept.all()) else rows.filter(kept)
