"""Reads a BLOB of a topic part by part, as a file.

R1  no byte is given away that does not match the checksum of its part
R2  whoever reads all parts in their order has the whole checked as well, before the last one
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.errors import BadOption, CorruptData, UnknownBlob
from tidelog.formats.checksum import crc32c
from tidelog.formats.topic_blob import BlobDescription, decode_part, part_key
from tidelog.interface.records import Record

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class PartCheck:
    """Takes the parts of a BLOB as they are found, in any order, and checks them."""

    def __init__(self, description: BlobDescription) -> None:
        self.description: Final = description
        self._next = 0
        self._crc = 0

    def key(self, number: int) -> bytes:
        """Where a part is found."""
        return part_key(self.description.blob, number)

    def take(self, number: int, record: Record | None) -> memoryview:
        """The bytes of a part (R1)."""
        if record is None:
            raise UnknownBlob(f"BLOB {self.description.blob} was deleted while it was read")
        data = decode_part(self.description, number, record.value)
        if number == self._next:
            self._check_whole(data)
        return data

    def _check_whole(self, data: memoryview) -> None:
        """R2."""
        described, crc = self.description, crc32c(data, self._crc)
        if self._next + 1 == described.parts and crc != described.crc:
            raise CorruptData(f"BLOB {described.blob} does not match its checksum")
        self._next, self._crc = self._next + 1, crc


class BlobReader(io.RawIOBase):
    """A file to read a BLOB, for one thread; of its bytes one part is in memory.

    ``io.BufferedReader`` can be put around it, ``shutil.copyfileobj`` copies from it.
    """

    def __init__(
        self, description: BlobDescription, get_part: Callable[[bytes], Record | None]
    ) -> None:
        super().__init__()
        self.blob: Final = description.blob
        self.size: Final = description.size
        self._check = PartCheck(description)
        self._get_part = get_part
        self._at = 0
        self._number = -1
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """As with any file; there is nothing to read behind the end."""
        self._check_open()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}
        if whence not in bases or bases[whence] + offset < 0:
            raise BadOption(f"there is no place {offset} from {whence} in a BLOB")
        self._at = bases[whence] + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Up to the end of the part at most, as files may."""
        self._check_open()
        room = memoryview(buffer).cast("B")
        data = self._rest()[: len(room)]
        room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        """All that is left; it must fit into memory."""
        self._check_open()
        pieces = []
        while data := self._rest():
            pieces.append(data)
            self._at += len(data)
        return b"".join(pieces)

    def _rest(self) -> memoryview:
        """What follows, up to the end of its part."""
        if self._at >= self.size:
            return memoryview(b"")
        number, offset = divmod(self._at, self._check.description.part_bytes)
        if number != self._number:
            record = self._get_part(self._check.key(number))
            self._part, self._number = self._check.take(number, record), number
        return self._part[offset:]

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the BLOB's reader is closed")
