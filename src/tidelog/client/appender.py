"""Appends many entries without waiting for each, for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import msgspec

from tidelog.client.orders import OneEntry, Orders
from tidelog.client.session import Session
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.async_flow import AsyncFlow
from tidelog.interface.records import Receipt


class AsyncRemoteAppender:
    """Each call returns a future for the receipt, and waits only while too much is under way."""

    def __init__(self, session: Session, topic: str, orders: Orders, bytes_max: int) -> None:
        self._session = session
        self._topic = topic
        self._orders = orders
        self._flow = AsyncFlow(bytes_max)

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]:
        return await self._submit(self._orders.one_append(value, key, stream, blobs))

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
        return await self._submit(self._orders.one_write(entry))

    async def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> asyncio.Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return await self._submit(self._orders.one_write(entry))

    async def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        await self._flow.flush()

    async def _submit(self, order: OneEntry) -> asyncio.Future[Receipt]:
        await self._flow.enter(order.size)
        # Only now, so that the time it was held back does not count.
        waiter = _Pending(self._flow, order.size, self._session.loop.create_future())
        ticket = self._session.single(order, waiter, None)
        self._session.submit(self._topic, order.stream, ticket)
        return waiter.future

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


class _Pending(msgspec.Struct, eq=False, gc=False):
    """A future, and the room that its append takes."""

    flow: AsyncFlow
    size: int
    future: asyncio.Future[Receipt]

    def done(self) -> bool:
        return False  # Even if nobody waits for it any more, its room has to be given back.

    def set_result(self, result: Receipt, /) -> None:
        if not self.future.done():
            self.future.set_result(result)
        self.flow.leave(self.size, None)

    def set_exception(self, exception: BaseException, /) -> None:
        if not self.future.done():
            self.future.set_exception(exception)
            self.future.exception()  # ``flush`` raises it; whoever awaits the future as well.
        self.flow.leave(self.size, exception)
