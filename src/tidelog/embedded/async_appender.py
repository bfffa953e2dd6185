"""Appends many entries without waiting for each, for asyncio.  See ``appender``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from tidelog.embedded.appender import size_of
from tidelog.embedded.commits import LoopCommits
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append, Appends
from tidelog.interface.async_flow import AsyncFlow
from tidelog.interface.records import Receipt, Receipts, all_receipts, only_receipt

T = TypeVar("T")


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
        append = self._appends.append(value, key, stream, {}, blobs)
        return await self._submit(append, only_receipt)

    async def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> asyncio.Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""
        return await self._submit(self._appends.append_batch(values, stream, {}), only_receipt)

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
        return await self._submit(self._appends.write([entry], {}), only_receipt)

    async def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> asyncio.Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""
        return await self._submit(self._appends.put_batch(items, storage_id, {}), all_receipts)

    async def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> asyncio.Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return await self._submit(self._appends.write([entry], {}), only_receipt)

    async def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        await self._flow.flush()

    async def _submit(self, append: Append, outcome: Callable[[Receipts], T]) -> asyncio.Future[T]:
        size = size_of(append)
        await self._flow.enter(size)
        try:
            told = self._commits.post(append)
        except BaseException:
            self._flow.leave(size, None)
            raise
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        told.add_done_callback(partial(self._on_done, future, size, outcome))
        return future

    def _on_done(
        self,
        future: asyncio.Future[T],
        size: int,
        outcome: Callable[[Receipts], T],
        told: asyncio.Future[Receipts],
    ) -> None:
        error = told.exception()
        if not future.done():
            if error is not None:
                future.set_exception(error)
                future.exception()  # ``flush`` raises it; whoever awaits the future as well.
            else:
                future.set_result(outcome(told.result()))
        self._flow.leave(size, error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._flow.close()
        if error is None:
            await self._flow.flush()
