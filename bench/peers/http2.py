"""Just enough of HTTP/2 to make gRPC calls that look alike, many at once.

P1  a call that was answered by a message and trailers has succeeded; by trailers alone, failed
P2  no more is sent than the windows of the connection and of the call allow
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import Struct
from time import perf_counter
from typing import Final

from bench.peers.lean import Frame, Link

_HEAD: Final = Struct(">BHBBI")
_U32: Final = Struct(">I")
_SETTING: Final = Struct(">HI")
_PREFIX: Final = Struct(">BI")
_HEAD_BYTES: Final = 9
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_INITIAL_WINDOW: Final = 4
_FRAME_SIZE: Final = 5
_WIDE: Final = 1 << 30
_GIVE_BACK: Final = 1 << 20


def frame_of(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def request_headers(path: str, authority: str) -> bytes:
    """The header block of a call: no compression, no table that would have to be kept."""

    def text(value: bytes) -> bytes:
        return bytes([len(value)]) + value

    return b"".join(
        (
            b"\x83\x86",  # :method POST, :scheme http
            b"\x04" + text(path.encode()),
            b"\x01" + text(authority.encode()),
            b"\x0f\x10" + text(b"application/grpc"),
            b"\x00" + text(b"te") + text(b"trailers"),
        )
    )


PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame_of(_SETTINGS, 0, 0, _SETTING.pack(_INITIAL_WINDOW, _WIDE))
    + frame_of(_WINDOW, 0, 0, _U32.pack(_WIDE))
)


@dataclass(slots=True)
class _Call:
    """A request of which something is still to be sent."""

    stream: int
    rest: memoryview
    window: int


class CallLink(Link):
    """A connection for calls of one method."""

    def __init__(self, path: str, authority: str) -> None:
        super().__init__()
        self.headers = request_headers(path, authority)
        self._received = bytearray()
        self._stream = -1
        self._window = 65_535
        self._call_window = 65_535
        self._frame_size = 16_384
        self._unsent: deque[_Call] = deque()
        self._answered: set[int] = set()
        """Calls whose message has come (P1)."""
        self._taken = 0
        self._due_of: dict[int, float] = {}

    # -- sending ------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        self._stream += 2
        message = self.message_of(frame)
        body = _PREFIX.pack(0, len(message)) + message
        self.transport.write(frame_of(_HEADERS, _END_HEADERS, self._stream, self.headers))
        self._unsent.append(_Call(self._stream, memoryview(body), self._call_window))
        self._flush()

    def message_of(self, frame: Frame) -> bytes:
        """The message of the next call."""
        return frame.data

    def send_timed(self, frame: Frame, due: float) -> None:
        self.send(frame)
        self._due_of[self._stream] = due

    async def timed(self) -> list[float]:
        """Calls are answered in any order, so each has its time."""
        while self._due_of:
            await self.changed()
        late, self._late = self._late, []
        return late

    def _flush(self) -> None:
        """Send what the windows allow (P2)."""
        for _ in range(len(self._unsent)):
            call = self._unsent.popleft()
            while call.rest and (size := self._allowed(call)) > 0:
                is_end = size == len(call.rest)
                piece = bytes(call.rest[:size])
                self.transport.write(
                    frame_of(_DATA, _END_STREAM if is_end else 0, call.stream, piece)
                )
                call.rest = call.rest[size:]
                call.window -= size
                self._window -= size
            if call.rest:
                self._unsent.append(call)

    def _allowed(self, call: _Call) -> int:
        return min(self._window, call.window, self._frame_size, len(call.rest))

    # -- receiving ----------------------------------------------------------------------------

    def acknowledgements_in(self, data: bytes) -> int:
        received = self._received
        received += data
        begin = found = 0
        while len(received) - begin >= _HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(received, begin)
            end = begin + _HEAD_BYTES + (high << 16 | low)
            if len(received) < end:
                break
            found += self._on_frame(kind, flags, stream, received[begin + _HEAD_BYTES : end])
            begin = end
        del received[:begin]
        self._flush()
        return found

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytearray) -> int:
        if kind == _HEADERS and flags & _END_STREAM:
            return self._on_end(stream)
        if kind == _DATA:
            self._answered.add(stream)
            self._on_taken(len(payload))
        elif kind == _WINDOW:
            self._on_window(stream, _U32.unpack(payload)[0])
        elif kind == _SETTINGS and not flags & _ACK:
            self._on_settings(payload)
        elif kind == _PING and not flags & _ACK:
            self.transport.write(frame_of(_PING, _ACK, 0, bytes(payload)))
        elif kind in (_RESET, _GO_AWAY):
            self.fail(f"the connection was given up: {bytes(payload)!r}")
        return 0

    def _on_end(self, stream: int) -> int:
        if stream not in self._answered:
            self.fail("a call failed")
        self._answered.discard(stream)
        if (due := self._due_of.pop(stream, None)) is not None:
            self._late.append(perf_counter() - due)
        return 1

    def _on_taken(self, size: int) -> None:
        self._taken += size
        if self._taken >= _GIVE_BACK:
            self.transport.write(frame_of(_WINDOW, 0, 0, _U32.pack(self._taken)))
            self._taken = 0

    def _on_window(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
        for call in self._unsent:
            if call.stream == stream:
                call.window += size

    def _on_settings(self, payload: bytearray) -> None:
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW:
                for call in self._unsent:
                    call.window += value - self._call_window
                self._call_window = value
            elif name == _FRAME_SIZE:
                self._frame_size = value
        self.transport.write(frame_of(_SETTINGS, _ACK, 0, b""))
