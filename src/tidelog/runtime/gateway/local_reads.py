"""Reads of the replicas of this node alone.  No state of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.pages import EnginePage, chosen_streams, find_piece, read_page
from tidelog.embedded.positions import find_end, find_time
from tidelog.errors import Busy, CorruptData, UnknownStream
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import FindEnd, FindTime, Get, Position, ReadPage
from tidelog.interface.routing import stream_of_key
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.local_log import LocalLog
from tidelog.runtime.gateway.surroundings import Replicas
from tidelog.runtime.gateway.tides import Tides
from tidelog.server.backend import Reply
from tidelog.server.reads import encode_page
from tidelog.types import StreamId

T = TypeVar("T")

_SETTLE_SECONDS: Final = 5.0
"""For one write to the disk."""


class LocalReads:
    """Reads of the replicas of this node alone."""

    def __init__(
        self, replicas: Replicas, cluster: ClusterMap, tides: Tides, readers: WorkThreads
    ) -> None:
        self.replicas = replicas
        self.cluster = cluster
        self.tides = tides
        self.readers = readers

    def view(self, topic: TopicManifest, high: int, cut_ends: CutEnds | None = None) -> LocalLog:
        """The local streams of a topic, to be read up to ``high``."""
        return LocalLog(
            self.replicas.node_store,
            self.replicas.maintenance,
            high=high,
            trim_end=self.cluster.trim_end,
            cut_ends=cut_ends,
        )

    def readable(self, topic: TopicManifest, streams: Sequence[int] = ()) -> tuple[int, ...]:
        """The streams of a topic, or of those given, that can be read here."""
        return tuple(
            stream
            for stream in streams or topic.streams
            if self.tides.end(topic.topic, (stream,)) is not None
        )

    async def settle(self, topic: TopicManifest, streams: Sequence[int] = ()) -> None:
        """Wait until all that is ordered of streams that are here can be read here.

        An append may have been answered a moment before.  Busy if that takes too long.
        """
        for stream in self.readable(topic, streams):
            end = self.replicas.ordered_end(StreamId(stream))
            if not await self.tides.wait_for(topic.topic, (stream,), end, _SETTLE_SECONDS):
                raise Busy(f"what log stream {stream} has ordered cannot be read yet: try again")

    async def catch_up(self, topic: TopicManifest, stream: int) -> int:
        """Wait until all that was ordered of a stream before can be read here, up to the returned
        GLSN.  Unreachable, Busy.

        The metadata repository has to say how much that is: whoever leads here may be deposed, or
        not have heard of cuts by which its predecessor answered.
        """
        await self.cluster.refresh(_SETTLE_SECONDS)
        end = self.cluster.high_watermark(topic.topic) + 1
        here = self.readable(topic, (stream,))
        if not here or not await self.tides.wait_for(topic.topic, here, end, _SETTLE_SECONDS):
            raise Busy(f"what log stream {stream} has ordered cannot be read here yet: try again")
        return end

    async def page(
        self, topic: TopicManifest, message: ReadPage, finish: Callable[[EnginePage], T]
    ) -> T:
        """A page of streams that are all here; UnknownStream if one is not.

        ``finish`` makes an answer of it, in a thread.
        """
        streams = chosen_streams(topic, message.streams)
        end = self.tides.end(topic.topic, streams)
        if end is None:
            raise UnknownStream(f"log streams of topic {topic.name!r} are not on this node")
        return await self.page_up_to(topic, message, end, finish)

    async def page_up_to(
        self,
        topic: TopicManifest,
        message: ReadPage,
        end: int,
        finish: Callable[[EnginePage], T],
    ) -> T:
        begin = message.glsn_begin
        log = self.view(topic, end - 1)
        if message.wait_ms and begin >= end:
            return finish(EnginePage([], begin, begin, log.first_available(topic), end - 1))
        try:
            return await self.readers.run(
                lambda: finish(
                    read_page(
                        log, topic, begin, message.glsn_end, message.streams, message.bytes_max
                    )
                )
            )
        except CorruptData:
            await self._look_for_damage(topic, message, log)
            raise

    async def _look_for_damage(
        self, topic: TopicManifest, message: ReadPage, log: LocalLog
    ) -> None:
        """Tell which streams a page cannot be read of."""
        begin, end, size = message.glsn_begin, message.glsn_end, message.bytes_max
        for stream in chosen_streams(topic, message.streams):
            read = partial(read_page, log, topic, begin, end, (stream,), size)
            try:
                await self.readers.run(read)
            except CorruptData as error:
                self.replicas.report_damage(StreamId(stream), str(error))

    async def get(self, topic: TopicManifest, message: Get) -> Reply:
        stream = stream_of_key(topic, message.key)
        log = self.view(topic, await self.catch_up(topic, stream) - 1)

        def look() -> Reply:
            found = find_piece(log, topic, message.key, message.storage_id)
            return encode_page(EnginePage([found] if found else [], 0, 0, 0, 0))

        try:
            return await self.readers.run(look)
        except CorruptData as error:
            self.replicas.report_damage(StreamId(stream), str(error))
            raise

    async def find_end(self, topic: TopicManifest, message: FindEnd, high: int) -> Position:
        """Bytes are counted of the streams that are here, which stand for the others."""
        here = self.readable(topic)
        share = message.bytes_max * len(here) // len(topic.streams)
        cuts = self.tides.cut_ends(topic.topic, here) if here else None
        log = self.view(topic, high, cuts)
        return await self.readers.run(
            lambda: find_end(
                log,
                topic,
                message.glsn_begin,
                records_max=message.records_max,
                bytes_max=max(share, 1) if message.bytes_max and here else 0,
                streams=here,
            )
        )

    async def find_time(self, topic: TopicManifest, message: FindTime) -> Position:
        """Of the streams that are here; the first position that there is if none is."""
        here = self.readable(topic)
        end = self.tides.end(topic.topic, here) if here else None
        log = self.view(topic, (end or 1) - 1)
        if not here:
            available = log.first_available(topic)
            return Position(available, available, 0)
        return await self.readers.run(
            lambda: find_time(log, topic, message.timestamp_us, streams=here)
        )
