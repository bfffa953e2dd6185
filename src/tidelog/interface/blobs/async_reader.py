"""Reads a BLOB of a topic part by part, for asyncio.  See ``reader``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from tidelog.errors import BadOption
from tidelog.formats.topic_blob import BlobDescription
from tidelog.interface.blobs.reader import PartCheck
from tidelog.interface.blobs.upload import PARTS_UNDER_WAY
from tidelog.interface.records import Record


class AsyncBlobReader:
    """Reads any range of a BLOB; ``async for`` gives all of it, part by part."""

    def __init__(
        self, description: BlobDescription, get_part: Callable[[bytes], Awaitable[Record | None]]
    ) -> None:
        self.blob: Final = description.blob
        self.size: Final = description.size
        self._check = PartCheck(description)
        self._get_part = get_part

    async def read(self, offset: int = 0, size: int = -1) -> bytes:
        """Up to ``size`` bytes from ``offset`` on, less only at the end; -1: all that follows."""
        if offset < 0:
            raise BadOption(f"a BLOB begins at 0, not at {offset}")
        end = self.size if size < 0 else min(offset + size, self.size)
        pieces = []
        async for begin, data in self._parts(offset, end):
            pieces.append(data[max(offset - begin, 0) : end - begin])
        return b"".join(pieces)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        async for _, data in self._parts(0, self.size):
            yield bytes(data)

    async def _parts(self, begin: int, end: int) -> AsyncGenerator[tuple[int, memoryview], None]:
        """The parts that lie in a range, with their places; a few are asked for at once."""
        size = self._check.description.part_bytes
        numbers = range(begin // size, -(-end // size)) if begin < end else range(0)
        for first in range(0, len(numbers), PARTS_UNDER_WAY):
            some = numbers[first : first + PARTS_UNDER_WAY]
            found = await asyncio.gather(*[self._get_part(self._check.key(n)) for n in some])
            for number, record in zip(some, found, strict=True):
                yield number * size, self._check.take(number, record)
