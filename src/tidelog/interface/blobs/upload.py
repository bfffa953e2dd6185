"""What is put for a BLOB, in which order.  The caller reads its bytes and does the putting.

U1  no part is put before a description that counts it, so collection finds what is left of an
    upload that breaks off
U2  the description that makes a BLOB visible comes when all of its parts are ordered
U3  every part but the last is full
U4  an upload that stood still so long that collection may have taken its parts is not gone on with
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbelow
from time import time
from typing import Final

from tidelog.errors import BadEntry, DeadlineExceeded
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.formats.topic_blob import (
    TOPIC_BLOB_END,
    BlobDescription,
    BlobState,
    blob_key,
    encode_description,
    encode_part,
    part_key,
    parts_in,
)
from tidelog.invariants import check
from tidelog.limits import BLOB_BYTES_END, BLOB_PART_BYTES, BLOB_PAUSE_SECONDS

PARTS_UNDER_WAY: Final = 4
"""Parts that are in memory until they are ordered."""
UPLOAD_BYTES: Final = 2 * PARTS_UNDER_WAY * BLOB_PART_BYTES
"""What an appender must be able to have under way for them."""
_FIRST_PARTS: Final = 16
"""Parts that are announced for a BLOB of unknown size; twice as many each time they are used up."""
_NEWS_SECONDS: Final = BLOB_PAUSE_SECONDS / 6
"""How old an announcement may be when a part is put."""


class Upload:
    """One BLOB on its way into the log; ``size`` is a guess that may be wrong."""

    def __init__(self, size: int | None = None, *, clock: Callable[[], float] = time) -> None:
        self.blob: Final = 1 + randbelow(TOPIC_BLOB_END - 1)
        self.key: Final = blob_key(self.blob)
        self._clock = clock
        self._size = self._crc = self._parts = 0
        self._announced = 0
        self._announced_at = clock()
        self._guess = _FIRST_PARTS if size is None else max(parts_in(size), 1)

    @property
    def size(self) -> int:
        """The bytes that were added."""
        return self._size

    def announcement(self) -> bytes | None:
        """What to put under ``key`` before the next part, if anything (U1)."""
        self._check_pause()
        now = self._clock()
        if self._parts < self._announced and now < self._announced_at + _NEWS_SECONDS:
            return None
        while self._announced <= self._parts:
            self._announced = max(self._guess, 2 * self._announced)
        self._announced_at = now
        return encode_description(BlobDescription(self.blob, self._announced))

    def part(self, data: Buffer) -> tuple[bytes, bytes]:
        """The key and value of the next part."""
        if self._size + len(data) >= BLOB_BYTES_END:
            raise BadEntry(f"a BLOB has less than {BLOB_BYTES_END} bytes: put several")
        number = self._parts
        check(self._size == number * BLOB_PART_BYTES, "U3: a part follows one that is not full")
        self._parts += 1
        self._size += len(data)
        self._crc = crc32c(data, self._crc)
        return part_key(self.blob, number), encode_part(self.blob, number, data)

    def description(self) -> bytes:
        """What makes the BLOB visible, once all parts are ordered (U2)."""
        self._check_pause()
        return encode_description(
            BlobDescription(self.blob, self._parts, BlobState.COMPLETE, self._size, self._crc)
        )

    def _check_pause(self) -> None:
        """U4."""
        if self._clock() > self._announced_at + BLOB_PAUSE_SECONDS:
            raise DeadlineExceeded(
                f"the upload stood still for more than {BLOB_PAUSE_SECONDS:g} s: put the BLOB again"
            )
