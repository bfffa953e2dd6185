"""Topics of a cluster: what there is, where it lies, and making more.

Internal topics, which the log keeps for itself, are made when they are first needed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.core.order.commands import TopicVersions
from tidelog.embedded.engine import INTERNAL_PREFIX, check_topic
from tidelog.errors import BadOption, DeadlineExceeded, TopicExists
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.message_fields import Placement
from tidelog.formats.messages import AddStreams, CreateTopic, TopicDescription
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.surroundings import Metadata, Replicas
from tidelog.runtime.metadata_topics import add_streams, create_topic
from tidelog.types import NO_NODE, StreamId

_LOOK_SECONDS: Final = 0.1


class Topics:
    """Belongs to one event loop."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: Metadata,
        cluster: ClusterMap,
        *,
        replicas_usual: int,
        ready_seconds: float,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._cluster = cluster
        self._replicas_usual = replicas_usual
        self._ready_seconds = ready_seconds
        self._making: dict[str, asyncio.Task[TopicManifest]] = {}
        """Internal topics that are being made."""

    def describe(self, topic: TopicManifest, high: int, first_available: int) -> TopicDescription:
        return TopicDescription(
            topic=topic.topic,
            name=topic.name,
            streams=topic.streams,
            key_streams=topic.key_streams,
            versions=topic.versions,
            first_available=first_available,
            high_watermark=high,
            placements=tuple(self._placement(StreamId(stream)) for stream in topic.streams),
        )

    def _placement(self, stream: StreamId) -> Placement:
        address = self._cluster.address
        leader = self._replicas.leader_of(stream)
        replicas = [address(node) for node in self._cluster.hosts(stream)]
        return Placement(
            stream,
            address(leader),
            tuple([place for place in replicas if place]),
            self._cluster.is_sealed(stream),
        )

    # -- making more --------------------------------------------------------------------------

    async def create(self, message: CreateTopic, seconds: float) -> TopicManifest:
        if message.topic.startswith(INTERNAL_PREFIX):
            raise BadOption(
                f"names that begin with {INTERNAL_PREFIX!r} are internal: not {message.topic!r}"
            )
        check_topic(message.topic, message.streams, message.versions)
        versions: TopicVersions = "log" if message.versions == "log" else "explicit"
        await self._create(message.topic, message.streams, message.replicas, versions, seconds)
        return await self._wait_until_led(message.topic, seconds)

    async def add_streams(self, message: AddStreams, seconds: float) -> TopicManifest:
        known = await self._cluster.find_topic(message.topic, seconds)
        if message.count < 1:
            raise BadOption(f"at least one log stream is added, not {message.count}")
        check_topic(message.topic, len(known.streams) + message.count, known.versions)
        await add_streams(self._metadata, message.topic, streams=message.count, seconds=seconds)
        await self._cluster.refresh(seconds)
        return await self._wait_until_led(message.topic, seconds)

    async def internal(self, name: str, streams: int, seconds: float) -> TopicManifest:
        """A topic of the log itself, made when it is first needed."""
        if self._cluster.has_topic(name):
            return self._cluster.topic(name)
        making = self._making.get(name)
        if making is None:
            making = asyncio.ensure_future(self._make_internal(name, streams))
            self._making[name] = making
            making.add_done_callback(lambda _: self._making.pop(name, None))
        try:
            return await asyncio.wait_for(asyncio.shield(making), seconds)
        except TimeoutError:
            raise DeadlineExceeded(f"topic {name!r} was not made within {seconds:g} s") from None

    async def _make_internal(self, name: str, streams: int) -> TopicManifest:
        seconds = self._ready_seconds
        await self._cluster.refresh(seconds)
        if not self._cluster.has_topic(name):
            try:
                await self._create(name, streams, 0, "log", seconds)
            except TopicExists:
                pass  # Another node was faster.
        return await self._wait_until_led(name, seconds)

    async def close(self) -> None:
        tasks = list(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _create(
        self, name: str, streams: int, replicas: int, versions: TopicVersions, seconds: float
    ) -> None:
        usual = min(self._replicas_usual, len(self._cluster.nodes()))
        await create_topic(
            self._metadata,
            name,
            streams=streams,
            replicas=replicas or usual,
            versions=versions,
            seconds=seconds,
        )
        await self._cluster.refresh(seconds)

    async def _wait_until_led(self, name: str, seconds: float) -> TopicManifest:
        """Wait until every log stream of a topic has a leader, so that it can be written to."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(seconds, self._ready_seconds)
        topic = self._cluster.topic(name)
        while not all(self._is_led(stream) for stream in topic.streams):
            left = deadline - loop.time()
            if left <= 0:
                raise DeadlineExceeded(
                    f"topic {name!r} was made, but not all of its log streams have leaders yet"
                )
            await self._cluster.wait_for_change(min(left, _LOOK_SECONDS))
        return topic

    def _is_led(self, stream: int) -> bool:
        return self._replicas.leader_of(StreamId(stream)) != NO_NODE
