"""A handle for one topic of an embedded log: append, stage and publish, trim, compact.

Numbers that go into the log are looked at here (``index``): what is none would be found out only
inside a commit, and tear that away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import index
from typing import Unpack

from tidelog.embedded.appender import Appender
from tidelog.embedded.engine import Engine
from tidelog.embedded.named_positions import store_position
from tidelog.embedded.readable_topic import ReadableTopic
from tidelog.embedded.requests import AppendRequest, BoundaryRequest, TrimRequest
from tidelog.embedded.rewrite import rewrite_oldest
from tidelog.errors import BadOption, OutOfRange, TopicExists
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append, AppendOptions, Appends, Part
from tidelog.interface.blobs.calls import BlobCalls, TopicBlobs
from tidelog.interface.figures import CompactionResult, PlanOutcome
from tidelog.interface.positions import NamedPosition, Published
from tidelog.interface.records import Receipt
from tidelog.limits import MIB, WRITE_VERSION_END
from tidelog.storage.plan_check import read_plan


class Topic(ReadableTopic, BlobCalls):
    """All calls are thread-safe.  An append returns when it is durable and ordered."""

    def __init__(self, engine: Engine, name: str) -> None:
        super().__init__(engine, name)
        self._appends = Appends(lambda: self._manifest)

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

    # -- named positions ----------------------------------------------------------------------

    def store_position(self, name: str, glsn: int, *, expected: int) -> NamedPosition:
        """Store a position under a name, for whoever goes on reading there.

        ``expected`` is the revision that ``position_of`` or the last store told; if somebody
        stored another one since, RevisionConflict.
        """
        glsn, expected = index(glsn), index(expected)
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
        numbers = [index(stage) for stage in stages]
        return self._engine.staging.publish(self._manifest, writer, index(batch), numbers)

    def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""
        self._engine.staging.discard([index(stage) for stage in stages])

    # -- BLOBs --------------------------------------------------------------------------------

    def _topic_blobs(self) -> TopicBlobs:
        return TopicBlobs(self, partial(companion, self._engine))

    # -- keeping it small ---------------------------------------------------------------------

    def trim(self, before_glsn: int, *, timeout: float | None = None) -> int:
        """Forget everything below ``before_glsn``; returns the first available GLSN."""
        before_glsn = index(before_glsn)
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
        version = index(version)
        if not 0 <= version < WRITE_VERSION_END:
            raise BadOption(f"a write version has 128 bits, not {version}")
        with self._engine.staging.settled():
            self._engine.settle(BoundaryRequest(self.topic_id, version), timeout)

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


def companion(engine: Engine, name: str, streams: int) -> Topic:
    """A topic that goes with another one; with ``streams`` it is made if it is missing."""
    if streams:
        try:
            engine.create_topic(name, streams=streams, versions="log")
        except TopicExists:
            pass
    return Topic(engine, name)
