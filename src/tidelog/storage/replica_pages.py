"""Reads one replica by LLSN, a page at a time, and finds out how far damage reaches.  No state.

G1  a page holds all ordered entries of its range that are stored here, and no others
G2  a page that is not at the end of what is asked for gets on by at least one LLSN
G3  a page is bounded in bytes, pieces and runs
G4  a damaged block costs a page that is about that block alone, and its neighbours nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import CorruptData
from tidelog.formats.batch_slice import BatchSlice
from tidelog.limits import ATTACHMENT_BYTES_MAX, MIB
from tidelog.storage.replica_facts import untouched_above
from tidelog.storage.segments import Segment
from tidelog.storage.stream_store import StreamStore

PAGE_BYTES: Final = 8 * MIB
"""About what a page holds, unless one batch is larger."""
PIECES_MAX: Final = 8 * 1024
RUNS_MAX: Final = 64 * 1024
_BYTES_MAX: Final = ATTACHMENT_BYTES_MAX // 2


@dataclass(slots=True)
class StoredPage:
    """Entries of ``[begin, end)``, or why they cannot be read."""

    begin: int
    end: int
    pieces: list[BatchSlice] = field(default_factory=list)
    settled_index: int = 0
    damage: str = ""


def read_replica(store: StreamStore, begin: int, end: int, bytes_max: int = 0) -> StoredPage:
    """The first page of ``[begin, end)``; CorruptData never gets out of here."""
    begin = max(begin, 1)
    end = max(begin, min(end, store.ordered_end))
    page = StoredPage(begin, end)
    try:
        _fill(page, store, min(bytes_max or PAGE_BYTES, _BYTES_MAX))
    except CorruptData as error:
        page = _before_damage(store, begin, end, str(error))
    # Looked at last: what was compacted meanwhile may be missing from the pieces.
    page.settled_index = untouched_above(store)
    return page


def _fill(page: StoredPage, store: StreamStore, bytes_max: int) -> None:
    size = runs = 0
    for piece in store.read(page.begin, page.end):
        if piece.begin >= piece.end:
            continue
        found = _runs_of(piece)
        size += piece.batch.length
        if page.pieces and (
            size > bytes_max or len(page.pieces) >= PIECES_MAX or runs + len(found) > RUNS_MAX
        ):
            page.end = piece.batch.llsn_at(piece.begin)
            return
        if len(found) > RUNS_MAX:
            page.end = found[RUNS_MAX][0]
            stop = piece.batch.position(page.end)
            page.pieces.append(BatchSlice(piece.batch, piece.begin, stop, piece.runs))
            return
        runs += len(found)
        page.pieces.append(piece)


def _runs_of(piece: BatchSlice) -> Sequence[tuple[int, int, int]]:
    batch = piece.batch
    return piece.runs.slices(batch.llsn_at(piece.begin), batch.llsn_at(piece.end - 1) + 1)


# -- damage (G4) ---------------------------------------------------------------------------------


def _before_damage(store: StreamStore, begin: int, end: int, why: str) -> StoredPage:
    """A page that ends before the damaged block, or one about that block if it comes first."""
    for first, last, problem in _damaged_blocks(store, begin, end):
        if first > begin:
            page = StoredPage(begin, first)
            _fill(page, store, PAGE_BYTES)
            return page
        return StoredPage(begin, min(last, end), damage=problem)
    # Compaction has taken the damaged file away meanwhile: nobody knows what it held.
    return StoredPage(begin, min(begin + 1, end), damage=why)


def _damaged_blocks(store: StreamStore, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
    """(first LLSN, end, what is wrong) of the blocks in a range that cannot be read."""
    with store.pins.pinned():
        for segment in store.view.segments:
            first, last = max(begin, segment.first_llsn), min(end, segment.end_llsn)
            if first < last:
                yield from _damaged_in(store, segment, first, last)


def _damaged_in(
    store: StreamStore, segment: Segment, begin: int, end: int
) -> Iterator[tuple[int, int, str]]:
    try:
        with store.opened.lease(segment.path) as reader:
            numbers = reader.footer.blocks_between(begin, end)
            blocks = reader.footer.blocks
            ranges = [(blocks.first_llsn[n], blocks.end_llsn[n]) for n in numbers]
    except CorruptData as error:
        yield begin, end, str(error)
        return
    for first, last in ranges:
        problem = _problem_in_block(store, segment, first, last)
        if problem:
            yield max(first, begin), min(last, end), problem


def _problem_in_block(store: StreamStore, segment: Segment, first: int, last: int) -> str:
    try:
        with store.opened.lease(segment.path) as reader:
            for _ in reader.read_blocks(first, last):
                pass
    except CorruptData as error:
        return str(error)
    return ""
