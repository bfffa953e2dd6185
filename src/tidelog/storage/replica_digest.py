"""A digest of the entries of a replica that depends on the log alone.  No state.

Segments and batches may be cut differently on each node; what counts are the entries.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from tidelog.errors import OutOfRange
from tidelog.formats.batch_slice import BatchSlice
from tidelog.storage.compaction import settled_index
from tidelog.storage.stream_store import StreamStore

DIGEST_BYTES: Final = 16
_ENTRY: Final = Struct("<QQQBBQqQQIIH")
_LOW_64: Final = (1 << 64) - 1
_BLOB: Final = Struct("<Q")


def digest_of(store: StreamStore, begin: int, end: int) -> bytes:
    """The digest of ``[begin, end)``; OutOfRange unless all of it is here and ordered."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    count = 0
    _check_range(store, begin, end)
    for piece in store.read(begin, end):
        count += _add(digest, piece)
    _check_range(store, begin, end)  # Compaction may have come in between.
    if count != end - begin:
        raise OutOfRange(f"stream {store.stream}: {end - begin - count} entries are missing")
    return digest.digest()


def _check_range(store: StreamStore, begin: int, end: int) -> None:
    first, last = settled_index(store) + 1, store.ordered_end
    if not first <= begin <= end <= last:
        raise OutOfRange(
            f"stream {store.stream}: [{begin}, {end}) is not within [{first}, {last}), where all "
            "entries are there and ordered"
        )


def _add(digest: blake2b, piece: BatchSlice) -> int:
    """Add the entries of a piece; returns how many."""
    batch = piece.batch
    entries = batch.entries(piece.begin, piece.end)
    count = 0
    for llsn, glsn, entry in zip(piece.llsns(), piece.glsns(), entries, strict=True):
        version = entry.write_version
        number = version or 0
        digest.update(
            _ENTRY.pack(
                llsn,
                glsn,
                batch.term,
                entry.kind,
                version is not None,
                entry.storage_id,
                entry.timestamp_us,
                number & _LOW_64,
                number >> 64,
                len(entry.key),
                len(entry.value),
                len(entry.blobs),
            )
        )
        digest.update(entry.key)
        digest.update(entry.value)
        for blob in entry.blobs:
            digest.update(_BLOB.pack(blob))
        count += 1
    return count
