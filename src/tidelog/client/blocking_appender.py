"""Appends many entries without waiting for each, for threads that block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Generic, Self, TypeVar

from tidelog.client.gathering import Gathering, Pending, PendingEntries
from tidelog.client.loop_thread import LoopThread
from tidelog.client.orders import OneEntry, Orders, checked_size
from tidelog.client.session import Session
from tidelog.client.shipments import Ticket
from tidelog.errors import LogError
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append
from tidelog.interface.flow import Flow
from tidelog.interface.records import Receipt, Receipts, all_receipts, only_receipt

T = TypeVar("T")


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
        self._flow = Flow(bytes_max, thread.check_waiter)
        self._lock = Lock()
        self._turn: Callable[[], None] | None = None
        """The call that the loop has not come to yet."""
        self._tickets: list[tuple[int, Ticket]] = []
        """What goes with it, by log streams."""
        self._gathering: dict[int, Gathering[Future[Receipt]]] = {}
        """The last of them for each log stream."""

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]:
        return self._submit(self._orders.one_append(value, key, stream, blobs))

    def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""
        return self._ship(self._orders.many.append_batch(values, stream, {}), only_receipt)

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

    def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""
        return self._ship(self._orders.many.put_batch(items, storage_id, {}), all_receipts)

    def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return self._submit(self._orders.one_write(entry))

    def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush.

        BadOption in a callback of a receipt, and LogClosed in a forked process, where nothing
        would ever be through.
        """
        self._flow.flush()

    def _submit(self, order: OneEntry) -> Future[Receipt]:
        """Send an entry, together with others that come before the loop gets to it."""
        self._thread.check_caller()
        self._flow.enter(order.size)
        future: Future[Receipt] = Future()
        try:
            with self._lock:
                self._add(order, future)
        except BaseException:
            self._flow.leave(order.size, None)
            raise
        return future

    def _ship(self, append: Append, outcome: Callable[[Receipts], T]) -> Future[T]:
        """Send batches, behind what came before them in their log streams."""
        size = checked_size(append.parts)
        self._thread.check_caller()
        self._flow.enter(size)
        future: Future[T] = Future()
        try:
            pending = _Batches(self._flow, size, future, outcome)
            tickets = self._session.wholes(append, pending, None, apart=True)
            with self._lock:
                self._join_turn()
                self._tickets += tickets
                for stream, _ in tickets:
                    self._gathering.pop(stream, None)  # Entries that come now lie behind it.
        except BaseException:
            self._flow.leave(size, None)
            raise
        return future

    def _add(self, order: OneEntry, future: Future[Receipt]) -> None:
        self._join_turn()
        gathering = self._gathering.get(order.stream)
        if gathering is None or not gathering.add(order, future):
            gathering = Gathering.begin(
                self._session, order, _Entries(self._flow, order.size, [future])
            )
            self._gathering[order.stream] = gathering
            self._tickets.append((order.stream, gathering.ticket))

    def _join_turn(self) -> None:
        """Begin a turn, unless what comes now may still go with the last one."""
        if self._turn is not None and self._thread.last_call is self._turn:
            return
        tickets: list[tuple[int, Ticket]] = []
        turn = partial(self._end_turn, tickets)
        self._thread.call(turn)
        self._turn, self._tickets, self._gathering = turn, tickets, {}

    def _end_turn(self, tickets: list[tuple[int, Ticket]]) -> None:
        """In the loop: nothing is added from now on."""
        with self._lock:
            if self._tickets is tickets:
                self._turn, self._gathering = None, {}
        self._session.submit_all(self._topic, tickets)
        tickets.clear()  # The thread remembers its last call for as long as there is no other.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._flow.close()
        except LogError:
            if error is None:
                raise
        if error is None:
            self._flow.flush()


@dataclass(slots=True, eq=False)
class _Entries(PendingEntries[Future[Receipt]]):
    def tell(self, result: Receipt, /) -> None:
        for future, own in zip(self.futures, result.each(), strict=True):
            try:
                future.set_result(own)
            except InvalidStateError:
                _tell_waiters(future)

    def tell_failure(self, error: BaseException) -> None:
        for future in self.futures:
            _fail(future, error)


@dataclass(slots=True, eq=False)
class _Batches(Pending[Receipts], Generic[T]):
    """Who waits for batches, and what of their receipts."""

    future: Future[T]
    outcome: Callable[[Receipts], T]

    def tell(self, result: Receipts, /) -> None:
        try:
            self.future.set_result(self.outcome(result))
        except InvalidStateError:
            _tell_waiters(self.future)

    def tell_failure(self, error: BaseException) -> None:
        _fail(self.future, error)


def _tell_waiters(cancelled: Future[T]) -> None:
    """Whoever waits for several futures is told of one that was cancelled."""
    cancelled.set_running_or_notify_cancel()


def _fail(future: Future[T], error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
