"""A topic of a served log for asyncio: the names of ``AsyncTopic``, over a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.client.pages import PageReader, StreamSlice, records_in, slices_of
from tidelog.client.retries import in_doubt
from tidelog.client.topic_creation import create_companion
from tidelog.client.writing import AsyncWriting
from tidelog.errors import (
    BadEntry,
    BadOption,
    ConnectionLost,
    LeaderLost,
    LogClosed,
    LogError,
    OutOfRange,
    RevisionConflict,
    Trimmed,
)
from tidelog.formats.messages import (
    Compact,
    Done,
    Explain,
    Figures,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    Lines,
    Number,
    Rewrite,
    SetGcBoundary,
    SetPosition,
    TakeSnapshot,
    TopicFigures,
    Trim,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.blobs.async_calls import AsyncBlobCalls, AsyncTopicBlobs
from tidelog.interface.figures import CompactionResult, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position
from tidelog.interface.readers import check_reader_name
from tidelog.interface.records import Record
from tidelog.interface.routing import stream_of_key
from tidelog.limits import KIB, PAGE_BYTES, STORAGE_ID_END, WRITE_VERSION_END

if TYPE_CHECKING:
    import pyarrow as pa

MAINTENANCE_SECONDS: Final = 600.0
"""How long compaction and its like may take."""
_TIMESTAMP_END: Final = 1 << 63
_FEW_BYTES: Final = 64 * KIB
_RECORD_BYTES: Final = KIB
"""What a record is taken for where only a few are asked for."""


class AsyncRemoteTopic(AsyncWriting, AsyncBlobCalls):
    """All calls belong into one event loop.  An append returns when it is durable and ordered."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the topic's log streams, as ``position`` found them last."""
        return self._described.streams

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Those that were not sealed when ``position`` asked last."""
        sealed = [place.stream for place in self._described.placements if place.is_sealed]
        return tuple([stream for stream in self.streams if stream not in sealed])

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued when ``position`` asked last."""
        return self._described.high_watermark

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed when ``position`` asked last."""
        return self._described.first_available

    async def position(self) -> Position:
        """Where the topic ends now: the GLSN that comes next, with the first and the last one."""
        described = await self._session.describe(self.name)
        high = described.high_watermark
        return Position(high + 1, described.first_available, high)

    # -- reading ------------------------------------------------------------------------------

    async def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records in total order; see ``Topic.read``."""
        reader = await self.open_range(from_glsn, to_glsn, limit=limit)
        left = limit
        try:
            while left is None or left > 0:
                reply = await reader.next_page()
                if reply is None:
                    return
                records = records_in(slices_of(reply))
                for record in records[:left]:
                    yield record
                left = None if left is None else left - len(records)
        finally:
            reader.close()

    async def read_pages(
        self,
        from_glsn: int,
        to_glsn: int,
        *,
        streams: Sequence[int] = (),
        bytes_max: int = 0,
        turn: int | None = None,
    ) -> AsyncGenerator[list[StreamSlice], None]:
        """All entries of ``[from_glsn, to_glsn)`` as slices of batches, with their streams.

        Pages ascend; the slices of a page may overlap in their GLSNs.  On a cluster readers with
        a ``turn`` go to followers first: to different ones if their turns differ.
        """
        reader = self.open_pages(from_glsn, to_glsn, streams, bytes_max, turn)
        try:
            while (reply := await reader.next_page()) is not None:
                yield slices_of(reply)
        finally:
            reader.close()

    async def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The entries as Arrow record batches, in total order; see ``Topic.read_arrow``."""
        from tidelog.interface.arrow import arrow_schema, record_batches  # noqa: PLC0415

        arrow_schema(columns)
        reader = await self.open_range(from_glsn, to_glsn, streams=streams)
        try:
            while (reply := await reader.next_page()) is not None:
                for batch in record_batches([slices_of(reply)], columns):
                    yield batch
        finally:
            reader.close()

    async def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records from ``from_glsn`` on, waiting for new ones; see ``Topic.subscribe``.

        A connection that breaks is made again, and the reader goes on where it was.
        """
        async for record in self._follow(from_glsn, timeout):
            yield record

    async def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncGenerator[Record, None]:
        """The records of one log stream, waiting for new ones; see ``Topic.subscribe_to``."""
        async for record in self._follow(from_glsn, timeout, (stream,)):
            yield record

    async def _follow(
        self, from_glsn: int | None, timeout: float | None, streams: Sequence[int] = ()
    ) -> AsyncGenerator[Record, None]:
        reader = await self.open_end(from_glsn, streams)
        try:
            while (reply := await reader.wait_page(timeout)) is not None:
                for record in records_in(slices_of(reply)):
                    yield record
        except LogClosed:
            return
        finally:
            reader.close()

    async def open_range(
        self,
        from_glsn: int | None,
        to_glsn: int | None,
        *,
        limit: int | None = None,
        streams: Sequence[int] = (),
    ) -> PageReader:
        """A reader of what the topic holds now; the range is checked."""
        if limit is not None and limit < 0:
            raise BadOption(f"limit is {limit}, but must not be negative")
        _check_glsn(from_glsn)
        place = await self.position()
        begin = place.first_available if from_glsn is None else from_glsn
        end = place.glsn if to_glsn is None else to_glsn
        if begin < place.first_available:
            raise Trimmed(
                f"GLSN {begin} of topic {self.name!r} was trimmed; the first available is "
                f"{place.first_available}",
                first_available=place.first_available,
            )
        if max(begin, end) > place.glsn:
            raise OutOfRange(
                f"topic {self.name!r} has not reached GLSN {max(begin, end - 1)}: it ends at "
                f"{place.high_watermark}"
            )
        bytes_max = 0 if limit is None else max(_FEW_BYTES, limit * _RECORD_BYTES)
        return self.open_pages(begin, end, streams, min(bytes_max, PAGE_BYTES))

    def open_pages(
        self,
        begin: int,
        end: int,
        streams: Sequence[int] = (),
        bytes_max: int = 0,
        turn: int | None = None,
    ) -> PageReader:
        """A reader of a range that the topic has reached."""
        _check_glsn(begin)
        return PageReader(
            self._session.pool,
            self.name,
            begin,
            end,
            seconds=self._session.timeout,
            streams=streams,
            bytes_max=bytes_max,
            turn=turn,
        )

    async def open_end(self, from_glsn: int | None, streams: Sequence[int] = ()) -> PageReader:
        """A reader that never comes to an end."""
        _check_glsn(from_glsn)
        begin = (await self.position()).glsn if from_glsn is None else from_glsn
        session = self._session
        return PageReader(
            session.pool, self.name, begin, None, seconds=session.timeout, streams=streams
        )

    async def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""
        _check_key(key, storage_id)
        session = self._session
        stream = stream_of_key(self.known.manifest, key)
        request = Get(self.name, key, storage_id)
        reply = await session.pool.ask_leader(request, self.name, stream, seconds=session.timeout)
        records = records_in(slices_of(reply))
        return records[0] if records else None

    async def find_end(
        self,
        glsn_begin: int,
        *,
        records_max: int = 0,
        bytes_max: int = 0,
        wait: float = 0.0,
        reader: str = "",
    ) -> Position:
        """Where to end a read from ``glsn_begin``: at a cut, within the bounds (0: none).

        ``wait``: for how many seconds, if there is nothing there yet.  ``reader``: under which
        name the figures of the log show how far the caller has come.
        """
        _check_glsn(glsn_begin)
        check_reader_name(reader)
        if records_max < 0 or bytes_max < 0 or not wait >= 0:
            raise BadOption("records_max, bytes_max and wait must not be negative; 0 means none")
        request = FindEnd(self.name, glsn_begin, records_max, bytes_max, int(wait * 1000), reader)
        return await self._session.ask(
            request, Position, seconds=self._session.timeout + wait, waits=wait > 0
        )

    async def find_time(self, timestamp_us: int) -> Position:
        """The first position from which on no entry is older than ``timestamp_us``."""
        if not -_TIMESTAMP_END <= timestamp_us < _TIMESTAMP_END:
            raise BadOption(f"a timestamp has 64 bits, not {timestamp_us}")
        return await self._session.ask(FindTime(self.name, timestamp_us), Position)

    async def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""
        return await self._session.ask(GetPosition(self.name, name), NamedPosition)

    async def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name; see ``Topic.store_position``."""
        _check_glsn(glsn)
        if expected < 0:
            raise BadOption(f"revisions start at 0, not at {expected}")
        request = SetPosition(self.name, name, glsn, expected)
        session = self._session
        deadline = session.loop.time() + session.timeout
        try:
            return await session.ask(request, NamedPosition, repeat=False)
        except (ConnectionLost, LeaderLost) as error:
            lost = error
        # Whether it is stored by now is not known.  If it is, then this call did it as far as
        # anybody can tell: whoever stored the same on the same revision wanted the same.
        try:
            return await session.ask(
                request,
                NamedPosition,
                seconds=session.left(deadline),
                doubt=lost,
                telling=(RevisionConflict,),
            )
        except RevisionConflict as conflict:
            look = GetPosition(self.name, name)
            try:
                found = await session.ask(look, NamedPosition, seconds=session.left(deadline))
            except LogError as error:
                raise in_doubt(lost, error) from error
            wanted = NamedPosition(glsn, expected + 1)
            if found == wanted:
                return found
            if found.revision != wanted.revision:
                # Only the newest revision is known: this call's may lie below it.
                raise in_doubt(lost, conflict) from conflict
            raise  # Somebody else's is where this call's would be.

    # -- BLOBs --------------------------------------------------------------------------------

    def _topic_blobs(self) -> AsyncTopicBlobs:
        return AsyncTopicBlobs(self, self.companion)

    async def companion(self, name: str, streams: int) -> AsyncRemoteTopic:
        """A topic that goes with this one; with ``streams`` it is made if it is missing."""
        session = self._session
        if streams:
            described = await create_companion(session, name, streams, self._described)
        else:
            described = await session.describe(name)
        return AsyncRemoteTopic(session, described)

    # -- keeping it small ---------------------------------------------------------------------

    async def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""
        _check_glsn(before_glsn)
        request = Trim(self.name, before_glsn)
        return (await self._session.ask(request, Number, seconds=timeout)).number

    async def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        """Of each key, keep only the newest write at or below ``version`` and all above it."""
        if not 0 <= version < WRITE_VERSION_END:
            raise BadOption(f"a write version has 128 bits, not {version}")
        request = SetGcBoundary(self.name, version.to_bytes(16, "big"))
        await self._session.ask(request, Done, seconds=timeout)

    async def snapshot(self) -> None:
        """Compute anew what is live, and delete segments that hold nothing live."""
        await self._session.ask(TakeSnapshot(self.name), Done, seconds=MAINTENANCE_SECONDS)

    async def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; ``full``: all that has a dead entry."""
        request = Compact(self.name, full)
        answer = await self._session.ask(request, Figures, seconds=MAINTENANCE_SECONDS)
        return msgspec.json.decode(answer.json, type=CompactionResult)

    async def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        """Compact a log stream by a plan that others made; see ``Topic.offer_plan``."""
        answer = await self._session.ask(
            OfferPlan(self.name, full), Figures, attachments=(plan,), seconds=MAINTENANCE_SECONDS
        )
        return msgspec.json.decode(answer.json, type=tuple[PlanOutcome, ...])

    async def rewrite(self, *, entries_max: int = 4096) -> int:
        """Copy the oldest live keyed entries to the head of the log; returns how many."""
        if entries_max < 0:
            raise BadOption(f"entries_max is {entries_max}, but must not be negative")
        request = Rewrite(self.name, entries_max)
        return (await self._session.ask(request, Number, seconds=MAINTENANCE_SECONDS)).number

    async def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""
        _check_key(key, storage_id)
        return list((await self._session.ask(Explain(self.name, key, storage_id), Lines)).lines)

    async def stats(self) -> TopicStats:
        answer = await self._session.ask(TopicFigures(self.name), Figures)
        return msgspec.json.decode(answer.json, type=TopicStats)


def _check_glsn(glsn: int | None) -> None:
    if glsn is not None and glsn < 1:
        raise OutOfRange(f"GLSNs start at 1, not {glsn}")


def _check_key(key: bytes, storage_id: int) -> None:
    if not key:
        raise BadEntry("a key has at least one byte")
    if not 0 <= storage_id < STORAGE_ID_END:
        raise BadEntry(f"the storage id {storage_id} is out of range: use 0 to 2**64 - 1")
