"""Where the bytes of a BLOB come from."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import BadOption
from tidelog.interface.blobs.sources import async_parts_of, parts_of, size_of
from tidelog.limits import BLOB_PART_BYTES

DATA = bytes(range(256)) * 8192 + b"rest"


class Trickle(io.RawIOBase):
    """Brings less than it is asked for, as pipes do."""

    def __init__(self) -> None:
        self._left = io.BytesIO(DATA)

    def read(self, size: int = -1, /) -> bytes:
        return self._left.read(min(size, 300_001))


class AsyncFile:
    def __init__(self) -> None:
        self._left = io.BytesIO(DATA)

    async def read(self, size: int, /) -> bytes:
        await asyncio.sleep(0)
        return self._left.read(size // 2 + 1)


def in_file(path: Path) -> Path:
    path.write_bytes(DATA)
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda _: DATA,
    "bytearray": lambda _: bytearray(DATA),
    "memoryview": lambda _: memoryview(DATA),
    "path": in_file,
    "file": lambda _: io.BytesIO(DATA),
    "trickle": lambda _: Trickle(),
}


async def gathered(source: Any) -> list[bytes]:
    return [part async for part in async_parts_of(source)]


@pytest.mark.parametrize("name", SOURCES)
def test_all_parts_but_the_last_are_full(name: str, tmp_path: Path) -> None:
    parts = [bytes(part) for part in parts_of(SOURCES[name](tmp_path / "file"))]
    assert b"".join(parts) == DATA
    assert [len(part) for part in parts] == [BLOB_PART_BYTES] * 2 + [4]


@pytest.mark.parametrize("name", [*SOURCES, "async"])
def test_the_parts_are_the_same_for_asyncio(name: str, tmp_path: Path) -> None:
    source = AsyncFile() if name == "async" else SOURCES[name](tmp_path / "file")
    parts = asyncio.run(gathered(source))
    assert b"".join(parts) == DATA
    assert [len(part) for part in parts] == [BLOB_PART_BYTES] * 2 + [4]


def test_nothing_has_no_parts() -> None:
    assert list(parts_of(b"")) == []
    assert list(parts_of(io.BytesIO(DATA[:BLOB_PART_BYTES]))) == [DATA[:BLOB_PART_BYTES]]


def test_the_size_is_known_where_it_can_be(tmp_path: Path) -> None:
    assert size_of(DATA) == size_of(in_file(tmp_path / "file")) == len(DATA)
    assert size_of(io.BytesIO(DATA)) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path / "missing",
        lambda path: path,
        lambda _: "text",
        lambda _: io.StringIO("text"),
        lambda _: None,
        lambda _: Endless(),
    ],
)
def test_what_cannot_be_read_is_refused(make: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(BadOption):
        list(parts_of(make(tmp_path)))
    with pytest.raises(BadOption):
        asyncio.run(gathered(make(tmp_path)))


class Endless:
    """Gives more than was asked for."""

    def read(self, size: int) -> bytes:
        return bytes(size + 1)
