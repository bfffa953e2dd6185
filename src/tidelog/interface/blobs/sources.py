"""Where the bytes of a BLOB come from: memory, a file, or anything that can be read.

S1  no more than one part of a source is in memory here
S2  every part but the last is full, however little a read brings
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Protocol, TypeAlias

from tidelog.errors import BadOption
from tidelog.limits import BLOB_PART_BYTES


class Readable(Protocol):
    """A file in binary mode, and the like."""

    def read(self, size: int, /) -> bytes | None: ...


class AsyncReadable(Protocol):
    """A file whose ``read`` is awaited."""

    async def read(self, size: int, /) -> bytes: ...


BlobSource: TypeAlias = bytes | bytearray | memoryview | Path | Readable
AsyncBlobSource: TypeAlias = BlobSource | AsyncReadable

_Read: TypeAlias = Callable[[int], object]


def size_of(source: AsyncBlobSource) -> int | None:
    """How many bytes there are to come, as far as is known; BadOption if it is no source."""
    match source:
        case bytes() | bytearray() | memoryview():
            return memoryview(source).nbytes
        case Path():
            return _file(source).stat().st_size
    _read_of(source)
    return None


def parts_of(source: BlobSource) -> Generator[bytes, None, None]:
    """The bytes of a source, in parts (S1, S2)."""
    with ExitStack() as stack:
        read, part = _opened(source, stack), _Part()
        while not part.ended:
            if part.take(read(part.room)):
                yield part.give()


async def async_parts_of(source: AsyncBlobSource) -> AsyncGenerator[bytes, None]:
    """The same for asyncio; whatever may block is read in a thread."""
    with ExitStack() as stack:
        read, part = await _async_opened(source, stack), _Part()
        while not part.ended:
            if part.take(await read(part.room)):
                yield part.give()


class _Part:
    """A part that is being filled."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.room = BLOB_PART_BYTES
        self.ended = False

    def take(self, data: object) -> bool:
        """Add what was read; whether there is a part to give away (S2)."""
        if not isinstance(data, bytes) or len(data) > self.room:
            raise BadOption(
                f"the source of a BLOB gave a {type(data).__name__} where up to {self.room} bytes "
                "were asked for: open it in binary mode, and so that it waits"
            )
        self.ended = not data
        self._pieces.append(data)
        self.room -= len(data)
        return self.room == 0 or (self.ended and self.room < BLOB_PART_BYTES)

    def give(self) -> bytes:
        whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self.room = [], BLOB_PART_BYTES
        return whole


def _opened(source: AsyncBlobSource, stack: ExitStack) -> _Read:
    """How to read the source; what is opened for it is closed with the stack."""
    match source:
        case bytes() | bytearray() | memoryview():
            return BytesIO(source).read
        case Path():
            return stack.enter_context(_file(source).open("rb", buffering=0)).read
    return _read_of(source)


async def _async_opened(
    source: AsyncBlobSource, stack: ExitStack
) -> Callable[[int], Awaitable[object]]:
    awaited = getattr(source, "read", None)
    if inspect.iscoroutinefunction(awaited):
        return awaited
    read = await asyncio.to_thread(_opened, source, stack)
    return lambda size: asyncio.to_thread(read, size)


def _file(path: Path) -> Path:
    if not path.is_file():
        raise BadOption(f"{path} is no file that could become a BLOB")
    return path


def _read_of(source: object) -> _Read:
    read: object = getattr(source, "read", None)
    if not callable(read):
        raise BadOption(f"a BLOB comes from bytes, a Path or a file, not {type(source).__name__}")
    return read
