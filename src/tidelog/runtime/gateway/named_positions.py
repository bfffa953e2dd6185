"""Positions that readers store under a name, in the internal topic ``~positions`` of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import GetPosition, NamedPosition, SetPosition
from tidelog.formats.stored_positions import (
    NO_POSITION,
    POSITIONS_TOPIC,
    decode_position,
    encode_position,
    next_position,
    position_key,
)
from tidelog.runtime.gateway.cells import Cells, Lookup
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.leading import Leading
from tidelog.runtime.gateway.topics import Topics


class LocalPositions:
    """What this node does if it leads the stream of the positions."""

    def __init__(self, cells: Cells, cluster: ClusterMap) -> None:
        self._cells = cells
        self._cluster = cluster

    async def get(self, topic: TopicManifest, message: GetPosition) -> NamedPosition:
        key = position_key(topic.topic, message.name)
        value = await self._cells.look(self._cluster.topic(POSITIONS_TOPIC), key)
        return NO_POSITION if value is None else decode_position(value)

    async def set(
        self, topic: TopicManifest, message: SetPosition, seconds: float
    ) -> NamedPosition:
        key = position_key(topic.topic, message.name)
        stored = NO_POSITION

        def decide(look: Lookup) -> Mapping[bytes, bytes]:
            nonlocal stored
            value = look(key)
            known = NO_POSITION if value is None else decode_position(value)
            stored = next_position(message.name, known, message.glsn, message.expected)
            return {key: encode_position(stored)}

        await self._cells.change(self._cluster.topic(POSITIONS_TOPIC), decide, seconds)
        return stored


class ClusterPositions:
    """The same, wherever that is led."""

    def __init__(
        self, local: LocalPositions, topics: Topics, cluster: ClusterMap, leading: Leading
    ) -> None:
        self._local = local
        self._topics = topics
        self._cluster = cluster
        self._leading = leading

    async def get(
        self, topic: TopicManifest, message: GetPosition, seconds: float
    ) -> NamedPosition:
        position_key(topic.topic, message.name)
        if not self._cluster.has_topic(POSITIONS_TOPIC):
            await self._cluster.refresh(seconds)
            if not self._cluster.has_topic(POSITIONS_TOPIC):
                return NO_POSITION
        internal = self._cluster.topic(POSITIONS_TOPIC)
        return await self._leading.answer(
            internal,
            message,
            NamedPosition,
            lambda _: self._local.get(topic, message),
            seconds,
            may_repeat=True,
        )

    async def set(
        self, topic: TopicManifest, message: SetPosition, seconds: float
    ) -> NamedPosition:
        position_key(topic.topic, message.name)
        internal = await self._topics.internal(POSITIONS_TOPIC, 1, seconds)
        return await self._leading.answer(
            internal,
            message,
            NamedPosition,
            lambda left: self._local.set(topic, message, left),
            seconds,
        )
