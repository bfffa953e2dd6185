"""One node's copy of one log stream: its memtables, segments, snapshot and state.

Two threads change it: the committing thread adds batches and commits to the active memtable,
and the worker thread swaps files (flush, snapshot, compaction).  Readers take the current view
and pin it; a view never changes except that its active memtable grows.

Invariants:
  T1  State (commit context, trim, boundary, producers) only ever reflects durable frames.
  T2  The list of sources changes after the files did, and files go away after the list changed.
  T3  Nothing ordered is truncated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from pyroaring import BitMap64

from tidelog.core.compaction.horizon import DeleteHorizon, deletes_to_note
from tidelog.core.compaction.live import check_dead_stays_dead
from tidelog.core.replica.commit_context import NONE, CommitContext, follow
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import CorruptData
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.manifest import StreamManifest, StreamState, TruncationLimit
from tidelog.formats.snapshot import Snapshot
from tidelog.invariants import check
from tidelog.storage import view_reads
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.liveness import Liveness, MemorySource, compute_liveness
from tidelog.storage.memtable import KeyedWrite, Memtable, StoredBatch
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.replica_part import ReplicaPart
from tidelog.storage.segment_writer import SegmentPlace, flush_memtable
from tidelog.storage.segments import Pins, Segment, StreamView, needed_limits
from tidelog.storage.snapshot_store import SnapshotState, SnapshotStore


@dataclass(slots=True)
class StreamStore:
    vfs: FailStopVfs
    opened: OpenSegments
    place: SegmentPlace
    applying: threading.RLock  # Held while a frame is applied.
    topic: int
    term: int
    log_versions: bool
    """Write versions are GLSNs, so the GC boundary of a snapshot is the GLSN of its index."""
    shared_keys: bool = False
    """Its keys are written in other streams of the topic as well (``shared_keys``)."""
    view: StreamView = field(default_factory=StreamView)
    snapshot: SnapshotState = field(default_factory=SnapshotState)
    context: CommitContext = NONE
    trim_llsn_end: int = 1
    trim_glsn_end: int = 1
    boundary: int = 0
    producers: ProducerTable = field(default_factory=ProducerTable)
    limits: tuple[TruncationLimit, ...] = ()
    next_segment: int = 1
    end_llsn: int = 1
    """LLSN of the next entry to store; at or beyond the ordered end."""
    stored_end: int = 1
    """Where the stream ended before the first WAL file that is not in segments yet."""
    dead_bytes: dict[int, int] = field(default_factory=dict)
    pins: Pins = field(default_factory=Pins)
    replica: ReplicaPart | None = None
    """What is known besides if it is a replica of a storage node."""
    snapshots: SnapshotStore = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.snapshots = SnapshotStore(self.vfs, self.place.directory)

    @property
    def stream(self) -> int:
        return self.place.stream

    @property
    def ordered_end(self) -> int:
        """The first LLSN that has no GLSN yet."""
        return self.context.llsn_end

    # -- applying durable frames (committing thread) ---------------------------------

    def apply_batch(self, stored: StoredBatch, wal_file: int, previous_llsn: int) -> None:
        """Take in a batch that is durable in ``wal_file``."""
        if previous_llsn != self.end_llsn - 1 or stored.first_llsn < self.end_llsn:
            raise CorruptData(
                f"stream {self.stream}: a batch at LLSN {stored.first_llsn} follows "
                f"{previous_llsn}, but the last entry is {self.end_llsn - 1}"
            )
        self.active(wal_file).add(stored)
        self.end_llsn = stored.end_llsn

    def apply_commit(self, context: CommitContext) -> None:
        """Entries got their GLSNs; mapping and context came in one durable frame."""
        self.map_glsns(context)
        self.context = follow(self.context, context)

    def map_glsns(self, context: CommitContext) -> None:
        """Note the GLSNs of a cut in the memtables that hold its entries: mostly the last one."""
        for table in reversed(self.view.memtables):
            if not table.batches:
                continue
            first, wanted = table.first_llsn, context.llsn_begin
            begin = max(wanted, first, table.runs.llsn_end)
            end = min(wanted + context.length, table.end_llsn)
            if begin < end:
                table.runs.append(begin, context.glsn_begin + begin - wanted, end - begin)
            if first <= wanted:
                return

    def apply_trim(self, llsn_end: int, glsn_end: int) -> None:
        self.trim_llsn_end = max(self.trim_llsn_end, llsn_end)
        self.trim_glsn_end = max(self.trim_glsn_end, glsn_end)

    def apply_boundary(self, version: int) -> None:
        self.boundary = max(self.boundary, version)

    def apply_truncate(self, llsn_end: int, term: int, wal_file: int) -> None:
        """Forget the unordered entries from ``llsn_end`` on, as ``wal_file`` says."""
        check(llsn_end >= self.ordered_end, "T3: ordered entries cannot be truncated")
        self.replay_truncate(llsn_end, term, wal_file)

    def replay_truncate(self, llsn_end: int, term: int, wal_file: int) -> None:
        """The same at a start, when the context may know a later order of what came instead."""
        llsn_end = min(self.end_llsn, llsn_end)
        with self.lock:
            if any(segment.file_end_llsn > llsn_end for segment in self.view.segments):
                limit = TruncationLimit(self.next_segment - 1, llsn_end)
                self.limits = (*self.limits, limit)
            self.take_back(llsn_end, wal_file)
            self.producers.truncate(llsn_end)
            self.term = max(self.term, term)

    def take_back(self, llsn_end: int, wal_file: int) -> None:
        """Let the memtables, and the stream, end at ``llsn_end`` from ``wal_file`` on."""
        self.active(wal_file)
        with self.lock:
            tables = [table.ended_at(llsn_end, wal_file) for table in self.view.memtables]
            self._arrange(self.view.segments, tables)
            self.end_llsn = llsn_end

    def active(self, wal_file: int) -> Memtable:
        """The memtable of the current WAL file, made when it is first needed."""
        tables = self.view.memtables
        if tables and tables[-1].wal_file == wal_file:
            return tables[-1]
        table = Memtable(wal_file)
        with self.lock:
            # Read again: the worker may have put a segment in a memtable's place meanwhile.
            self.view = StreamView(self.view.segments, (*self.view.memtables, table))
        return table

    # -- reading -----------------------------------------------------------------------

    def read(self, begin: int, end: int) -> Iterator[BatchSlice]:
        """The entries in ``[begin, end)``, ascending, a batch at a time.

        Every batch from a file was checked against its checksum.  Files stay in place until the
        iterator is done.
        """
        with self.pins.pinned():
            yield from self.read_view(self.view, begin, end)

    def read_view(self, view: StreamView, begin: int, end: int) -> Iterator[BatchSlice]:
        """The same of a view that the caller holds pinned."""
        return view_reads.read_batches(view, self.opened, begin, end)

    def runs_by_glsn(self, glsn_begin: int, glsn_end: int) -> Iterator[tuple[int, int, int]]:
        """(LLSN, GLSN, length) of the ordered ranges in ``[glsn_begin, glsn_end)``, ascending."""
        with self.pins.pinned():
            yield from view_reads.runs_by_glsn(self.view, self.opened, glsn_begin, glsn_end)

    def llsn_at_or_after(self, glsn: int) -> int:
        """The first LLSN whose GLSN is ``glsn`` or higher; the ordered end if there is none."""
        end = self.ordered_end  # Read first: what is ordered from now on lies behind it.
        for llsn, _, _ in self.runs_by_glsn(glsn, 1 << 63):
            return llsn
        return end

    def glsn_of(self, llsn: int) -> int:
        """The GLSN of an ordered entry; 0 if it has none."""
        with self.pins.pinned():
            return view_reads.glsn_of(self.view, self.opened, llsn)

    def glsn_from(self, llsn: int) -> int:
        """The GLSN of the first entry at or behind ``llsn`` that has one; 0 if none has."""
        with self.pins.pinned():
            return view_reads.glsn_from(self.view, self.opened, llsn)

    def find_key(self, storage_id: int, key: bytes, hashed: tuple[int, int]) -> KeyedWrite | None:
        """The greatest write of a key that was neither trimmed nor killed by a storage delete."""
        best, killer = self.find_writes(storage_id, key, hashed)
        if best is None or best.llsn < self.trim_llsn_end:
            return None
        if killer is not None and (best.version, best.llsn) < (killer.version, killer.llsn):
            return None
        return best

    def find_writes(
        self, storage_id: int, key: bytes, hashed: tuple[int, int]
    ) -> tuple[KeyedWrite | None, KeyedWrite | None]:
        """The greatest write of a key, and the greatest delete of its storage."""
        with self.pins.pinned():
            return view_reads.find_writes(self.view, self.opened, storage_id, key, hashed)

    # -- files (worker thread) -----------------------------------------------------------

    def flush(self, table: Memtable) -> Segment | None:
        """Write a frozen memtable as a segment and put that in its place."""
        segment: Segment | None = None
        if table.batches and table.end_llsn > self.trim_llsn_end:
            number, trim, is_awaited = self.next_segment, self.trim_llsn_end, self.pins.awaits()
            segment = flush_memtable(
                self.vfs, self.place, number, table, self.snapshot, trim, is_awaited=is_awaited
            )
        with self.lock:
            if not any(other is table for other in self.view.memtables):
                self._discard(segment)
                return None
            tables = [other for other in self.view.memtables if other is not table]
            added = (segment,) if segment else ()
            self.next_segment += len(added)
            if table.stream_end or table.batches:
                self.stored_end = table.stream_end or table.end_llsn
            self._arrange((*self.view.segments, *added), tables)
        return segment

    def _discard(self, segment: Segment | None) -> None:
        """Entries were truncated while they were being flushed: nobody may ever see that file."""
        if segment is not None:
            self.next_segment += 1
            self.vfs.unlink(segment.path)
            self.vfs.sync_dir(self.place.directory)

    def replace_segments(self, removed: set[int], added: tuple[Segment, ...]) -> None:
        """Swap segments in the list after their files were swapped (T2)."""
        with self.lock:
            gone = [segment for segment in self.view.segments if segment.number in removed]
            for segment in (*gone, *added):
                self.opened.forget(segment.path)
            self.dead_bytes = {
                number: size for number, size in self.dead_bytes.items() if number not in removed
            }
            rest = [segment for segment in self.view.segments if segment.number not in removed]
            self._arrange((*rest, *added), self.view.memtables)
        kept = {segment.path for segment in added}
        self.pins.retire(segment.path for segment in gone if segment.path not in kept)

    def rearrange(self) -> None:
        """Recompute effective ranges after sources were put together one by one."""
        with self.lock:
            self._arrange(self.view.segments, self.view.memtables)

    def _arrange(self, segments: Sequence[Segment], tables: Sequence[Memtable]) -> None:
        self.view, shadowed = StreamView.arrange(segments, tables, self.limits)
        self.pins.retire(segment.path for segment in shadowed)

    def sweep(self) -> int:
        """Delete the files that nothing refers to any more; returns how many."""
        paths = self.pins.releasable()
        for path in paths:
            self.opened.forget(path)
            if self.vfs.stat(path) is not None:
                self.vfs.unlink(path)
        if self.limits and not self.pins.waiting:
            self._forget_limits()
        return len(paths)

    def _forget_limits(self) -> None:
        """Forget truncations that concern no file, once the files that they did are gone."""
        needed = needed_limits(self.limits, self.view.segments)
        if needed != self.limits:
            self.vfs.sync_dir(self.place.directory)
            with self.lock:
                if not self.pins.waiting:
                    self.limits = needed_limits(self.limits, self.view.segments)

    # -- snapshots (worker thread) ---------------------------------------------------------

    def take_snapshot(self) -> SnapshotState:
        """Snapshot everything ordered so far; publishes the new live indexes as one value."""
        check(not self.shared_keys, "streams that share their keys are snapshotted together")
        with self.applying, self.lock:  # A half applied filling would be taken for a whole log.
            state, seen, view = self.state(), self.snapshot, self.view
        # Keys are hashed and sorted while appends go on: whatever they add lies behind the index.
        index = state.context.llsn_end - 1
        memory = MemorySource.of(view.memtables, index, self.place.hash_seed)
        self.publish(state, self._liveness(view.segments, memory, index, state), seen)
        return self.snapshot

    def publish(self, state: StreamState, liveness: Liveness, seen: SnapshotState) -> bool:
        """Make a snapshot of ``state`` durable, then known; False if ``seen`` is not it (N4)."""
        with self.snapshots.publishing:
            if self.snapshot is not seen:
                return False
            snapshot = self._snapshot_of(state, liveness, seen)
            published = self.snapshots.write(snapshot, liveness.live)
            with self.lock:
                self.snapshot = published
                self.dead_bytes = liveness.dead_bytes
        return True

    def _snapshot_of(self, state: StreamState, liveness: Liveness, seen: SnapshotState) -> Snapshot:
        if self.trim_llsn_end > 1 or self.shared_keys:
            # A trimmed write must not bring back the older ones that it had killed; nor an entry
            # that waits to be ordered, which holds the boundary down, those that are dead already.
            liveness.live.difference_update(seen.dead())
        check_dead_stays_dead(seen.live, seen.index, liveness.live)
        trimmed = state.trim_llsn_end > 1
        noted = deletes_to_note(liveness.silent, seen.live, seen.index, trimmed=trimmed)
        return Snapshot(
            term=self.term,
            index=state.context.llsn_end - 1,
            state=state,
            live_count=len(liveness.live),
            deletes=self._noting(seen.deletes, noted),
        )

    def rebuild(self, snapshot: Snapshot) -> tuple[Snapshot, BitMap64]:
        """An existing snapshot and its live indexes, computed from the entries themselves.

        Which deletes were dead before is not known: all that are silent now are noted.
        """
        memory = MemorySource.of(self.view.memtables, snapshot.index, self.place.hash_seed)
        found = self._liveness(self.view.segments, memory, snapshot.index, snapshot.state)
        deletes = self._noting(snapshot.deletes, found.silent)
        return replace(snapshot, live_count=len(found.live), deletes=deletes), found.live

    def _noting(self, deletes: DeleteHorizon, noted: BitMap64) -> DeleteHorizon:
        """The horizon with the deletes at these LLSNs, all of which are still stored (H4)."""
        if not noted:
            return deletes
        return deletes.beyond(self.glsn_of(noted.max()), len(noted))

    def _liveness(
        self,
        segments: tuple[Segment, ...],
        memory: MemorySource,
        index: int,
        state: StreamState,
    ) -> Liveness:
        boundary = self.current_boundary(state)
        return compute_liveness(
            segments,
            self.opened,
            memory,
            index=index,
            boundary=boundary,
            trim_llsn_end=state.trim_llsn_end,
            keep_deletes=self.shared_keys,
        )

    def current_boundary(self, state: StreamState | None = None) -> int:
        """The GC boundary that a snapshot has: of ``state``, or of now."""
        state = state or self.state()
        return state.context.glsn_end - 1 if self.log_versions else state.boundary

    # -- state ------------------------------------------------------------------------------

    def state(self) -> StreamState:
        return StreamState(
            context=self.context,
            trim_llsn_end=self.trim_llsn_end,
            trim_glsn_end=self.trim_glsn_end,
            boundary=self.boundary,
            producers=self.producers.freeze(),
        )

    def manifest(self, wal_file: int) -> StreamManifest:
        """As the manifest describes it if ``wal_file`` is the first that is still needed."""
        with self.lock:
            now = StreamManifest(
                stream=self.stream,
                topic=self.topic,
                term=self.term,
                state=self.state(),
                limits=self.limits,
                next_segment=self.next_segment,
                stored_end=self.stored_end,
            )
            return now if self.replica is None else self._base(self.replica, now, wal_file)

    def _base(self, part: ReplicaPart, now: StreamManifest, wal_file: int) -> StreamManifest:
        now = replace(now, stored_end=self.end_llsn, replica=part.manifest())
        base = part.base_of(wal_file, now)
        if base.replica is None or base.replica.generation != part.generation:
            return base
        return replace(base, limits=self.limits, next_segment=self.next_segment)

    def note_base(self, wal_file: int) -> None:
        """Remember the replica as it is before the first frame of a WAL file."""
        with self.lock:
            if self.replica is not None:
                self.replica.note_base(wal_file, self.manifest(wal_file))

    def forget_bases(self, wal_file: int) -> None:
        """WAL files below this one are not needed any more."""
        with self.lock:
            if self.replica is not None:
                self.replica.forget_bases(wal_file)
