"""A proxy that sees each message between master and replica, and decides what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from tests.client.proxy import wait_until
from tests.pair.fault_proxy import FaultProxy
from tidelog.core.session.messages import Answer, LogChannelCreate, Request, SessionBegin
from tidelog.core.session.output import CONTROL
from tidelog.formats.session_messages import decode_session_answer, decode_session_request
from tidelog.formats.wire import HEADER_BYTES, decode_header

_LENGTH_MAX: Final = 1 << 32


class Verdict(Enum):
    PASS = "pass"
    HOLD = "hold"
    """Until ``release``; what comes behind it on its connection waits, too."""
    CUT = "cut"
    """This one and all later ones are lost, and the connection with them."""


Judge = Callable[[int, "Request | Answer"], Verdict]
"""Is told the lane and the message."""
Forge = Callable[[int, Answer, bytes], bytes]
"""Is told the lane, an answer and its frame; what the master gets instead of the frame."""


def pass_all(lane: int, message: Request | Answer) -> Verdict:
    return Verdict.PASS


def leave_as_it_is(lane: int, answer: Answer, frame: bytes) -> bytes:
    return frame


class FrameProxy(FaultProxy):
    """``judge`` is asked about every message of a session, in the thread of the proxy."""

    def __init__(self, target: str) -> None:
        self.judge: Judge = pass_all
        self.forge: Forge = leave_as_it_is
        self.requests: list[tuple[int, Request]] = []
        """Lane and request, of all that were passed on."""
        self.held = 0
        self._lanes: dict[int, int] = {}
        super().__init__(target)

    def release(self) -> None:
        """Let go what is held, and hold nothing more."""
        self.judge = pass_all
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_until_held(self) -> None:
        wait_until(lambda: self.held > 0, "a message is held")

    async def _serve(self) -> None:
        self._released = asyncio.Event()
        await super()._serve()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cut: Callable[[], None],
        connection: int,
        *,
        from_master: bool,
    ) -> None:
        try:
            while await self._pass_frame(reader, writer, connection, from_master):
                pass
        except asyncio.IncompleteReadError:
            pass  # The sender has hung up.
        cut()

    async def _pass_frame(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: int,
        from_master: bool,
    ) -> bool:
        head = await reader.readexactly(HEADER_BYTES)
        header = decode_header(head, message_max=_LENGTH_MAX, attachment_max=_LENGTH_MAX)
        body = await reader.readexactly(header.body_bytes)
        frame = head + body
        if header.request:  # 0 is the hello.
            message = body[: header.message_bytes]
            verdict = self._judged(connection, message, from_master)
            if verdict is Verdict.CUT:
                self.cuts += 1
                return False
            if verdict is Verdict.HOLD:
                self.held += 1
                await self._released.wait()
            if not from_master:
                answer = decode_session_answer(message)
                frame = self.forge(self._lanes[connection], answer, frame)
        writer.write(frame)
        await writer.drain()
        return True

    def _judged(self, connection: int, data: bytes, from_master: bool) -> Verdict:
        message: Request | Answer
        if not from_master:
            message = decode_session_answer(data)
            return self.judge(self._lanes[connection], message)
        message = decode_session_request(data)
        if isinstance(message, SessionBegin):
            self._lanes[connection] = CONTROL
        elif isinstance(message, LogChannelCreate):
            self._lanes[connection] = message.channel
        lane = self._lanes[connection]
        verdict = self.judge(lane, message)
        if verdict is not Verdict.CUT:
            self.requests.append((lane, message))
        return verdict
