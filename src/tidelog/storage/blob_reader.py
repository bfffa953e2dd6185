"""Reads one BLOB of a datastore, with the size and the checksum that stand behind its bytes."""

from __future__ import annotations

from typing import Final, Self

from tidelog.errors import CorruptData
from tidelog.formats.blob import TRAILER_BYTES, check_blob, decode_trailer
from tidelog.formats.checksum import crc32c
from tidelog.limits import BLOB_COPY_BYTES
from tidelog.storage.vfs import File


class BlobReader:
    """A finished BLOB; it stays readable when the BLOB is deleted."""

    def __init__(self, file: File, blob: int) -> None:
        self._file = file
        self.blob: Final = blob
        end = file.size()
        begin = max(end - TRAILER_BYTES, 0)
        self.size, self._crc = decode_trailer(file.read_at(begin, TRAILER_BYTES), end)

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end."""
        return self._file.read_at(offset, min(length, max(self.size - offset, 0)))

    def check(self) -> None:
        """Read all of it; CorruptData unless it matches its checksum."""
        crc = offset = 0
        while offset < self.size:
            data = self.read_at(offset, BLOB_COPY_BYTES)
            if not data:
                break
            crc = crc32c(data, crc)
            offset += len(data)
        self.check_sum(crc)

    def check_sum(self, crc: int) -> None:
        """CorruptData unless this is the CRC-32C of its bytes, for those who read all of them."""
        try:
            check_blob(self.size, crc, self._crc)
        except CorruptData as error:
            raise CorruptData(f"BLOB {self.blob}: {error}") from None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
