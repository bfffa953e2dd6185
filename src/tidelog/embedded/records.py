"""What callers get back: receipts of appends, and records of reads.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from tidelog.formats.entry import Kind
from tidelog.storage.stream_store import BatchSlice


class Ack(Enum):
    """What an append waits for.  In an embedded log one fsync brings both."""

    STORED = "stored"
    ORDERED = "ordered"


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Proof that ``count`` entries are durable, from ``glsn`` and ``llsn`` on."""

    topic: str
    stream: int
    glsn: int
    """0 for a duplicate whose entries were trimmed or compacted away since."""
    llsn: int
    count: int = 1
    ack: Ack = Ack.ORDERED
    duplicate: bool = False
    """The producer had appended this before; nothing was appended now."""

    @property
    def glsn_end(self) -> int:
        return self.glsn + self.count


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry at its place in the total order."""

    glsn: int
    llsn: int
    stream: int
    kind: Kind
    key: bytes
    value: bytes
    storage_id: int
    write_version: int
    timestamp_us: int
    blobs: tuple[int, ...] = ()
    rewritten: bool = False
    """A copy that compaction made of an older entry: same key, value and write version."""


def records_of(stream: int, piece: BatchSlice) -> Iterator[Record]:
    """The records of a slice; control entries are nobody's business but ours."""
    batch = piece.batch
    rewritten = batch.rewritten
    entries = batch.entries(piece.begin, piece.end)
    for glsn, llsn, entry in zip(piece.glsns(), piece.llsns(), entries, strict=True):
        if entry.kind is Kind.CONTROL:
            continue
        version = entry.write_version
        yield Record(
            glsn,
            llsn,
            stream,
            entry.kind,
            entry.key,
            entry.value,
            entry.storage_id,
            glsn if version is None else version,
            entry.timestamp_us,
            entry.blobs,
            rewritten,
        )
