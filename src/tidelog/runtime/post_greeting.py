"""Opening a connection to another process of the cluster, up to its welcome.

G1  nothing reaches the owner of a connection before the right node has said welcome
G2  a connection that is not welcome ends, and its owner never hears of it
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from tidelog.client.refusals import error_of
from tidelog.errors import BadFrame, ConnectionLost, DeadlineExceeded, LogError, WrongCluster
from tidelog.formats.cluster_messages import (
    Greeting,
    PeerHello,
    PeerWelcome,
    decode_greeting,
    encode_greeting,
)
from tidelog.formats.messages import Refused
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection, FrameHandler, Patience
from tidelog.net.dialing import Dialer
from tidelog.net.endpoint import Endpoint

GREETING_REQUEST: Final = 0
"""The number of all frames between processes: nothing is answered by number."""


class Caller:
    """The handler of a connection that this process opens: it awaits the welcome, then it hands
    everything to the owner."""

    def __init__(self, handler: FrameHandler, hello: PeerHello, patience: Patience) -> None:
        self.connection = FrameConnection(self, patience=patience)
        self._handler = handler
        self._hello = hello
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_welcome = False

    async def greet(self) -> None:
        """Say hello; raises what the peer has against it."""
        self.connection.send(encode_greeting(self._hello), request=GREETING_REQUEST)
        await self._answered

    def disown(self) -> None:
        """Hang up; the owner is not told (G2)."""
        self._is_welcome = False
        self.connection.abort()

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        if self._is_welcome:
            self._handler.on_frame(header, message, attachment)
        elif not self._answered.done():
            self._check_welcome(decode_greeting(message))
            self._is_welcome = True
            self.connection.open_up()
            self._answered.set_result(None)

    def on_broken(self, error: LogError) -> None:
        if self._is_welcome:
            self._handler.on_broken(error)
        else:
            self._fail(error)
            self.connection.abort()

    def on_lost(self, error: Exception | None) -> None:
        if self._is_welcome:
            self._handler.on_lost(error)
        else:
            reason = "the peer hung up" if error is None else str(error)
            self._fail(ConnectionLost(f"no welcome: {reason}"))

    def _check_welcome(self, greeting: Greeting) -> None:
        """G1."""
        match greeting:
            case PeerWelcome(node=node) if self._hello.target in (0, node):
                return
            case PeerWelcome(node=node):
                raise WrongCluster(f"node {node} answers where node {self._hello.target} should")
            case Refused():
                raise error_of(greeting)
            case _:
                raise BadFrame("a process of the cluster answered hello with hello")

    def _fail(self, error: LogError) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)


async def call(
    endpoint: Endpoint,
    dialer: Dialer,
    hello: PeerHello,
    handler: FrameHandler,
    *,
    patience: Patience,
    seconds: float,
) -> FrameConnection:
    """Connect and greet; Unreachable if there is nobody, or what the peer has against us."""
    caller = Caller(handler, hello, patience)
    try:
        async with asyncio.timeout(seconds):
            await dialer.dial(endpoint, caller.connection)
            await caller.greet()
    except BaseException as error:
        caller.disown()
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded(f"no welcome from {endpoint} within {seconds} s") from None
        raise
    with suppress(OSError):  # It may be gone already; then its owner is told.
        caller.connection.keep_alive()
    return caller.connection
