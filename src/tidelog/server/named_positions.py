"""Answers what asks for positions that readers stored under a name.  No state."""

from __future__ import annotations

from tidelog.embedded.named_positions import position_of, store_position
from tidelog.formats.messages import GetPosition, SetPosition
from tidelog.server.backend import Reply
from tidelog.server.parts import NodeParts


async def answer_get_position(parts: NodeParts, message: GetPosition) -> Reply:
    topic = parts.topic(message.topic)
    return Reply.of(await parts.chores.run(lambda: position_of(parts.engine, topic, message.name)))


async def answer_set_position(parts: NodeParts, message: SetPosition) -> Reply:
    topic = parts.topic(message.topic)
    return Reply.of(
        await parts.chores.run(
            lambda: store_position(
                parts.engine, topic, message.name, message.glsn, message.expected
            )
        )
    )
