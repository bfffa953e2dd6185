"""Appends many entries without waiting for each, for asyncio.  See ``appender``."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Self

from tidelog.embedded.appender import size_of
from tidelog.embedded.commits import LoopCommits
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append, Appends
from tidelog.interface.async_flow import AsyncFlow
from tidelog.interface.records import Receipt


class AsyncAppender:
    """Each call returns a future for the receipt, and waits only while too much is under way."""

    def __init__(self, commits: LoopCommits, appends: Appends, bytes_max: int) -> None:
        self._commits = commits
        self._appends = appends
        self._flow = AsyncFlow(bytes_max)

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]:
        return await self._submit(self._appends.append(value, key, stream, {}, blobs))

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]:
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return await self._submit(self._appends.write([entry], {}))

    async def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> asyncio.Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return await self._submit(self._appends.write([entry], {}))

    async def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        await self._flow.flush()

    async def _submit(self, append: Append) -> asyncio.Future[Receipt]:
        size = size_of(append)
        await self._flow.enter(size)
        try:
            outcome = self._commits.post(append)
        except BaseException:
            self._flow.leave(size, None)
            raise
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(partial(self._on_done, future, size))
        return future

    def _on_done(
        self,
        future: asyncio.Future[Receipt],
        size: int,
        outcome: asyncio.Future[tuple[Receipt, ...]],
    ) -> None:
        error = outcome.exception()
        if not future.done():
            if error is not None:
                future.set_exception(error)
                future.exception()  # ``flush`` raises it; whoever awaits the future as well.
            else:
                future.set_result(outcome.result()[0])
        self._flow.leave(size, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._flow.flush()
        else:
            await self._flow.settle()
