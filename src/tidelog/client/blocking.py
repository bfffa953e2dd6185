"""``tidelog.connect``: a served log for callers that block, with the names of an embedded one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Self

from tidelog.client.blocking_admin import Admin
from tidelog.client.blocking_writing import BlockingWriting
from tidelog.client.log import DEFAULT_TIMEOUT, AsyncRemoteLog, connect_async_log
from tidelog.client.loop_thread import LoopThread
from tidelog.client.pages import PageReader, StreamSlice, records_in, slices_of
from tidelog.client.topic import AsyncRemoteTopic
from tidelog.errors import LogClosed
from tidelog.interface.blobs.calls import BlobCalls, TopicBlobs
from tidelog.interface.figures import CompactionResult, LogStats, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position
from tidelog.interface.records import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.retries import Reconnect
    from tidelog.net.security import ClientSecurity


class RemoteTopic(BlockingWriting, BlobCalls):
    """All calls are thread-safe.  An append returns when it is durable and ordered."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the topic's log streams."""
        self.position()
        return self._topic.streams

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Those that are not sealed."""
        self.position()
        return self._topic.open_streams

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued; 0 before the first append."""
        return self.position().high_watermark

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed."""
        return self.position().first_available

    def position(self) -> Position:
        """Where the topic ends now: the GLSN that comes next, with the first and the last one."""
        return self._thread.run(self._topic.position())

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` up to, not including, ``to_glsn``, in total order.

        The defaults are the first available record and the end of the topic as it is now.
        """
        reader = self._thread.run(self._topic.open_range(from_glsn, to_glsn, limit=limit))
        return islice(self._records(reader), limit)

    def read_pages(
        self,
        from_glsn: int,
        to_glsn: int,
        *,
        streams: Sequence[int] = (),
        bytes_max: int = 0,
        turn: int | None = None,
    ) -> Iterator[list[StreamSlice]]:
        """All entries of ``[from_glsn, to_glsn)`` as slices of batches, with their streams.

        Pages ascend; the slices of a page may overlap in their GLSNs.  On a cluster readers with
        a ``turn`` go to followers first: to different ones if their turns differ.
        """
        return self._pages(self._topic.open_pages(from_glsn, to_glsn, streams, bytes_max, turn))

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        streams: Sequence[int] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The entries of a range as Arrow record batches, in total order.

        ``columns`` picks columns and their order, ``streams`` log streams.
        """
        from tidelog.interface.arrow import arrow_schema, record_batches  # noqa: PLC0415

        arrow_schema(columns)
        opened = self._topic.open_range(from_glsn, to_glsn, streams=streams)
        return record_batches(self._pages(self._thread.run(opened)), columns)

    def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` (default: what comes next) on, waiting for new ones.

        Ends when nothing new came for ``timeout`` seconds, or when the client is closed.  A
        connection that breaks is made again, and the reader goes on where it was.
        """
        return self._follow(from_glsn, timeout, ())

    def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """The records of one log stream from ``from_glsn`` (default: what comes next) on.

        Like ``subscribe``; ``timeout`` is for records of this log stream.
        """
        return self._follow(from_glsn, timeout, (stream,))

    def _follow(
        self, from_glsn: int | None, timeout: float | None, streams: Sequence[int]
    ) -> Generator[Record, None, None]:
        reader = self._thread.run(self._topic.open_end(from_glsn, streams))
        try:
            while (reply := self._thread.run(reader.wait_page(timeout))) is not None:
                yield from records_in(slices_of(reply))
        except LogClosed:
            return
        finally:
            self._leave(reader)

    def _records(self, reader: PageReader) -> Generator[Record, None, None]:
        for page in self._pages(reader):
            yield from records_in(page)

    def _pages(self, reader: PageReader) -> Generator[list[StreamSlice], None, None]:
        # Unpacked here and not in the loop, which has other callers to serve.
        try:
            while (reply := self._thread.run(reader.next_page())) is not None:
                yield slices_of(reply)
        finally:
            self._leave(reader)

    def _leave(self, reader: PageReader) -> None:
        """Never waits: the garbage collector may call this in any thread, the loop's as well."""
        try:
            self._thread.call(reader.close)
        except LogClosed:
            pass  # The loop has ended what it was fetching.

    def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""
        return self._thread.run(self._topic.get(key, storage_id=storage_id))

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

        ``wait``: for how many seconds, if there is nothing there yet.  ``reader``: under which
        name the figures of the log show how far the caller has come.
        """
        return self._thread.run(
            self._topic.find_end(
                glsn_begin,
                records_max=records_max,
                bytes_max=bytes_max,
                wait=wait,
                reader=reader,
            )
        )

    def find_time(self, timestamp_us: int) -> Position:
        """The first position from which on no entry is older than ``timestamp_us``."""
        return self._thread.run(self._topic.find_time(timestamp_us))

    def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""
        return self._thread.run(self._topic.position_of(name))

    def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name, for whoever goes on reading there.

        ``expected`` is the revision that ``position_of`` or the last store told; if somebody
        stored another one since, RevisionConflict.
        """
        return self._thread.run(self._topic.store_position(name, glsn, expected=expected))

    # -- BLOBs --------------------------------------------------------------------------------

    def _topic_blobs(self) -> TopicBlobs:
        return TopicBlobs(self, self._companion)

    def _companion(self, name: str, streams: int) -> RemoteTopic:
        found = self._thread.run(self._topic.companion(name, streams))
        return RemoteTopic(found, self._session, self._thread)

    # -- keeping it small ---------------------------------------------------------------------

    def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""
        return self._thread.run(self._topic.trim(before_glsn, timeout=timeout))

    def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        """Of each key, keep only the newest write at or below ``version`` and all above it.

        Later writes must have versions above it.  Only for topics with explicit versions.
        """
        self._thread.run(self._topic.set_gc_boundary(version, timeout=timeout))

    def snapshot(self) -> None:
        """Compute anew what is live, and delete segments that hold nothing live."""
        self._thread.run(self._topic.snapshot())

    def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; ``full``: all that has a dead entry."""
        return self._thread.run(self._topic.compact(full=full))

    def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        """Compact a log stream by a plan that others made; see ``Topic.offer_plan``."""
        return self._thread.run(self._topic.offer_plan(plan, full=full))

    def rewrite(self, *, entries_max: int = 4096) -> int:
        """Copy the oldest live keyed entries to the head of the log; returns how many."""
        return self._thread.run(self._topic.rewrite(entries_max=entries_max))

    def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""
        return self._thread.run(self._topic.explain(key, storage_id=storage_id))

    def stats(self) -> TopicStats:
        return self._thread.run(self._topic.stats())


class RemoteLog(RemoteTopic):
    """A connected log: a handle for its first topic, and the way to the others.

    Close it, or use it as a context manager.
    """

    def __init__(self, log: AsyncRemoteLog, thread: LoopThread) -> None:
        super().__init__(log, log.session, thread)
        self._log = log

    @property
    def log_id(self) -> bytes:
        """Which log this is; ``connect`` can insist on it."""
        return self._log.log_id

    @property
    def admin(self) -> Admin:
        """What people do to a cluster: nodes, log streams, metadata members, operators."""
        return Admin(self._log.admin, self._thread)

    def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> RemoteTopic:
        """Create a topic.  ``versions="explicit"``: every keyed write brings its write version.

        ``replicas``: of each log stream, in a cluster; 0: as many as are usual there.
        """
        made = self._thread.run(
            self._log.create_topic(name, streams=streams, versions=versions, replicas=replicas)
        )
        return self._handle(made)

    def add_streams(self, name: str, count: int) -> RemoteTopic:
        """Give a topic more log streams; they take entries without keys.

        Not repeated when the connection breaks, for nobody could tell once from twice.
        """
        return self._handle(self._thread.run(self._log.add_streams(name, count)))

    def topic(self, name: str) -> RemoteTopic:
        """A handle for an existing topic."""
        return self._handle(self._thread.run(self._log.topic(name)))

    def topics(self) -> list[str]:
        return self._thread.run(self._log.topics())

    def log_stats(self) -> LogStats:
        """Figures of the whole log."""
        return self._thread.run(self._log.log_stats())

    def close(self) -> None:
        """Let appends under way arrive, and hang up; closing twice is fine."""
        self._thread.close(self._log.close)

    def _handle(self, topic: AsyncRemoteTopic) -> RemoteTopic:
        return RemoteTopic(topic, self._session, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect_log(
    url: str,
    *,
    topic: str | None = None,
    create: bool = False,
    streams: int = 1,
    versions: str = "log",
    replicas: int = 0,
    timeout: float = DEFAULT_TIMEOUT,
    log_id: bytes = b"",
    reconnect: Reconnect | None = None,
    security: ClientSecurity | None = None,
) -> RemoteLog:
    """Connect to a served log: ``tidelog://host:port/topic``, several hosts after one another,
    ``tidelog+tls://host:port/topic`` or ``tidelog+unix:///path/to/socket?topic=name``.

    ``topic`` can be given here instead of in the URL; without either it is the log's first.  With
    ``create`` a missing one is made, with these ``streams``, ``versions`` and ``replicas``.
    ``timeout`` is how many seconds a call takes at most, with all of its tries, unless it says
    otherwise.
    ``log_id``: connect to no other log.  ``security``: CAs, certificate and token; by default
    those that the environment names.
    """
    thread = LoopThread()
    try:
        log = thread.run(
            connect_async_log(
                url,
                topic=topic,
                create=create,
                streams=streams,
                versions=versions,
                replicas=replicas,
                timeout=timeout,
                log_id=log_id,
                reconnect=reconnect,
                security=security,
            )
        )
        return RemoteLog(log, thread)
    except BaseException:
        thread.stop()
        raise
