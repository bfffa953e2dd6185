"""Frames of RabbitMQ, as bytes: its stream protocol, and the little of AMQP that publishing needs.

No state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final

_FRAME: Final = Struct(">IHH")
_CORRELATED: Final = Struct(">IHHI")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_MESSAGE: Final = Struct(">QI")

DECLARE_PUBLISHER, PUBLISH, CONFIRM, PUBLISH_ERROR = 0x01, 0x02, 0x03, 0x04
SUBSCRIBE, DELIVER, CREDIT = 0x07, 0x08, 0x09
CREATE, PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN = (
    0x0D,
    0x11,
    0x12,
    0x13,
    0x14,
    0x15,
)
RESPONSE: Final = 0x8000
OK: Final = 1
GUEST: Final = "guest"
"""Name and password of a user that may come in from this machine."""
LOGIN: Final = f"\0{GUEST}\0{GUEST}".encode()

# -- the stream protocol ---------------------------------------------------------------------------


def frame(kind: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body) + 4, kind, 1) + body


def request(kind: int, number: int, body: bytes) -> bytes:
    """A frame that is answered under the same number."""
    return _CORRELATED.pack(len(body) + 8, kind, 1, number) + body


def text(value: str) -> bytes:
    return _I16.pack(len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def properties(values: Mapping[str, str]) -> bytes:
    return _I32.pack(len(values)) + b"".join(text(k) + text(v) for k, v in values.items())


def publish(values: Sequence[bytes]) -> bytes:
    messages = [_MESSAGE.pack(n, len(value)) + value for n, value in enumerate(values)]
    return frame(PUBLISH, b"\x01" + _I32.pack(len(values)) + b"".join(messages))


def subscribe(stream: str, number: int, credit: int) -> bytes:
    """From the first record on."""
    body = b"\x01" + text(stream) + _I16.pack(1) + _I16.pack(credit) + properties({})
    return request(SUBSCRIBE, number, body)


def credit(chunks: int) -> bytes:
    return frame(CREDIT, b"\x01" + _I16.pack(chunks))


# -- AMQP 0-9-1 ------------------------------------------------------------------------------------

METHOD, HEADER, BODY = 1, 2, 3
CONNECTION_START, CONNECTION_TUNE, CONNECTION_OPENED = (10, 10), (10, 30), (10, 41)
CHANNEL_OPENED, CONFIRM_SELECTED, ACKNOWLEDGED = (20, 11), (85, 11), (60, 80)
AMQP: Final = b"AMQP\0\0\x09\x01"
FRAME_BYTES: Final = 131_072
_AMQP_FRAME: Final = Struct(">BHI")
_METHOD: Final = Struct(">HH")
_U64: Final = Struct(">Q")


def amqp_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _AMQP_FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, name: tuple[int, int], arguments: bytes) -> bytes:
    return amqp_frame(METHOD, channel, _METHOD.pack(*name) + arguments)


def short(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def start_ok() -> bytes:
    no_properties = _I32.pack(0)
    arguments = no_properties + short(b"PLAIN") + blob(LOGIN) + short(b"en_US")
    return method(0, (10, 11), arguments)


def tune_ok() -> bytes:
    arguments = _I16.pack(2047) + _I32.pack(FRAME_BYTES) + _I16.pack(0)
    return method(0, (10, 31), arguments) + method(0, (10, 40), short(b"/") + b"\0\0")


def open_channel() -> bytes:
    return method(1, (20, 10), b"\0")


def select_confirms() -> bytes:
    return method(1, (85, 10), b"\0")


def publish_to_queue(queue: str, value: bytes) -> bytes:
    """A message that is to be kept, in as many frames as it takes."""
    name = short(queue.encode())
    parts = [
        method(1, (60, 40), b"\0\0" + short(b"") + name + b"\0"),
        amqp_frame(HEADER, 1, _METHOD.pack(60, 0) + _U64.pack(len(value)) + b"\x10\x00\x02"),
    ]
    room = FRAME_BYTES - 8
    parts += [amqp_frame(BODY, 1, value[at : at + room]) for at in range(0, len(value), room)]
    return b"".join(parts)
