"""What a datastore holds: of each key the greatest recorded write, if that is no delete.  No state.

Writes are ordered by (write version, LLSN, log channel), for readers as for compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.channel_batch import STAMP_STORAGE
from tidelog.formats.entry import Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.limits import WRITE_VERSION_END
from tidelog.storage.memtable import KeyedWrite
from tidelog.storage.node_store import NodeStore
from tidelog.storage.shared_keys import held_topic

_LOOKUPS_MAX: Final = 100
"""How often compaction may come in between before that is not believed any more."""


class StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """The current write of a key."""

    storage_id: int
    key: bytes
    value: bytes
    write_version: int
    blobs: tuple[int, ...] = ()
    epoch: int = 0
    timestamp_us: int = 0


def stored_entries(node: NodeStore, topic: TopicManifest) -> Iterator[StoredEntry]:
    """All current writes, a log channel at a time, as of when the first one is asked for.

    Files stay in place until the iterator is done.
    """
    with held_topic(node, topic) as seen:
        # Below the highest boundary there is, the live PUTs are the current writes.
        found = seen.liveness(WRITE_VERSION_END - 1)
        for stream, liveness in zip(seen.streams, found, strict=True):
            for piece in stream.store.read_view(stream.view, 1, stream.index + 1):
                for entry in _entries_of(piece, liveness.live):
                    if entry.storage_id != STAMP_STORAGE:
                        yield entry


def find_entry(
    node: NodeStore, topic: TopicManifest, storage_id: int, key: bytes
) -> StoredEntry | None:
    """The current write of one key."""
    hashed = hash_key(storage_id, key, node.manifest.hash_seed)
    for _ in range(_LOOKUPS_MAX):
        place = _find_place(node, topic, storage_id, key, hashed)
        if place is None:
            return None
        stream, llsn = place
        for piece in node.streams[stream].read(llsn, llsn + 1):
            for entry in _entries_of(piece, BitMap64([llsn])):
                return entry
        # Compaction took it since: there is a greater write by now.
    raise CorruptData(f"the write of {key!r} that the indexes tell of is not there")


def _find_place(
    node: NodeStore, topic: TopicManifest, storage_id: int, key: bytes, hashed: tuple[int, int]
) -> tuple[int, int] | None:
    """Stream and LLSN of the current write of a key."""
    best: tuple[int, int, int] | None = None
    killer: tuple[int, int, int] | None = None
    kind = Kind.DELETE
    for stream in topic.streams:
        write, delete = node.streams[stream].find_writes(storage_id, key, hashed)
        if write is not None and (best is None or _rank(write, stream) > best):
            best, kind = _rank(write, stream), write.kind
        if delete is not None:
            rank = _rank(delete, stream)
            killer = rank if killer is None else max(killer, rank)
    if best is None or kind is not Kind.PUT or (killer is not None and best < killer):
        return None
    return best[2], best[1]


def _rank(write: KeyedWrite, stream: int) -> tuple[int, int, int]:
    return write.version, write.llsn, stream


def _entries_of(piece: BatchSlice, live: BitMap64) -> Iterator[StoredEntry]:
    batch = piece.batch
    fields = zip(piece.llsns(), batch.entries(piece.begin, piece.end), strict=True)
    for llsn, entry in fields:
        if entry.kind is Kind.PUT and llsn in live:
            yield StoredEntry(
                entry.storage_id,
                entry.key,
                entry.value,
                entry.write_version or 0,
                entry.blobs,
                batch.term,
                entry.timestamp_us,
            )
