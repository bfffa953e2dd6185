"""A BLOB as the messages that carry it.  No state."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.core.session.messages import BlobWrite
from tidelog.errors import CorruptData
from tidelog.formats.checksum import crc32c
from tidelog.limits import BLOB_PART_BYTES
from tidelog.storage.blob_reader import BlobReader


def parts_of(reader: BlobReader) -> Iterator[tuple[BlobWrite, bytes]]:
    """All parts, in order; one of them is in memory at a time.  An empty BLOB has one, too.

    CorruptData before the last one if all of them do not match their checksum: without it no
    replica takes the BLOB for whole.
    """
    offset = crc = 0
    while not offset or offset < reader.size:
        part = reader.read_at(offset, BLOB_PART_BYTES)
        if not part and reader.size:
            raise CorruptData(f"BLOB {reader.blob} ends at {offset}, not at {reader.size}")
        crc = crc32c(part, crc)
        if offset + len(part) == reader.size:
            reader.check_sum(crc)
        yield BlobWrite(reader.blob, offset, reader.size), part
        if not part:
            return
        offset += len(part)
