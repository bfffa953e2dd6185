"""Everything one node stores: the shared WAL, the manifest, and a store for each stream.

One thread at a time calls ``write`` (the committing thread); one thread at a time calls the
methods that swap files (the worker).  They may be two threads.

Directory:
  LOCK                      held while the log is open
  manifest                  what the log is, and the state of its streams
  wal/<number>.wal          frames that are not in segments yet
  streams/<id>/             segments and snapshots of one stream
  streams/<id>.<n>/         the same of a replica that began anew n times
  stages/<number>.stage     large stages, each in a file (``stage_files``)
  blobs/                    BLOBs, if the log is that of a datastore (``blob_store``)

Invariants:
  K1  The manifest says that a WAL file is no longer needed only after its segments are durable.
  K2  A stream's directory is durable before a manifest names the stream.
  K3  A frame is applied to the streams only after it is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.core.replica.commit_context import CommitContext
from tidelog.errors import DiskFull
from tidelog.formats.manifest import (
    Manifest,
    ReplicaManifest,
    StreamManifest,
    TopicManifest,
    encode_manifest,
    fit_producers,
)
from tidelog.formats.wal import Record
from tidelog.limits import WAL_BACKLOG_FILES_MAX
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.frame_write import BatchWrite, FrameWrite, records_of
from tidelog.storage.memtable import Memtable
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.replica_part import ReplicaPart
from tidelog.storage.segment_writer import SegmentPlace
from tidelog.storage.stage_files import StageFiles
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import Lock
from tidelog.storage.wal import Wal

MANIFEST_NAME = "manifest"
WAL_DIRECTORY = "wal"
STREAMS_DIRECTORY = "streams"
_RECORD_BYTES = 128
"""What a batch takes in a frame besides itself: record header, and its part of the cut."""


@dataclass(slots=True)
class NodeStore:
    vfs: FailStopVfs
    path: str
    manifest: Manifest
    wal: Wal
    opened: OpenSegments
    lock_file: Lock
    streams: dict[int, StreamStore] = field(default_factory=dict)
    topics: dict[int, TopicManifest] = field(default_factory=dict)
    half_flushed: bool = False
    """Streams left dead entries out of segments, and the manifest still needs their WAL file."""
    abandoned: list[StreamStore] = field(default_factory=list)
    """Replicas that began anew since: their files can go when nobody reads them any more."""
    applying: threading.RLock = field(default_factory=threading.RLock)
    """Held while a frame is applied: who holds it sees streams between two frames."""
    stages: StageFiles = field(init=False)
    _manifest_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.stages = StageFiles(self.vfs, self.path)

    # -- writing (committing thread) ----------------------------------------------------

    def reserve(self, batches: Sequence[BatchWrite], others: int = 0) -> bool:
        """Make sure that a frame of these and ``others`` small records fits.

        True when the WAL rolled and a flush is due.  DiskFull leaves everything as it was, and
        the caller may try again later.
        """
        size, referred = _RECORD_BYTES * (len(batches) + others + 1), 0
        for write in batches:
            size += len(write.stored.data)
            if write.place is not None:
                referred += write.body_bytes
        return self.reserve_bytes(size - referred, referred)

    def reserve_bytes(self, size: int, referred: int = 0) -> bool:
        """The same for a frame of so many bytes that refers to others elsewhere.

        Memtables hold what a WAL file refers to, so that fills the file as well.
        """
        elsewhere = referred + self.stages.referred_bytes(self.wal.number)
        if self.wal.is_filled(size + elsewhere):
            return False
        rolled = not self.wal.has_room(size + elsewhere)
        if rolled:
            self.wal.roll()
        self.wal.extend(size)
        return rolled

    def write(self, frame: FrameWrite) -> None:
        """Make a frame durable, then apply it to the streams (K3)."""
        ends = {write.stream: self.streams[write.stream].end_llsn for write in frame.batches}
        self.wal.append(records_of(frame, ends))
        with self.applying:
            self.apply(frame)

    def write_records(self, records: Sequence[Record], apply: Callable[[], None]) -> None:
        """The same for records that the caller knows how to apply (K3)."""
        self.wal.append(records)
        with self.applying:
            apply()

    def apply(self, frame: FrameWrite) -> None:
        for write in frame.batches:
            store = self.streams[write.stream]
            store.apply_batch(write.stored, self.wal.number, store.end_llsn - 1)
            if write.place is not None:
                self.stages.refer(write.place.file, self.wal.number, write.body_bytes)
            if write.producer:
                store.producers.record(
                    write.producer, write.sequence, write.stored.first_llsn, write.count
                )
        if frame.cut is not None:
            for commit in frame.cut.commits:
                self.streams[commit.stream].apply_commit(context_of(frame.cut, commit))
        for stream, trim in frame.trims:
            self.streams[stream].apply_trim(trim.llsn_end, trim.glsn_end)
        for stream, truncate in frame.truncates:
            self.streams[stream].apply_truncate(truncate.llsn_end, truncate.term, self.wal.number)
        for stream, version in frame.boundaries:
            self.streams[stream].apply_boundary(version)

    # -- files (worker thread) -----------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Rolled WAL files that are not in segments yet."""
        return self.wal.number - self.manifest.wal_file

    @property
    def backlog_is_full(self) -> bool:
        return self.backlog > WAL_BACKLOG_FILES_MAX

    def can_flush(self) -> bool:
        """Whether there is a rolled WAL file whose entries are all ordered."""
        return self.backlog > 0 and not any(
            table.batches and table.runs.llsn_end < table.end_llsn
            for _, table in self._oldest_memtables()
        )

    def _oldest_memtables(self) -> list[tuple[StreamStore, Memtable]]:
        number = self.manifest.wal_file
        return [
            (store, table)
            for store in list(self.streams.values())
            for table in store.view.memtables
            if table.wal_file == number
        ]

    def flush_oldest(self) -> bool:
        """Move the oldest rolled WAL file into segments; False when there is none to move.

        Entries that are not ordered yet keep their WAL file back.
        """
        number = self.manifest.wal_file
        self.sweep_abandoned()
        if not self.can_flush():
            return False
        self.half_flushed = True
        for store, table in self._oldest_memtables():
            store.flush(table)
        if self._oldest_memtables():
            return False  # Something was truncated meanwhile; what is left comes next time.
        self.save_manifest(wal_file=number + 1)
        for store in list(self.streams.values()):
            store.forget_bases(number + 1)
        self.half_flushed = False
        self.wal.retire_below(number + 1)
        self.stages.retire_below(number + 1)
        return True

    def sweep_abandoned(self) -> None:
        """Delete the files of logs that began anew, as far as nobody reads them."""
        for store in list(self.abandoned):
            if not store.pins.readers:
                self.empty_directory(store.place.directory)
                self.abandoned.remove(store)

    def empty_directory(self, directory: str) -> None:
        """Delete all files in a directory."""
        for name in self.vfs.list_dir(directory):
            path = f"{directory}/{name}"
            self.opened.forget(path)
            self.vfs.unlink(path)

    def save_manifest(self, *, wal_file: int | None = None) -> None:
        """Write down the state of all streams; ``wal_file`` is the first one still needed (K1)."""
        with self._manifest_lock:
            manifest = Manifest(
                log_id=self.manifest.log_id,
                hash_seed=self.manifest.hash_seed,
                topics=tuple(self.topics.values()),
                streams=self._describe(self.streams, wal_file),
                wal_file=self.manifest.wal_file if wal_file is None else wal_file,
                wal_sequence=self.wal.sequence,
                next_topic=max([self.manifest.next_topic, *(topic + 1 for topic in self.topics)]),
                next_stream=self.manifest.next_stream,
            )
            self._write_manifest(manifest)

    def _describe(
        self, streams: dict[int, StreamStore], wal_file: int | None
    ) -> tuple[StreamManifest, ...]:
        """Streams as the manifest names them; ``wal_file`` is given if it was just reached.

        Where their segments end has to fit to the first WAL file that is replayed: while that
        one is being flushed, some streams are ahead of it already.
        """
        first = self.manifest.wal_file if wal_file is None else wal_file
        with self.applying:  # Half of an append must not be taken for all that is known.
            found = tuple([store.manifest(first) for store in streams.values()])
        found = fit_producers(found)
        if wal_file is not None:
            return found
        ends = {known.stream: known.stored_end for known in self.manifest.streams}
        return tuple(
            each if each.replica else replace(each, stored_end=ends.get(each.stream, 1))
            for each in found
        )

    def _write_manifest(self, manifest: Manifest) -> None:
        data = encode_manifest(manifest)
        replace_file(self.vfs, self.path, MANIFEST_NAME, data)
        self.manifest = manifest

    def add_topic(
        self, name: str, *, streams: int, versions: str, key_streams: int | None = None
    ) -> TopicManifest:
        """Create a topic with its streams; durable when this returns.

        Each key has its stream, unless ``key_streams`` is 0: then it may be written in any.
        """
        with self._manifest_lock:
            first = self.manifest.next_stream
            topic = TopicManifest(
                topic=self.manifest.next_topic,
                name=name,
                streams=tuple(range(first, first + streams)),
                key_streams=streams if key_streams is None else key_streams,
                versions=versions,
            )
            self._install_topic(topic, topic.streams)
        return topic

    def add_streams(self, topic_id: int, count: int) -> TopicManifest:
        """Give a topic more streams.  They take entries without keys: keys stay where they are."""
        with self._manifest_lock:
            known = self.topics[topic_id]
            first = self.manifest.next_stream
            added = tuple(range(first, first + count))
            topic = TopicManifest(
                topic=known.topic,
                name=known.name,
                streams=known.streams + added,
                key_streams=known.key_streams,
                versions=known.versions,
            )
            self._install_topic(topic, added)
        return topic

    def _install_topic(self, topic: TopicManifest, added: Sequence[int]) -> None:
        for stream in added:
            self._make_stream_directory(stream)
        made = {
            stream: self.make_stream(StreamManifest(stream=stream, topic=topic.topic), topic)
            for stream in added
        }
        topics = {**self.topics, topic.topic: topic}
        streams = {**self.streams, **made}
        manifest = Manifest(
            log_id=self.manifest.log_id,
            hash_seed=self.manifest.hash_seed,
            topics=tuple(topics.values()),
            streams=self._describe(streams, None),
            wal_file=self.manifest.wal_file,
            wal_sequence=self.wal.sequence,
            next_topic=max(self.manifest.next_topic, topic.topic + 1),
            next_stream=max(self.manifest.next_stream, *(s + 1 for s in topic.streams)),
        )
        self._write_manifest(manifest)
        self.topics, self.streams = topics, streams

    def add_replicas(self, found: Sequence[tuple[int, TopicManifest]]) -> None:
        """Have streams of other nodes' making here, each with its topic; durable on return."""
        with self._manifest_lock:
            for stream, _ in found:
                self._make_stream_directory(stream)
            described = [
                (StreamManifest(stream=stream, topic=topic.topic, replica=ReplicaManifest()), topic)
                for stream, topic in found
            ]
            topics = {**{topic.topic: topic for _, topic in found}, **self.topics}
            made = {each.stream: self.make_stream(each, topic) for each, topic in described}
            for store in made.values():
                store.note_base(self.wal.number)
            streams = {**self.streams, **made}
            manifest = replace(
                self.manifest,
                topics=tuple(topics.values()),
                streams=self._describe(streams, None),
                wal_sequence=self.wal.sequence,
                next_topic=max([self.manifest.next_topic, *(topic + 1 for topic in topics)]),
                next_stream=max([self.manifest.next_stream, *(stream + 1 for stream in streams)]),
            )
            self._write_manifest(manifest)
            self.topics, self.streams = topics, streams

    def _make_stream_directory(self, stream: int, generation: int = 0) -> None:
        parent = f"{self.path}/{STREAMS_DIRECTORY}"
        self.vfs.make_dir(f"{parent}/{stream_directory(stream, generation)}")
        self.vfs.sync_dir(parent)

    def make_generation(self, stream: int, generation: int) -> None:
        """Make the directory in which a replica is to begin anew (K2)."""
        self._make_stream_directory(stream, generation)

    def make_stream(self, manifest: StreamManifest, topic: TopicManifest) -> StreamStore:
        """A store for a stream as its manifest describes it, without its files."""
        replica = manifest.replica
        name = stream_directory(manifest.stream, replica.generation if replica else 0)
        place = SegmentPlace(
            directory=f"{self.path}/{STREAMS_DIRECTORY}/{name}",
            stream=manifest.stream,
            log_id=self.manifest.log_id,
            hash_seed=self.manifest.hash_seed,
        )
        return StreamStore(
            vfs=self.vfs,
            opened=self.opened,
            place=place,
            applying=self.applying,
            topic=manifest.topic,
            term=manifest.term,
            log_versions=topic.versions == "log",
            shared_keys=topic.key_streams == 0 and replica is None,
            replica=ReplicaPart.of(replica) if replica else None,
        )

    def finish(self) -> None:
        """Note how far the WAL is durable, unless a write failed, and close.

        With that the next start can tell a cut WAL from one that simply ends here.
        """
        try:
            if self.vfs.failed is None:
                with suppress(DiskFull):
                    self.save_manifest()
        finally:
            self.close()

    def close(self) -> None:
        """Release files and the lock.  What was written is durable already."""
        self.wal.close()
        self.opened.close()
        self.lock_file.release()


def stream_directory(stream: int, generation: int) -> str:
    """The name of a stream's directory; a replica that begins anew begins in another one."""
    return f"{stream:016d}.{generation}" if generation else f"{stream:016d}"


def context_of(cut: CutDecided, commit: StreamCommit) -> CommitContext:
    """The commit context that a cut gives to one of the streams it names."""
    return CommitContext(
        cut.version, commit.high_watermark, commit.glsn_begin, commit.llsn_begin, commit.length
    )
