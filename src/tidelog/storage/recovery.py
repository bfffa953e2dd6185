"""Opens a node's directory: makes a new log, or brings an existing one back to a safe state.

The order of the steps matters:
  1  take the lock and read the manifest;
  2  per stream: finish or undo interrupted compactions, drop temporary files, list segments;
  3  replay the WAL into memtables;
  4  arrange sources (newest wins), load the snapshot, rebuild its live indexes if need be;
  5  judge every stream by the recovery rule; one that lacks something it had ordered is never
     opened as if nothing had happened;
  6  delete what nothing refers to.
Doing it twice changes nothing the second time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.producers import ProducerTable
from tidelog.core.replica.recover import Facts, recover
from tidelog.errors import CorruptData, NotALog
from tidelog.formats.batch import decode_batch
from tidelog.formats.manifest import Manifest, StreamManifest, decode_manifest
from tidelog.formats.wal import DecodedRecord, Frame, RecordType
from tidelog.formats.wal_payloads import (
    decode_boundary,
    decode_cut,
    decode_staged_batch,
    decode_trim,
    decode_truncate,
)
from tidelog.limits import MANIFEST_BYTES_MAX
from tidelog.storage.atomic_file import read_file, remove_temporaries
from tidelog.storage.compaction import segment_facts, settled_index
from tidelog.storage.compaction_files import recover_groups, remove_symlinks
from tidelog.storage.completeness import first_missing, missing_in_memory
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_creation import create_log
from tidelog.storage.log_directory import check_way, parent_of, take_lock
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import MANIFEST_NAME, WAL_DIRECTORY, NodeStore, context_of
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.replica_apply import Applier
from tidelog.storage.replica_part import ReplicaPart
from tidelog.storage.replica_snapshot import install_filled
from tidelog.storage.segments import Segment, StreamView, segment_name, segment_numbers
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.vfs import FileKind, Lock, Vfs
from tidelog.storage.wal import Wal, wal_numbers, wal_path
from tidelog.storage.wal_recovery import replay_wal


@dataclass(frozen=True, slots=True)
class StoreOptions:
    wal_file_bytes: int
    create: bool = True
    log_id: bytes | None = None
    """What a log that is made now calls itself; by default something that no other log does."""
    replicas: bool = False
    """Whether it may hold replicas of a cluster: only a storage node knows how to write those."""


def open_node_store(vfs: Vfs, path: str, options: StoreOptions) -> NodeStore:
    """Open the log at ``path``, or make a new one there if ``options`` allow it."""
    disk = FailStopVfs(vfs)
    check_way(disk, path)
    found = disk.stat(path)
    if found is not None and found.kind is FileKind.FILE:
        raise NotALog(f"{path} is a file: give the directory of a log, or a new one")
    if found is None:
        if not options.create:
            raise NotALog(f"{path} does not exist")
        parent = parent_of(path)
        if disk.stat(parent) is None:
            raise NotALog(f"there is no directory {parent} to make the log in: create it first")
        disk.make_dir(path)
    if MANIFEST_NAME not in disk.list_dir(path) and not options.create:
        raise NotALog(f"{path} holds no log: it has no manifest")
    lock = take_lock(disk, path)
    try:
        data = read_file(disk, f"{path}/{MANIFEST_NAME}", MANIFEST_BYTES_MAX)
        if data is None:
            return create_log(
                disk, path, lock, wal_file_bytes=options.wal_file_bytes, log_id=options.log_id
            )
        manifest = decode_manifest(data)
        if any(stream.replica for stream in manifest.streams) and not options.replicas:
            raise NotALog(
                f"{path} holds replicas of a cluster: start its node with `tidelog node start`, "
                "and connect to that"
            )
        return _Opening(disk, path, options, lock, manifest).run()
    except BaseException:
        lock.release()
        raise


class _Opening:
    """One start of an existing log."""

    def __init__(
        self, disk: FailStopVfs, path: str, options: StoreOptions, lock: Lock, manifest: Manifest
    ) -> None:
        wal_directory = f"{path}/{WAL_DIRECTORY}"
        self._disk = disk
        self._wal_directory = wal_directory
        wal = Wal(disk, wal_directory, log_id=manifest.log_id, file_bytes=options.wal_file_bytes)
        self._node = NodeStore(disk, path, manifest, wal, OpenSegments(disk), lock)
        self._applier = Applier(self._node, self._load_files, is_replay=True)
        self._wal_file = 0
        self._known_ends = {
            stream.stream: stream.state.context.llsn_end for stream in manifest.streams
        }
        """Where the ordered part of each stream ended when the manifest was written."""
        self._sparse: set[int] = set()
        """Streams whose entries in the WAL do not follow one another without holes."""

    def run(self) -> NodeStore:
        node, manifest = self._node, self._node.manifest
        try:
            # The manifest's name may not be durable yet, and files go by what it says.
            self._disk.sync_dir(node.path)
            remove_temporaries(self._disk, node.path)
            remove_temporaries(self._disk, self._wal_directory)
            node.topics = {topic.topic: topic for topic in manifest.topics}
            for stream in manifest.streams:
                self._load_stream(stream)
            self._replay_wal(manifest)
            for stream in manifest.streams:
                self._settle(node.streams[stream.stream])
        except BaseException:
            node.wal.close()
            node.opened.close()
            raise
        return node

    def _load_stream(self, manifest: StreamManifest) -> None:
        topic = self._node.topics.get(manifest.topic)
        if topic is None:
            raise CorruptData(f"stream {manifest.stream} is of unknown topic {manifest.topic}")
        store = self._node.make_stream(manifest, topic)
        state = manifest.state
        store.context = state.context
        store.trim_llsn_end, store.trim_glsn_end = state.trim_llsn_end, state.trim_glsn_end
        store.boundary = state.boundary
        store.producers = ProducerTable.thaw(state.producers)
        store.limits = manifest.limits
        store.end_llsn = store.stored_end = manifest.stored_end
        store.next_segment = manifest.next_segment
        self._node.streams[manifest.stream] = store
        self._load_files(store)
        store.note_base(self._node.manifest.wal_file)

    def _load_files(self, store: StreamStore) -> None:
        """Bring in the segments; of a replica with damaged files only that it is damaged."""
        try:
            self._load_segments(store)
        except CorruptData as error:
            if store.replica is None:
                raise
            store.replica.damage = str(error)

    def _load_segments(self, store: StreamStore) -> None:
        directory = store.place.directory
        recover_groups(self._disk, directory)
        remove_temporaries(self._disk, directory)
        remove_symlinks(self._disk, directory)
        segments = [self._load_segment(store, n) for n in segment_numbers(self._disk, directory)]
        following = max((segment.number + 1 for segment in segments), default=1)
        store.next_segment = max(store.next_segment, following)
        store.view = StreamView(tuple(segments))

    def _load_segment(self, store: StreamStore, number: int) -> Segment:
        path = f"{store.place.directory}/{segment_name(number)}"
        with self._node.opened.lease(path) as reader:
            if reader.header.log_id != store.place.log_id or reader.stream != store.stream:
                raise CorruptData(f"{path} belongs to another log or stream")
            if reader.number != number:
                raise CorruptData(f"{path} says that it is segment {reader.number}")
            return Segment.of(store.place.directory, reader.footer, reader.size_bytes)

    # -- WAL ---------------------------------------------------------------------------------

    def _replay_wal(self, manifest: Manifest) -> None:
        tail = replay_wal(
            self._disk,
            self._wal_directory,
            log_id=manifest.log_id,
            first_file=manifest.wal_file,
            durable_sequence=manifest.wal_sequence,
            replay=self._replay_frame,
        )
        self._node.wal.resume(
            number=tail.number,
            salt=tail.salt,
            frame_offset=tail.frame_offset,
            offset=tail.offset,
            sequence=tail.next_sequence,
        )
        for number in wal_numbers(self._disk, self._wal_directory):
            if number < manifest.wal_file:
                self._disk.unlink(wal_path(self._wal_directory, number))

    def _replay_frame(self, wal_file: int, frame: Frame) -> None:
        if wal_file > self._wal_file:
            self._wal_file = wal_file
            self._applier.note_bases(wal_file)
        for record in frame.records:
            if record.type is RecordType.CUT:
                cut = decode_cut(record.payload)
                for commit in cut.commits:
                    self._replay_commit(self._stream(commit.stream), context_of(cut, commit))
                continue
            store = self._stream(record.stream)
            if store.replica is not None:
                self._applier.replay(record, wal_file)
                continue
            match record.type:
                case RecordType.BATCH:
                    self._replay_batch(store, record, record.payload, wal_file)
                case RecordType.STAGED:
                    self._replay_staged(store, record, wal_file)
                case RecordType.TRIM:
                    trim = decode_trim(record.payload)
                    store.apply_trim(trim.llsn_end, trim.glsn_end)
                case RecordType.TRUNCATE:
                    truncate = decode_truncate(record.payload)
                    store.replay_truncate(truncate.llsn_end, truncate.term, wal_file)
                case RecordType.BOUNDARY:
                    store.apply_boundary(decode_boundary(record.payload))
                case _:
                    raise CorruptData(f"{record.type.name} of stream {store.stream}, no replica")

    def _stream(self, stream: int) -> StreamStore:
        store = self._node.streams.get(stream)
        if store is None:
            raise CorruptData(f"the WAL names stream {stream}, the manifest does not")
        return store

    def _replay_staged(self, store: StreamStore, record: DecodedRecord, wal_file: int) -> None:
        """A batch of which the WAL has the header alone."""
        found = decode_staged_batch(record.payload)
        place, size = found.place, found.body_bytes
        data = found.header + self._node.stages.read(place.file, place.offset, size)
        self._replay_batch(store, record, memoryview(data), wal_file)
        self._node.stages.refer(place.file, wal_file, size)

    def _replay_batch(
        self, store: StreamStore, record: DecodedRecord, data: memoryview, wal_file: int
    ) -> None:
        batch = decode_batch(data)
        if batch.stream != store.stream:
            raise CorruptData(f"a batch of stream {batch.stream} in a record of {store.stream}")
        if not batch.dense or batch.first_llsn != store.end_llsn:
            self._sparse.add(store.stream)
        stored = StoredBatch(batch.first_llsn, batch.end_llsn, bytes(batch.data))
        store.apply_batch(stored, wal_file, record.previous_llsn)
        # What the manifest knows of producers has every append up to its context, and of those
        # that it has forgotten by then nothing must come back.
        is_known = batch.end_llsn <= self._known_ends[store.stream]
        if (
            batch.producer
            and not is_known
            and store.producers.is_new(batch.producer, batch.sequence)
        ):
            store.producers.record(batch.producer, batch.sequence, batch.first_llsn, batch.count)

    def _replay_commit(self, store: StreamStore, context: CommitContext) -> None:
        """The manifest may know a later context already; the GLSN mapping is needed anyway."""
        if context.version > store.context.version:
            store.apply_commit(context)
        else:
            store.map_glsns(context)

    # -- judgement ----------------------------------------------------------------------------

    def _settle(self, store: StreamStore) -> None:
        if store.replica is None:
            self._settle_stream(store)
            return
        try:
            self._settle_replica(store, store.replica)
        except CorruptData as error:
            store.replica.damage = store.replica.damage or str(error)

    def _settle_replica(self, store: StreamStore, replica: ReplicaPart) -> None:
        """One that is not complete will be filled up: nothing has to be there."""
        if replica.damage:
            return
        if replica.is_complete:
            self._sparse.add(store.stream)
            self._settle_stream(store)
            return
        store.rearrange()
        store.snapshot = store.snapshots.load(store.rebuild)[0]
        store.sweep()

    def _settle_stream(self, store: StreamStore) -> None:
        store.rearrange()
        store.snapshot, _, problem = store.snapshots.load(store.rebuild)
        install_filled(store)
        if store.snapshot.index >= store.end_llsn:
            # What a snapshot has seen was durable, so this is no write that was cut short.
            raise CorruptData(
                f"stream {store.stream}: its snapshot is at LLSN {store.snapshot.index}, but its "
                f"entries end before {store.end_llsn}: the WAL lost frames that were durable"
            )
        recovery = recover(
            Facts(
                context=store.context,
                first_llsn=_first_llsn(store.view),
                end_llsn=store.end_llsn,
                missing_llsn=self._missing(store),
                trim_llsn_end=store.trim_llsn_end,
            )
        )
        if not recovery.usable:
            detail = f" ({problem})" if problem else ""
            raise CorruptData(
                f"stream {store.stream}: {recovery.reason}{detail}; "
                f"see what is left with `tidelog verify --data {self._node.path}`"
            )
        _drop_dead_segments(store)
        store.sweep()

    def _missing(self, store: StreamStore) -> int | None:
        """The first LLSN that should be stored and is in no source."""
        missing = first_missing(store)
        if missing is None and store.stream in self._sparse:
            missing = missing_in_memory(store)
        return missing


def _drop_dead_segments(store: StreamStore) -> None:
    """Leave out the segments that hold nothing live.

    A crash may bring one back that compaction had deleted, while the deletes that stand against
    its entries went for good after it: nobody may look at such a segment.
    """
    settled = settled_index(store)
    facts = [fact for fact in segment_facts(store) if fact.end_llsn <= settled + 1]
    dead = {fact.number for fact in facts if fact.live_entries == 0}
    if dead:
        store.replace_segments(dead, ())


def _first_llsn(view: StreamView) -> int | None:
    if view.segments:
        return view.segments[0].first_llsn
    return next((table.first_llsn for table in view.memtables if table.batches), None)
