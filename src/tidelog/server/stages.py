"""Answers what stages batches and publishes them."""

from __future__ import annotations

from tidelog.formats.messages import Discard, Done, Publish, StageBatches, Staged
from tidelog.server.appends import decode_parts
from tidelog.server.backend import Reply
from tidelog.server.parts import NodeParts


async def answer_stage(
    parts: NodeParts, message: StageBatches, attachment: memoryview, seconds: float
) -> Reply:
    topic = parts.topic(message.topic)
    stages = parts.engine.staging.stages
    draft = await parts.readers.run(
        lambda: stages.draft(topic, decode_parts(topic, message.streams, attachment))
    )
    receipts = await parts.commits.commit(draft.append, seconds)
    return Reply.of(Staged(stages.staged(draft, receipts[0].glsn)))


async def answer_publish(parts: NodeParts, message: Publish) -> Reply:
    topic = parts.topic(message.topic)
    return Reply.of(
        await parts.chores.run(
            lambda: parts.engine.staging.publish(
                topic, message.writer, message.batch, message.stages
            )
        )
    )


async def answer_discard(parts: NodeParts, message: Discard) -> Reply:
    parts.topic(message.topic)
    await parts.chores.run(lambda: parts.engine.staging.discard(message.stages))
    return Reply.of(Done())
