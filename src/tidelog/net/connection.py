"""One connection: bytes to frames and back, for both sides.

N1  nothing waits for ever: a hello, a frame that has begun, a peer that does not read, and a
    closed connection that still has to send each have a deadline
N2  while reading is paused no frame is handed on, not even one that has arrived
N3  who connects leaves the process descriptors for its files: beyond that it is hung up on at once
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from socket import (
    AF_UNIX,
    IPPROTO_TCP,
    SO_KEEPALIVE,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
)
from typing import Final, Protocol, cast

from tidelog.errors import BadFrame, Busy, ConnectionLost, DeadlineExceeded, LogError
from tidelog.formats.checksum import Buffer
from tidelog.formats.wire import FrameHeader, encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX
from tidelog.net.frame_assembly import FrameAssembly
from tidelog.net.tls import TlsLayer

_KEEP_ALIVE: Final = ((TCP_KEEPIDLE, 15), (TCP_KEEPINTVL, 5), (TCP_KEEPCNT, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds a connection waits for its peer."""

    hello: float = 5.0
    """From the first moment until both have said hello."""
    frame: float = 30.0
    """From a frame's first byte to its last."""
    write: float = 60.0
    """For a peer that does not take a single byte."""
    close: float = 5.0
    """For the last answers to leave a connection that is being closed."""


class FrameHandler(Protocol):
    """What a connection tells its owner, always in the event loop."""

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        """A whole frame arrived.  A LogError that this raises breaks the connection."""

    def on_broken(self, error: LogError) -> None:
        """The peer does not keep to the protocol or its deadlines; close or abort now."""

    def on_lost(self, error: Exception | None) -> None:
        """The connection is gone.  Called once, and last."""


class FrameConnection(asyncio.BufferedProtocol):
    """A protocol for asyncio's transports; all calls belong into the event loop."""

    def __init__(
        self,
        handler: FrameHandler,
        *,
        patience: Patience | None = None,
        admit: Callable[[FrameHeader], bool] | None = None,
    ) -> None:
        """``admit`` is asked at the header of each frame; if it says no, it has called ``pause``,
        and is asked again after ``resume``."""
        self._handler = handler
        self._patience = patience or Patience()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._broken = False
        """Whatever arrives is dropped."""
        self._ending = False
        """Whatever is sent is dropped."""
        self._lost = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._descriptor_end = 0
        # What arrives.
        self._arriving = FrameAssembly(admit)
        self._frame_since: float | None = None
        self._paused = False
        # What leaves.
        self._out: list[Buffer] = []
        self._flushing = False
        self._queued_bytes = 0
        self._written_seen = -1
        self._writable = asyncio.Event()
        self._writable.set()

    # -- for the owner ------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Who is at the other end, for messages to people."""
        if self._transport is None:
            return "nobody"
        name = self._transport.get_extra_info("peername")
        return str(name) if name else "a Unix socket"

    @property
    def is_lost(self) -> bool:
        return self._lost

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes what is sent; if not, ``drain`` waits until it does."""
        return self._writable.is_set()

    def over_tls(self, context: ssl.SSLContext, *, server_name: str | None = None) -> TlsLayer:
        """The protocol to give to an event loop instead of this one, for TLS.

        ``server_name`` is what a client expects in the certificate; a server leaves it out.
        """
        return TlsLayer(self, context, server_name=server_name, on_failed=self._break)

    def open_up(
        self,
        *,
        message_max: int = MESSAGE_BYTES_MAX,
        attachment_max: int = ATTACHMENT_BYTES_MAX,
    ) -> None:
        """Both sides have said hello: from now on frames may be large."""
        self._arriving.open_up(message_max, attachment_max)
        self._cancel_timer(self._on_hello_deadline)

    def mind_descriptors(self, end: int) -> None:
        """Before it is made: a socket with this number or a higher one is not kept (N3)."""
        self._descriptor_end = end

    def keep_alive(self) -> None:
        """Have the system tell within half a minute of a peer that vanished without a word."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None or found.family == AF_UNIX:
            return
        found.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            found.setsockopt(IPPROTO_TCP, option, value)

    def await_receipt(self, seconds: float) -> None:
        """Have the system end the connection if the peer's does not confirm bytes for so long."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is not None and found.family != AF_UNIX:
            found.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, int(seconds * 1000))

    def send(
        self,
        message: bytes,
        *,
        request: int,
        timeout_ms: int = 0,
        attachments: Sequence[Buffer] = (),
    ) -> None:
        """Send a frame with all others of this turn of the loop; dropped if the peer is gone.

        Nothing holds the caller back: whoever sends much awaits ``drain`` first.
        """
        if self._lost or self._ending:
            return
        size = sum(map(_length, attachments)) if attachments else 0
        frame = encode_frame(message, request=request, timeout_ms=timeout_ms, attachment_bytes=size)
        self._out.append(frame)
        self._out += attachments
        self._queued_bytes += len(frame) + size
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was sent; ConnectionLost if it is gone."""
        if self._flushing:
            self._flush()
        while not self._writable.is_set() and not self._lost:
            await self._writable.wait()
        if self._lost:
            raise ConnectionLost("the connection is gone")

    def pause(self) -> None:
        """Hand on no more frames until ``resume``; the peer will be held back in time."""
        if not self._paused:
            self._paused = True
            self._frame_since = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()

    def resume(self) -> None:
        """Go on after ``pause``, in the next turn of the loop."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Send what was queued, then close; hand on nothing more.

        What still arrives is taken and dropped until the peer closes too: a connection that is
        closed with bytes unread is reset, and the peer might never see our last words.
        """
        if self._ending:
            return
        self._broken = self._ending = True
        if self._transport is not None and not self._lost:
            self._end_writing(self._transport)

    def _end_writing(self, transport: asyncio.Transport) -> None:
        self._flush()
        if not transport.is_closing():
            transport.write_eof()
            transport.resume_reading()
        self._start_timer(self.abort, self._patience.close)

    def abort(self) -> None:
        """Close without sending what was queued."""
        self._broken = self._ending = True
        self._out.clear()
        if self._transport is not None and not self._lost:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone; ``close`` and ``abort`` see to it that it goes."""
        await asyncio.shield(self._closed)

    # -- for asyncio --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if self._is_one_too_many():
            self._break(Busy("the process has too many connections: try again later"))
            self.abort()
        elif self._ending:
            self._end_writing(self._transport)
        else:
            self._flush()
            if self._arriving.awaits_hello:
                self._start_timer(self._on_hello_deadline, self._patience.hello)

    def _is_one_too_many(self) -> bool:
        """N3: the system gives the lowest number that is free."""
        if not self._descriptor_end or self._transport is None:
            return False
        found = self._transport.get_extra_info("socket")
        return found is not None and found.fileno() >= self._descriptor_end

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._broken = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._out.clear()
        self._arriving.forget()
        self._writable.set()
        if not self._closed.done():
            self._closed.set_result(None)
        self._handler.on_lost(exc)

    def pause_writing(self) -> None:
        self._writable.clear()
        self._written_seen = -1
        self._watch_writing()

    def resume_writing(self) -> None:
        self._writable.set()
        self._cancel_timer(self._watch_writing)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._broken:
            return self._arriving.scratch  # What still comes is not looked at.
        return self._arriving.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._broken:
            return
        self._arriving.arrived(nbytes)
        self._read_frames()

    # -- frames in ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._paused or self._lost or self._transport is None:
            return
        if not self._broken:
            self._read_frames()
        if not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def _read_frames(self) -> None:
        """Hand on all frames that are there (N2), and make room for what comes next."""
        try:
            while not self._paused and not self._broken and self._read_frame():
                pass
        except LogError as error:
            self._break(error)
            return
        self._arriving.make_room()
        if not self._paused:
            self._watch_frame()

    def _read_frame(self) -> bool:
        """Hand on the frame that begins here; False if it is not there as a whole."""
        frame = self._arriving.next()
        if frame is None:
            return False
        self._frame_since = None
        self._handler.on_frame(*frame)
        return True

    def _break(self, error: LogError) -> None:
        if not self._broken:
            self._broken = True
            self._arriving.forget()
            self._handler.on_broken(error)

    # -- frames out ---------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flushing = False
        if self._out and self._transport is not None and not self._lost:
            out, self._out = self._out, []
            if len(out) == 1:
                self._transport.write(out[0])
            else:
                self._transport.writelines(out)

    # -- deadlines (N1) -----------------------------------------------------------------------

    def _watch_frame(self) -> None:
        """Note when a frame began that is not complete; one timer serves all frames."""
        if not self._arriving.has_begun:
            self._frame_since = None
        elif self._frame_since is None:
            self._frame_since = self._loop.time()
            if self._on_frame_deadline not in self._timers:
                self._start_timer(self._on_frame_deadline, self._patience.frame)

    def _on_frame_deadline(self) -> None:
        del self._timers[self._on_frame_deadline]
        if self._frame_since is None:
            return
        left = self._frame_since + self._patience.frame - self._loop.time()
        if left > 0:
            self._start_timer(self._on_frame_deadline, left)
            return
        self._break(BadFrame(f"a frame was not complete after {self._patience.frame} s"))

    def _on_hello_deadline(self) -> None:
        transport = self._transport
        if isinstance(transport, TlsLayer) and transport.is_shaking_hands:
            seconds = self._patience.hello
            self._break(DeadlineExceeded(f"the TLS handshake was not done within {seconds} s"))
            self.abort()  # There is no way to say a last word.
            return
        self._break(DeadlineExceeded(f"no hello within {self._patience.hello} s"))

    def _watch_writing(self) -> None:
        if self._transport is None or self._lost:
            return
        written = self._queued_bytes - self._transport.get_write_buffer_size()
        if written == self._written_seen:
            self.abort()
            return
        self._written_seen = written
        self._start_timer(self._watch_writing, self._patience.write)

    def _start_timer(self, callback: Callable[[], None], seconds: float) -> None:
        self._cancel_timer(callback)
        self._timers[callback] = self._loop.call_later(seconds, callback)

    def _cancel_timer(self, callback: Callable[[], None]) -> None:
        timer = self._timers.pop(callback, None)
        if timer is not None:
            timer.cancel()


def _length(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)
