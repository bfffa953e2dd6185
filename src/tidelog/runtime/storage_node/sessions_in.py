"""Sessions in which this node follows others: their connections, and what is answered on them.

Invariants:
  F1  outputs are carried out in their order
  F2  who begins a session is the node that was greeted
  F3  of a connection that was hung up nothing is told any more
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import Final

from tidelog.core.session.node_follower import NodeFollower
from tidelog.core.session.node_messages import LaneOpen, NodeRequest, NodeSessionBegin
from tidelog.core.session.node_output import Deliver, Hang, NodeOptions, Reply
from tidelog.errors import BadFrame, LogClosed, LogError
from tidelog.formats.node_messages import decode_node_request, encode_node_message
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection
from tidelog.runtime.storage_node.turns import Word
from tidelog.types import NodeId

_logger: Final = logging.getLogger(__name__)
_SECRET_BYTES: Final = 32


class _Visitor:
    """One connection of a leader node, greeted."""

    def __init__(
        self, sessions: FollowerSessions, number: int, node: NodeId, connection: FrameConnection
    ) -> None:
        self._sessions = sessions
        self._number = number
        self._node = node
        self.connection = connection
        self._answered = 0
        self._is_hung_up = False

    def reply(self, answer: bytes) -> None:
        self._answered += 1
        self.connection.send(answer, request=self._answered)

    def hang_up(self) -> None:
        """F3."""
        self._is_hung_up = True
        self.connection.close()

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        if not self._is_hung_up:
            request = decode_node_request(message)
            self._check_source(request)
            self._sessions.received(self._number, request, attachment)

    def on_broken(self, error: LogError) -> None:
        _logger.warning("node %s: %s", self._node, error)
        if not self._is_hung_up:
            self._sessions.undecodable(self._number)

    def on_lost(self, error: Exception | None) -> None:
        self._sessions.lost(self._number, is_news=not self._is_hung_up)

    def _check_source(self, request: NodeRequest) -> None:
        """F2."""
        if isinstance(request, NodeSessionBegin | LaneOpen) and request.source != self._node:
            raise BadFrame(f"node {self._node} speaks for node {request.source}")


class FollowerSessions:
    """All sessions in which this node follows.  Belongs to one event loop."""

    def __init__(
        self, *, cluster_id: str, node: NodeId, options: NodeOptions, put: Callable[[Word], None]
    ) -> None:
        self.follower = NodeFollower(cluster_id=cluster_id, node=node, options=options)
        self._put = put
        self._visitors: dict[int, _Visitor] = {}
        self._last_number = 0
        self._is_stopping = False

    def accept(self, node: NodeId, connection: FrameConnection) -> _Visitor:
        """Take in a connection that a node has made for a session."""
        if self._is_stopping:
            raise LogClosed("the node is stopping")
        self._last_number += 1
        visitor = _Visitor(self, self._last_number, node, connection)
        self._visitors[self._last_number] = visitor
        self._put(partial(self.follower.connected, self._last_number))
        return visitor

    def take(self) -> list[Deliver]:
        """Carry out what the core wants (F1); return what replicas are to be handed."""
        deliveries: list[Deliver] = []
        for output in self.follower.take():
            match output:
                case Deliver():
                    deliveries.append(output)
                case Reply():
                    visitor = self._visitors.get(output.connection)
                    if visitor is not None:
                        visitor.reply(encode_node_message(output.answer))
                case Hang():
                    visitor = self._visitors.get(output.connection)
                    if visitor is not None:
                        visitor.hang_up()
        return deliveries

    def received(self, number: int, request: NodeRequest, attachment: memoryview) -> None:
        secret = token_hex(_SECRET_BYTES) if isinstance(request, NodeSessionBegin) else ""
        self._put(
            partial(
                self.follower.received,
                number,
                request,
                fresh_secret=secret,
                attachment=attachment,
            )
        )

    def undecodable(self, number: int) -> None:
        self._put(partial(self.follower.undecodable, number))

    def lost(self, number: int, *, is_news: bool) -> None:
        del self._visitors[number]
        if is_news and not self._is_stopping:
            self._put(partial(self.follower.lost, number))

    async def stop(self) -> None:
        """End all sessions."""
        self._is_stopping = True
        visitors = list(self._visitors.values())
        for visitor in visitors:
            visitor.hang_up()
            visitor.connection.abort()
        if visitors:
            await asyncio.gather(*(visitor.connection.wait_closed() for visitor in visitors))
