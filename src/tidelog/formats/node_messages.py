"""Messages of sessions between storage nodes as bytes.  No state.

A message is a MessagePack array whose first element says which one it is; what a ``Carry`` brings
besides its message travels in the attachment of its frame (``wire``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.core.session.node_messages import NodeAnswer, NodeRequest
from tidelog.errors import BadFrame

_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final[msgspec.msgpack.Decoder[NodeRequest]] = msgspec.msgpack.Decoder(NodeRequest)
_ANSWERS: Final[msgspec.msgpack.Decoder[NodeAnswer]] = msgspec.msgpack.Decoder(NodeAnswer)


def encode_node_message(message: NodeRequest | NodeAnswer) -> bytes:
    return _ENCODER.encode(message)


def decode_node_request(data: bytes | memoryview) -> NodeRequest:
    """The request in a frame; BadFrame if it is none."""
    try:
        return _REQUESTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not a request between storage nodes: {error}") from error


def decode_node_answer(data: bytes | memoryview) -> NodeAnswer:
    """The answer in a frame; BadFrame if it is none."""
    try:
        return _ANSWERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not an answer between storage nodes: {error}") from error
