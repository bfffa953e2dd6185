"""The writing half of a served topic for callers that block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar, Unpack

from tidelog.client.blocking_appender import RemoteAppender
from tidelog.client.loop_thread import LoopThread
from tidelog.client.orders import OneEntry, Order, Orders
from tidelog.client.session import Session
from tidelog.client.shipments import Ticket
from tidelog.client.topic import AsyncRemoteTopic
from tidelog.errors import LogClosed, Sealed
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append, AppendOptions, Part
from tidelog.interface.positions import Published
from tidelog.interface.records import Receipt
from tidelog.limits import MIB

T = TypeVar("T")


class BlockingWriting:
    """All calls are thread-safe.  An append returns when it is durable and ordered."""

    def __init__(self, topic: AsyncRemoteTopic, session: Session, thread: LoopThread) -> None:
        self._topic = topic
        self._session = session
        self._thread = thread
        self._orders = Orders(topic.known)

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def versions(self) -> str:
        """``"log"``: GLSNs are the write versions of keys; ``"explicit"``: writers give them."""
        return self._topic.versions

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""
        return self._topic.key_streams

    # -- appending ----------------------------------------------------------------------------

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append one entry, which stays until it is trimmed; a ``key`` only picks the stream."""
        return self._placed(
            lambda: self._orders.append(value, key, stream, options, blobs), key, stream, options
        )

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append entries without keys; they get neighbouring GLSNs, all or none."""
        return self._placed(
            lambda: self._orders.many.append_batch(values, stream, options), b"", stream, options
        )

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Set a key.  Compaction keeps the newest write of each key."""
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return self._one(self._orders.write(entry, options), options)

    def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Set many keys at once, all or none; one receipt for each log stream they went to."""
        return self._many(self._orders.many.put_batch(items, storage_id, options), options)

    def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Delete a key.  The entry stays until compaction has removed all that is older."""
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return self._one(self._orders.write(entry, options), options)

    def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Delete all keys of a storage that are older than this; one entry in each log stream."""
        append = self._orders.many.delete_storage(storage_id, write_version, options)
        return self._many(append, options)

    def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        """Append entries of any kinds that have keys, all or none."""
        return self._many(self._orders.many.write(entries, options), options)

    def appender(self, *, bytes_max: int = 8 * MIB) -> RemoteAppender:
        """Append many entries without waiting for each: see ``AppenderHandle``."""
        return RemoteAppender(self._thread, self._session, self.name, self._orders, bytes_max)

    def _placed(
        self, order: Callable[[], Order], key: bytes, stream: int | None, options: AppendOptions
    ) -> Receipt:
        """Append to whose turn it is; if that one was sealed, to the next."""
        while True:
            try:
                return self._one(order(), options)
            except Sealed:
                if not self._orders.has_choice(key, stream, options):
                    raise

    def _one(self, order: Order, options: AppendOptions) -> Receipt:
        if not isinstance(order, OneEntry):
            return self._many(order, options)[0]
        waiter: Future[Receipt] = Future()
        ticket = self._session.loose(order, waiter, options.get("timeout"))
        return self._ship([(order.stream, ticket)], waiter)

    def _many(self, append: Append, options: AppendOptions) -> tuple[Receipt, ...]:
        if append.producer:
            return self._thread.run(self._session.append(append, options.get("timeout")))
        waiter: Future[tuple[Receipt, ...]] = Future()
        return self._ship(self._session.wholes(append, waiter, options.get("timeout")), waiter)

    def _ship(self, tickets: Sequence[tuple[int, Ticket]], waiter: Future[T]) -> T:
        session = self._session
        self._thread.check_caller()
        self._thread.call(partial(session.submit_all, self.name, tickets))
        try:
            return waiter.result()
        except BaseException:
            if waiter.cancel():  # Interrupted: the append itself has no outcome yet.
                with suppress(LogClosed):
                    self._thread.call(partial(session.withdraw, tickets))
            raise

    # -- staging ------------------------------------------------------------------------------

    def stage(self, parts: Sequence[Part]) -> int:
        """Keep batches until they are published; returns the number to publish them by."""
        return self._thread.run(self._topic.stage(parts))

    def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        """Append what was staged, in this order, once for each writer and batch number."""
        return self._thread.run(self._topic.publish(writer, batch, stages))

    def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""
        self._thread.run(self._topic.discard(stages))
