"""A connection that another process of the cluster opened.

I1  until a fitting hello came, nothing but a hello is looked at
I2  what a node says in the name of another one ends its connection
"""

from __future__ import annotations

from typing import Protocol

from tidelog.errors import BadFrame, LogError
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    PeerHello,
    PeerWelcome,
    Purpose,
    decode_cluster_message,
    decode_greeting,
    encode_greeting,
)
from tidelog.formats.messages import Refused
from tidelog.formats.wire import FrameHeader
from tidelog.limits import POST_MESSAGE_BYTES_MAX
from tidelog.net.connection import FrameConnection, FrameHandler, Patience
from tidelog.runtime.post_greeting import GREETING_REQUEST
from tidelog.types import NO_NODE, NodeId


class Office(Protocol):
    """What a connection needs of the post that it belongs to."""

    node: NodeId

    def admit(self, hello: PeerHello) -> None:
        """Raise what there is against this peer."""

    def accept_session(self, node: NodeId, connection: FrameConnection) -> FrameHandler:
        """Hand a connection to who keeps sessions; raises if there is nobody."""

    def greeted(self, hello: PeerHello) -> None:
        """A peer was welcomed."""

    def receive(self, node: NodeId, message: ClusterMessage) -> None:
        """A message came from a node."""

    def heard(self, node: NodeId) -> None:
        """A sign of life came from a node."""

    def turned_away(self, error: LogError) -> None:
        """A peer was not let in."""

    def lost(self, incoming: Incoming) -> None:
        """A connection is gone."""


class Incoming:
    """The handler of such a connection."""

    def __init__(self, office: Office, patience: Patience) -> None:
        self.connection = FrameConnection(self, patience=patience)
        self._office = office
        self._node = NO_NODE
        self._session: FrameHandler | None = None

    def turn_away(self, error: LogError) -> None:
        """Say why, and close."""
        self._office.turned_away(error)
        refusal = Refused(type(error).__name__, str(error))
        self.connection.send(encode_greeting(refusal), request=GREETING_REQUEST)
        self.connection.close()

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        if self._node == NO_NODE:
            self._greet(message)
            return
        self._office.heard(self._node)
        if self._session is not None:
            self._session.on_frame(header, message, attachment)
        else:
            self._receive(decode_cluster_message(message))

    def on_broken(self, error: LogError) -> None:
        if self._session is not None:
            self._session.on_broken(error)
        elif self._node == NO_NODE:
            self.turn_away(error)
        else:
            self.connection.abort()

    def on_lost(self, error: Exception | None) -> None:
        self._office.lost(self)
        if self._session is not None:
            self._session.on_lost(error)

    def _greet(self, message: bytes) -> None:
        """Look at the hello (I1)."""
        hello = decode_greeting(message)
        if not isinstance(hello, PeerHello):
            raise BadFrame("a connection begins with hello")
        self._office.admit(hello)
        node = NodeId(hello.node)
        if hello.purpose is Purpose.SESSION:
            self._session = self._office.accept_session(node, self.connection)
            self.connection.open_up()
        else:
            self.connection.open_up(message_max=POST_MESSAGE_BYTES_MAX, attachment_max=0)
        self._node = node
        self.connection.keep_alive()
        welcome = PeerWelcome(self._office.node)
        self.connection.send(encode_greeting(welcome), request=GREETING_REQUEST)
        self._office.greeted(hello)

    def _receive(self, message: ClusterMessage) -> None:
        self._check_source(message)
        self._office.receive(self._node, message)

    def _check_source(self, message: ClusterMessage) -> None:
        """I2: who names its source names itself."""
        source = getattr(message, "source", self._node)
        if source != self._node:
            raise BadFrame(f"node {self._node} speaks in the name of node {source}")
