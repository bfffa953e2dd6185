"""BLOBs of a topic for asyncio, embedded and served."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import tidelog
from tests.client.served import Node
from tests.client.uploads import LONG, Broken, breaking
from tidelog.errors import BadOption, CorruptData, DiskFull, PartlyAppended, UnknownBlob
from tidelog.formats.topic_blob import encode_part, part_key, topics_of_blobs
from tidelog.interface.async_handles import AsyncLogHandle
from tidelog.interface.blobs.figures import BlobCollection, BlobInfo
from tidelog.limits import BLOB_PART_BYTES

Work: TypeAlias = Callable[[AsyncLogHandle], Awaitable[None]]
Run: TypeAlias = Callable[[Work], None]


@asynccontextmanager
async def opened(face: str, path: Path) -> AsyncIterator[AsyncLogHandle]:
    if face == "embedded":
        async with await tidelog.open_async(path, streams=2) as log:
            yield log
        return
    running = await asyncio.to_thread(Node, path, ["tcp://127.0.0.1:0"])
    try:
        async with await tidelog.connect_async(running.url) as log:
            yield log
    finally:
        await asyncio.to_thread(running.stop)


@pytest.fixture(params=["embedded", "served"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a coroutine with a log; all of it must end in time."""

    async def main(work: Work) -> None:
        async with asyncio.timeout(30), opened(request.param, tmp_path / "log") as log:
            await work(log)

    return lambda work: asyncio.run(main(work))


class Pipe:
    """A file whose ``read`` is awaited, and brings what there is."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    async def read(self, size: int, /) -> bytes:
        await asyncio.sleep(0)
        return self._data.read(min(size, 700_000))


async def listed(log: AsyncLogHandle) -> list[BlobInfo]:
    return [info async for info in log.list_blobs()]


def test_blobs_of_all_sources_come_back(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(LONG)

    async def work(log: AsyncLogHandle) -> None:
        told: list[int] = []
        sources = (b"", LONG, file, io.BytesIO(LONG), Pipe(LONG))
        blobs = [await log.put_blob(source, progress=told.append) for source in sources]
        assert told == 4 * [*range(BLOB_PART_BYTES, len(LONG), BLOB_PART_BYTES), len(LONG)]
        for blob, data in zip(blobs, (b"", *[LONG] * 4), strict=True):
            reader = await log.open_blob(blob)
            assert (reader.blob, reader.size) == (blob, len(data))
            assert await log.blob_size(blob) == len(data)
            assert await reader.read() == data
            assert b"".join([part async for part in reader]) == data
        assert [info.blob for info in await listed(log)] == blobs

    run(work)


def test_any_range_of_a_blob_can_be_read(run: Run) -> None:
    part = BLOB_PART_BYTES

    async def work(log: AsyncLogHandle) -> None:
        reader = await log.open_blob(await log.put_blob(LONG))
        for begin, size in [
            (0, 1), (0, part), (part - 1, 2), (part, 1), (part + 5, 3 * part), (5 * part, 99),
            (len(LONG) - 1, 5), (len(LONG), 5), (len(LONG) + 9 * part, 5), (3, 0), (part, -1),
        ]:  # fmt: skip
            wanted = LONG[begin:] if size < 0 else LONG[begin : begin + size]
            assert await reader.read(begin, size) == wanted, (begin, size)
        with pytest.raises(BadOption):
            await reader.read(-1)

    run(work)


def test_a_deletion_that_fails_half_way_is_not_told_as_refused(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        blob = await log.put_blob(LONG)

        def full(_: object) -> None:
            raise DiskFull("no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidelog.interface.blobs.async_calls.deletes_of", full)
            with pytest.raises(PartlyAppended, match="no room; delete it again"):
                await log.delete_blob(blob)
        with pytest.raises(UnknownBlob):
            await log.open_blob(blob)
        await log.delete_blob(blob)
        assert [info async for info in log.list_blobs()] == []

    run(work)


def test_damage_and_deletion_are_told(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        blob = await log.put_blob(LONG)
        parts = await log.topic(topics_of_blobs(log.name)[1])
        reader = await log.open_blob(blob)
        await parts.put(part_key(blob, 1), encode_part(blob, 2, LONG[:BLOB_PART_BYTES]))
        assert await reader.read(0, 9) == LONG[:9]
        with pytest.raises(CorruptData):
            await reader.read()
        await log.delete_blob(blob)
        for call in (log.open_blob, log.blob_size, log.delete_blob):
            with pytest.raises(UnknownBlob):
                await call(blob)
        with pytest.raises(UnknownBlob):
            await reader.read()

    run(work)


def test_collection_takes_what_is_torn_or_unused_and_nothing_else(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        assert await listed(log) == []
        assert await log.collect_blobs(0) == BlobCollection()
        kept, also, unused = [await log.put_blob(LONG) for _ in range(3)]
        with pytest.raises(Broken):
            await log.put_blob(breaking(3))
        await log.append(b"a", blobs=(kept,))
        async with log.appender() as appender:
            await appender.append(b"b", blobs=(also,))
        assert [info.is_complete for info in await listed(log)] == [True, True, True, False]
        assert (await log.collect_blobs()).kept == 4
        done = await log.collect_blobs(0)
        assert (done.kept, done.deleted, done.torn) == (2, 1, 1)
        assert [info.blob for info in await listed(log)] == [kept, also]
        assert await (await log.open_blob(kept)).read() == LONG
        with pytest.raises(UnknownBlob):
            await log.open_blob(unused)

    run(work)


def test_blobs_are_put_at_once(run: Run) -> None:
    async def work(log: AsyncLogHandle) -> None:
        blobs = await asyncio.gather(*[log.put_blob(LONG[:size]) for size in range(5)])
        assert [await log.blob_size(blob) for blob in blobs] == [0, 1, 2, 3, 4]

    run(work)
