"""Requests of Kafka, as bytes: produce and fetch, in versions that every broker since 1.0 knows.

No state.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from tidelog.formats.checksum import crc32c

PRODUCE, FETCH = 0, 1
_PRODUCE_VERSION: Final = 7
_FETCH_VERSION: Final = 4
_CLIENT: Final = b"bench"
_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_FETCH_BYTES: Final = 8 << 20

_HEADER: Final = Struct(">hhih")
_BATCH_START: Final = Struct(">qiib")
_BATCH_REST: Final = Struct(">hiqqqhii")
_COUNT_AT: Final = 57
_LAST_DELTA_AT: Final = 23
_BATCH_HEAD_BYTES: Final = 61
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class WireError(Exception):
    """A broker refused a request."""


def sized(body: bytes) -> bytes:
    return _I32.pack(len(body)) + body


def text(value: bytes) -> bytes:
    return _I16.pack(len(value)) + value


def request(kind: int, version: int, body: bytes) -> bytes:
    header = _HEADER.pack(kind, version, 0, len(_CLIENT)) + _CLIENT
    return sized(header + body)


def produce_request(topic: str, partition: int, values: Sequence[bytes], time_ms: int) -> bytes:
    """One batch for one partition, acknowledged by all in-sync replicas."""
    body = b"".join(
        (
            _I16.pack(-1),  # no transaction
            _I16.pack(_ACKS_ALL),
            _I32.pack(_TIMEOUT_MS),
            _I32.pack(1),
            text(topic.encode()),
            _I32.pack(1),
            _I32.pack(partition),
            sized(record_batch(values, time_ms)),
        )
    )
    return request(PRODUCE, _PRODUCE_VERSION, body)


def record_batch(values: Sequence[bytes], time_ms: int) -> bytes:
    records = b"".join(record(number, value) for number, value in enumerate(values))
    count = len(values)
    rest = _BATCH_REST.pack(0, count - 1, time_ms, time_ms, -1, -1, -1, count) + records
    start = _BATCH_START.pack(0, len(rest) + 9, -1, 2)
    return start + crc32c(rest).to_bytes(4, "big") + rest


def record(number: int, value: bytes) -> bytes:
    """Without key and headers."""
    body = b"\x00\x00" + zigzag(number) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    return zigzag(len(body)) + body


def zigzag(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def check_produced(answer: bytes, topic: str) -> None:
    """Raise unless the one partition of an answer has taken its batch."""
    place = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    if error := _I16.unpack_from(answer, place)[0]:
        raise WireError(f"the broker refused a batch: error {error}")


def fetch_request(topic: str, partition: int, offset: int) -> bytes:
    body = b"".join(
        (
            _I32.pack(-1),  # not a replica
            _I32.pack(500),
            _I32.pack(1),
            _I32.pack(_FETCH_BYTES),
            b"\x00",
            _I32.pack(1),
            text(topic.encode()),
            _I32.pack(1),
            _I32.pack(partition),
            _I64.pack(offset),
            _I32.pack(_FETCH_BYTES),
        )
    )
    return request(FETCH, _FETCH_VERSION, body)


def fetched(answer: bytes, topic: str) -> tuple[int, int]:
    """How many records an answer holds, and the offset behind them."""
    place = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    if error := _I16.unpack_from(answer, place)[0]:
        raise WireError(f"the broker refused a fetch: error {error}")
    place += 2 + 8 + 8
    aborted = _I32.unpack_from(answer, place)[0]
    place += 4 + 16 * max(aborted, 0)
    end = place + 4 + _I32.unpack_from(answer, place)[0]
    place += 4
    records = offset = 0
    while place + _BATCH_HEAD_BYTES <= end:
        size = 12 + _I32.unpack_from(answer, place + 8)[0]
        if place + size > end:
            break  # The last one was cut off.
        records += _I32.unpack_from(answer, place + _COUNT_AT)[0]
        delta = _I32.unpack_from(answer, place + _LAST_DELTA_AT)[0]
        offset = _I64.unpack_from(answer, place)[0] + delta + 1
        place += size
    return records, offset
