"""Attachments of a write on one log channel, and what may be made of them.  No state."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from tidelog.core.session.output import ChannelBatch
from tidelog.errors import CorruptData
from tidelog.formats.batch import HEADER_BYTES, decode_batch
from tidelog.formats.channel_batch import decode_channel_batches, encode_channel_batch
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind

CHANNEL: Final = 1
EPOCH: Final = 9
BEGIN: Final = 5


def reseal(data: bytes) -> bytes:
    """The same bytes with sound checksums and body length."""
    if len(data) < HEADER_BYTES:
        return data
    body = data[HEADER_BYTES:]
    rest = struct.pack("<II", crc32c(body), len(body)) + data[16:HEADER_BYTES]
    return data[:4] + struct.pack("<I", crc32c(rest)) + rest + body


def attachment(batches: Iterable[ChannelBatch]) -> bytes:
    return b"".join(bytes(batch.data) for batch in batches)


def sound_or_refused(data: bytes) -> None:
    """What is taken could have come from an honest master."""
    try:
        batches = decode_channel_batches(CHANNEL, EPOCH, memoryview(data))
    except CorruptData:
        return
    assert attachment(batches) == data
    end = None
    for batch in batches:
        assert end in (None, batch.llsn_begin)
        end = batch.llsn_end
        decoded = decode_batch(batch.data)
        again = encode_channel_batch(CHANNEL, EPOCH, batch.llsn_begin, decoded.entries())
        assert (again.llsn_end, again.blobs) == (batch.llsn_end, batch.blobs)
        assert decode_batch(again.data).entries() == decoded.entries()
        assert (decoded.producer, decoded.sequence) == (0, 0)


EXAMPLES: Final = tuple(
    bytes(encode_channel_batch(CHANNEL, EPOCH, BEGIN, entries).data)
    for entries in (
        [Entry(Kind.PUT, b"value", b"key", 3, 1 << 70, 0, (1, 2))],
        [Entry(Kind.DELETE_STORAGE, b"", b"", 3, 7)],
        [
            Entry(Kind.PUT, b"v", b"k", 3, 7),
            Entry(Kind.DELETE, b"", b"k", 4, 8),
            Entry(Kind.DELETE_STORAGE, b"", b"", 3, 9),
        ],
    )
)
