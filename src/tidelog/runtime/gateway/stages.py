"""Stages of a cluster: entries of the internal topic ``~stage``, found again by their GLSNs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import count
from time import time_ns
from typing import Final

from tidelog.embedded.pages import EnginePage
from tidelog.embedded.stage_facts import check_parts, expired
from tidelog.embedded.stages import STAGE_TOPIC
from tidelog.errors import (
    BatchTooLarge,
    Busy,
    DeadlineExceeded,
    LeaderLost,
    NotLeader,
    OutOfRange,
    Sealed,
    Trimmed,
)
from tidelog.formats.batch import BatchBody
from tidelog.formats.batch_encode import encode_value
from tidelog.formats.entry import Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import ReadPage
from tidelog.formats.staged import body_of, decode_staged, smallest_version, staged_pieces
from tidelog.interface.appends import Append, Part
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.runtime.gateway.append_router import AppendRouter
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.reads import ClusterReads
from tidelog.runtime.gateway.surroundings import Replicas
from tidelog.runtime.gateway.topics import Topics
from tidelog.runtime.gateway.waiting import Waiting
from tidelog.types import StreamId

_AGAIN: Final = (NotLeader, LeaderLost, Busy)
_PAUSE_SECONDS: Final = 0.05
_STREAMS_MAX: Final = 8
"""Over how many log streams stages are spread, if there are as many nodes."""


class Stages:
    """Belongs to one event loop."""

    def __init__(
        self,
        replicas: Replicas,
        cluster: ClusterMap,
        topics: Topics,
        router: AppendRouter,
        reads: ClusterReads,
        waiting: Waiting,
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._topics = topics
        self._router = router
        self._reads = reads
        self._waiting = waiting
        self._turn = count()

    async def stage(self, topic: TopicManifest, parts: Sequence[Part], seconds: float) -> int:
        """Keep parts until they are published; returns the number of the stage."""
        check_parts(topic, parts)
        await self._refuse_sealed(parts, seconds)
        pieces = staged_pieces(topic.topic, [(part.stream, part.body) for part in parts])
        size = sum(map(len, pieces))
        if size > VALUE_BYTES_MAX:
            raise BatchTooLarge(
                f"{size} bytes cannot be staged at once, the limit is {VALUE_BYTES_MAX}: "
                "stage them in parts"
            )
        internal = await self.topic(seconds)
        body = encode_value(pieces, timestamp_us=time_ns() // 1000)
        try:
            async with asyncio.timeout(seconds):
                return await self._append(internal, body, seconds)
        except TimeoutError:
            raise DeadlineExceeded("the stage was not ordered in time") from None

    async def _refuse_sealed(self, parts: Sequence[Part], seconds: float) -> None:
        """A publication of this would be refused: who stages it had better know at once."""
        sealed = await self._cluster.find_sealed([part.stream for part in parts], seconds)
        if sealed is not None:
            raise Sealed(
                f"log stream {sealed} is sealed, nothing was staged: unseal it; only entries "
                "without keys can go to another one"
            )

    async def _append(self, topic: TopicManifest, body: BatchBody, seconds: float) -> int:
        """Append until it is known where: a stage that nobody knows of just expires."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            append = Append(topic.name, [Part(self._choose(topic), body)])
            try:
                return (await self._router.post(append, seconds))[0].glsn
            except _AGAIN:
                if asyncio.get_running_loop().time() + _PAUSE_SECONDS >= deadline:
                    raise
                await self._cluster.wait_for_change(_PAUSE_SECONDS)

    async def read(self, number: int, seconds: float) -> tuple[int, list[Part]]:
        """For which topic a stage is, and its parts; StageExpired if it is not there.

        Busy if whoever has it is behind, and stays so: a page that ends before the stage, or a
        replica that does not know its place yet, says nothing about it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        topic = await self._cluster.find_topic(STAGE_TOPIC, seconds)
        request = ReadPage(topic.name, number, number + 1)
        while True:
            left = max(deadline - loop.time(), _PAUSE_SECONDS)
            await self._waiting.catch_up(topic, topic.streams, number + 1, left)
            try:
                return await self._reads.page(topic, request, left, partial(_unpack, number))
            except Trimmed as error:
                raise expired(number) from error
            except (OutOfRange, Busy) as error:
                if loop.time() + _PAUSE_SECONDS >= deadline:
                    raise Busy(f"stage {number} cannot be read yet: {error}") from error
            await self._cluster.wait_for_change(_PAUSE_SECONDS)

    async def range(self, seconds: float) -> tuple[int, int]:
        """The first stage that is kept, and the one that comes next."""
        topic = await self.topic(seconds)
        high = await self._waiting.high_watermark(topic, seconds)
        return self._cluster.trim_end(topic.topic), high + 1

    async def topic(self, seconds: float) -> TopicManifest:
        streams = min(max(len(self._cluster.nodes()), 1), _STREAMS_MAX)
        return await self._topics.internal(STAGE_TOPIC, streams, seconds)

    def _choose(self, topic: TopicManifest) -> int:
        """A log stream that is led here, if there is one; in turns if there are several."""
        here = [
            stream
            for stream in topic.streams
            if self._replicas.leader_of(StreamId(stream)) == self._replicas.node
        ]
        streams = here or topic.streams
        return streams[next(self._turn) % len(streams)]


def _unpack(number: int, page: EnginePage) -> tuple[int, list[Part]]:
    """The stage of this number, which is all that a page is about."""
    if page.glsn_end <= number:
        raise Busy("its replicas are behind")
    for _, piece in page.pieces:
        if piece.batch.kind_at(piece.begin) == Kind.CONTROL:
            break
        header, batches = decode_staged(piece.first_value())
        bodies = map(body_of, batches)
        return header.topic, [
            Part(stream, body, smallest_version(body))
            for stream, body in zip(header.streams, bodies, strict=True)
        ]
    raise expired(number)
