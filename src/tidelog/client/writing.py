"""The writing half of a served topic for asyncio: append, put, delete, stage and publish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Unpack

from tidelog.client.appender import AsyncRemoteAppender
from tidelog.client.orders import OneEntry, Order, Orders, checked_size
from tidelog.client.run import attachments_of
from tidelog.client.session import Session
from tidelog.errors import BadEntry, Sealed
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import (
    Discard,
    Done,
    Publish,
    StageBatches,
    Staged,
    TopicDescription,
)
from tidelog.interface.appends import Append, AppendOptions, Part
from tidelog.interface.positions import Published
from tidelog.interface.records import Receipt
from tidelog.limits import MIB


class AsyncWriting:
    """All calls belong into one event loop.  An append returns when it is durable and ordered."""

    def __init__(self, session: Session, described: TopicDescription) -> None:
        self._session = session
        self._name = described.name
        session.learn(described)
        self.known: Final = session.pool.topics[described.name]
        """What is known of the topic; for any thread."""
        self._orders = Orders(self.known)

    @property
    def _described(self) -> TopicDescription:
        return self.known.described

    @property
    def name(self) -> str:
        return self._name

    @property
    def versions(self) -> str:
        """``"log"``: GLSNs are the write versions of keys; ``"explicit"``: writers give them."""
        return self._described.versions

    @property
    def key_streams(self) -> int:
        """How many of the first log streams take keys; those added later take none."""
        return self._described.key_streams

    # -- appending ----------------------------------------------------------------------------

    async def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append one entry, which stays until it is trimmed; a ``key`` only picks the stream."""
        return await self._placed(
            lambda: self._orders.append(value, key, stream, options, blobs), key, stream, options
        )

    async def append_batch(
        self,
        values: Sequence[bytes],
        *,
        stream: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Append entries without keys; they get neighbouring GLSNs, all or none."""
        return await self._placed(
            lambda: self._orders.many.append_batch(values, stream, options), b"", stream, options
        )

    async def put(
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
        return await self._one(self._orders.write(entry, options), options)

    async def put_batch(
        self,
        items: Iterable[tuple[bytes, bytes]],
        *,
        storage_id: int = 0,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Set many keys at once, all or none; one receipt for each log stream they went to."""
        return await self._many(self._orders.many.put_batch(items, storage_id, options), options)

    async def delete(
        self,
        key: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> Receipt:
        """Delete a key.  The entry stays until compaction has removed all that is older."""
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return await self._one(self._orders.write(entry, options), options)

    async def delete_storage(
        self,
        storage_id: int,
        *,
        write_version: int | None = None,
        **options: Unpack[AppendOptions],
    ) -> tuple[Receipt, ...]:
        """Delete all keys of a storage that are older than this; one entry in each log stream."""
        append = self._orders.many.delete_storage(storage_id, write_version, options)
        return await self._many(append, options)

    async def write(
        self, entries: Sequence[Entry], **options: Unpack[AppendOptions]
    ) -> tuple[Receipt, ...]:
        """Append entries of any kinds that have keys, all or none."""
        return await self._many(self._orders.many.write(entries, options), options)

    def appender(self, *, bytes_max: int = 8 * MIB) -> AsyncRemoteAppender:
        """Append many entries without waiting for each: see ``AsyncAppenderHandle``."""
        return AsyncRemoteAppender(self._session, self.name, self._orders, bytes_max)

    async def _placed(
        self, order: Callable[[], Order], key: bytes, stream: int | None, options: AppendOptions
    ) -> Receipt:
        """Append to whose turn it is; if that one was sealed, to the next."""
        while True:
            try:
                return await self._one(order(), options)
            except Sealed:
                if not self._orders.has_choice(key, stream, options):
                    raise

    async def _one(self, order: Order, options: AppendOptions) -> Receipt:
        timeout = options.get("timeout")
        if isinstance(order, OneEntry):
            return await self._session.append_one(self.name, order, timeout)
        return (await self._session.append(order, timeout))[0]

    async def _many(self, append: Append, options: AppendOptions) -> tuple[Receipt, ...]:
        return await self._session.append(append, options.get("timeout"))

    # -- staging ------------------------------------------------------------------------------

    async def stage(self, parts: Sequence[Part]) -> int:
        """Keep batches until they are published; returns the number to publish them by."""
        if not parts:
            raise BadEntry("nothing to stage: give at least one part")
        checked_size(parts)
        request = StageBatches(self.name, tuple(part.stream for part in parts))
        answer = await self._session.ask(request, Staged, attachments=attachments_of(parts))
        return answer.stage

    async def publish(self, writer: str, batch: int, stages: Sequence[int]) -> Published:
        """Append what was staged, in this order, once for each writer and batch number."""
        return await self._session.ask(Publish(self.name, writer, batch, tuple(stages)), Published)

    async def discard(self, stages: Sequence[int]) -> None:
        """Forget what was staged; what was published or forgotten before is no error."""
        await self._session.ask(Discard(self.name, tuple(stages)), Done)
