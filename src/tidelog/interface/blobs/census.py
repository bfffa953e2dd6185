"""Which BLOBs a topic has, and which of them may go.  Fed with what was read of the log.

Memory is a few bitmaps of ids, whatever the BLOBs hold and however much refers to them.

K1  a BLOB whose description was written after the horizon is not counted: somebody is about to
    refer to it, or to go on with it
K2  a complete BLOB that an entry of the topic refers to stays
K3  what is no description is left alone, whoever put it there
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.entry import Kind
from tidelog.formats.topic_blob import (
    BlobDescription,
    BlobState,
    blob_of_key,
    decode_description,
)
from tidelog.interface.blobs.figures import BlobInfo
from tidelog.interface.records import Record

NO_HORIZON: Final = 1 << 63


class BlobCensus:
    """First ``see`` all descriptions, in the order of the log; then ``refer``, or ``show``."""

    def __init__(self, horizon_us: int = NO_HORIZON) -> None:
        self._horizon_us = horizon_us
        self.there: Final = BitMap64()
        """All of them, however new."""
        self.complete: Final = BitMap64()
        self.torn: Final = BitMap64()
        """Those whose upload or deletion is not at its end."""
        self.unreadable = 0
        self._seen = BitMap64()

    def see(self, record: Record) -> None:
        """A record among the descriptions; the last one of each BLOB counts.

        A copy that compaction made may stand behind what came after its original.
        """
        blob = blob_of_key(record.key)
        if blob is None:
            self.unreadable += 1  # K3
            return
        if record.rewritten and blob in self._seen:
            return
        self._seen.add(blob)
        for known in (self.there, self.complete, self.torn):
            known.discard(blob)
        if record.kind is Kind.PUT:
            self._add(record)

    def _add(self, record: Record) -> None:
        found = described(record)
        if found is None:
            self.unreadable += 1  # K3
            return
        self.there.add(found.blob)
        if self.is_old(record):
            (self.complete if found.state is BlobState.COMPLETE else self.torn).add(found.blob)

    def candidates(self) -> BitMap64:
        """The BLOBs that may go as far as is known, in the order of their ids."""
        return self.complete | self.torn

    def is_old(self, record: Record) -> bool:
        """Whether a description was written at or before the horizon (K1)."""
        return record.timestamp_us <= self._horizon_us

    def refer(self, blobs: Iterable[int]) -> None:
        """An entry of the topic refers to these (K2)."""
        for blob in blobs:
            self.complete.discard(blob)

    def may_go(self, record: Record | None) -> BlobDescription | None:
        """The description of a BLOB of this census, as it is now, if it may still go."""
        found = None if record is None else described(record)
        if found is None or record is None or not self.is_old(record):
            return None
        is_kept = found.state is BlobState.COMPLETE and found.blob not in self.complete
        return None if is_kept else found

    def show(self, record: Record) -> BlobInfo | None:
        """A record among the descriptions, if it is the first one of a complete BLOB."""
        found = described(record)
        if found is None or found.state is not BlobState.COMPLETE:
            return None
        if found.blob not in self.complete:
            return None
        self.complete.discard(found.blob)
        return info_of(record)


def described(record: Record) -> BlobDescription | None:
    """The description in a record, if it has one."""
    blob = blob_of_key(record.key)
    if blob is None or record.kind is not Kind.PUT:
        return None
    try:
        return decode_description(blob, record.value)
    except CorruptData:
        return None


def info_of(record: Record | None) -> BlobInfo | None:
    """What the record of a description tells."""
    found = None if record is None else described(record)
    if found is None or record is None:
        return None
    is_complete = found.state is BlobState.COMPLETE
    return BlobInfo(found.blob, found.size if is_complete else 0, record.timestamp_us, is_complete)
