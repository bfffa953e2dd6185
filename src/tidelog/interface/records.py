"""What callers get back: receipts of appends, and records of reads.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import repeat
from typing import TypeAlias

import msgspec

from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Kind
from tidelog.invariants import check


class Ack(Enum):
    """What an append waits for.  With a single node one fsync brings all three."""

    STORED = "stored"
    """Durable on the leader."""
    PROPAGATED = "propagated"
    """Durable on a quorum."""
    ORDERED = "ordered"
    """It has its place in the total order."""


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

    def part(self, offset: int, count: int) -> Receipt:
        """The receipt for ``count`` of the entries, from the one at ``offset`` on."""
        glsn = self.glsn + offset if self.glsn else 0
        return Receipt(self.topic, self.stream, glsn, self.llsn + offset, count, self.ack)

    def each(self) -> Iterator[Receipt]:
        """A receipt for every one of the entries."""
        return map(
            Receipt,
            repeat(self.topic),
            repeat(self.stream),
            range(self.glsn, self.glsn_end) if self.glsn else repeat(0),
            range(self.llsn, self.llsn + self.count),
            repeat(1),
            repeat(self.ack),
        )


Receipts: TypeAlias = tuple[Receipt, ...]
"""What an append gets: a receipt for each log stream that it went to."""


def only_receipt(receipts: Receipts) -> Receipt:
    """That of an append to one log stream."""
    return receipts[0]


def all_receipts(receipts: Receipts) -> Receipts:
    """Those of an append that may go to several."""
    return receipts


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
    batch, glsns = piece.batch, piece.glsns()
    check(len(glsns) == piece.end - piece.begin, "every entry that is read has its GLSN")
    fields = batch.fields(piece.begin, piece.end)
    records = map(
        Record,
        glsns,
        piece.llsns(),
        repeat(stream),
        fields.kinds,
        fields.keys,
        fields.values,
        fields.storage_ids,
        glsns if fields.versions is None else fields.versions,
        fields.timestamps,
        fields.blobs,
        repeat(batch.rewritten),
    )
    if Kind.CONTROL in batch.kinds():
        return (record for record in records if record.kind is not Kind.CONTROL)
    return records
