"""Finding entries in one view of a stream, which the caller holds pinned.

Segments are ordered like the memtables after them, so what is asked for first is found first;
files are opened only where their place in the view says that they may hold it (S4).
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.storage.memtable import KeyedWrite, greater
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.segments import Segment, StreamView

_END = 1 << 63


def read_batches(
    view: StreamView, opened: OpenSegments, begin: int, end: int
) -> Iterator[BatchSlice]:
    """The entries in ``[begin, end)``, ascending; every batch from a file is verified."""
    for segment in view.segments_from_llsn(begin):
        first, last = max(begin, segment.first_llsn), min(end, segment.end_llsn)
        if first >= last:
            break
        with opened.lease(segment.path) as reader:
            runs = reader.footer.runs
            for batch in reader.read_blocks(first, last):
                yield BatchSlice(batch, batch.position(first), batch.position(last), runs)
    for table in view.memtables:
        for stored in table.batches_between(begin, end):
            batch = stored.view()
            yield BatchSlice(batch, batch.position(begin), batch.position(end), table.runs)


def runs_by_glsn(
    view: StreamView, opened: OpenSegments, glsn_begin: int, glsn_end: int
) -> Iterator[tuple[int, int, int]]:
    """(LLSN, GLSN, length) of the ordered ranges in ``[glsn_begin, glsn_end)``, ascending."""
    for segment in view.segments_from_glsn(glsn_begin):
        if segment.first_glsn >= glsn_end:
            break
        with opened.lease(segment.path) as reader:
            runs = reader.footer.runs.slices_by_glsn(glsn_begin, glsn_end)
        yield from GlsnRuns(runs).slices(segment.first_llsn, segment.end_llsn)
    for table in view.memtables:
        yield from table.runs.slices_by_glsn(glsn_begin, glsn_end)


def glsn_of(view: StreamView, opened: OpenSegments, llsn: int) -> int:
    """The GLSN of an ordered entry; 0 if it has none."""
    for table in view.memtables:
        found = table.runs.glsn_of(llsn)
        if found:
            return found
    for segment in view.segments_from_llsn(llsn)[:1]:
        if segment.first_llsn <= llsn:
            with opened.lease(segment.path) as reader:
                return reader.footer.runs.glsn_of(llsn)
    return 0


def glsn_from(view: StreamView, opened: OpenSegments, llsn: int) -> int:
    """The GLSN of the first entry at or behind ``llsn`` that has one; 0 if none has."""
    for segment in view.segments_from_llsn(llsn):
        with opened.lease(segment.path) as reader:
            found = reader.footer.runs.slices(llsn, segment.end_llsn)
        if found:
            return found[0][1]
    for table in view.memtables:
        found = table.runs.slices(llsn, _END)
        if found:
            return found[0][1]
    return 0


def find_writes(
    view: StreamView, opened: OpenSegments, storage_id: int, key: bytes, hashed: tuple[int, int]
) -> tuple[KeyedWrite | None, KeyedWrite | None]:
    """The greatest write of a key, and the greatest delete of its storage."""
    best: KeyedWrite | None = None
    for table in view.memtables:
        best = greater(best, table.find_key(storage_id, key))
    for segment in reversed(view.segments):
        if segment.keyed and not (best and best.version > segment.max_version):
            best = _find_in_segment(segment, opened, hashed, best)
    return best, _storage_delete(view, storage_id)


def _find_in_segment(
    segment: Segment, opened: OpenSegments, hashed: tuple[int, int], best: KeyedWrite | None
) -> KeyedWrite | None:
    with opened.lease(segment.path) as reader:
        for hit in reader.find_key(*hashed):
            if segment.first_llsn <= hit.llsn < segment.end_llsn:
                best = greater(best, KeyedWrite(hit.version, hit.llsn, hit.kind))
    return best


def _storage_delete(view: StreamView, storage_id: int) -> KeyedWrite | None:
    best: KeyedWrite | None = None
    for table in view.memtables:
        best = greater(best, table.storage_delete(storage_id))
    for segment in view.segments:
        for special in segment.specials:
            if special.storage_id == storage_id and special.is_storage_delete:
                best = greater(best, KeyedWrite(special.version, special.llsn, special.kind))
    return best
