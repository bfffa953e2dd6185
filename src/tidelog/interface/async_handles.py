"""The face that every log shows to asyncio, embedded or served.  No state.

The names of ``handles``, awaited; what is read comes through asynchronous iterators.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from tidelog.formats.entry import Entry
from tidelog.interface.appends import AppendOptions, Part
from tidelog.interface.blobs.async_reader import AsyncBlobReader
from tidelog.interface.blobs.figures import BlobCollection, BlobInfo
from tidelog.interface.blobs.sources import AsyncBlobSource
from tidelog.interface.figures import CompactionResult, LogStats, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position, Published
from tidelog.interface.records import Receipt, Receipts, Record

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncAppenderHandle(Protocol):
    """Appends entries without waiting for each.

    Awaited calls return futures for the receipts.  They wait only while as many bytes are under way
    as the appender may have.  Entries of one task keep their order within a log stream, batches
    among them.  Leaving the context flushes.
    """

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]: ...

    async def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> asyncio.Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]: ...

    async def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> asyncio.Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""

    async def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> asyncio.Future[Receipt]: ...

    async def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class AsyncTopicHandle(Protocol):
    """One topic, for one event loop.  An append returns when it is durable and ordered."""

    @property
    def name(self) -> str: ...

    @property
    def versions(self) -> str:
        """``"log"``: GLSNs are the write versions of keys; ``"explicit"``: writers give them."""

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the topic's log streams; of a served one, as ``position`` found them."""

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Those that are not sealed; a log in one process seals none."""

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued; of a served topic, when ``position`` asked last."""

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed; of a served topic, when ``position`` asked last."""

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append one entry, which stays until it is trimmed; a ``key`` only picks the stream.

        ``blobs``: ids of BLOBs that belong to it; see ``put_blob``.
        """

    async def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append entries without keys; they get neighbouring GLSNs, all or none."""

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Set a key.  Compaction keeps the newest write of each key."""

    async def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Set many keys at once, all or none; one receipt for each log stream they went to."""

    async def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Delete a key.  The entry stays until compaction has removed all that is older."""

    async def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Delete all keys of a storage that are older than this; one entry in each log stream."""

    async def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        """Append entries of any kinds that have keys, all or none."""

    def appender(self, *, bytes_max: int = ...) -> AsyncAppenderHandle:
        """Append many entries without waiting for each."""

    def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> AsyncIterator[Record]:
        """Records from ``from_glsn`` up to, not including, ``to_glsn``, in total order."""

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> AsyncIterator[pa.RecordBatch]:
        """The entries of a range as Arrow record batches, in total order."""

    def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """Records from ``from_glsn`` (default: what comes next) on, waiting for new ones."""

    def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """The records of one log stream from ``from_glsn`` on, waiting for new ones."""

    async def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""

    async def put_blob(
        self, source: AsyncBlobSource, *, progress: Callable[[int], None] | None = None
    ) -> int:
        """Store the bytes of a source as a BLOB of the topic; returns its id for ``blobs=``."""

    async def open_blob(self, blob: int) -> AsyncBlobReader:
        """A reader of a BLOB of the topic; UnknownBlob if there is none of that id."""

    async def blob_size(self, blob: int) -> int:
        """How many bytes a BLOB of the topic has."""

    async def delete_blob(self, blob: int) -> None:
        """Delete a BLOB, whatever refers to it."""

    def list_blobs(self) -> AsyncIterator[BlobInfo]:
        """The BLOBs of the topic, with uploads and deletions that are not at their end."""

    async def collect_blobs(
        self,
        older_than: float = 86400.0,
        *,
        progress: Callable[[BlobCollection], None] | None = None,
    ) -> BlobCollection:
        """Delete BLOBs to which no entry of the topic refers, and uploads that broke off.

        Those that were put in the last ``older_than`` seconds are left alone.
        """

    async def position(self) -> Position:
        """Where the topic ends now: the GLSN that comes next, with the first and the last one."""

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

        ``reader``: under which name the figures of the log show how far the caller has come.
        """

    async def find_time(self, timestamp_us: int) -> Position:
        """The first position from which on no entry is older than ``timestamp_us``."""

    async def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""

    async def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name, if ``expected`` is the revision of what is there."""

    async def stage(self, parts: Sequence[Part]) -> int:
        """Keep batches until they are published; returns the number to publish them by."""

    async def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        """Append what was staged, in this order, once for each writer and batch number."""

    async def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""

    async def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""

    async def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        """Of each key, keep only the newest write at or below ``version`` and all above it."""

    async def snapshot(self) -> None:
        """Compute anew what is live, and delete segments that hold nothing live."""

    async def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; ``full``: all that has a dead entry."""

    async def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        """Compact a log stream by a plan that others made: see ``pipeline.compact_plan``.

        Every replica checks every claim of it; ``PlanRefused`` if none can take it.
        """

    async def rewrite(self, *, entries_max: int = 4096) -> int:
        """Copy the oldest live keyed entries to the head of the log; returns how many."""

    async def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""

    async def stats(self) -> TopicStats: ...


class AsyncLogHandle(AsyncTopicHandle, Protocol):
    """An open log: a handle for its first topic, and the way to the others."""

    async def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> AsyncTopicHandle:
        """Create a topic.  ``versions="explicit"``: every keyed write brings its write version.

        ``replicas``: of each log stream, in a cluster; 0: as many as are usual there.
        """

    async def add_streams(self, name: str, count: int) -> AsyncTopicHandle:
        """Give a topic more log streams; they take entries without keys."""

    async def topic(self, name: str) -> AsyncTopicHandle:
        """A handle for an existing topic."""

    async def topics(self) -> list[str]: ...

    async def log_stats(self) -> LogStats:
        """Figures of the whole log."""

    async def close(self) -> None:
        """Finish what is under way; closing twice is fine."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
