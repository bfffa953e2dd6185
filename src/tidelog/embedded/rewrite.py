"""Phase 4: copies the oldest live keyed entries to the head of the log.

A copy carries the write version of its original; between the two the higher LLSN wins, and the
original dies.  No snapshot is taken between the look and the copy: so the original stays where it
is.  Only a copy that is still being written at its deadline may come behind one; then R1 holds all
the same, for no entry comes between the look and the copy.

Invariants:
  R1  a copy is of the greatest write of its key, among all entries before the copy: one behind a
      greater write would come to light when a trim takes that
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

from tidelog.core.compaction.plan import RewriteBudget, RewriteCandidate, plan_rewrite
from tidelog.embedded.engine import Engine
from tidelog.embedded.requests import AppendRequest
from tidelog.errors import BadOption, Busy
from tidelog.formats.batch import BatchBody, encode_entries
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.appends import Append, CopiedFrom, Part
from tidelog.interface.records import Record, records_of
from tidelog.limits import BATCH_BODY_BYTES_MAX, BATCH_ENTRIES_MAX
from tidelog.storage.stream_store import StreamStore
from tidelog.types import Llsn

_ENTRY_BYTES: Final = 256
"""What an entry takes in a batch at most besides key, value and BLOBs, padding included."""
_REST_SECONDS: Final = 5.0
"""How long a log stream may take to come to rest."""


def rewrite_oldest(engine: Engine, topic: TopicManifest, entries_max: int) -> int:
    """Copy up to ``entries_max`` entries per stream; returns how many were copied."""
    if entries_max < 1:
        raise BadOption(f"entries_max is {entries_max}, but must be positive")
    copied = 0
    with engine.maintenance.live_sets_held():
        for stream in topic.streams[: topic.key_streams]:
            copied += _rewrite_stream(engine, topic, engine.node.streams[stream], entries_max)
    return copied


def _rewrite_stream(
    engine: Engine, topic: TopicManifest, store: StreamStore, entries_max: int
) -> int:
    deadline = monotonic() + min(engine.options.append_timeout_seconds, _REST_SECONDS)
    while True:
        end = store.ordered_end
        chosen = worth_copying(store, entries_max, is_greatest)
        if not chosen:
            return 0
        copies = CopiedFrom(chosen[0].llsn, end)
        part = Part(store.stream, encode_copies(chosen), copied=copies)
        try:
            engine.settle(AppendRequest(Append(topic.name, [part])))
        except Busy:
            if monotonic() >= deadline:
                raise
        else:
            return len(chosen)


def worth_copying(
    store: StreamStore, entries_max: int, is_newest: Callable[[StreamStore, Record], bool]
) -> list[Record]:
    """The oldest live PUTs at or below the GC boundary, as many as fit into a batch."""
    budget = RewriteBudget(
        ranges_max=1,
        entries_max=min(entries_max, BATCH_ENTRIES_MAX),
        bytes_max=BATCH_BODY_BYTES_MAX - _ENTRY_BYTES,
    )
    records: dict[int, Record] = {}

    def candidates() -> Iterator[RewriteCandidate]:
        for record in _oldest_puts(store, is_newest):
            records[record.llsn] = record
            size = len(record.key) + len(record.value) + 8 * len(record.blobs) + _ENTRY_BYTES
            yield RewriteCandidate(Llsn(record.llsn), size)

    # Asked for by hand: worth it whatever the number of live ranges is.
    chosen = plan_rewrite(candidates(), budget.ranges_max + 1, budget)
    return [records[llsn] for llsn in chosen]


def encode_copies(records: Sequence[Record]) -> BatchBody:
    """A batch of copies, which carry the write versions of their originals."""
    return encode_entries([_copy(record) for record in records], rewritten=True)


def _oldest_puts(
    store: StreamStore, is_newest: Callable[[StreamStore, Record], bool]
) -> Iterator[Record]:
    """Live PUTs at or below the GC boundary, oldest first."""
    snapshot = store.snapshot
    boundary = store.current_boundary()
    begin = max(snapshot.smallest_live, store.trim_llsn_end)
    for piece in store.read(begin, snapshot.index + 1):
        batch = piece.batch
        if not batch.is_keyed:
            continue
        kinds = batch.kinds()
        end = min(batch.end_llsn, snapshot.index + 1)
        for position in snapshot.kept_positions(batch, begin, end):
            if kinds[position] != Kind.PUT:
                continue
            one = BatchSlice(batch, position, position + 1, piece.runs)
            for record in records_of(store.stream, one):
                if record.write_version <= boundary and is_newest(store, record):
                    yield record


def is_greatest(store: StreamStore, record: Record) -> bool:
    """Whether no other write of the key counts, whatever its version and place."""
    hashed = hash_key(record.storage_id, record.key, store.place.hash_seed)
    found = store.find_key(record.storage_id, record.key, hashed)
    return found is not None and found.llsn == record.llsn


def _copy(record: Record) -> Entry:
    return Entry(
        Kind.PUT,
        record.value,
        record.key,
        record.storage_id,
        record.write_version,
        record.timestamp_us,
        record.blobs,
    )
