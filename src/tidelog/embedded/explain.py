"""Tells for each stored write of a key whether it is kept, and why."""

from __future__ import annotations

from tidelog.core.compaction.explain import KeyRow, StorageDelete, explain_rows
from tidelog.embedded.readable import ReadableLog
from tidelog.formats.key_rows import hash_key
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.routing import stream_of_key
from tidelog.storage.key_history import all_writes, storage_deletes


def explain_key(
    engine: ReadableLog, topic: TopicManifest, key: bytes, storage_id: int
) -> list[str]:
    """One sentence for each write of the key that is physically there, oldest first."""
    store = engine.node.streams[stream_of_key(topic, key)]
    hashed = hash_key(storage_id, key, engine.node.manifest.hash_seed)
    writes = all_writes(store, storage_id, key, hashed)
    boundary = store.current_boundary()
    deletes = [
        StorageDelete(storage=storage_id, version=write.version, llsn=write.llsn)
        for write in storage_deletes(store, storage_id)
    ]
    rows = [KeyRow(write.llsn, write.version, int(write.kind), storage_id) for write in writes]
    return [found.text for found in explain_rows(rows, boundary, deletes, store.trim_llsn_end)]
