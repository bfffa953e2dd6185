"""Appends many entries without waiting for each, for threads that block."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from tidelog.client.loop_thread import LoopThread
from tidelog.client.orders import OneEntry, Orders
from tidelog.client.session import Session
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.flow import Flow
from tidelog.interface.records import Receipt


class RemoteAppender:
    """Each call returns a future for the receipt, and blocks only while too much is under way.

    Thread-safe; the entries of one thread keep their order within a log stream.
    """

    def __init__(
        self, thread: LoopThread, session: Session, topic: str, orders: Orders, bytes_max: int
    ) -> None:
        self._thread = thread
        self._session = session
        self._topic = topic
        self._orders = orders
        self._flow = Flow(bytes_max)

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]:
        return self._submit(self._orders.one_append(value, key, stream, blobs))

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]:
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return self._submit(self._orders.one_write(entry))

    def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return self._submit(self._orders.one_write(entry))

    def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        self._flow.flush()

    def _submit(self, order: OneEntry) -> Future[Receipt]:
        future: Future[Receipt] = Future()
        waiter = _Pending(self._flow, order.size, future)
        self._thread.check_caller()
        self._flow.enter(order.size)
        try:
            # Only now, so that the time it was held back does not count.
            ticket = self._session.single(order, waiter, None)
            self._thread.call(partial(self._session.submit, self._topic, order.stream, ticket))
        except BaseException:
            self._flow.leave(order.size, None)
            raise
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._flow.flush()
        else:
            self._flow.settle()


class _Pending:
    """A future, and the room that its append takes."""

    __slots__ = ("_flow", "_future", "_size")

    def __init__(self, flow: Flow, size: int, future: Future[Receipt]) -> None:
        self._flow = flow
        self._size = size
        self._future = future

    def done(self) -> bool:
        return False  # Even if nobody waits for it any more, its room has to be given back.

    def set_result(self, result: Receipt, /) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_result(result)
        self._flow.leave(self._size, None)

    def set_exception(self, exception: BaseException, /) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(exception)
        self._flow.leave(self._size, exception)
