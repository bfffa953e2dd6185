"""A handle for one topic of an embedded log: append, read, look up, trim, compact."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Unpack

from tidelog.embedded.appender import Appender
from tidelog.embedded.engine import Engine
from tidelog.embedded.explain import explain_key
from tidelog.embedded.named_positions import position_of, store_position
from tidelog.embedded.pages import read_pages
from tidelog.embedded.positions import find_end, find_time, position
from tidelog.embedded.reader import read_one, read_range, read_some
from tidelog.embedded.requests import AppendRequest, BoundaryRequest, TrimRequest
from tidelog.embedded.rewrite import rewrite_oldest
from tidelog.embedded.stats import topic_stats
from tidelog.errors import BadEntry, BadOption, LogClosed, OutOfRange, TopicExists
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.appends import Append, AppendOptions, Appends, Part
from tidelog.interface.blobs.calls import BlobCalls, TopicBlobs
from tidelog.interface.figures import CompactionResult, PlanOutcome, TopicStats
from tidelog.interface.positions import NamedPosition, Position, Published
from tidelog.interface.records import Receipt, Record
from tidelog.interface.routing import chosen_stream, stream_of_key
from tidelog.limits import MIB, WRITE_VERSION_END
from tidelog.storage.plan_check import read_plan

if TYPE_CHECKING:
    import pyarrow as pa


class Topic(BlobCalls):
    """All calls are thread-safe.  An append returns when it is durable and ordered."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.topic_id = engine.find_topic(name).topic
        self._appends = Appends(lambda: self._manifest)

    @property
    def name(self) -> str:
        return self._manifest.name

    @property
    def versions(self) -> str:
        """``"log"``: GLSNs are the write versions of keys; ``"explicit"``: writers give them."""
        return self._manifest.versions

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""
        return self._manifest.key_streams

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the topic's log streams."""
        return self._manifest.streams

    @property
    def _manifest(self) -> TopicManifest:
        return self._engine.node.topics[self.topic_id]

    @property
    def high_watermark(self) -> int:
        """The last GLSN that was issued; 0 before the first append."""
        return self._engine.high_watermark(self.topic_id)

    @property
    def first_available(self) -> int:
        """The first GLSN that was not trimmed."""
        return self._engine.first_available(self._manifest)

    # -- appending ----------------------------------------------------------------------------

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append one entry, which stays until it is trimmed; a ``key`` only picks the stream."""
        append = self._appends.append(value, key, stream, options, blobs)
        return self._commit(append, options)[0]

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append entries without keys; they get neighbouring GLSNs, all or none."""
        return self._commit(self._appends.append_batch(values, stream, options), options)[0]

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
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return self._commit(self._appends.write([entry], options), options)[0]

    def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Set many keys at once, all or none; one receipt for each log stream they went to."""
        return self._commit(self._appends.put_batch(items, storage_id, options), options)

    def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Delete a key.  The entry stays until compaction has removed all that is older."""
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return self._commit(self._appends.write([entry], options), options)[0]

    def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Delete all keys of a storage that are older than this; one entry in each log stream."""
        append = self._appends.delete_storage(storage_id, write_version, options)
        return self._commit(append, options)

    def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        """Append entries of any kinds that have keys, all or none."""
        return self._commit(self._appends.write(entries, options), options)

    def appender(self, *, bytes_max: int = 8 * MIB) -> Appender:
        """Append many entries without waiting for each: see ``AppenderHandle``."""
        return Appender(self._engine, self._appends, bytes_max)

    def _commit(self, append: Append, options: AppendOptions) -> tuple[Receipt, ...]:
        request = AppendRequest(append)
        self._engine.submit(request, options.get("timeout"))
        return request.receipts

    # -- reading ------------------------------------------------------------------------------

    def read(
        self, from_glsn: int | None = None, to_glsn: int | None = None, *, limit: int | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` up to, not including, ``to_glsn``, in total order.

        The defaults are the first available record and the end of the topic as it is now.
        """
        begin, end = self._range(from_glsn, to_glsn)
        if limit is not None and limit < 0:
            raise BadOption(f"limit is {limit}, but must not be negative")
        found = read_range(self._engine, self._manifest, begin, end)
        return found if limit is None else islice(found, limit)

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
        begin, end = self._range(from_glsn, to_glsn)
        pages = read_pages(self._engine, self._manifest, begin, end, streams)
        return record_batches(pages, columns)

    def _range(self, from_glsn: int | None, to_glsn: int | None) -> tuple[int, int]:
        begin = self.first_available if from_glsn is None else from_glsn
        end = self.high_watermark + 1 if to_glsn is None else to_glsn
        if begin < 1:
            raise OutOfRange(f"GLSNs start at 1, not {begin}")
        return begin, end

    def subscribe(
        self, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """Records from ``from_glsn`` (default: what comes next) on, waiting for new ones.

        Ends when nothing new came for ``timeout`` seconds, or when the log is closed.
        """
        return self._follow(from_glsn, timeout, None)

    def subscribe_to(
        self, stream: int, from_glsn: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        """The records of one log stream from ``from_glsn`` (default: what comes next) on.

        Like ``subscribe``; ``timeout`` is for records of this log stream.
        """
        return self._follow(from_glsn, timeout, stream)

    def _follow(
        self, from_glsn: int | None, timeout: float | None, stream: int | None
    ) -> Generator[Record, None, None]:
        if stream is not None:
            chosen_stream(self._manifest, stream, b"")
        position = self.high_watermark + 1 if from_glsn is None else from_glsn
        if position < 1:
            raise OutOfRange(f"GLSNs start at 1, not {position}")
        since = monotonic()
        while True:
            end = self.high_watermark + 1
            if position < end:
                try:
                    for record in read_some(self._engine, self._manifest, position, end, stream):
                        yield record
                        since = monotonic()
                except LogClosed:
                    return
                position = end
                continue
            left = None if timeout is None else max(since + timeout - monotonic(), 0.0)
            if not self._engine.wait_beyond(self.topic_id, position, left):
                return
            if self._engine.closed:
                return

    def get(self, key: bytes, *, storage_id: int = 0) -> Record | None:
        """The newest record of a key; None if there is none or it was deleted."""
        if not key:
            raise BadEntry("a key has at least one byte")
        self._engine.check_open()
        node = self._engine.node
        store = node.streams[stream_of_key(self._manifest, key)]
        hashed = hash_key(storage_id, key, node.manifest.hash_seed)
        deadline = monotonic() + self._engine.options.append_timeout_seconds
        while True:
            found = store.find_key(storage_id, key, hashed)
            if found is None or found.kind is not Kind.PUT:
                return None
            record = read_one(store, found.llsn)
            # Compaction may have moved on between the two looks; then there is a newer write.
            if record is not None or monotonic() > deadline:
                return record

    # -- places -------------------------------------------------------------------------------

    def position(self) -> Position:
        """The GLSN that comes next, with the first and the last one that there are."""
        return position(self._engine, self._manifest)

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

        Waits up to ``wait`` seconds if there is nothing to read yet.  A cut that is larger than
        the bounds is not split; only far back, where cuts are no longer known, is one.
        ``reader``: under which name the figures of the log show how far the caller has come.
        """
        if wait > 0:
            self._engine.wait_beyond(self.topic_id, glsn_begin, wait)
        found = find_end(
            self._engine, self._manifest, glsn_begin, records_max=records_max, bytes_max=bytes_max
        )
        self._engine.audience.note(self.name, reader, glsn_begin)
        return found

    def find_time(self, timestamp_us: int) -> Position:
        """The first place from which on no entry is older than ``timestamp_us``."""
        return find_time(self._engine, self._manifest, timestamp_us)

    def position_of(self, name: str) -> NamedPosition:
        """The position that was stored under a name; its revision is 0 if there is none."""
        return position_of(self._engine, self._manifest, name)

    def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name, for whoever goes on reading there.

        ``expected`` is the revision that ``position_of`` or the last store told; if somebody
        stored another one since, RevisionConflict.
        """
        if glsn < 1:
            raise OutOfRange(f"GLSNs start at 1, not {glsn}")
        if expected < 0:
            raise BadOption(f"revisions start at 0, not at {expected}")
        return store_position(self._engine, self._manifest, name, glsn, expected)

    # -- exactly once -------------------------------------------------------------------------

    def stage(self, parts: Sequence[Part]) -> int:
        """Keep parts of an append until they are published; returns the number of the stage."""
        return self._engine.staging.stage(self._manifest, parts)

    def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        """Append what was staged, once for each ``writer`` and ``batch``, in the order given.

        A writer's batch numbers ascend: one at or below its last one counts as done.
        """
        return self._engine.staging.publish(self._manifest, writer, batch, stages)

    def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""
        self._engine.staging.discard(stages)

    # -- BLOBs --------------------------------------------------------------------------------

    def _topic_blobs(self) -> TopicBlobs:
        return TopicBlobs(self, partial(companion, self._engine))

    # -- keeping it small ---------------------------------------------------------------------

    def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""
        if before_glsn < 1:
            raise OutOfRange(f"GLSNs start at 1, not {before_glsn}")
        self._engine.submit(TrimRequest(self.topic_id, before_glsn), timeout)
        for stream in self._manifest.streams:
            self._engine.maintenance.minor(self._engine.node.streams[stream])
        return self.first_available

    def set_gc_boundary(self, version: int, *, timeout: float | None = None) -> None:
        """Of each key, keep only the newest write at or below ``version`` and all above it.

        Later writes must have versions above it.  Only for topics with explicit versions.
        """
        if self._manifest.versions != "explicit":
            raise BadOption(f"topic {self.name!r} has no GC boundary: its versions are GLSNs")
        if not 0 <= version < WRITE_VERSION_END:
            raise BadOption(f"a write version has 128 bits, not {version}")
        with self._engine.staging.settled():
            self._engine.submit(BoundaryRequest(self.topic_id, version), timeout)

    def snapshot(self) -> None:
        """Compute anew what is live, and delete segments that hold nothing live."""
        for stream in self._manifest.streams:
            self._engine.maintenance.snapshot(self._engine.node.streams[stream])

    def compact(self, *, full: bool = False) -> CompactionResult:
        """Snapshot, then rewrite what is mostly dead; ``full``: all that has a dead entry.

        ``full`` also moves what is still in the WAL into segments, live entries only.
        """
        self.snapshot()
        if full:
            self._engine.roll()
            self._engine.maintenance.flush_rolled()
        total = CompactionResult()
        for stream in self._manifest.streams:
            total.add(self._engine.maintenance.major(self._engine.node.streams[stream], full=full))
        return total

    def offer_plan(
        self, plan: bytes | memoryview, *, full: bool = False
    ) -> tuple[PlanOutcome, ...]:
        """Compact a log stream by a plan that others made, as ``encode_plan`` wrote it.

        Every claim of it is checked; one that is not true is refused with ``PlanRefused``.
        """
        self._engine.check_open()
        maintenance = self._engine.maintenance
        found = read_plan(plan, self._manifest.streams)
        store = self._engine.node.streams[found.stream]
        outcome = maintenance.snapshot_by_plan(store, found)
        if full:
            self._engine.roll()
            maintenance.flush_rolled()
        outcome.compaction.add(maintenance.major(store, full=full))
        return (outcome,)

    def rewrite(self, *, entries_max: int = 4096) -> int:
        """Copy the oldest live keyed entries to the head of the log; returns how many.

        Where a few old entries keep many segments alive, this lets compaction drop them.
        """
        return rewrite_oldest(self._engine, self._manifest, entries_max)

    def explain(self, key: bytes, *, storage_id: int = 0) -> list[str]:
        """For every stored write of a key, whether it is kept and why."""
        self._engine.check_open()
        return explain_key(self._engine, self._manifest, key, storage_id)

    def stats(self) -> TopicStats:
        return topic_stats(self._engine, self._manifest)


def companion(engine: Engine, name: str, streams: int) -> Topic:
    """A topic that goes with another one; with ``streams`` it is made if it is missing."""
    if streams:
        try:
            engine.create_topic(name, streams=streams, versions="log")
        except TopicExists:
            pass
    return Topic(engine, name)
