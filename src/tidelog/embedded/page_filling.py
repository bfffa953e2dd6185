"""Decides where a page ends, so that it is neither too large nor has too small shares of batches.

Batches of different streams overlap in GLSNs.  Where a page ends, all of them are cut, and what
lies behind is read again for the next page.  So a page ends where the shares of its batches
together are about as large as asked for, not where the first batches are.

Invariants:
  F1  The shares of a page have no more bytes than asked for or than its largest batch has,
      whichever is more, and no more than half of an attachment.
  F2  A page has at most ``_PIECES_MAX`` pieces and ``_RUNS_MAX`` runs, so its index fits into a
      message.
  F3  A page of one entry is always small enough.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.formats.batch import Batch, Column
from tidelog.formats.batch_slice import BatchSlice
from tidelog.invariants import check
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX, VALUE_BYTES_MAX

StreamPiece: TypeAlias = tuple[int, BatchSlice]
"""The number of a log stream and a slice of one of its batches."""

_PIECES_MAX: Final = 8 * 1024
_RUNS_MAX: Final = 64 * 1024
_BYTES_MAX: Final = ATTACHMENT_BYTES_MAX // 2
"""A batch is sent whole if half of it is asked for."""

check(48 * _PIECES_MAX + 28 * _RUNS_MAX < MESSAGE_BYTES_MAX, "F2: the index fits into a message")
check(VALUE_BYTES_MAX < _BYTES_MAX, "F3: the largest entry fits into a page")


@dataclass(frozen=True, slots=True)
class _Taken:
    stream: int
    piece: BatchSlice
    glsn_end: int
    runs: int


class PageFilling:
    """Pieces on their way into a page; they come ascending by their first GLSN."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = min(bytes_max, _BYTES_MAX)
        self._taken: list[_Taken] = []
        self._open: list[_Taken] = []
        """Those of which some entries may lie behind the page's end."""
        self._settled_bytes = self._settled_runs = 0
        self._whole_bytes = self._whole_runs = 0
        """What all taken pieces have, at most."""
        self._possible = 0
        """An end that is known to be possible; 0 for none yet."""

    @property
    def is_full(self) -> bool:
        return len(self._taken) >= _PIECES_MAX

    def add(self, glsn: int, stream: int, piece: BatchSlice) -> None:
        batch = piece.batch
        first, last = batch.llsn_at(piece.begin), batch.llsn_at(piece.end - 1)
        glsn_end = piece.runs.glsn_of(last) + 1
        runs = 1
        if glsn_end - glsn != last - first + 1:
            runs = len(piece.runs.slices(first, last + 1))
        taken = _Taken(stream, piece, glsn_end, runs)
        self._taken.append(taken)
        self._open.append(taken)
        self._whole_bytes += batch.length
        self._whole_runs += runs
        if batch.length > self._bytes_max:
            self._bytes_max = max(self._bytes_max, min(batch.length, _BYTES_MAX))
        self._possible = self._possible or glsn + 1  # F3

    def may_end_at(self, glsn: int) -> bool:
        """Whether the page is small enough if it ends before ``glsn``."""
        if self._whole_bytes > self._bytes_max or self._whole_runs > _RUNS_MAX:
            size, runs = self._measure(glsn)
            if size > self._bytes_max or runs > _RUNS_MAX:
                return False
            self._settle(glsn)
        self._possible = max(self._possible, glsn)
        return True

    def last_end(self, glsn: int) -> int:
        """A good end up to ``glsn``: the last one possible, unless it splits a batch in vain.

        Where a batch begins the page may end just as well, if it is half full by then.
        """
        if not self._taken or self.may_end_at(glsn):
            return glsn
        begin = self._possible
        if 2 * self._measure(begin)[0] >= self._bytes_max:
            return begin
        too_far = bisect_left(range(begin, glsn), True, key=lambda end: not self._fits(end))
        return begin + too_far - 1

    def _measure(self, glsn: int) -> tuple[int, int]:
        """The bytes and runs of a page that ends before ``glsn``."""
        size, runs = self._settled_bytes, self._settled_runs
        for taken in self._open:
            position = _position(taken, glsn)
            size += share_bytes(taken.piece.batch, taken.piece.begin, position)
            runs += _runs_before(taken, position)
        return size, runs

    def cut(self, glsn_end: int) -> list[StreamPiece]:
        """The pieces of a page that ends before ``glsn_end``."""
        pieces: list[StreamPiece] = []
        for taken in self._taken:
            piece = taken.piece
            if taken.glsn_end > glsn_end:
                end = _position(taken, glsn_end)
                if end == piece.begin:
                    continue
                piece = BatchSlice(piece.batch, piece.begin, end, piece.runs)
            pieces.append((taken.stream, piece))
        return pieces

    def _fits(self, glsn: int) -> bool:
        return glsn <= self._possible or self.may_end_at(glsn)

    def _settle(self, glsn: int) -> None:
        """What ends before a possible end need not be looked at again."""
        for taken in self._open:
            if taken.glsn_end <= glsn:
                piece = taken.piece
                self._settled_bytes += share_bytes(piece.batch, piece.begin, piece.end)
                self._settled_runs += taken.runs
        self._open = [taken for taken in self._open if taken.glsn_end > glsn]


def share_bytes(batch: Batch, begin: int, end: int) -> int:
    """About how many bytes of a batch the entries ``[begin, end)`` take."""
    if end - begin == batch.count:
        return batch.length
    payload = total = 0
    for column in (Column.KEY_OFFSETS, Column.VALUE_OFFSETS):
        offsets = batch.column(column)
        if offsets is not None:
            payload += offsets[end] - offsets[begin]
            total += offsets[batch.count]
    return payload + (batch.length - total) * (end - begin) // batch.count


def is_sent_whole(piece: BatchSlice) -> bool:
    """Whether a batch had better travel as it is than be taken apart for some of its entries."""
    return 2 * share_bytes(piece.batch, piece.begin, piece.end) >= piece.batch.length


def _position(taken: _Taken, glsn_end: int) -> int:
    """The index in the batch of the piece's first entry at or behind ``glsn_end``."""
    piece = taken.piece
    if taken.glsn_end <= glsn_end:
        return piece.end
    llsn = piece.runs.llsn_at_or_after(glsn_end)
    return min(max(piece.batch.position(llsn), piece.begin), piece.end)


def _runs_before(taken: _Taken, position: int) -> int:
    piece = taken.piece
    if taken.runs == 1 or position == piece.end:
        return taken.runs
    if position == piece.begin:
        return 0
    first, last = piece.batch.llsn_at(piece.begin), piece.batch.llsn_at(position - 1)
    return len(piece.runs.slices(first, last + 1))
