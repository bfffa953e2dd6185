"""BLOBs of a topic for asyncio, embedded or served.  See ``blobs``, whose rules hold here."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from tidelog.errors import UnknownTopic
from tidelog.formats.topic_blob import BlobDescription, blob_key, topics_of_blobs
from tidelog.interface.async_handles import AsyncTopicHandle
from tidelog.interface.blobs.async_reader import AsyncBlobReader
from tidelog.interface.blobs.census import BlobCensus, info_of
from tidelog.interface.blobs.collecting import CATCH_UPS, Collecting
from tidelog.interface.blobs.figures import BlobCollection, BlobInfo
from tidelog.interface.blobs.lookup import (
    deleted_in_part,
    deletes_of,
    key_of,
    mark_of,
    to_delete,
    to_read,
    unknown,
)
from tidelog.interface.blobs.sources import AsyncBlobSource, async_parts_of, size_of
from tidelog.interface.blobs.upload import PARTS_UNDER_WAY, UPLOAD_BYTES, Upload
from tidelog.interface.records import Receipt


class AsyncBlobCalls:
    """What a handle of a topic offers for BLOBs."""

    _kept_blobs: AsyncTopicBlobs | None = None

    @abstractmethod
    def _topic_blobs(self) -> AsyncTopicBlobs: ...

    @property
    def _blobs(self) -> AsyncTopicBlobs:
        if self._kept_blobs is None:
            self._kept_blobs = self._topic_blobs()
        return self._kept_blobs

    async def put_blob(
        self, source: AsyncBlobSource, *, progress: Callable[[int], None] | None = None
    ) -> int:
        """Store the bytes of a source as a BLOB of the topic; see ``BlobCalls.put_blob``.

        A file may have a ``read`` that is awaited; of any other it is called in a thread.
        """
        return await self._blobs.put(source, progress)

    async def open_blob(self, blob: int) -> AsyncBlobReader:
        """A reader of a BLOB of the topic; UnknownBlob if there is none of that id."""
        return await self._blobs.open(blob)

    async def blob_size(self, blob: int) -> int:
        """How many bytes a BLOB of the topic has."""
        return (await self._blobs.description(blob)).size

    async def delete_blob(self, blob: int) -> None:
        """Delete a BLOB, whatever refers to it; one whose deletion broke off is gone on with."""
        await self._blobs.delete(blob)

    def list_blobs(self) -> AsyncIterator[BlobInfo]:
        """The BLOBs of the topic, with uploads and deletions that are not at their end."""
        return self._blobs.listed()

    async def collect_blobs(
        self,
        older_than: float = 86400.0,
        *,
        progress: Callable[[BlobCollection], None] | None = None,
    ) -> BlobCollection:
        """Delete BLOBs to which no entry refers, and torn uploads; see ``BlobCalls``."""
        return await self._blobs.collect(older_than, progress)


class AsyncTopicBlobs:
    """The BLOBs of one topic.

    ``companion`` gives a handle for the topic of a name; one with ``streams`` is made if missing.
    """

    def __init__(
        self,
        topic: AsyncTopicHandle,
        companion: Callable[[str, int], Awaitable[AsyncTopicHandle]],
    ) -> None:
        self._topic = topic
        self._companion = companion
        self._known: tuple[AsyncTopicHandle, AsyncTopicHandle] | None = None

    # -- the topics ---------------------------------------------------------------------------

    async def _made(self) -> tuple[AsyncTopicHandle, AsyncTopicHandle]:
        """The topics of descriptions and parts (B2)."""
        if self._known is None:
            names = topics_of_blobs(self._topic.name)
            parts = await self._companion(names[1], len(self._topic.streams))
            self._known = await self._companion(names[0], 1), parts
        return self._known

    async def _there(self) -> tuple[AsyncTopicHandle, AsyncTopicHandle] | None:
        """The same if they have been made; None if there never was a BLOB."""
        if self._known is None:
            names = topics_of_blobs(self._topic.name)
            try:
                descriptions = await self._companion(names[0], 0)
                self._known = descriptions, await self._companion(names[1], 0)
            except UnknownTopic:
                return None
        return self._known

    # -- one BLOB -----------------------------------------------------------------------------

    async def put(self, source: AsyncBlobSource, progress: Callable[[int], None] | None) -> int:
        upload = Upload(size_of(source))
        descriptions, parts = await self._made()
        under_way: deque[asyncio.Future[Receipt]] = deque()
        async with (
            parts.appender(bytes_max=UPLOAD_BYTES) as appender,
            aclosing(async_parts_of(source)) as pieces,
        ):
            async for data in pieces:
                if (news := upload.announcement()) is not None:
                    await descriptions.put(upload.key, news)
                if len(under_way) == PARTS_UNDER_WAY:
                    await under_way.popleft()
                under_way.append(await appender.put(*upload.part(data)))
                if progress is not None:
                    progress(upload.size)
        await descriptions.put(upload.key, upload.description())
        return upload.blob

    async def open(self, blob: int) -> AsyncBlobReader:
        description = await self.description(blob)
        return AsyncBlobReader(description, (await self._made())[1].get)

    async def description(self, blob: int) -> BlobDescription:
        """What is known of a complete BLOB."""
        key, topics = key_of(blob), await self._there()
        if topics is None:
            raise unknown(blob)
        return to_read(blob, await topics[0].get(key))

    async def delete(self, blob: int) -> None:
        key, topics = key_of(blob), await self._there()
        if topics is None:
            raise unknown(blob)
        await self._erase(to_delete(blob, await topics[0].get(key)))

    async def _erase(self, found: BlobDescription) -> None:
        """B1."""
        descriptions, parts = await self._made()
        key = blob_key(found.blob)
        if (mark := mark_of(found)) is not None:
            await descriptions.put(key, mark)
        with deleted_in_part(found.blob):
            for entries in deletes_of(found):
                await parts.write(entries)
            await descriptions.delete(key)

    # -- all of them --------------------------------------------------------------------------

    async def listed(self) -> AsyncGenerator[BlobInfo, None]:
        topics = await self._there()
        if topics is None:
            return
        descriptions, _ = topics
        begin, end = await _bounds(descriptions)
        census = BlobCensus()
        async for record in descriptions.read(begin, end):
            census.see(record)
        async for record in descriptions.read(begin, end):
            if (info := census.show(record)) is not None:
                yield info
        for blob in census.torn:
            if (info := info_of(await descriptions.get(blob_key(blob)))) is not None:
                yield info

    async def collect(
        self, older_than: float, progress: Callable[[BlobCollection], None] | None
    ) -> BlobCollection:
        collecting = Collecting(older_than, progress)
        topics = await self._there()
        if topics is None:
            return collecting.figures()
        descriptions, _ = topics
        census = collecting.census
        async for record in descriptions.read():
            census.see(record)
        await self._look_for_references(collecting)
        for blob in census.candidates():
            found = census.may_go(await descriptions.get(blob_key(blob)))
            if found is not None:
                await self._erase(found)
                collecting.erased(found)
        return collecting.figures()

    async def _look_for_references(self, collecting: Collecting) -> None:
        """Look at every entry of the topic, also at those that come meanwhile."""
        begin, end = await _bounds(self._topic)
        for _ in range(CATCH_UPS):
            if begin == end or not collecting.census.complete:
                return
            async for record in self._topic.read(begin, end):
                collecting.look(record)
            begin, end = end, (await self._topic.position()).glsn


async def _bounds(topic: AsyncTopicHandle) -> tuple[int, int]:
    place = await topic.position()
    return place.first_available, place.glsn
