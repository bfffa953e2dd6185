"""The face that every log shows, embedded or served: what to write code against.  No state.

``tidelog.open`` and ``tidelog.connect`` return a ``LogHandle``, their asynchronous twins an
``AsyncLogHandle``; ``LogHandle.topic`` leads to a ``TopicHandle``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from tidelog.formats.entry import Entry
from tidelog.interface.appends import AppendOptions, Part
from tidelog.interface.blobs.figures import BlobCollection, BlobInfo
from tidelog.interface.blobs.reader import BlobReader
from tidelog.interface.blobs.sources import BlobSource
from tidelog.interface.figures import CompactionResult, LogStats, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position, Published
from tidelog.interface.records import Receipt, Receipts, Record

if TYPE_CHECKING:
    import pyarrow as pa


class AppenderHandle(Protocol):
    """Appends entries without waiting for each.

    Calls return futures for the receipts.  They block only while as many bytes are under way as
    the appender may have.  Entries of one thread keep their order within a log stream, batches
    among them.  Leaving the context flushes.
    """

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]: ...

    def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]: ...

    def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""

    def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> Future[Receipt]: ...

    def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class TopicHandle(Protocol):
    """One topic.  All calls are thread-safe; an append returns when it is durable and ordered."""

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
        """The numbers of the topic's log streams."""

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Those that are not sealed; a log in one process seals none."""

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued; 0 before the first append."""

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed."""

    def append(
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

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append entries without keys; they get neighbouring GLSNs, all or none."""

    def put(
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

    def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Set many keys at once, all or none; one receipt for each log stream they went to."""

    def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Delete a key.  The entry stays until compaction has removed all that is older."""

    def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Delete all keys of a storage that are older than this; one entry in each log stream."""

    def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        """Append entries of any kinds that have keys, all or none."""

    def appender(self, *, bytes_max: int = ...) -> AppenderHandle:
        """Append many entries without waiting for each."""

    def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` up to, not including, ``to_glsn``, in total order."""

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The entries of a range as Arrow record batches, in total order."""

    def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` (default: what comes next) on, waiting for new ones."""

    def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """The records of one log stream from ``from_glsn`` on, waiting for new ones."""

    def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""

    def put_blob(self, source: BlobSource, *, progress: Callable[[int], None] | None = None) -> int:
        """Store the bytes of a source as a BLOB of the topic; returns its id for ``blobs=``."""

    def open_blob(self, blob: int) -> BlobReader:
        """A file to read a BLOB of the topic; UnknownBlob if there is none of that id."""

    def blob_size(self, blob: int) -> int:
        """How many bytes a BLOB of the topic has."""

    def delete_blob(self, blob: int) -> None:
        """Delete a BLOB, whatever refers to it."""

    def list_blobs(self) -> Iterator[BlobInfo]:
        """The BLOBs of the topic, with uploads and deletions that are not at their end."""

    def collect_blobs(
        self,
        older_than: float = 86400.0,
        *,
        progress: Callable[[BlobCollection], None] | None = None,
    ) -> BlobCollection:
        """Delete BLOBs to which no entry of the topic refers, and uploads that broke off.

        Those that were put in the last ``older_than`` seconds are left alone.
        """

    def position(self) -> Position:
        """Where the topic ends now: the GLSN that comes next, with the first and the last one."""

    def find_end(
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

    def find_time(self, timestamp_us: int) -> Position:
        """The first position from which on no entry is older than ``timestamp_us``."""

    def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""

    def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name, if ``expected`` is the revision of what is there."""

    def stage(self, parts: Sequence[Part]) -> int:
        """Keep batches until they are published; returns the number to publish them by."""

    def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        """Append what was staged, in this order, once for each writer and batch number."""

    def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""

    def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""

    def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        """Of each key, keep only the newest write at or below ``version`` and all above it."""

    def snapshot(self) -> None:
        """Compute anew what is live, and delete segments that hold nothing live."""

    def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; ``full``: all that has a dead entry."""

    def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        """Compact a log stream by a plan that others made: see ``pipeline.compact_plan``.

        Every replica checks every claim of it; ``PlanRefused`` if none can take it.
        """

    def rewrite(self, *, entries_max: int = 4096) -> int:
        """Copy the oldest live keyed entries to the head of the log; returns how many."""

    def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""

    def stats(self) -> TopicStats: ...


class LogHandle(TopicHandle, Protocol):
    """An open log: a handle for its first topic, and the way to the others."""

    def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> TopicHandle:
        """Create a topic.  ``versions="explicit"``: every keyed write brings its write version.

        ``replicas``: of each log stream, in a cluster; 0: as many as are usual there.
        """

    def add_streams(self, name: str, count: int) -> TopicHandle:
        """Give a topic more log streams; they take entries without keys."""

    def topic(self, name: str) -> TopicHandle:
        """A handle for an existing topic."""

    def topics(self) -> list[str]: ...

    def log_stats(self) -> LogStats:
        """Figures of the whole log."""

    def close(self) -> None:
        """Finish what is under way; closing twice is fine."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
