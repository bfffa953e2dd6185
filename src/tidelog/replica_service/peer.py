"""One connection of a replica service: a hello, then one request at a time.

P1  while a request is in work no other one of its connection is read
P2  every request gets exactly one answer, with its number, unless its connection is lost
P3  until a connection is a log channel its frames are as small as a hello; after that each large
    frame needs room of all connections' together
P4  hello and first request have one deadline: nobody holds a connection without a purpose
P5  answers that wait to be sent are bounded: from a peer that does not read, nothing is read
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final, Protocol

from tidelog.core.session.messages import (
    Ack,
    Answer,
    LogChannelCreate,
    LogChannelDispose,
    Request,
)
from tidelog.errors import BadFrame, ConnectionLost, LogError
from tidelog.formats.messages import Hello, Refused, Welcome, decode_request, encode_message
from tidelog.formats.session_messages import decode_session_request, encode_session_message
from tidelog.formats.wire import FrameHeader
from tidelog.limits import HELLO_BYTES_MAX
from tidelog.net.connection import FrameConnection, Patience
from tidelog.replica_service.room import Claim, Room

_logger: Final = logging.getLogger(__name__)

SERVICE_NAME: Final = "tidelog-replica"
_TEXT_CHARS_MAX: Final = 1000


class PeerOwner(Protocol):
    """Whom a connection tells what it heard; always in the event loop."""

    @property
    def log_id(self) -> bytes:
        """Of the store; empty if there is none."""

    def on_hello(self, peer: Peer, hello: Hello) -> None:
        """Somebody wants to come in; raises what is against that."""

    def on_request(self, peer: Peer, request: Request, attachment: memoryview) -> None:
        """A request came; ``Peer.answer`` is called exactly once."""

    def on_undecodable(self, peer: Peer, error: LogError) -> None:
        """Something came that is no request; ``Peer.answer`` and ``hang_up`` are called."""

    def on_lost(self, peer: Peer) -> None:
        """The connection is gone."""

    def on_turned_away(self, error: LogError) -> None:
        """A connection was refused as a whole."""


class Peer:
    """Handles the frames of one connection; made when it is accepted."""

    def __init__(self, number: int, owner: PeerOwner, room: Room, *, patience: Patience) -> None:
        self.number = number
        self.channel: int | None = None
        """The log channel that the connection was made."""
        self._owner = owner
        self._room = room
        self._claim: Claim | None = None
        self._greeted = False
        self._requests = 0
        self._in_work: Request | None = None
        self._is_busy = False
        self._stopping = False
        self._draining: asyncio.Task[None] | None = None
        self.connection = FrameConnection(self, patience=patience, admit=self._admit)

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its answer."""
        return self._is_busy

    # -- for the service ----------------------------------------------------------------------

    def answer(self, answer: Answer) -> None:
        """Answer what is in work, and read on."""
        self._change_role(answer)
        self._in_work = None
        self._is_busy = False
        self._give_room_back()
        self.connection.send(encode_session_message(answer), request=self._requests)
        if self.connection.is_writable:
            self._go_on()
        elif self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._wait_for_reader())

    def turn_away(self, error: LogError) -> None:
        """Refuse the connection as a whole, before anything was asked for, and close it."""
        self._owner.on_turned_away(error)
        refused = Refused(type(error).__name__, str(error)[:_TEXT_CHARS_MAX])
        self.connection.send(encode_message(refused), request=0)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection once what was said on it is sent."""
        self._stopping = True
        self._give_room_back()
        self.connection.close()

    def stop(self) -> None:
        """Read no further request."""
        self._stopping = True
        self.connection.pause()

    async def end(self) -> None:
        """Wait until nothing works for the connection any more."""
        await self.connection.wait_closed()
        if self._draining is not None:
            await self._draining

    # -- what the connection tells ------------------------------------------------------------

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        if not self._greeted:
            self._greet(message)
            return
        self.connection.pause()  # P1
        self._requests += 1
        if self._requests == 1:
            # P4: it has a purpose; P3: which one, its answer tells.
            self.connection.open_up(message_max=HELLO_BYTES_MAX, attachment_max=0)
            self.connection.keep_alive()
        if header.request != self._requests:
            number, self._requests = self._requests, header.request
            raise BadFrame(f"request {header.request} came instead of {number}: count from 1")
        request = decode_session_request(message)
        self._in_work, self._is_busy = request, True
        self._owner.on_request(self, request, attachment)

    def on_broken(self, error: LogError) -> None:
        _logger.info("the connection of %s is closed: %s", self.connection.peer, error)
        if self._greeted:
            self._is_busy = True
            self._owner.on_undecodable(self, error)
        else:
            self.turn_away(error)

    def on_lost(self, error: Exception | None) -> None:
        self._is_busy = False
        self._give_room_back()
        self._owner.on_lost(self)

    # -- details ------------------------------------------------------------------------------

    def _change_role(self, answer: Answer) -> None:
        match self._in_work, answer:
            case LogChannelCreate(channel=channel), Ack():
                self.channel = channel
                self.connection.open_up()  # P3
            case LogChannelDispose(), Ack():
                self.channel = None

    def _greet(self, message: bytes) -> None:
        hello = decode_request(message)
        if not isinstance(hello, Hello):
            raise BadFrame(f"a connection begins with a hello, not with {type(hello).__name__}")
        self._owner.on_hello(self, hello)
        self._greeted = True
        welcome = Welcome(self._owner.log_id, SERVICE_NAME, 1)
        self.connection.send(encode_message(welcome), request=0)

    def _admit(self, header: FrameHeader) -> bool:
        if header.body_bytes <= HELLO_BYTES_MAX:
            return True
        if self._claim is None:
            self._claim = self._room.claim(header.body_bytes, self._go_on)
        if not self._claim.is_granted:
            self.connection.pause()
        return self._claim.is_granted

    def _give_room_back(self) -> None:
        if self._claim is not None:
            claim, self._claim = self._claim, None
            self._room.release(claim)

    async def _wait_for_reader(self) -> None:
        with suppress(ConnectionLost):
            await self.connection.drain()
        self._draining = None
        self._go_on()

    def _go_on(self) -> None:
        """Read the next request, unless there is to be none."""
        if not self._stopping:
            self.connection.resume()
