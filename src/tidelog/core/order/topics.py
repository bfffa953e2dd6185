"""What commands make of a topic.  No state."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.core.order.commands import CreateTopic, RetainTopic
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.types import FIRST_LLSN


def new_topic(command: CreateTopic) -> TopicOrder:
    """Return a topic that has no streams yet."""
    return TopicOrder(
        command.topic,
        (),
        command.name,
        command.quorum,
        versions=command.versions,
        key_streams=command.key_streams or len(command.streams),
    )


def retained(topic: TopicOrder, command: RetainTopic) -> TopicOrder:
    """Return the topic with the higher of both ends and of both boundaries (O7)."""
    high, low = max(
        (topic.boundary_high, topic.boundary_low),
        (command.boundary_high, command.boundary_low),
    )
    return replace(
        topic,
        trim_glsn_end=max(topic.trim_glsn_end, command.trim_glsn_end),
        boundary_high=high,
        boundary_low=low,
    )


def without_stream(topic: TopicOrder, order: StreamOrder) -> TopicOrder:
    """Return the topic with one stream less; what was ordered for it stays counted."""
    return replace(
        topic,
        streams=tuple([stream for stream in topic.streams if stream != order.stream]),
        removed_entries=topic.removed_entries + order.llsn_end - FIRST_LLSN,
    )
