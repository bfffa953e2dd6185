"""Appends many entries without waiting for each, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from tidelog.client.gathering import Gathering, Pending, PendingEntries
from tidelog.client.orders import OneEntry, Orders, checked_size
from tidelog.client.session import Session
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append
from tidelog.interface.async_flow import AsyncFlow
from tidelog.interface.records import Receipt, Receipts, all_receipts, only_receipt

T = TypeVar("T")


class AsyncRemoteAppender:
    """Each call returns a future for the receipt, and waits only while too much is under way."""

    def __init__(self, session: Session, topic: str, orders: Orders, bytes_max: int) -> None:
        self._session = session
        self._topic = topic
        self._orders = orders
        self._flow = AsyncFlow(bytes_max)
        self._gathering: dict[int, Gathering[asyncio.Future[Receipt]]] = {}
        """What was begun last for each log stream."""

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> asyncio.Future[Receipt]:
        order = self._orders.one_append(value, key, stream, blobs)
        if not self._flow.try_enter(order.size):
            await self._flow.enter(order.size)
        return self._submit(order)

    async def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> asyncio.Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""
        return await self._ship(self._orders.many.append_batch(values, stream, {}), only_receipt)

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
        order = self._orders.one_write(entry)
        await self._flow.enter(order.size)
        return self._submit(order)

    async def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> asyncio.Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""
        return await self._ship(self._orders.many.put_batch(items, storage_id, {}), all_receipts)

    async def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> asyncio.Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        order = self._orders.one_write(entry)
        await self._flow.enter(order.size)
        return self._submit(order)

    async def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        await self._flow.flush()

    def _submit(self, order: OneEntry) -> asyncio.Future[Receipt]:
        """Send an entry, together with others of this turn of the loop."""
        future: asyncio.Future[Receipt] = self._session.loop.create_future()
        gathering = self._gathering.get(order.stream)
        if gathering is None or not gathering.ticket.is_open or not gathering.add(order, future):
            gathering = Gathering.begin(
                self._session, order, _Entries(self._flow, order.size, [future])
            )
            self._gathering[order.stream] = gathering
            self._session.gather(self._topic, order.stream, gathering.ticket)
        return future

    async def _ship(self, append: Append, outcome: Callable[[Receipts], T]) -> asyncio.Future[T]:
        """Send batches, behind what came before them in their log streams."""
        size = checked_size(append.parts)
        await self._flow.enter(size)
        future: asyncio.Future[T] = self._session.loop.create_future()
        pending = _Batches(self._flow, size, future, outcome)
        tickets = self._session.wholes(append, pending, None, apart=True)
        self._session.submit_all(self._topic, tickets)
        return future

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


@dataclass(slots=True, eq=False)
class _Entries(PendingEntries[asyncio.Future[Receipt]]):
    def tell(self, result: Receipt, /) -> None:
        for future, own in zip(self.futures, result.each(), strict=True):
            if not future.done():
                future.set_result(own)

    def tell_failure(self, error: BaseException) -> None:
        for future in self.futures:
            _fail(future, error)


@dataclass(slots=True, eq=False)
class _Batches(Pending[Receipts], Generic[T]):
    """Who waits for batches, and what of their receipts."""

    future: asyncio.Future[T]
    outcome: Callable[[Receipts], T]

    def tell(self, result: Receipts, /) -> None:
        if not self.future.done():
            self.future.set_result(self.outcome(result))

    def tell_failure(self, error: BaseException) -> None:
        _fail(self.future, error)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # ``flush`` raises it; whoever awaits the future as well.
