"""Changes of log streams that a person asks for.  No state of its own: the metadata has it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.metadata.placement import plan_streams
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.plan import StreamPlan, decode_plan
from tidelog.core.order.commands import AddStreams, NewStream
from tidelog.core.order.state import StreamOrder
from tidelog.core.replica.messages import ChangeKind
from tidelog.errors import BadOption, Busy
from tidelog.formats.admin_messages import (
    AbortChange,
    ChangeEnsemble,
    CreateStream,
    MoveLeader,
)
from tidelog.formats.cluster_messages import OperatorRequest
from tidelog.runtime.admin.operators import OperatorRequests
from tidelog.runtime.admin.parts import Metadata
from tidelog.runtime.admin.status import known_nodes, order_of, stream_order
from tidelog.types import NO_NODE, NodeId, StreamId

_TRIES: Final = 5
"""How often a write is tried that others overtake."""


class StreamChanges:
    """Makes log streams, and has operators move and change them."""

    def __init__(
        self, metadata: Metadata, operators: OperatorRequests, node: NodeId, *, operates: bool
    ) -> None:
        """``operates``: whether this process is an operator, too."""
        self._metadata = metadata
        self._operators = operators
        self._node = node
        self._operates = operates

    async def create(self, request: CreateStream, seconds: float) -> StreamId:
        """Give a topic one more stream; returns its number."""
        for _ in range(_TRIES):
            view = await self._metadata.read(seconds=seconds)
            plan = _plan_stream(view, request)
            try:
                await self._metadata.ask(plan, seconds=seconds)
            except BadOption:
                newer = await self._metadata.read(seconds=seconds)
                if newer.next_stream == view.next_stream:
                    raise  # It was not the number that somebody else took first.
            else:
                return plan.streams[0].stream
        raise Busy(f"others add log streams to topic {request.topic!r} all the time: try again")

    async def move_leader(self, request: MoveLeader, seconds: float) -> None:
        """Have the leader elected anew, once."""
        view = await self._metadata.read(seconds=seconds)
        order = order_of(view, StreamId(request.stream))
        if request.target and request.target not in order.ensemble:
            raise BadOption(
                f"node {request.target} holds no replica of log stream {order.stream}, "
                f"only nodes {', '.join(map(str, order.ensemble))} do"
            )
        if request.target and request.target == order.leader:
            return
        prefer = NodeId(request.target) or _next_leader(view, order)
        election = OperatorRequest(0, "elect", order.stream, prefer=prefer)
        await self._ask(view, order, election, seconds)

    async def change(self, request: ChangeEnsemble, seconds: float) -> None:
        """Have a change of the ensemble begun; one that is under way, or done, is no error."""
        view = await self._metadata.read(seconds=seconds)
        order = order_of(view, StreamId(request.stream))
        kind, old, new = ChangeKind(request.kind), NodeId(request.old), NodeId(request.new)
        if is_done(order, kind, old, new):
            return
        plan = decode_plan(order.plan)
        if plan.change is not None:
            if (plan.change.kind, plan.change.old, plan.change.new) == (kind, old, new):
                return
            raise Busy(f"log stream {order.stream} is being changed: {shown(plan)}")
        operation = OperatorRequest(0, "change", order.stream, kind=kind, old=old, new=new)
        await self._ask(view, order, operation, seconds)

    async def abort(self, request: AbortChange, seconds: float) -> None:
        """Have a change of the ensemble undone."""
        view = await self._metadata.read(seconds=seconds)
        order = order_of(view, StreamId(request.stream))
        await self._ask(view, order, OperatorRequest(0, "abort", order.stream), seconds)

    async def _ask(
        self, view: MetadataView, order: StreamOrder, request: OperatorRequest, seconds: float
    ) -> None:
        def is_taken() -> bool:
            newest = self._metadata.view
            row = None if newest is None else stream_order(newest, order.stream)
            return row is not None and row.revision > order.revision

        await self._operators.ask(
            request, self._candidates(view), is_taken=is_taken, seconds=seconds
        )

    def _candidates(self, view: MetadataView) -> Sequence[NodeId]:
        """Who may be an operator: this process first, if it is one."""
        others = [node for node in known_nodes(view) if node != self._node]
        return [self._node, *others] if self._operates else others


def is_done(order: StreamOrder, kind: ChangeKind, old: NodeId, new: NodeId) -> bool:
    """Whether the ensemble is already what a change would make of it."""
    if decode_plan(order.plan).change is not None:
        return False
    joined = new in order.ensemble
    left = old not in order.ensemble
    match kind:
        case ChangeKind.SWAP:
            return joined and left and old != NO_NODE
        case ChangeKind.EXPAND:
            return joined
        case ChangeKind.CONTRACT:
            return left and old != NO_NODE


def shown(plan: StreamPlan) -> str:
    """What is under way, in words."""
    change = plan.change
    if change is None:
        return plan.status.name.lower()
    nodes = [f"without node {change.old}"] if change.old else []
    nodes += [f"with node {change.new}"] if change.new else []
    return f"{change.kind.value} {' and '.join(nodes)}, in {change.phase.name.lower()}"


def _plan_stream(view: MetadataView, request: CreateStream) -> AddStreams:
    """One more stream of a topic, on the nodes that are named or on those with the most room."""
    plan = plan_streams(view, request.topic, streams=1, replicas=request.replicas)
    if not request.nodes:
        return plan
    nodes = tuple(sorted({NodeId(node) for node in request.nodes}))
    return AddStreams(plan.topic, (NewStream(plan.streams[0].stream, nodes),))


def _next_leader(view: MetadataView, order: StreamOrder) -> NodeId:
    """The member that leads the fewest streams, but not the one that leads this one."""
    leads = [one.leader for one in view.streams]
    others = [node for node in order.ensemble if node != order.leader]
    return min(others, key=lambda node: (leads.count(node), node), default=NO_NODE)
