"""Reads a served topic page by page: bounded memory, nothing twice, nothing left out.

R1  a page holds all entries of its range of GLSNs, and the next one begins where it ends; so
    a reader that lost its connection goes on at its position, with whatever node
R2  at most one page is shown and one is fetched ahead
R3  a node that is behind is waited for; if another one is further, it is left
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

from tidelog.client.link import Reply
from tidelog.client.pool import Pool
from tidelog.errors import BadFrame, CorruptData, OutOfRange, Unreachable
from tidelog.formats.batch import decode_batch
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.message_fields import PieceHeader
from tidelog.formats.messages import Page, ReadPage
from tidelog.interface.records import Record, records_of

StreamSlice: TypeAlias = tuple[int, BatchSlice]
"""The number of a log stream and some of its entries."""

WAIT_SECONDS: Final = 20.0
"""How long one request waits at the end of a log; then another one goes on."""
CLUSTER_WAIT_SECONDS: Final = 5.0
"""The same on several nodes, of which each may be cut off from the others (R3)."""
BEHIND_SECONDS: Final = 1.0
"""How long a node may take to show what another one has."""
_POSITION: Final = attrgetter("glsn")


class PageReader:
    """The pages of ``[begin, end)``; without an end it never comes to one."""

    def __init__(
        self,
        pool: Pool,
        topic: str,
        begin: int,
        end: int | None,
        *,
        seconds: float,
        streams: Sequence[int] = (),
        bytes_max: int = 0,
        turn: int | None = None,
    ) -> None:
        """``turn``: for readers that spread over followers; see ``Pool.reading``."""
        self._pool = pool
        self._topic = topic
        self._position = begin
        self._end = end
        self._seconds = seconds
        self._streams = tuple(streams)
        self._bytes_max = bytes_max
        self._turn = turn
        self._ahead: asyncio.Task[Reply] | None = None
        self._patience = 0.0
        """Until when a node may be behind, by the loop's clock; 0: none is."""
        self._suspected = 0
        """The position that a node could not show, although another one has it."""

    async def next_page(self) -> Reply | None:
        """The next page that has entries; None at the end.  ``slices_of`` unpacks it."""
        while self._end is None or self._position < self._end:
            reply = await self._fetch()
            page = _page_in(reply)
            await self._advance(page)
            if page.pieces:
                if self._position <= min(page.high_watermark, (self._end or 1 << 63) - 1):
                    self._ahead = asyncio.create_task(self._ask(0.0))
                return reply
        return None

    async def wait_page(self, timeout: float | None) -> Reply | None:
        """The next page, even if it has yet to come; None after ``timeout`` seconds without."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            wait = self._longest_wait()
            if until is not None:
                wait = min(max(until - loop.time(), 0.0), wait)
            reply = await self._fetch(wait)
            page = _page_in(reply)
            await self._advance(page)
            if page.pieces:
                if self._position <= page.high_watermark:
                    self._ahead = asyncio.create_task(self._ask(0.0))
                return reply
            is_at_end = self._position > page.high_watermark
            if is_at_end and until is not None and loop.time() >= until:
                return None

    def _longest_wait(self) -> float:
        if not self._pool.is_cluster:
            return WAIT_SECONDS
        return BEHIND_SECONDS if self._suspected else CLUSTER_WAIT_SECONDS

    def close(self) -> None:
        """Give up what was fetched ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.cancel() and not ahead.cancelled():
            ahead.exception()  # Looked at, so that nobody complains about it.

    async def _fetch(self, wait: float = 0.0) -> Reply:
        ahead = self._ahead
        if ahead is None:
            return await self._ask(wait)
        try:
            return await ahead
        finally:
            if ahead.done():
                self._ahead = None

    async def _ask(self, wait: float) -> Reply:
        if self._pool.is_cluster and self._end is not None:
            wait = BEHIND_SECONDS  # What another node has told of may not have come to this one.
        request = ReadPage(
            self._topic,
            self._position,
            self._end or 0,
            self._streams,
            self._bytes_max,
            int(wait * 1000),
        )
        return await self._pool.ask_holder(
            request,
            self._topic,
            self._streams,
            seconds=self._seconds + wait,
            waits=wait > 0,
            turn=self._turn,
        )

    async def _advance(self, page: Page) -> None:
        """R1, checked: a page that begins elsewhere would be a gap or a double."""
        if page.glsn_begin != self._position or page.glsn_end < page.glsn_begin:
            raise BadFrame(
                f"a page [{page.glsn_begin}, {page.glsn_end}) came instead of one from "
                f"{self._position} on"
            )
        if page.glsn_end > page.glsn_begin:
            self._position = page.glsn_end
            self._patience = 0.0
            self._suspected = 0
            return
        if self._end is not None:
            self._bear_with(page)
        if self._pool.is_cluster:
            await self._look_elsewhere()

    def _bear_with(self, page: Page) -> None:
        """A node that should have an entry has not got it: that is borne only for so long."""
        now = asyncio.get_running_loop().time()
        self._patience = self._patience or now + self._seconds
        if not self._pool.is_cluster or now >= self._patience:
            raise OutOfRange(
                f"topic {self._topic!r} has not reached GLSN {(self._end or 0) - 1}: it ends at "
                f"{page.high_watermark}"
            )

    async def _look_elsewhere(self) -> None:
        """Nothing came: leave the node if another one has more, and still has after a while."""
        here = self._pool.reading(self._topic, self._streams, self._turn)
        if self._suspected == self._position:
            self._suspected = 0
            await self._pool.leave(here, Unreachable("the node is behind the others"))
            return
        described = await self._pool.look_elsewhere(self._topic, here)
        if described is not None and described.high_watermark >= self._position:
            self._suspected = self._position


def slices_of(reply: Reply) -> list[StreamSlice]:
    """The pieces of a page; CorruptData if a batch does not match its checksum."""
    return unpacked(_page_in(reply).pieces, reply.attachment)


def unpacked(pieces: Iterable[PieceHeader], attachment: memoryview) -> list[StreamSlice]:
    """The same of pieces that came in another message."""
    offset, slices = 0, []
    for piece in pieces:
        slices.append((piece.stream, _slice(piece, attachment, offset)))
        offset += piece.length
    return slices


def records_in(slices: Iterable[StreamSlice]) -> list[Record]:
    """The records of a page in total order."""
    records = list(chain.from_iterable(records_of(stream, piece) for stream, piece in slices))
    # Each piece ascends, and sorting notices that.
    records.sort(key=_POSITION)
    return records


def _page_in(reply: Reply) -> Page:
    if not isinstance(reply.answer, Page):
        raise BadFrame(f"a node answered a read with {type(reply.answer).__name__}")
    return reply.answer


def _slice(piece: PieceHeader, attachment: memoryview, offset: int) -> BatchSlice:
    batch = decode_batch(attachment[offset : offset + piece.length])
    if not piece.begin <= piece.end <= batch.count:
        raise BadFrame(f"entries [{piece.begin}, {piece.end}) of a batch of {batch.count}")
    runs = GlsnRuns.from_columns(*zip(*piece.runs, strict=True)) if piece.runs else GlsnRuns()
    found = BatchSlice(batch, piece.begin, piece.end, runs)
    if not _has_glsns(found):
        raise CorruptData("a page has entries without GLSNs")
    return found


def _has_glsns(piece: BatchSlice) -> bool:
    """Whether the runs of a piece know the GLSNs of all of its entries."""
    runs, count = piece.runs, piece.end - piece.begin
    if count and len(runs) == 1:  # Nearly always; then it needs no look at each entry.
        first, last = piece.batch.llsn_at(piece.begin), piece.batch.llsn_at(piece.end - 1)
        return runs.llsn_begin <= first and last < runs.llsn_end
    return len(glsns := piece.glsns()) == count and 0 not in glsns
