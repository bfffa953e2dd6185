"""Messages of replication sessions as bytes.  No state.

A message is a MessagePack array whose first element says which one it is; batches, and parts of
BLOBs, travel in the attachment of its frame (``wire``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.core.session.messages import Answer, Request
from tidelog.errors import BadFrame

_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_ANSWERS: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def encode_session_message(message: Request | Answer) -> bytes:
    return _ENCODER.encode(message)


def decode_session_request(data: bytes | memoryview) -> Request:
    """The request in a frame; BadFrame if it is none."""
    try:
        return _REQUESTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not a request of a replication session: {error}") from error


def decode_session_answer(data: bytes | memoryview) -> Answer:
    """The answer in a frame; BadFrame if it is none."""
    try:
        return _ANSWERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not an answer of a replication session: {error}") from error
