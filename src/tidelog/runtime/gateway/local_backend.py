"""What other nodes of the cluster are served: this node's own replicas, and nothing passed on.

No state of its own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import WrongState
from tidelog.formats.messages import (
    Answer,
    AppendBatches,
    Compact,
    Discard,
    Done,
    Explain,
    Figures,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    Number,
    Publish,
    ReadPage,
    Rewrite,
    SetGcBoundary,
    SetPosition,
    TakeSnapshot,
    TopicFigures,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.formats.stored_positions import POSITIONS_TOPIC
from tidelog.interface.appends import Append
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.parts import GatewayParts
from tidelog.server.backend import Outcome, Reply, WorkMessage
from tidelog.server.counters import Counters
from tidelog.server.reads import encode_page

_PAGES_AT_ONCE: Final = 16
"""A node reads for many clients over one connection."""


class LocalBackend:
    """A ``Backend`` for the gateways of other nodes."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts

    @property
    def counters(self) -> Counters:
        return self._parts.counters

    @property
    def readers(self) -> WorkThreads:
        return self._parts.readers

    @property
    def pages_at_once(self) -> int:
        return _PAGES_AT_ONCE

    # -- appends ------------------------------------------------------------------------------

    def check_append(self, message: AppendBatches, attachment: memoryview) -> Append:
        return self._parts.router.check(message, attachment)

    def post_append(self, append: Append, seconds: float) -> Outcome:
        return self._parts.router.post_here(append, seconds)

    def leader_hint(self, append: Append) -> str:
        return ""

    # -- all else -----------------------------------------------------------------------------

    async def wait_for_entries(self, request: ReadPage | FindEnd, seconds: float) -> None:
        parts = self._parts
        topic = await parts.cluster.find_topic(request.topic, seconds)
        await parts.waiting.wait_here(topic, request, seconds)

    async def answer(self, request: WorkMessage, attachment: memoryview, seconds: float) -> Reply:
        parts = self._parts
        match request:
            case ReadPage():
                topic = await parts.cluster.find_topic(request.topic, seconds)
                return await parts.local_reads.page(topic, request, encode_page)
            case Get():
                topic = await parts.cluster.find_topic(request.topic, seconds)
                return await parts.local_reads.get(topic, request)
            case FindEnd():
                topic = await parts.cluster.find_topic(request.topic, seconds)
                high = await parts.waiting.high_watermark(topic, seconds)
                return Reply.of(await parts.local_reads.find_end(topic, request, high))
            case FindTime():
                topic = await parts.cluster.find_topic(request.topic, seconds)
                return Reply.of(await parts.local_reads.find_time(topic, request))
            case OfferPlan():
                topic = await parts.cluster.find_topic(request.topic, seconds)
                return Reply.of(await parts.local_upkeep.offer_plan(topic, request, attachment))
            case _:
                return Reply.of(await self._chore(request, seconds))

    async def _chore(self, request: WorkMessage, seconds: float) -> Answer:
        parts = self._parts
        match request:
            case GetPosition() | SetPosition() | Publish() | Discard() | SetGcBoundary():
                return await self._led(request, seconds)
            case TakeSnapshot() | Compact() | TopicFigures() | Explain() | Rewrite():
                topic = await parts.cluster.find_topic(request.topic, seconds)
            case _:
                raise WrongState(f"{type(request).__name__} is not for other nodes to ask")
        match request:
            case TakeSnapshot():
                await parts.local_upkeep.snapshot(topic)
                return Done()
            case Compact():
                result = await parts.local_upkeep.compact(topic, full=request.full)
                return Figures(msgspec.json.encode(result))
            case TopicFigures():
                figures = await parts.local_upkeep.topic_figures(topic)
                return Figures(msgspec.json.encode(figures))
            case Rewrite():
                rewriting = parts.local_rewriting
                return Number(await rewriting.rewrite(topic, request.entries_max, seconds))
            case Explain():
                return await parts.local_upkeep.explain(topic, request)

    async def _led(
        self,
        request: GetPosition | SetPosition | Publish | Discard | SetGcBoundary,
        seconds: float,
    ) -> Answer:
        """What only the leader of an internal topic does."""
        parts = self._parts
        topic = await parts.cluster.find_topic(request.topic, seconds)
        is_position = isinstance(request, GetPosition | SetPosition)
        await parts.cluster.find_topic(POSITIONS_TOPIC if is_position else PUBLISH_TOPIC, seconds)
        match request:
            case GetPosition():
                return await parts.local_positions.get(topic, request)
            case SetPosition():
                return await parts.local_positions.set(topic, request, seconds)
            case Publish():
                return await parts.publishing.publish(topic, request, seconds)
            case SetGcBoundary():
                version = int.from_bytes(request.version)
                await parts.publishing.set_boundary(topic, version, seconds)
                return Done()
            case Discard():
                parts.publishing.discard(request.stages)
                return Done()
