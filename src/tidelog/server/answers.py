"""Which part of a node answers which request.  No state."""

from __future__ import annotations

from typing import TypeAlias

from tidelog.formats.messages import (
    Discard,
    FindEnd,
    FindTime,
    Get,
    Publish,
    ReadPage,
    StageBatches,
)
from tidelog.server.admin import AdminMessage, answer_admin
from tidelog.server.parts import NodeParts, Reply
from tidelog.server.reads import (
    answer_find_end,
    answer_find_time,
    answer_get,
    answer_read_page,
)
from tidelog.server.stages import answer_discard, answer_publish, answer_stage

WorkMessage: TypeAlias = (
    ReadPage | Get | FindEnd | FindTime | StageBatches | Publish | Discard | AdminMessage
)


async def answer(
    parts: NodeParts, request: WorkMessage, attachment: memoryview, seconds: float
) -> Reply:
    """The answer to a request whose client waits for ``seconds``; LogError if it is refused."""
    match request:
        case ReadPage():
            return await answer_read_page(parts, request)
        case Get():
            return await answer_get(parts, request)
        case FindEnd():
            return await answer_find_end(parts, request)
        case FindTime():
            return await answer_find_time(parts, request)
        case StageBatches():
            return await answer_stage(parts, request, attachment, seconds)
        case Publish():
            return await answer_publish(parts, request)
        case Discard():
            return await answer_discard(parts, request)
        case _:
            return await answer_admin(parts, request, seconds)
