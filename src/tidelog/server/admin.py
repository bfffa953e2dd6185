"""Answers what changes topics, keeps them small, or tells about them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidelog.embedded.log import check_replicas
from tidelog.embedded.stats import log_stats
from tidelog.embedded.topic import Topic
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import (
    AddStreams,
    Answer,
    Compact,
    CreateTopic,
    Describe,
    Done,
    Explain,
    Figures,
    Lines,
    ListTopics,
    LogFigures,
    Number,
    Rewrite,
    SetGcBoundary,
    TakeSnapshot,
    TopicDescription,
    TopicFigures,
    TopicNames,
    Trim,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.server.backend import Reply, TopicMessage
from tidelog.server.parts import NodeParts


async def answer_admin(parts: NodeParts, message: TopicMessage, seconds: float) -> Reply:
    """Do what is asked for; ``seconds`` is how long the client waits."""
    match message:
        case ListTopics():
            return Reply.of(TopicNames(tuple(parts.engine.topic_names())))
        case Describe():
            topic_name = message.topic or parts.first_topic()
            return Reply.of(describe(parts, parts.topic(topic_name)))
        case LogFigures():
            call = _log_figures(parts)
        case CreateTopic():
            call = _create(parts, message)
        case AddStreams():
            parts.topic(message.topic)
            call = _add_streams(parts, message)
        case _:
            parts.topic(message.topic)
            topic = Topic(parts.engine, message.topic)
            call = _topic_call(topic, message, seconds)
    return Reply.of(await parts.chores.run(call))


async def answer_offer_plan(parts: NodeParts, message: OfferPlan, attachment: memoryview) -> Reply:
    """Compact by a plan that others made."""
    parts.topic(message.topic)
    topic = Topic(parts.engine, message.topic)
    outcomes = await parts.chores.run(lambda: topic.offer_plan(attachment, full=message.full))
    return Reply.of(Figures(msgspec.json.encode(outcomes)))


def describe(parts: NodeParts, topic: TopicManifest) -> TopicDescription:
    return TopicDescription(
        topic=topic.topic,
        name=topic.name,
        streams=topic.streams,
        key_streams=topic.key_streams,
        versions=topic.versions,
        first_available=parts.engine.first_available(topic),
        high_watermark=parts.engine.high_watermark(topic.topic),
    )


def _create(parts: NodeParts, message: CreateTopic) -> Callable[[], Answer]:
    check_replicas(message.replicas)
    return lambda: describe(
        parts,
        parts.engine.create_topic(
            message.topic, streams=message.streams, versions=message.versions
        ),
    )


def _add_streams(parts: NodeParts, message: AddStreams) -> Callable[[], Answer]:
    return lambda: describe(parts, parts.engine.add_streams(message.topic, message.count))


def _log_figures(parts: NodeParts) -> Callable[[], Answer]:
    engine = parts.engine
    return lambda: Figures(msgspec.json.encode(log_stats(engine, engine.audience.tell())))


def _topic_call(
    topic: Topic,
    message: Trim | SetGcBoundary | TakeSnapshot | Compact | Rewrite | Explain | TopicFigures,
    seconds: float,
) -> Callable[[], Answer]:
    def call() -> Answer:
        match message:
            case Trim():
                return Number(topic.trim(message.before_glsn, timeout=seconds))
            case SetGcBoundary():
                version = int.from_bytes(message.version)
                topic.set_gc_boundary(version, timeout=seconds)
                return Done()
            case TakeSnapshot():
                topic.snapshot()
                return Done()
            case Compact():
                return Figures(msgspec.json.encode(topic.compact(full=message.full)))
            case Rewrite():
                return Number(topic.rewrite(entries_max=message.entries_max))
            case Explain():
                return Lines(tuple(topic.explain(message.key, storage_id=message.storage_id)))
            case TopicFigures():
                return Figures(msgspec.json.encode(topic.stats()))

    return call
