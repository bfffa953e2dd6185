"""What one group commit of a single node makes durable, and the WAL records that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.core.order.commands import CutDecided
from tidelog.errors import Rejected
from tidelog.formats.batch_layout import HEADER_BYTES
from tidelog.formats.wal import Record, RecordType
from tidelog.formats.wal_payloads import (
    BodyPlace,
    Trim,
    Truncate,
    encode_boundary,
    encode_cut,
    encode_staged_batch,
    encode_trim,
    encode_truncate,
)
from tidelog.storage.memtable import StoredBatch


class BatchWrite(msgspec.Struct, frozen=True, gc=False):
    """A batch for a stream, already at its place (``stored``)."""

    stream: int
    stored: StoredBatch
    count: int
    producer: int = 0
    sequence: int = 0
    place: BodyPlace | None = None
    """Where its body is durable already: the frame refers to it."""

    @property
    def body_bytes(self) -> int:
        """How much of it a stage holds if it was staged."""
        return self.stored.size - HEADER_BYTES


class FrameWrite(msgspec.Struct, frozen=True):
    """All that one group commit makes durable together."""

    batches: Sequence[BatchWrite] = ()
    cut: CutDecided | None = None
    trims: Sequence[tuple[int, Trim]] = ()
    truncates: Sequence[tuple[int, Truncate]] = ()
    boundaries: Sequence[tuple[int, int]] = ()


def records_of(frame: FrameWrite, ends: Mapping[int, int]) -> list[Record]:
    """The records of a frame; ``ends``: where the streams of its batches end before it."""
    records: list[Record] = []
    tails: dict[int, int] = {}
    for write in frame.batches:
        previous = tails.get(write.stream, ends[write.stream] - 1)
        if write.stored.first_llsn <= previous:
            raise Rejected(
                f"stream {write.stream}: a batch at LLSN {write.stored.first_llsn} was to be "
                f"written after {previous}: cut the stream back first"
            )
        records.append(_batch_record(write, previous))
        tails[write.stream] = write.stored.end_llsn - 1
    if frame.cut is not None:
        records.append(Record(RecordType.CUT, 0, 0, (encode_cut(frame.cut),)))
    for stream, trim in frame.trims:
        records.append(Record(RecordType.TRIM, stream, 0, (encode_trim(trim),)))
    for stream, truncate in frame.truncates:
        records.append(Record(RecordType.TRUNCATE, stream, 0, (encode_truncate(truncate),)))
    for stream, version in frame.boundaries:
        records.append(Record(RecordType.BOUNDARY, stream, 0, (encode_boundary(version),)))
    return records


def _batch_record(write: BatchWrite, previous_llsn: int) -> Record:
    kind, payload = RecordType.BATCH, write.stored.data
    if write.place is not None:
        kind = RecordType.STAGED
        payload = encode_staged_batch(write.place, payload[:HEADER_BYTES])
    return Record(kind, write.stream, previous_llsn, (payload,))
