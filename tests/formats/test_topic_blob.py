"""Descriptions and parts of a topic's BLOBs, and where they lie."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.flips import check_damage, damaged, golden
from tidelog.errors import BadOption, CorruptData
from tidelog.formats.envelope import seal
from tidelog.formats.topic_blob import (
    TOPIC_BLOB_END,
    BlobDescription,
    BlobState,
    blob_key,
    blob_of_key,
    decode_description,
    decode_part,
    encode_description,
    encode_part,
    part_key,
    parts_in,
    topics_of_blobs,
)
from tidelog.limits import BLOB_BYTES_END, BLOB_PART_BYTES, TOPIC_NAME_CHARS_MAX, VALUE_BYTES_MAX

BLOB = TOPIC_BLOB_END - 2
WHOLE = BlobDescription(BLOB, 3, BlobState.COMPLETE, 2 * BLOB_PART_BYTES + 5, 0xDEADBEEF)


@given(st.integers(1, TOPIC_BLOB_END - 1), st.integers(0, BLOB_BYTES_END - 1), st.integers(0, 9))
def test_descriptions_come_back(blob: int, size: int, crc: int) -> None:
    description = BlobDescription(blob, parts_in(size), BlobState.COMPLETE, size, crc)
    assert decode_description(blob, encode_description(description)) == description
    assert blob_of_key(blob_key(blob)) == blob


def test_damage_of_a_description_is_noticed() -> None:
    data = encode_description(WHOLE)
    assert check_damage(data, lambda bad: decode_description(BLOB, bad)) == len([*damaged(data)])


def test_damage_of_a_part_is_noticed() -> None:
    described = replace(WHOLE, size=40, parts=1)
    data = encode_part(BLOB, 0, bytes(range(40)))
    noticed = check_damage(data, lambda bad: bytes(decode_part(described, 0, bad)))
    assert noticed == len([*damaged(data)])


def test_a_part_of_another_place_or_blob_is_noticed() -> None:
    value = encode_part(BLOB, 0, bytes(BLOB_PART_BYTES))
    assert decode_part(WHOLE, 0, value) == bytes(BLOB_PART_BYTES)
    with pytest.raises(CorruptData):
        decode_part(WHOLE, 1, value)
    with pytest.raises(CorruptData):
        decode_part(replace(WHOLE, blob=BLOB - 1), 0, value)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(WHOLE, blob=BLOB - 1),
        replace(WHOLE, parts=4),
        replace(WHOLE, size=2 * BLOB_PART_BYTES),
        replace(WHOLE, part_bytes=0, size=0, parts=0),
        replace(WHOLE, part_bytes=VALUE_BYTES_MAX),
        replace(WHOLE, size=BLOB_BYTES_END, parts=parts_in(BLOB_BYTES_END)),
        BlobDescription(BLOB, 1 << 62),
    ],
)
def test_a_description_that_cannot_be_is_corrupt(wrong: BlobDescription) -> None:
    with pytest.raises(CorruptData):
        decode_description(BLOB, encode_description(wrong))


def test_a_state_that_nobody_knows_is_corrupt() -> None:
    body = pack("<QQQIIB", BLOB, 0, 1, BLOB_PART_BYTES, 0, 9)
    with pytest.raises(CorruptData, match="9"):
        decode_description(BLOB, seal(b"TLBD", 1, body))
    with pytest.raises(CorruptData, match="bytes"):
        decode_description(BLOB, seal(b"TLBD", 1, body + b"\0"))


def test_keys_of_parts_follow_their_numbers_and_are_no_descriptions() -> None:
    keys = [part_key(BLOB, number) for number in (0, 1, 255, 256, 1 << 40)]
    assert keys == sorted(keys)
    assert all(key.startswith(blob_key(BLOB)) for key in keys)
    assert [blob_of_key(key) for key in keys] == [None] * len(keys)


def test_every_part_but_the_last_is_full() -> None:
    assert [WHOLE.part_size(number) for number in range(3)] == [BLOB_PART_BYTES] * 2 + [5]
    assert [parts_in(size) for size in (0, 1, BLOB_PART_BYTES, BLOB_PART_BYTES + 1)] == [0, 1, 1, 2]


def test_topics_of_blobs_have_none_themselves() -> None:
    descriptions, parts = topics_of_blobs("orders")
    assert (descriptions, parts) == ("orders.blobs", "orders.blobs.parts")
    for name in (descriptions, parts):
        with pytest.raises(BadOption):
            topics_of_blobs(name)


def test_a_topic_whose_name_leaves_no_room_has_no_blobs() -> None:
    longest = "x" * (TOPIC_NAME_CHARS_MAX - len(".blobs.parts"))
    assert len(topics_of_blobs(longest)[1]) == TOPIC_NAME_CHARS_MAX
    with pytest.raises(BadOption):
        topics_of_blobs(longest + "x")


def test_the_golden_description_and_part_are_read_and_written_the_same() -> None:
    assert encode_description(WHOLE) == golden("blob_description.bin")
    assert decode_description(BLOB, golden("blob_description.bin")) == WHOLE
    assert encode_part(BLOB, 2, b"tides") == golden("blob_part.bin")
    assert bytes(decode_part(WHOLE, 2, golden("blob_part.bin"))) == b"tides"
