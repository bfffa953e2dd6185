"""Which part of a node answers which request.  No state."""

from __future__ import annotations

from tidelog.errors import WrongState
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.messages import (
    Discard,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    Publish,
    ReadPage,
    SetPosition,
    StageBatches,
)
from tidelog.server.admin import answer_admin
from tidelog.server.backend import Reply, WorkMessage
from tidelog.server.named_positions import answer_get_position, answer_set_position
from tidelog.server.parts import NodeParts
from tidelog.server.reads import (
    answer_find_end,
    answer_find_time,
    answer_get,
    answer_read_page,
)
from tidelog.server.stages import answer_discard, answer_publish, answer_stage


async def answer(
    parts: NodeParts, request: WorkMessage, attachment: memoryview, seconds: float
) -> Reply:
    """The answer to a request whose client waits for ``seconds``; LogError if it is refused."""
    if isinstance(request, AdminRequest):
        raise WrongState("this node serves a log by itself: it is of no cluster")
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
        case GetPosition():
            return await answer_get_position(parts, request)
        case SetPosition():
            return await answer_set_position(parts, request)
        case _:
            return await answer_admin(parts, request, seconds)
