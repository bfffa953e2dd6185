"""All stored writes of one key, dead ones included: for explanations, not for the fast path."""

from __future__ import annotations

from tidelog.formats.entry import Kind
from tidelog.storage.memtable import KeyedWrite, Memtable
from tidelog.storage.stream_store import StreamStore


def all_writes(
    store: StreamStore, storage_id: int, key: bytes, hashed: tuple[int, int]
) -> list[KeyedWrite]:
    """Every PUT and DELETE of a key that is physically there, oldest LLSN first."""
    with store.pins.pinned():
        view = store.view
        found: list[KeyedWrite] = []
        for segment in view.segments:
            with store.opened.lease(segment.path) as reader:
                found.extend(
                    KeyedWrite(hit.version, hit.llsn, hit.kind)
                    for hit in reader.find_key(*hashed)
                    if hit.llsn < segment.end_llsn
                )
        for table in view.memtables:
            found.extend(_in_memory(table, Kind.PUT, storage_id, key))
            found.extend(_in_memory(table, Kind.DELETE, storage_id, key))
    return sorted(found, key=lambda write: write.llsn)


def storage_deletes(store: StreamStore, storage_id: int) -> list[KeyedWrite]:
    """Every DELETE_STORAGE of a storage that is physically there."""
    view = store.view
    found = [
        KeyedWrite(special.version, special.llsn, special.kind)
        for segment in view.segments
        for special in segment.specials
        if special.is_storage_delete and special.storage_id == storage_id
    ]
    for table in view.memtables:
        found.extend(_in_memory(table, Kind.DELETE_STORAGE, storage_id, b""))
    return found


def _in_memory(table: Memtable, kind: Kind, storage_id: int, key: bytes) -> list[KeyedWrite]:
    found: list[KeyedWrite] = []
    for stored in table.batches:
        batch = stored.view()
        for llsn, entry in zip(batch.llsns(), batch.entries(), strict=True):
            if (entry.kind, entry.storage_id, entry.key) == (kind, storage_id, key):
                version = entry.write_version
                glsn = table.runs.glsn_of(llsn)
                found.append(KeyedWrite(glsn if version is None else version, llsn, kind))
    return found
