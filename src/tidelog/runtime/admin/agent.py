"""Carries out what people ask of a cluster, in each of its processes.

A client asks any storage node, which does what it can do itself, goes to the metadata repository
or to an operator, or asks another process over the post.

Invariants:
  A1  what another process asks for is answered from this one alone: nothing is passed on twice
  A2  at most ``ADMIN_QUESTIONS_MAX`` questions of other processes are worked on at once
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import time
from typing import Final

import msgspec

from tidelog.core.metadata import wishes
from tidelog.core.metadata.commands import UnregisterNode
from tidelog.core.metadata.view import MetadataView
from tidelog.errors import (
    BadFrame,
    BadOption,
    Busy,
    DeadlineExceeded,
    LogError,
    NotLeader,
    Unavailable,
    UnknownStream,
    Unreachable,
    WrongState,
)
from tidelog.formats.admin_messages import (
    AbortChange,
    AddNode,
    AdminRequest,
    ChangeEnsemble,
    ChangeMembers,
    ClusterFigures,
    CreateStream,
    MoveLeader,
    NodeFigures,
    PauseOperators,
    RemoveNode,
    SealStream,
    StreamDigest,
    StreamGlsns,
)
from tidelog.formats.cluster_messages import AskNode, ClusterMessage, NodeAnswer
from tidelog.formats.messages import (
    Answer,
    Done,
    Figures,
    Number,
    decode_request,
    encode_message,
)
from tidelog.interface.cluster_figures import ClusterStatus, DigestFacts, GlsnFacts, NodeFacts
from tidelog.limits import ADMIN_QUESTIONS_MAX
from tidelog.net.endpoint import parse_told
from tidelog.runtime.admin.asking import Asking
from tidelog.runtime.admin.operators import OperatorRequests
from tidelog.runtime.admin.parts import Mail, Member, Metadata, Stores
from tidelog.runtime.admin.sealing import Sealing
from tidelog.runtime.admin.status import Heard, cluster_status, involved, known_nodes
from tidelog.runtime.admin.streams import StreamChanges
from tidelog.runtime.metadata_changes import bring_about
from tidelog.server.refusals import refused, surprised
from tidelog.types import NO_NODE, Glsn, Llsn, NodeId, StreamId

_logger: Final = logging.getLogger(__name__)

FACTS_SECONDS: Final = 1.5
"""How long a process may take to tell of itself before it counts as silent."""
DIGEST_SECONDS: Final = 60.0
MEMBERS_SECONDS: Final = 10.0
_LEADER_TRIES: Final = 3


class AdminAgent:
    """One for each process, whatever its roles are.  All calls belong into its event loop."""

    def __init__(
        self,
        *,
        node: NodeId,
        roles: Sequence[str],
        cluster_id: bytes,
        post: Mail,
        metadata: Metadata,
        facts: Callable[[], NodeFacts],
        stores: Stores | None = None,
        member: Member | None = None,
    ) -> None:
        """``facts`` tells of this process; see ``runtime.admin.facts``."""
        self._node = node
        self._cluster_id = cluster_id
        self._post = post
        self._metadata = metadata
        self._facts = facts
        self._stores = stores
        self._member = member
        self._asking = Asking(post)
        self._streams = StreamChanges(
            metadata, OperatorRequests(post), node, operates="operator" in roles
        )
        self._sealing = Sealing(metadata, self._look_at)
        self._tasks: set[asyncio.Task[None]] = set()
        post.on((AskNode,), self._on_question)

    async def stop(self) -> None:
        """Answer nobody any more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- clients --------------------------------------------------------------------------------

    async def answer(self, request: AdminRequest, seconds: float) -> Answer:
        """Do what a client asks for, who waits for ``seconds``; raises why it cannot be done."""
        match request:
            case ClusterFigures():
                return _figures(await self.status(seconds))
            case NodeFigures(node=node) | StreamDigest(node=node) | StreamGlsns(node=node):
                return await self._at(NodeId(node), request, seconds)
            case ChangeMembers():
                return await self._change_members(request, seconds)
            case CreateStream():
                return Number(await self._streams.create(request, seconds))
            case _:
                await self._do(request, seconds)
                return Done()

    async def _do(
        self,
        request: AddNode
        | RemoveNode
        | SealStream
        | MoveLeader
        | ChangeEnsemble
        | AbortChange
        | PauseOperators,
        seconds: float,
    ) -> None:
        match request:
            case AddNode():
                await self._add_node(request, seconds)
            case RemoveNode(node=node):
                await self._remove_node(NodeId(node), seconds)
            case SealStream(stream=stream, sealed=True):
                await self._sealing.seal(StreamId(stream), seconds)
            case SealStream(stream=stream):
                await self._sealing.unseal(StreamId(stream), seconds)
            case MoveLeader():
                await self._streams.move_leader(request, seconds)
            case ChangeEnsemble():
                await self._streams.change(request, seconds)
            case AbortChange():
                await self._streams.abort(request, seconds)
            case PauseOperators(paused=paused):
                wish = partial(wishes.paused, is_paused=paused)
                await bring_about(self._metadata, wish, seconds=seconds)

    # -- looking --------------------------------------------------------------------------------

    async def status(self, seconds: float) -> ClusterStatus:
        """The whole cluster, with all processes that answer soon."""
        patience = min(FACTS_SECONDS, seconds / 2)
        view = await self._newest_view(patience)
        nodes = [node for node in known_nodes(view) if node != self._node]
        answers = await asyncio.gather(*(self._hear(node, patience) for node in nodes))
        heard = {node: one for node, one in zip(nodes, answers, strict=True) if one is not None}
        heard[self._node] = Heard(self._facts())
        return cluster_status(cluster_id=self._cluster_id, asked=self._node, view=view, heard=heard)

    async def _newest_view(self, seconds: float) -> MetadataView:
        """What the repository says now, or the last that it said if it has no quorum."""
        try:
            return await self._metadata.read(seconds=seconds)
        except (DeadlineExceeded, Unreachable):
            if self._metadata.view is None:
                raise
            return self._metadata.view

    async def _hear(self, node: NodeId, seconds: float) -> Heard | None:
        begin = time()
        try:
            facts = _facts_in(await self._asking.ask(node, NodeFigures(), seconds=seconds))
        except LogError as error:
            _logger.info("node %d did not tell of itself: %s", node, error)
            return None
        end = time()
        return Heard(facts, facts.clock_us / 1e6 - (begin + end) / 2, end - begin)

    async def _look_at(self, node: NodeId) -> NodeFacts:
        """What one node tells of itself, be it this one."""
        return _facts_in(await self._at(node, NodeFigures(), FACTS_SECONDS))

    async def _at(self, node: NodeId, request: AdminRequest, seconds: float) -> Answer:
        """Let the node that is meant answer."""
        if node in (NO_NODE, self._node):
            return await self._answer_here(request)
        patience = FACTS_SECONDS if isinstance(request, NodeFigures) else DIGEST_SECONDS
        return await self._asking.ask(node, request, seconds=min(patience, seconds))

    # -- nodes ----------------------------------------------------------------------------------

    async def _add_node(self, request: AddNode, seconds: float) -> None:
        parse_told(request.peers)
        parse_told(request.clients)
        if request.node == NO_NODE:
            raise BadOption("nodes are numbered from 1 on")
        node, address = NodeId(request.node), f"{request.peers} {request.clients}"
        wish = partial(wishes.registered, node=node, address=address)
        await bring_about(self._metadata, wish, seconds=seconds)
        self._post.learn(node, request.peers)

    async def _remove_node(self, node: NodeId, seconds: float) -> None:
        def wish(view: MetadataView) -> UnregisterNode | None:
            change = wishes.unregistered(view, node)
            if change is not None:
                _refuse_hosting(view, node)
            return change

        await bring_about(self._metadata, wish, seconds=seconds)

    # -- the metadata repository ------------------------------------------------------------------

    async def _change_members(self, request: ChangeMembers, seconds: float) -> Answer:
        """Only the leader can do that; who it is may change meanwhile."""
        patience = min(MEMBERS_SECONDS, seconds)
        for attempt in range(_LEADER_TRIES):
            view = await self._metadata.read(seconds=patience)
            if view.leader == self._node:
                return await self._answer_here(request)
            try:
                return await self._asking.ask(view.leader, request, seconds=patience, repeat=False)
            except NotLeader:
                if attempt + 1 == _LEADER_TRIES:
                    raise
        raise Unreachable("the metadata repository has no leader")

    # -- other processes (A1) ---------------------------------------------------------------------

    def _on_question(self, source: NodeId, message: ClusterMessage) -> None:
        if not isinstance(message, AskNode):
            return
        request = decode_request(message.request)
        if not isinstance(request, NodeFigures | StreamDigest | StreamGlsns | ChangeMembers):
            raise BadFrame(f"{type(request).__name__} is not for processes to ask one another")
        if len(self._tasks) >= ADMIN_QUESTIONS_MAX:
            self._send(source, message.number, refused(Busy("too many questions at once")))
            return
        task = asyncio.get_running_loop().create_task(
            self._answer_question(source, message.number, request)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_question(self, source: NodeId, number: int, request: AdminRequest) -> None:
        try:
            answer = await self._answer_here(request)
        except LogError as error:
            answer = refused(error)
        except Exception as error:
            _logger.exception("a question failed: %s", type(request).__name__)
            answer = refused(surprised(error))
        self._send(source, number, answer)

    def _send(self, target: NodeId, number: int, answer: Answer) -> None:
        self._post.send(target, NodeAnswer(number, encode_message(answer)))

    async def _answer_here(self, request: AdminRequest) -> Answer:
        match request:
            case NodeFigures():
                return _figures(self._facts())
            case StreamDigest() | StreamGlsns():
                return _figures(await self._look_into(request))
            case ChangeMembers():
                return await self._change_members_here(request)
            case _:
                raise BadFrame(f"{type(request).__name__} is not for one process to answer")

    async def _look_into(self, request: StreamDigest | StreamGlsns) -> DigestFacts | GlsnFacts:
        stores, stream = self._stores, StreamId(request.stream)
        if stores is None:
            raise Unavailable(f"node {self._node} stores nothing")
        if all(replica.stream != stream for replica in stores.replicas()):
            raise UnknownStream(f"node {self._node} holds no replica of log stream {stream}")
        if isinstance(request, StreamGlsns):
            return await stores.glsns(stream, Glsn(request.glsn_begin), Glsn(request.glsn_end))
        return await stores.digest(stream, Llsn(request.llsn_begin), Llsn(request.llsn_end))

    async def _change_members_here(self, request: ChangeMembers) -> Answer:
        member, node = self._member, NodeId(request.node)
        if member is None:
            raise NotLeader(f"node {self._node} is not of the metadata repository")
        match request.kind:
            case "add":
                if request.peers:
                    parse_told(request.peers)
                await member.add(node, request.peers, seconds=MEMBERS_SECONDS)
            case "remove":
                await member.remove(node, seconds=MEMBERS_SECONDS)
            case "transfer":
                await member.transfer(node, seconds=MEMBERS_SECONDS)
        return Done()


def _refuse_hosting(view: MetadataView, node: NodeId) -> None:
    hosted = [order.stream for order in view.streams if node in involved(order)]
    if hosted:
        raise WrongState(
            f"node {node} still holds replicas of log streams "
            f"{', '.join(map(str, hosted[:10]))}: drain it first"
        )


def _figures(value: msgspec.Struct) -> Figures:
    return Figures(msgspec.json.encode(value))


def _facts_in(answer: Answer) -> NodeFacts:
    if not isinstance(answer, Figures):
        raise BadFrame(f"a node told of itself with {type(answer).__name__}")
    try:
        return msgspec.json.decode(answer.json, type=NodeFacts)
    except msgspec.DecodeError as error:
        raise BadFrame(f"a node told of itself what cannot be read: {error}") from error
