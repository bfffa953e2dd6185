"""Reads of the whole cluster: from replicas of this node, and from other nodes what is not here.

A page of several nodes ends where the first of its parts ends, so nothing of its range is missing.

Invariants:
  R1  a page holds all entries of the streams asked for in its range of GLSNs, and no others
  R2  what only a lagging or damaged replica lacks is fetched from who has it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from tidelog.client.pages import slices_of
from tidelog.embedded.page_filling import StreamPiece
from tidelog.embedded.pages import EnginePage, check_available, chosen_streams, take_pieces
from tidelog.errors import BadFrame, CorruptData, LogError, OutOfRange, Unreachable
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import FindEnd, FindTime, Get, Page, Position, ReadPage
from tidelog.interface.routing import stream_of_key
from tidelog.limits import PAGE_BYTES
from tidelog.runtime.gateway.counters import GatewayCounters
from tidelog.runtime.gateway.holders import TRY_ANOTHER, Holders
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.peers import Peers
from tidelog.runtime.gateway.waiting import Waiting
from tidelog.server.backend import Reply
from tidelog.types import NodeId, StreamId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Part:
    """What one node gave of a page."""

    pieces: list[StreamPiece]
    glsn_end: int
    first_available: int
    high_watermark: int


class ClusterReads:
    """Reads of everything, wherever it lies."""

    def __init__(
        self,
        local: LocalReads,
        waiting: Waiting,
        holders: Holders,
        peers: Peers,
        counters: GatewayCounters,
    ) -> None:
        self._local = local
        self._waiting = waiting
        self._holders = holders
        self._cluster = local.cluster
        self._tides = local.tides
        self._peers = peers
        self._counters = counters
        self._node = local.replicas.node

    # -- pages --------------------------------------------------------------------------------

    async def page(
        self,
        topic: TopicManifest,
        message: ReadPage,
        seconds: float,
        finish: Callable[[EnginePage], T],
    ) -> T:
        """A page, from wherever its streams are; ``finish`` makes an answer of it in a thread."""
        streams = tuple(chosen_streams(topic, message.streams))
        begin = message.glsn_begin
        end = self._tides.end(topic.topic, streams)
        wanted = begin + 1 if message.glsn_end > begin else begin
        if end is not None and (end >= wanted or message.wait_ms):
            try:
                return await self._local.page_up_to(topic, message, end, finish)
            except CorruptData:
                here: tuple[int, ...] = ()  # Others may have what is damaged here.
        else:
            here = tuple(
                stream
                for stream in streams
                if (self._tides.end(topic.topic, (stream,)) or 0) >= wanted
            )
        try:
            return await self._merged(topic, message, streams, here, seconds, finish)
        except Unreachable:
            if end is None or self._waiting.known_high(topic) >= begin:
                raise
            return await self._local.page_up_to(topic, message, end, finish)
        except OutOfRange:
            # Whoever has the streams is behind those who told the client of its place.
            if not message.wait_ms:
                raise
            high = self._waiting.known_high(topic)
            first = self._local.view(topic, high).first_available(topic)
            return finish(EnginePage([], begin, begin, first, high))

    async def _merged(
        self,
        topic: TopicManifest,
        message: ReadPage,
        streams: tuple[int, ...],
        here: tuple[int, ...],
        seconds: float,
        finish: Callable[[EnginePage], T],
    ) -> T:
        self._counters.pages_merged += 1
        begin = message.glsn_begin
        elsewhere = [stream for stream in streams if stream not in here]
        parts = await self._holders.ask(
            elsewhere, lambda node, group: self._fetch(node, topic, message, group, seconds)
        )
        high = min(part.high_watermark for part in parts)
        end = _common_end(parts)
        if here:
            local_end = self._tides.end(topic.topic, here) or begin
            high, end = min(high, local_end - 1), min(end, local_end)
        if message.glsn_end:
            end = min(end, message.glsn_end)
        log = self._local.view(topic, high)
        fetched = [part.pieces for part in parts]
        bytes_max = message.bytes_max or PAGE_BYTES

        def merge() -> T:
            check_available(log, topic, begin)
            pieces: list[StreamPiece] = []
            page_end = max(begin, end)
            if begin < end:
                stores = log.stores(topic, here) if here else []
                pieces, page_end = take_pieces(stores, begin, end, bytes_max, fetched)
            first = max(check_available(log, topic, begin), *(p.first_available for p in parts))
            return finish(EnginePage(pieces, begin, page_end, first, high))

        return await self._local.readers.run(merge)

    async def _fetch(
        self,
        node: NodeId,
        topic: TopicManifest,
        message: ReadPage,
        streams: Sequence[int],
        seconds: float,
    ) -> _Part:
        self._counters.pages_elsewhere += 1
        end = message.glsn_end
        if not end and (high := self._waiting.known_high(topic)) >= message.glsn_begin:
            end = high + 1  # Something is there, which the other node may have to wait for.
        request = ReadPage(
            topic.name,
            message.glsn_begin,
            end,
            tuple(streams),
            message.bytes_max,
        )
        reply = await self._peers.peer(node).ask(request, seconds=seconds)
        page = reply.answer
        if not isinstance(page, Page) or page.glsn_begin != message.glsn_begin:
            raise BadFrame(f"node {node} answered a read with {type(page).__name__}")
        pieces = await self._local.readers.run(lambda: slices_of(reply))
        return _Part(pieces, page.glsn_end, page.first_available, page.high_watermark)

    # -- keys and places ----------------------------------------------------------------------

    async def get(self, topic: TopicManifest, message: Get, seconds: float) -> Reply:
        """Where the key's stream is led, for there every write that was acknowledged is seen."""
        stream = StreamId(stream_of_key(topic, message.key))
        leader = self._local.replicas.leader_of(stream)
        hosts = [node for node in self._cluster.hosts(stream) if node != leader]
        trouble: LogError = Unreachable(f"nobody is known to hold log stream {stream}")
        for node in [leader, *hosts] if leader else hosts:
            try:
                if node == self._node:
                    return await self._local.get(topic, message)
                self._counters.requests_passed_on += 1
                reply = await self._peers.peer(node).ask(message, seconds=seconds)
                return _relayed(reply.answer, reply.attachment)
            except TRY_ANOTHER as error:
                trouble = error
        raise trouble

    async def find_end(self, topic: TopicManifest, message: FindEnd, seconds: float) -> Position:
        high = await self._waiting.high_watermark(topic, seconds)
        bounded = message.bytes_max or message.records_max
        if self._local.readable(topic) or not bounded:
            return await self._local.find_end(topic, message, high)
        for node in self._holders.groups(topic.streams):
            with suppress(*TRY_ANOTHER):
                self._counters.requests_passed_on += 1
                request = FindEnd(
                    message.topic, message.glsn_begin, message.records_max, message.bytes_max
                )
                return await self._peers.peer(node).ask_for(request, Position, seconds=seconds)
        raise Unreachable(f"no node that holds topic {topic.name!r} can be reached")

    async def find_time(self, topic: TopicManifest, message: FindTime, seconds: float) -> Position:
        high = await self._waiting.high_watermark(topic, seconds)
        found = await self._local.find_time(topic, message)
        glsn, first = found.glsn, found.first_available
        here = self._local.readable(topic)
        elsewhere = [stream for stream in topic.streams if stream not in here]

        async def ask(node: NodeId, _: Sequence[int]) -> Position:
            self._counters.requests_passed_on += 1
            return await self._peers.peer(node).ask_for(message, Position, seconds=seconds)

        for other in await self._holders.ask(elsewhere, ask):
            glsn, first = max(glsn, other.glsn), max(first, other.first_available)
        return Position(min(max(glsn, first), high + 1), first, high)


def _common_end(parts: Sequence[_Part]) -> int:
    """Up to where all parts of a page have all of their entries (R1)."""
    return min(part.glsn_end for part in parts)


def _relayed(answer: object, attachment: memoryview) -> Reply:
    """An answer of another node, as it is."""
    if not isinstance(answer, Page):
        raise BadFrame(f"a node answered with {type(answer).__name__}")
    reply = Reply.of(answer)
    reply.attachments = [attachment] if attachment else []
    return reply
