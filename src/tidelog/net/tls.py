"""TLS below the frames of a connection: the same under every event loop.

The layer stands between a socket's transport and a protocol, to which it is the transport.  The
transports for TLS that event loops bring cannot end their side of a connection and go on reading,
so that last words might get lost, and they do not tell a server of handshakes that fail.

L1  nothing that the protocol sends leaves in plain text, unless a server's peer itself spoke
    plain text: it is told so in the language that it understands, and that is all it is told
L2  the protocol is told of its connection when it begins, and of the end of it once, whatever
    becomes of the handshake: so its deadlines and its bounds hold for handshakes as well
L3  no more is decrypted than the protocol takes, and no more is received than is decrypted
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, cast

from tidelog.errors import BadAddress, BadFrame, ConnectionLost, LogError, Unauthorized
from tidelog.formats.checksum import Buffer
from tidelog.limits import KIB

_BUFFER_BYTES: Final = 64 * KIB
_WRITE_BYTES: Final = 256 * KIB
"""What is encrypted in one go."""
_HANDSHAKE: Final = 0x16
"""The first byte of a peer that opens a connection with TLS."""
_ALERT: Final = 0x15
_VERSION_MAJOR: Final = 0x03


class _State(Enum):
    SHAKING_HANDS = "shaking hands"
    OPEN = "open"
    PLAIN = "plain"
    """The peer of a server spoke plain text: a refusal goes to it, and nothing else (L1)."""
    FAILED = "failed"
    ENDED = "ended"
    """This side has said its last words; what still arrives is dropped."""


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """A protocol for a socket's transport, and the transport of ``protocol``."""

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        *,
        server_name: str | None,
        on_failed: Callable[[LogError], None],
    ) -> None:
        """``server_name``: the one in the server's certificate; None: this is the server.

        ``on_failed`` is told what is wrong with the peer or its certificate.
        """
        super().__init__()
        self._protocol = protocol
        self._is_server = server_name is None
        self._on_failed = on_failed
        self._state = _State.SHAKING_HANDS
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._arrived,
            self._leaving,
            server_side=self._is_server,
            server_hostname=server_name,
        )
        self._below: asyncio.Transport
        """The socket's transport, from ``connection_made`` on."""
        self._buffer: memoryview | None = None
        """From the first byte on: a peer that says nothing takes no memory."""
        self._heard = False
        self._paused = False
        self._reading = False
        self._waiting: list[Buffer] = []
        """What the protocol has sent before the handshake was complete."""
        self._end_asked = False

    @property
    def is_shaking_hands(self) -> bool:
        return self._state is _State.SHAKING_HANDS

    # -- for the event loop -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no subclasses of asyncio's.
        self._below = cast("asyncio.Transport", transport)
        self._protocol.connection_made(self)
        if not self._is_server and self._state is _State.SHAKING_HANDS:
            self._shake_hands()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._state is _State.SHAKING_HANDS:
            exc = ConnectionLost("the peer hung up before the TLS handshake was complete")
        self._state = _State.FAILED
        self._waiting.clear()
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._buffer is None:
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        arrived = self.get_buffer(-1)[:nbytes]
        if self._state is _State.SHAKING_HANDS:
            if not self._heard and arrived[0] not in (_HANDSHAKE, _ALERT):
                self._meet_plain_peer()
                return
            self._heard = True
            self._arrived.write(arrived)
            self._shake_hands()
        elif self._state is _State.OPEN:
            self._arrived.write(arrived)
        self._read()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # -- for the protocol: what it needs of a transport ---------------------------------------

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        if self._state is not _State.SHAKING_HANDS:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._below.resume_reading()
        # What was decrypted, or arrived before the pause, makes no socket readable.
        asyncio.get_running_loop().call_soon(self._read)

    def write(self, data: Buffer) -> None:
        if self._state is _State.OPEN:
            self._encrypt(data)
        elif self._state is _State.SHAKING_HANDS:
            self._waiting.append(data)
        elif self._state is _State.PLAIN:
            self._below.write(data)

    def writelines(self, parts: Iterable[Buffer]) -> None:
        """Small parts share a record: each costs some bytes, and more time."""
        small: list[Buffer] = []
        size = 0
        for part in parts:
            if size and size + len(part) > _BUFFER_BYTES:
                self.write(b"".join(small))
                small, size = [], 0
            small.append(part)
            size += len(part)
        if small:
            self.write(small[0] if len(small) == 1 else b"".join(small))

    def write_eof(self) -> None:
        """Say that nothing more comes, as soon as the handshake allows; what arrives is dropped."""
        self._end_asked = True
        if self._state is _State.SHAKING_HANDS:
            return
        if self._state is _State.OPEN:
            with suppress(ssl.SSLError):  # That the peer has not said the same yet.
                self._tls.unwrap()
            self._send_records()
        self._state = _State.ENDED
        if not self._below.is_closing():
            self._below.write_eof()

    def abort(self) -> None:
        """Hang up; only what is wrong with the peer is still told to it."""
        if self._state is _State.FAILED:
            self._below.close()
        else:
            self._below.abort()

    # -- handshake ----------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_records()
            return
        except ssl.SSLError as error:
            self._fail(handshake_error(error, is_server=self._is_server))
            return
        self._state = _State.OPEN
        waiting, self._waiting = self._waiting, []
        self.writelines(waiting)
        self._send_records()
        if self._paused:
            self._below.pause_reading()
        self._end_if_asked()

    def _meet_plain_peer(self) -> None:
        self._waiting.clear()
        if self._is_server:
            self._state = _State.PLAIN
            self._on_failed(
                BadAddress(
                    "TLS is spoken at this address, and the peer came without: connect to "
                    "tidelog+tls:// or tls://"
                )
            )
            self._end_if_asked()
        else:
            self._fail(_no_tls_there())

    def _fail(self, error: LogError) -> None:
        """Tell the peer, in its own terms, and the protocol."""
        self._state = _State.FAILED
        self._waiting.clear()
        with suppress(ssl.SSLError):
            self._send_records()
        self._on_failed(error)
        self._end_if_asked()

    def _end_if_asked(self) -> None:
        if self._end_asked and self._state is not _State.ENDED:
            self.write_eof()

    # -- records ------------------------------------------------------------------------------

    def _read(self) -> None:
        """Hand on what has arrived, as far as the protocol takes it (L3)."""
        if self._reading:
            return
        self._reading = True
        try:
            while self._state is _State.OPEN and not self._paused and self._read_some():
                pass
        finally:
            self._reading = False

    def _read_some(self) -> bool:
        """Decrypt to where the protocol wants it; False if no whole record is there."""
        if not (self._arrived.pending or self._tls.pending()):
            return False
        buffer = cast("bytearray", self._protocol.get_buffer(-1))
        try:
            size = cast("int", self._tls.read(len(buffer), buffer))
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._fail(handshake_error(error, is_server=self._is_server))
            return False
        if not size:
            self._on_end_of_peer()
            return False
        self._protocol.buffer_updated(size)
        return True

    def _on_end_of_peer(self) -> None:
        """The peer has said its last words: as without TLS, send what was queued and close."""
        self.write_eof()
        self._below.close()

    def _encrypt(self, data: Buffer) -> None:
        try:
            if len(data) <= _WRITE_BYTES:
                self._tls.write(data)
                self._send_records()
                return
            view = memoryview(data)
            for begin in range(0, len(view), _WRITE_BYTES):
                self._tls.write(view[begin : begin + _WRITE_BYTES])
                self._send_records()
        except ssl.SSLError as error:
            self._fail(handshake_error(error, is_server=self._is_server))

    def _send_records(self) -> None:
        if self._leaving.pending and not self._below.is_closing():
            self._below.write(self._leaving.read())


def opens_with_tls(start: memoryview) -> bool:
    """Whether a peer that began like this speaks TLS to somebody who does not."""
    return (
        len(start) > 0 and start[0] == _HANDSHAKE and start[1:2] in (b"", bytes([_VERSION_MAJOR]))
    )


def handshake_error(error: ssl.SSLError, *, is_server: bool) -> LogError:
    """What a failure of TLS means, and what to do about it."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = "the client's" if is_server else "the server's"
        return Unauthorized(f"{whose} certificate is not good: {error.verify_message}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return Unauthorized("the client has shown no certificate, and here it needs one")
    if reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
        return Unauthorized("the peer wants a certificate of this side: give one and its key")
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":  # TLS 1.2 has no word of its own for it.
        return Unauthorized(
            "the peer refuses the handshake: it may want a certificate of this side, or know no "
            "way to encrypt that this side knows"
        )
    if reason in _REFUSED_CERTIFICATE:
        return Unauthorized(f"the peer refuses the certificate of this side ({_words(reason)})")
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return _no_tls_there()
    return BadFrame(f"TLS with the peer failed ({_words(reason) or error})")


_REFUSED_CERTIFICATE: Final = (
    "TLSV1_ALERT_UNKNOWN_CA",
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_REVOKED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    "TLSV1_ALERT_ACCESS_DENIED",
)


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _no_tls_there() -> LogError:
    return BadAddress(
        "there is no TLS at this address: use tidelog:// or tcp:// if that is right, or let the "
        "node listen at tls://"
    )
