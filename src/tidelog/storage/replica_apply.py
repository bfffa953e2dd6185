"""Applies what is durable to the replicas of a node: right after a sync, and again at a start.

Both ways come through here, so that a start repeats exactly what happened.  A replica that is being
opened may turn out to be damaged: then only its own state is given up (``ReplicaPart.damage``).

Invariants:
  A1  What is ordered is never truncated
  A2  A log that begins anew leaves the store of its former generation as it is
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.output import HardState
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import CorruptData
from tidelog.formats.batch import decode_batch
from tidelog.formats.manifest import ReplicaManifest, StreamManifest
from tidelog.formats.replica_records import (
    FilledUp,
    Order,
    Reset,
    decode_carry,
    decode_filled,
    decode_hard_state,
    decode_order,
    decode_reset,
    decode_summary,
)
from tidelog.formats.wal import DecodedRecord, RecordType
from tidelog.formats.wal_payloads import Trim, decode_boundary, decode_trim, decode_truncate
from tidelog.invariants import InvariantViolation, check
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_part import ReplicaPart
from tidelog.storage.replica_snapshot import install_filled
from tidelog.storage.stream_store import StreamStore
from tidelog.types import Llsn, Term


@dataclass(slots=True)
class Applier:
    """Changes the streams of ``node``; ``loaded`` brings in what a new generation has on disk."""

    node: NodeStore
    loaded: Callable[[StreamStore], None] = lambda store: None
    is_replay: bool = False
    abandoned: list[StreamStore] = field(default_factory=list)
    """Stores of former generations whose files can go."""

    # --- one change each ---

    def reset(self, stream: int, reset: Reset) -> None:
        """Begin anew (A2)."""
        old = self.node.streams[stream]
        part = part_of(old)
        kept = ReplicaManifest(
            hard_state=None if reset.drop else part.hard_state, generation=reset.generation
        )
        described = StreamManifest(stream=stream, topic=old.topic, replica=kept)
        new = self.node.make_stream(described, self.node.topics[old.topic])
        part_of(new).bases = part.bases
        self.loaded(new)
        self.node.streams = {**self.node.streams, stream: new}
        self.abandoned.append(old)

    def hard_state(self, stream: int, state: HardState) -> None:
        part_of(self.node.streams[stream]).hard_state = state

    def truncate(self, stream: int, llsn_end: int, wal_file: int) -> None:
        """Entries from ``llsn_end`` on go."""
        store = self.node.streams[stream]
        check(llsn_end >= store.ordered_end, "A1: an ordered entry would be truncated")
        store.replay_truncate(llsn_end, store.term, wal_file)
        part_of(store).truncate_terms(llsn_end)

    def carry(self, stream: int, llsn_begin: int, wal_file: int) -> None:
        """Entries from ``llsn_begin`` on come again, in the same frame."""
        store = self.node.streams[stream]
        part_of(store).carried_end = store.end_llsn
        store.take_back(llsn_begin, wal_file)

    def batch(
        self,
        stream: int,
        stored: StoredBatch,
        place: tuple[int, int, int, int],
        previous_llsn: int,
        wal_file: int,
    ) -> None:
        """Add a batch; ``place`` is its term, producer, sequence and count."""
        store = self.node.streams[stream]
        term, producer, sequence, count = place
        part = part_of(store)
        store.apply_batch(stored, wal_file, previous_llsn)
        if part.carried_end:
            # It comes again; the last of them ends where the log ended before.
            part.carried_end = part.carried_end if stored.end_llsn < part.carried_end else 0
            return
        store.term = max(store.term, term)
        part.note_term(Term(term), Llsn(stored.first_llsn))
        if producer and store.producers.is_new(producer, sequence):
            store.producers.record(producer, sequence, stored.first_llsn, count)

    def order(self, stream: int, order: Order) -> None:
        """Entries got their GLSNs, and the stream a context."""
        store = self.node.streams[stream]
        for run in order.runs:
            store.map_glsns(as_context(run))
        if order.context is not None:
            store.context = order.context

    def filled(self, stream: int, filled_up: FilledUp) -> None:
        """Take over what the entries of a synchronisation do not tell."""
        store, filled = self.node.streams[stream], filled_up.filled
        part = part_of(store)
        deletes = store.snapshot.deletes
        if filled_up.state is not None:
            summary = decode_summary(filled_up.state)
            store.apply_boundary(summary.boundary)
            store.apply_trim(store.trim_llsn_end, summary.trim_glsn_end)
            deletes = later_of(deletes, summary.deletes, store.context)
        check(filled.end >= store.end_llsn, "a synchronisation ends before its last entry")
        store.end_llsn = filled.end
        store.producers = ProducerTable.thaw(filled.producers)
        part.terms = filled.terms
        part.filled_index, part.filled_deletes = filled.snapshot_index, deletes
        if not self.is_replay:  # A start does it when all is there.
            install_filled(store)

    def trim(self, stream: int, trim: Trim) -> None:
        """Entries before an LLSN go."""
        store = self.node.streams[stream]
        store.apply_trim(trim.llsn_end, trim.glsn_end)
        store.end_llsn = max(store.end_llsn, trim.llsn_end)
        part_of(store).trim_terms(trim.llsn_end)

    def boundary(self, stream: int, version: int) -> None:
        self.node.streams[stream].apply_boundary(version)

    # --- bases ---

    def note_bases(self, wal_file: int) -> None:
        """Before the first frame of a WAL file: remember all replicas as they are."""
        for store in self.node.streams.values():
            if store.replica is not None:
                store.note_base(wal_file)

    # --- a record of the WAL ---

    def replay(self, record: DecodedRecord, wal_file: int) -> None:
        """Repeat what a record says; what cannot be repeated damages its stream alone."""
        part = part_of(self.node.streams[record.stream])
        if part.is_lost and record.type not in (RecordType.HARD_STATE, RecordType.RESET):
            return
        try:
            self._replay(record, wal_file)
        except CorruptData as error:
            part.damage, part.is_lost = part.damage or str(error), True

    def _replay(self, record: DecodedRecord, wal_file: int) -> None:
        stream, payload = record.stream, record.payload
        match record.type:
            case RecordType.BATCH:
                self._replay_batch(record, wal_file)
            case RecordType.TRUNCATE:
                self.truncate(stream, decode_truncate(payload).llsn_end, wal_file)
            case RecordType.TRIM:
                self.trim(stream, decode_trim(payload))
            case RecordType.BOUNDARY:
                self.boundary(stream, decode_boundary(payload))
            case RecordType.HARD_STATE:
                self.hard_state(stream, decode_hard_state(payload))
            case RecordType.RESET:
                self.reset(stream, decode_reset(payload))
            case RecordType.ORDER:
                self.order(stream, decode_order(payload))
            case RecordType.FILLED:
                self.filled(stream, decode_filled(payload))
            case RecordType.CARRY:
                self.carry(stream, decode_carry(payload), wal_file)
            case RecordType.CUT:
                raise CorruptData("a cut of several streams in the WAL of a storage node")

    def _replay_batch(self, record: DecodedRecord, wal_file: int) -> None:
        batch = decode_batch(record.payload)
        if batch.stream != record.stream:
            raise CorruptData(f"a batch of stream {batch.stream} in a record of {record.stream}")
        stored = StoredBatch(batch.first_llsn, batch.end_llsn, bytes(batch.data))
        place = (batch.term, batch.producer, batch.sequence, batch.count)
        self.batch(record.stream, stored, place, record.previous_llsn, wal_file)


def part_of(store: StreamStore) -> ReplicaPart:
    """What a store knows as a replica."""
    if store.replica is None:
        raise InvariantViolation(f"stream {store.stream} is no replica")
    return store.replica


def as_context(run: GlsnRun) -> CommitContext:
    """A run as the part of one cut."""
    return replace(NONE, glsn_begin=run.glsn_begin, llsn_begin=run.llsn_begin, length=run.length)


def later_of(ours: DeleteHorizon, theirs: DeleteHorizon, context: CommitContext) -> DeleteHorizon:
    """What is known of dropped deletes when the entries of another replica came here.

    What it tells of GLSNs that nobody issued is nonsense.
    """
    if theirs.glsn > max(context.glsn_end, 1):
        return ours
    return DeleteHorizon(max(ours.glsn, theirs.glsn), max(ours.dropped, theirs.dropped))
