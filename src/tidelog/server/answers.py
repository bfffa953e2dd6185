"""Which part of a node answers which request.  No state."""

from __future__ import annotations

from tidelog.embedded.engine import THIS_NODE
from tidelog.errors import WrongState
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.audit_messages import AuditRequest
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
from tidelog.formats.plan_messages import OfferPlan
from tidelog.server.admin import answer_admin, answer_offer_plan
from tidelog.server.audits import answer_audit
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
    if isinstance(request, AuditRequest):
        return await answer_audit(
            THIS_NODE, parts.engine.node, request, readers=parts.readers, chores=parts.chores
        )
    match request:
        case ReadPage():
            return await answer_read_page(parts, request)
        case Get():
            return await answer_get(parts, request)
        case FindEnd():
            return await answer_find_end(parts, request)
        case FindTime():
            return await answer_find_time(parts, request)
        case StageBatches() | OfferPlan():
            return await _answer_attached(parts, request, attachment, seconds)
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


async def _answer_attached(
    parts: NodeParts, request: StageBatches | OfferPlan, attachment: memoryview, seconds: float
) -> Reply:
    if isinstance(request, OfferPlan):
        return await answer_offer_plan(parts, request, attachment)
    return await answer_stage(parts, request, attachment, seconds)
