"""What clients are served: the whole cluster, whichever node they ask.  No state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.embedded.engine import INTERNAL_PREFIX
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import UnknownTopic, WrongState
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.audit_messages import AuditRequest
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import (
    AddStreams,
    Answer,
    AppendBatches,
    Compact,
    CreateTopic,
    Describe,
    Discard,
    Done,
    Explain,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    ListTopics,
    LogFigures,
    Number,
    Publish,
    Published,
    ReadPage,
    Rewrite,
    SetGcBoundary,
    SetPosition,
    StageBatches,
    Staged,
    TakeSnapshot,
    TopicDescription,
    TopicFigures,
    TopicNames,
    Trim,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.appends import Append
from tidelog.net.threads import WorkThreads
from tidelog.runtime.gateway.parts import GatewayParts
from tidelog.server.appends import decode_parts
from tidelog.server.audits import answer_audit
from tidelog.server.backend import PAGES_AT_ONCE, Outcome, Reply, WorkMessage
from tidelog.server.counters import Counters
from tidelog.server.reads import encode_page

_UpkeepRequest: TypeAlias = (
    Trim | SetGcBoundary | TakeSnapshot | Compact | Explain | TopicFigures | Rewrite
)
_TopicRequest: TypeAlias = (
    FindEnd | FindTime | GetPosition | SetPosition | Publish | Discard | _UpkeepRequest
)


class ClusterBackend:
    """A ``Backend`` for clients."""

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
        return PAGES_AT_ONCE

    # -- appends ------------------------------------------------------------------------------

    def check_append(self, message: AppendBatches, attachment: memoryview) -> Append:
        _refuse_internal(message.topic)
        return self._parts.router.check(message, attachment)

    def post_append(self, append: Append, seconds: float) -> Outcome:
        return self._parts.router.post(append, seconds)

    def leader_hint(self, append: Append) -> str:
        return self._parts.router.hint(append)

    # -- all else -----------------------------------------------------------------------------

    async def wait_for_entries(self, request: ReadPage | FindEnd, seconds: float) -> None:
        streams = request.streams if isinstance(request, ReadPage) else ()
        topic = await self._topic(request.topic, seconds, streams)
        await self._parts.waiting.wait_for_entries(topic, request, seconds)

    async def answer(self, request: WorkMessage, attachment: memoryview, seconds: float) -> Reply:
        reads = self._parts.reads
        if isinstance(request, AuditRequest):
            return await self._audit(request)
        match request:
            case ReadPage():
                topic = await self._topic(request.topic, seconds)
                return await reads.page(topic, request, seconds, encode_page)
            case Get():
                return await reads.get(await self._topic(request.topic, seconds), request, seconds)
            case StageBatches():
                return Reply.of(await self._stage(request, attachment, seconds))
            case OfferPlan():
                topic = await self._topic(request.topic, seconds)
                upkeep = self._parts.upkeep
                return Reply.of(await upkeep.offer_plan(topic, request, attachment, seconds))
            case _:
                return Reply.of(await self._answer(request, seconds))

    async def _answer(
        self,
        request: _TopicRequest
        | ListTopics
        | LogFigures
        | Describe
        | CreateTopic
        | AddStreams
        | AdminRequest,
        seconds: float,
    ) -> Answer:
        parts = self._parts
        if isinstance(request, AdminRequest):
            if parts.admin is None:
                raise WrongState("this node takes no requests of administrators")
            return await parts.admin.answer(request, seconds)
        match request:
            case ListTopics():
                await parts.cluster.refresh(seconds)
                return TopicNames(tuple(parts.cluster.topic_names()))
            case LogFigures():
                topics = [parts.cluster.topic(name) for name in parts.cluster.topic_names()]
                return await parts.local_upkeep.log_figures(topics)
            case Describe():
                return await self._describe(request.topic, seconds)
            case CreateTopic():
                return self._description(await parts.topics.create(request, seconds))
            case AddStreams():
                await self._topic(request.topic, seconds)
                return self._description(await parts.topics.add_streams(request, seconds))
            case _:
                return await self._about_topic(request, seconds)

    async def _about_topic(self, request: _TopicRequest, seconds: float) -> Answer:
        """What is about one topic that is there."""
        parts = self._parts
        topic = await self._topic(request.topic, seconds)
        match request:
            case FindEnd():
                found = await parts.reads.find_end(topic, request, seconds)
                parts.audience.note(topic.name, request.reader, request.glsn_begin)
                return found
            case FindTime():
                return await parts.reads.find_time(topic, request, seconds)
            case GetPosition():
                return await parts.positions.get(topic, request, seconds)
            case SetPosition():
                return await parts.positions.set(topic, request, seconds)
            case Publish():
                return await self._publish(topic, request, seconds)
            case Discard():
                return await self._discard(topic, request, seconds)
            case _:
                return await self._keep_small(topic, request, seconds)

    async def _keep_small(
        self, topic: TopicManifest, request: _UpkeepRequest, seconds: float
    ) -> Answer:
        upkeep = self._parts.upkeep
        match request:
            case Trim():
                return Number(await upkeep.trim(topic, request, seconds))
            case SetGcBoundary():
                return await self._set_boundary(topic, request, seconds)
            case TakeSnapshot():
                return await upkeep.snapshot(topic, request, seconds)
            case Compact():
                return await upkeep.compact(topic, request, seconds)
            case Explain():
                return await upkeep.explain(topic, request, seconds)
            case TopicFigures():
                return await upkeep.topic_figures(topic, request, seconds)
            case Rewrite():
                return await self._parts.rewriting.rewrite(topic, request, seconds)

    async def _audit(self, request: AuditRequest) -> Reply:
        """This node alone: what an audit asks is not passed on."""
        parts = self._parts
        replicas = parts.replicas
        return await answer_audit(
            replicas.node,
            replicas.node_store,
            request,
            readers=parts.readers,
            chores=parts.chores,
        )

    # -- topics -------------------------------------------------------------------------------

    async def _topic(self, name: str, seconds: float, streams: Sequence[int] = ()) -> TopicManifest:
        _refuse_internal(name)
        return await self._parts.cluster.find_topic(name, seconds, streams)

    async def _describe(self, name: str, seconds: float) -> TopicDescription:
        parts = self._parts
        if not name:
            await parts.cluster.refresh(seconds)
            name = parts.cluster.first_topic()
        topic = await self._topic(name, seconds)
        high = await parts.waiting.high_watermark(topic, seconds)
        # The view that was asked for may know of more log streams.
        return parts.topics.describe(
            parts.cluster.topic(name), high, parts.cluster.trim_end(topic.topic)
        )

    def _description(self, topic: TopicManifest) -> TopicDescription:
        parts = self._parts
        high = parts.waiting.known_high(topic)
        return parts.topics.describe(topic, high, parts.cluster.trim_end(topic.topic))

    # -- exactly once -------------------------------------------------------------------------

    async def _stage(self, request: StageBatches, attachment: memoryview, seconds: float) -> Staged:
        parts = self._parts
        topic = await self._topic(request.topic, seconds, request.streams)
        batches = await parts.readers.run(lambda: decode_parts(topic, request.streams, attachment))
        return Staged(await parts.stages.stage(topic, batches, seconds))

    async def _publish(self, topic: TopicManifest, request: Publish, seconds: float) -> Published:
        parts = self._parts
        notes = await parts.topics.internal(PUBLISH_TOPIC, 1, seconds)
        return await parts.leading.answer(
            notes,
            request,
            Published,
            lambda left: parts.publishing.publish(topic, request, left),
            seconds,
            may_repeat=True,
        )

    async def _discard(self, topic: TopicManifest, request: Discard, seconds: float) -> Done:
        parts = self._parts
        notes = await parts.topics.internal(PUBLISH_TOPIC, 1, seconds)

        async def here(_: float) -> Done:
            parts.publishing.discard(request.stages)
            return Done()

        return await parts.leading.answer(notes, request, Done, here, seconds, may_repeat=True)

    async def _set_boundary(
        self, topic: TopicManifest, request: SetGcBoundary, seconds: float
    ) -> Done:
        parts = self._parts
        version = int.from_bytes(request.version)
        parts.upkeep.check_boundary(topic, version)
        notes = await parts.topics.internal(PUBLISH_TOPIC, 1, seconds)

        async def here(left: float) -> Done:
            await parts.publishing.set_boundary(topic, version, left)
            return Done()

        return await parts.leading.answer(notes, request, Done, here, seconds, may_repeat=True)


def _refuse_internal(name: str) -> None:
    if name.startswith(INTERNAL_PREFIX):
        raise UnknownTopic(f"topic {name!r} is internal: choose another one")
