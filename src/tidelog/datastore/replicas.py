"""The connections of a datastore to its replicas: one for control, one for each log channel.

L1  a lane's connection to a replica is used by the one thread that runs the lane
L2  ``shut_down`` wakes every thread that waits for a replica; after it nothing is sent
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from time import monotonic
from typing import Final

from tidelog.client.refusals import error_of
from tidelog.core.session.messages import Answer, Request
from tidelog.datastore.options import DatastoreOptions
from tidelog.errors import BadFrame, LogError
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Hello, Refused, Welcome
from tidelog.formats.session_messages import decode_session_answer, encode_session_message
from tidelog.net.blocking_connection import BlockingConnection, connect
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity

_CLIENT: Final = "tidelog-datastore"


class Replicas:
    """Replicas are counted from 0, in the order in which they were named."""

    def __init__(
        self, endpoints: Sequence[Endpoint], security: ClientSecurity, options: DatastoreOptions
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._security = security
        self._options = options
        self._contexts = [_context(security, endpoint) for endpoint in endpoints]
        self._lanes: dict[int, list[BlockingConnection]] = {}

    def __len__(self) -> int:
        return len(self._endpoints)

    def name(self, replica: int) -> str:
        """For messages to people."""
        return str(self._endpoints[replica])

    def open_lane(self, lane: int) -> None:
        """Connect a lane to every replica; raises what one of them has against it."""
        connections: list[BlockingConnection] = []
        self._lanes[lane] = connections
        for endpoint, context in zip(self._endpoints, self._contexts, strict=True):
            connections.append(self._connect(endpoint, context))

    def send(
        self, replica: int, lane: int, message: Request, attachments: Sequence[Buffer] = ()
    ) -> None:
        """Send a request; LogError if the replica is lost."""
        deadline = monotonic() + self._options.ack_timeout_seconds
        connection = self._lanes[lane][replica]
        connection.send(encode_session_message(message), attachments, deadline)

    def receive(self, replica: int, lane: int, deadline: float) -> Answer:
        """The answer to the oldest request on this lane; LogError if the replica is lost."""
        return decode_session_answer(self._lanes[lane][replica].receive(deadline))

    def ack_deadline(self) -> float:
        return monotonic() + self._options.ack_timeout_seconds

    def shut_down(self) -> None:
        """End all connections now (L2); from any thread, harmless twice."""
        for connections in self._lanes.values():
            for connection in connections:
                connection.shut_down()

    def close(self) -> None:
        """Let go of all connections; nobody uses them any more."""
        self.shut_down()
        for connections in self._lanes.values():
            for connection in connections:
                connection.close()

    def _connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> BlockingConnection:
        deadline = monotonic() + self._options.connect_timeout_seconds
        name = self._security.name_of(endpoint)
        connection = connect(endpoint, deadline, context=context, server_name=name)
        try:
            _greet(connection, self._security.token, deadline)
        except BaseException:
            connection.close()
            raise
        return connection


def _context(security: ClientSecurity, endpoint: Endpoint) -> ssl.SSLContext | None:
    return security.for_endpoint(endpoint).ssl_context()


def _greet(connection: BlockingConnection, token: str, deadline: float) -> None:
    try:
        answer = connection.say_hello(Hello(_CLIENT, token=token), deadline)
    except LogError as error:
        raise type(error)(f"the greeting of {connection.peer} failed: {error}") from error
    if isinstance(answer, Refused):
        raise error_of(answer)
    if not isinstance(answer, Welcome):
        raise BadFrame(f"{connection.peer} answered hello with {type(answer).__name__}")
