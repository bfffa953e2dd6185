"""One connection for a thread that blocks: requests out, their answers in, in the same order.

B1  nothing waits for ever: every call has a deadline, whatever the peer does
B2  an answer's size is checked before a byte of it is taken; it never brings an attachment
B3  answers come in the order of the requests, and bear their numbers: any other ends it
B4  a frame leaves in one call of the system, header, message and attachment together, unless the
    peer takes no more or the connection is encrypted

One thread sends and receives; ``shut_down`` may come from any, and wakes the one that waits.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Final

from tidelog.errors import BadFrame, ConnectionLost, DeadlineExceeded, Unreachable
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Answer, Hello, Refused, decode_answer, encode_message
from tidelog.formats.wire import (
    HEADER_BYTES,
    check_message,
    check_start,
    decode_header,
    encode_frame,
)
from tidelog.limits import HELLO_BYTES_MAX, KIB, SESSION_ANSWER_BYTES_MAX
from tidelog.net.endpoint import Endpoint, UnixEndpoint
from tidelog.net.tls import handshake_error

_HELLO: Final = 0
"""The number of the hello; requests count from 1."""
_BUFFER_BYTES: Final = HEADER_BYTES + max(HELLO_BYTES_MAX, SESSION_ANSWER_BYTES_MAX)
_PARTS_MAX: Final = 256
"""What one gathering write may be given; systems take at least 1,024."""
_TLS_PART_BYTES: Final = 64 * KIB
"""An encrypted connection copies anyway: smaller parts are joined up to this."""
_KEEP_IDLE_SECONDS: Final = 15
_KEEP_INTERVAL_SECONDS: Final = 5
_KEEP_PROBES: Final = 3


class BlockingConnection:
    """Made by ``connect``.  Deadlines are times of ``time.monotonic``."""

    def __init__(self, connected: socket.socket, peer: str) -> None:
        self._socket = connected
        self._peer = peer
        self._gathers = not isinstance(connected, ssl.SSLSocket)
        self._answer_max = HELLO_BYTES_MAX
        self._numbers = _HELLO
        self._awaited: deque[int] = deque()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    @property
    def peer(self) -> str:
        """Who is at the other end, for messages to people."""
        return self._peer

    def say_hello(self, hello: Hello, deadline: float) -> Answer:
        """Introduce this side; what the peer has to say to it."""
        self._send_frame(_HELLO, encode_message(hello), (), deadline)
        answer = decode_answer(self.receive(deadline))
        self._answer_max = SESSION_ANSWER_BYTES_MAX
        return answer

    def send(self, message: bytes, attachments: Sequence[Buffer], deadline: float) -> None:
        """Send a request; ``receive`` brings its answer, after those of earlier ones."""
        self._numbers += 1
        self._send_frame(self._numbers, message, attachments, deadline)

    def receive(self, deadline: float) -> bytes:
        """The message that answers the oldest request that was not answered yet."""
        message = self._take_frame() if self._filled else None
        while message is None:
            self._read(deadline)
            message = self._take_frame()
        return message

    def shut_down(self) -> None:
        """End the connection now; a thread that waits in it is told.  Harmless twice."""
        try:
            # Not by way of TLS: that would let go of it first, and what another thread sends at
            # this moment would leave in plain text.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass  # The peer was faster.

    def close(self) -> None:
        """Let go of the socket; no thread may be using it."""
        self._socket.close()

    # -- frames out ---------------------------------------------------------------------------

    def _send_frame(
        self, number: int, message: bytes, attachments: Sequence[Buffer], deadline: float
    ) -> None:
        size = sum(map(len, attachments)) if attachments else 0
        head = encode_frame(message, request=number, attachment_bytes=size)
        self._awaited.append(number)
        parts = [head, *attachments]
        while parts:
            self._arm(deadline)
            try:
                sent = self._write(parts)
            except TimeoutError as error:
                raise DeadlineExceeded(f"{self._peer} takes nothing") from error
            except OSError as error:
                raise ConnectionLost(f"{self._peer} is gone: {error}") from error
            parts = _rest(parts, sent)

    def _write(self, parts: list[Buffer]) -> int:
        if self._gathers:
            return self._socket.sendmsg(parts[:_PARTS_MAX])
        if len(parts) > 1 and len(parts[0]) + len(parts[1]) <= _TLS_PART_BYTES:
            return self._socket.send(b"".join(parts[:2]))
        return self._socket.send(parts[0])

    # -- frames in ----------------------------------------------------------------------------

    def _take_frame(self) -> bytes | None:
        """The message of the frame at the start of the buffer; None if it is not all there."""
        if self._filled < HEADER_BYTES:
            check_start(self._buffer[: self._filled])
            return None
        header = decode_header(self._buffer, message_max=self._answer_max, attachment_max=0)
        end = HEADER_BYTES + header.message_bytes
        if self._filled < end:
            return None
        message = bytes(self._view[HEADER_BYTES:end])
        check_message(header, self._buffer, message)
        rest = self._filled - end
        if rest:
            self._buffer[:rest] = self._buffer[end : self._filled]
        self._filled = rest
        self._check_number(header.request, message)
        return message

    def _check_number(self, number: int, message: bytes) -> None:
        """B3; with number 0 a peer says why it hangs up."""
        if self._awaited and number == self._awaited[0]:
            self._awaited.popleft()
            return
        if number == _HELLO:
            answer = decode_answer(message)
            if isinstance(answer, Refused):
                raise ConnectionLost(f"{self._peer} hung up: {answer.message}")
        raise BadFrame(f"{self._peer} answered request {number}, which was not the next one")

    def _read(self, deadline: float) -> None:
        self._arm(deadline)
        try:
            count = self._socket.recv_into(self._view[self._filled :])
        except TimeoutError as error:
            raise DeadlineExceeded(f"{self._peer} does not answer") from error
        except ssl.SSLError as error:
            raise handshake_error(error, is_server=False) from error
        except OSError as error:
            raise ConnectionLost(f"{self._peer} is gone: {error}") from error
        if not count:
            raise ConnectionLost(f"{self._peer} hung up")
        self._filled += count

    def _arm(self, deadline: float) -> None:
        """B1: the next call of the system ends by then."""
        left = deadline - monotonic()
        if left <= 0:
            raise DeadlineExceeded(f"{self._peer} did not answer in time")
        self._socket.settimeout(left)


def connect(
    endpoint: Endpoint,
    deadline: float,
    *,
    context: ssl.SSLContext | None = None,
    server_name: str = "",
) -> BlockingConnection:
    """Connect, with TLS if there is a context for it; Unreachable says why that failed."""
    try:
        connected = _open(endpoint, deadline)
    except (OSError, ValueError) as error:  # The latter: no name of a host.
        raise Unreachable(f"cannot connect to {endpoint}: {error}") from error
    if context is not None:
        name = server_name or ("" if isinstance(endpoint, UnixEndpoint) else endpoint.host)
        try:
            connected.settimeout(_left(deadline))
            connected = context.wrap_socket(connected, server_hostname=name or None)
        except ssl.SSLError as error:
            connected.close()
            raise handshake_error(error, is_server=False) from error
        except (OSError, ValueError) as error:
            connected.close()
            raise Unreachable(f"no TLS with {endpoint}: {error}") from error
    return BlockingConnection(connected, str(endpoint))


def _open(endpoint: Endpoint, deadline: float) -> socket.socket:
    if isinstance(endpoint, UnixEndpoint):
        return _connected(socket.AF_UNIX, endpoint.path, deadline)
    failure: OSError = OSError("the host has no address")
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in found:
        try:
            connected = _connected(socket.AddressFamily(family), address, deadline)
        except OSError as error:
            failure = error
            continue
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connected)
        return connected
    raise failure


def _connected(
    family: socket.AddressFamily, address: str | tuple[object, ...], deadline: float
) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.settimeout(_left(deadline))
        connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _keep_alive(connected: socket.socket) -> None:
    """A peer whose machine is gone is noticed between requests, too."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_IDLE_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEP_INTERVAL_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEP_PROBES)


def _rest(parts: list[Buffer], sent: int) -> list[Buffer]:
    """What is left of ``parts`` when so many bytes were sent."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
