"""Frames: what goes in comes out, the bytes stay the same, and damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BadFrame, UnsupportedVersion
from tidelog.formats.wire import (
    HEADER_BYTES,
    PROTOCOL_VERSION,
    check_message,
    decode_header,
    encode_frame,
)

LIMITS = {"message_max": 1 << 20, "attachment_max": 1 << 20}
GOLDEN = bytes.fromhex(
    "544c5746"  # magic
    "c4718ffa"  # CRC-32C of all that follows
    "05000000"  # bytes of the message
    "07000000"  # bytes of the attachment
    "0807060504030201"  # request
    "e8030000"  # timeout in ms
    "0100"  # version
    "0000"
    "68656c6c6f"
)


def read(frame: bytes) -> tuple[int, int, int, bytes]:
    header = decode_header(frame, **LIMITS)
    message = frame[HEADER_BYTES : HEADER_BYTES + header.message_bytes]
    check_message(header, frame[:HEADER_BYTES], message)
    return header.request, header.timeout_ms, header.attachment_bytes, message


def test_a_frame_has_always_the_same_bytes() -> None:
    frame = encode_frame(b"hello", request=0x0102030405060708, timeout_ms=1000, attachment_bytes=7)
    assert frame == GOLDEN
    assert read(GOLDEN) == (0x0102030405060708, 1000, 7, b"hello")


@given(
    st.binary(max_size=200),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 1 << 20),
)
def test_what_is_encoded_is_decoded(
    message: bytes, request: int, timeout_ms: int, attachment: int
) -> None:
    frame = encode_frame(
        message, request=request, timeout_ms=timeout_ms, attachment_bytes=attachment
    )
    assert read(frame) == (request, timeout_ms, attachment, message)


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(8 * len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((BadFrame, UnsupportedVersion)):
            read(bytes(damaged))


@pytest.mark.parametrize(("message", "attachment"), [(11, 0), (0, 21), (1 << 31, 0)])
def test_lengths_are_bounded(message: int, attachment: int) -> None:
    frame = bytearray(encode_frame(b"", request=1, attachment_bytes=attachment))
    frame[8:12] = message.to_bytes(4, "little")
    with pytest.raises(BadFrame, match="limits"):
        decode_header(frame, message_max=10, attachment_max=20)


def test_another_version_is_told_with_its_remedy() -> None:
    frame = bytearray(GOLDEN)
    frame[28] = PROTOCOL_VERSION + 1
    with pytest.raises(UnsupportedVersion, match="same release"):
        decode_header(frame, **LIMITS)


@given(st.binary(min_size=HEADER_BYTES, max_size=100))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        decode_header(data, **LIMITS)
    except (BadFrame, UnsupportedVersion):
        pass
