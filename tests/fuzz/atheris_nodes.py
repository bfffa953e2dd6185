"""Bytes as messages between storage nodes and between replicas, with checksums that are right.

The first two bytes say how long the message is; the rest is attached.
"""

from __future__ import annotations

import atheris
import msgspec

with atheris.instrument_imports(include=["tidelog.formats", "tidelog.core.replica.messages"]):
    from tidelog.formats.node_messages import (
        decode_node_answer,
        decode_node_request,
        encode_node_message,
    )
    from tidelog.formats.replica_messages import decode_replica_message, encode_replica_message

from tests.formats.replica_samples import SAMPLES
from tests.formats.test_node_messages import ANSWERS, REQUESTS
from tests.fuzz.atheris_run import fuzz
from tidelog.errors import BadFrame, CorruptData
from tidelog.formats.checksum import crc32c


def one_input(data: bytes) -> None:
    size = int.from_bytes(data[:2], "little")
    message, attachment = data[2 : 2 + size], data[2 + size :]
    between_nodes(message)
    between_replicas(message, attachment)
    between_replicas(resealed(message, attachment), attachment)


def between_nodes(message: bytes) -> None:
    try:
        request = decode_node_request(message)
        assert decode_node_request(encode_node_message(request)) == request
    except BadFrame:
        pass
    try:
        answer = decode_node_answer(message)
        assert decode_node_answer(encode_node_message(answer)) == answer
    except BadFrame:
        pass


def between_replicas(message: bytes, attachment: bytes) -> None:
    try:
        decoded = decode_replica_message(message, attachment)
    except (BadFrame, CorruptData):
        return
    again = encode_replica_message(decoded)
    assert decode_replica_message(again.message, b"".join(again.attachment)) == decoded


def resealed(message: bytes, attachment: bytes) -> bytes:
    """The same message with the checksum of what is attached."""
    try:
        match msgspec.msgpack.decode(message):
            case [*parts, _] if len(parts) == 4:
                return msgspec.msgpack.encode([*parts, crc32c(attachment)])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    return message


def seed(message: bytes, attachment: bytes = b"") -> bytes:
    return len(message).to_bytes(2, "little") + message + attachment


if __name__ == "__main__":
    seeds = [seed(encode_node_message(one)) for one in (*REQUESTS, *ANSWERS)]
    payloads = [encode_replica_message(one) for one in SAMPLES]
    seeds += [seed(one.message, b"".join(one.attachment)) for one in payloads]
    fuzz("nodes", one_input, seeds)
