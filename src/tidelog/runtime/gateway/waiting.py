"""Waiting for what was ordered to come here, and for what is yet to be ordered.

Invariants:
  W1  what only a lagging replica lacks is waited for, however old the view of this node is
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tidelog.embedded.pages import chosen_streams
from tidelog.errors import Unreachable
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import FindEnd, Page, ReadPage
from tidelog.runtime.gateway.holders import TRY_ANOTHER, Holders
from tidelog.runtime.gateway.local_reads import LocalReads
from tidelog.runtime.gateway.peers import Peers
from tidelog.types import NodeId, TopicId

_REMOTE_WAIT_SECONDS: Final = 5.0
"""How long one request to another node waits at the end of a log."""


class Waiting:
    """Belongs to one event loop."""

    def __init__(
        self, local: LocalReads, holders: Holders, peers: Peers, *, catch_up_seconds: float
    ) -> None:
        self._local = local
        self._cluster = local.cluster
        self._tides = local.tides
        self._holders = holders
        self._peers = peers
        self._catch_up_seconds = catch_up_seconds

    # -- ends ---------------------------------------------------------------------------------

    def known_high(self, topic: TopicManifest) -> int:
        """The last GLSN that this node knows to be issued."""
        here = self._local.readable(topic)
        end = (self._tides.end(topic.topic, here) or 1) if here else 1
        return max(self._cluster.high_watermark(topic.topic), end - 1)

    async def high_watermark(self, topic: TopicManifest, seconds: float) -> int:
        """The last GLSN that was issued before this was asked.

        If the metadata repository does not tell, what is known here must do.
        """
        with suppress(Unreachable):
            await self._cluster.refresh(seconds)
        return self.known_high(topic)

    # -- waiting (W1) -------------------------------------------------------------------------

    async def wait_for_entries(
        self, topic: TopicManifest, message: ReadPage | FindEnd, seconds: float
    ) -> None:
        """Wait at the end of the log as the request wants to, or until what it asks for came."""
        streams = tuple(chosen_streams(topic, _streams_of(message)))
        begin = message.glsn_begin
        if message.wait_ms:
            wait = min(message.wait_ms / 1000, seconds)
            await self._wait(topic, streams, begin + 1, wait)
        elif isinstance(message, ReadPage):
            wanted = begin + 1 if message.glsn_end > begin else begin
            await self.catch_up(topic, streams, wanted, seconds)

    async def wait_here(
        self, topic: TopicManifest, message: ReadPage | FindEnd, seconds: float
    ) -> None:
        """The same for what is here alone."""
        streams = tuple(chosen_streams(topic, _streams_of(message)))
        begin = message.glsn_begin
        here = self._local.readable(topic, streams)
        if message.wait_ms:
            wait = min(message.wait_ms / 1000, seconds)
            await self._tides.wait_for(topic.topic, here, begin + 1, wait)
        elif isinstance(message, ReadPage):
            wanted = begin + 1 if message.glsn_end > begin else begin
            await self.catch_up(topic, here, wanted, seconds)

    async def catch_up(
        self, topic: TopicManifest, streams: tuple[int, ...], end: int, seconds: float
    ) -> None:
        """Let what was ordered elsewhere come to the replicas that are here."""
        here = self._local.readable(topic, streams)
        if not here or (self._tides.end(topic.topic, here) or 0) >= end:
            return
        wait = min(self._catch_up_seconds, seconds / 2)
        if self._local.replicas.issued_end(TopicId(topic.topic)) < end:
            with suppress(Unreachable):
                await self._cluster.refresh(wait)
        await self._tides.wait_for(topic.topic, here, end, wait)

    async def _wait(
        self, topic: TopicManifest, streams: tuple[int, ...], end: int, seconds: float
    ) -> None:
        here = self._local.readable(topic, streams)
        elsewhere = [stream for stream in streams if stream not in here]
        if not elsewhere:
            await self._tides.wait_for(topic.topic, here, end, seconds)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0:
            if await self._wait_once(topic, here, elsewhere, end, min(left, _REMOTE_WAIT_SECONDS)):
                await self.catch_up(topic, here, end, left)
                return

    async def _wait_once(
        self,
        topic: TopicManifest,
        here: tuple[int, ...],
        elsewhere: Sequence[int],
        end: int,
        seconds: float,
    ) -> bool:
        """Wait here and elsewhere, for whoever has something first."""
        waits = {
            asyncio.ensure_future(self._wait_at(node, topic, streams, end, seconds))
            for node, streams in self._holders.groups(elsewhere).items()
        }
        if here:
            waits.add(asyncio.ensure_future(self._tides.wait_for(topic.topic, here, end, seconds)))
        if not waits:
            await self._cluster.wait_for_change(seconds)
            return False
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return any(task.result() for task in done)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _wait_at(
        self,
        node: NodeId,
        topic: TopicManifest,
        streams: Sequence[int],
        end: int,
        seconds: float,
    ) -> bool:
        request = ReadPage(
            topic.name, end - 1, 0, tuple(streams), bytes_max=1, wait_ms=int(seconds * 1000)
        )
        try:
            peer = self._peers.peer(node)
            page = await peer.ask_for(request, Page, seconds=seconds + 1, waits=True)
        except TRY_ANOTHER:
            await self._cluster.wait_for_change(min(seconds, 0.5))
            return False
        return page.high_watermark >= end - 1


def _streams_of(message: ReadPage | FindEnd) -> Sequence[int]:
    return message.streams if isinstance(message, ReadPage) else ()
