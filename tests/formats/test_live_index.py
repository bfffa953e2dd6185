"""The file of a snapshot's live indexes."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.formats.flips import check_damage, damaged, golden
from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal
from tidelog.formats.live_index import LiveIndex, decode_live_index, encode_live_index
from tidelog.invariants import InvariantViolation

EXAMPLE = LiveIndex(
    term=3, index=2**40, live=BitMap64([*range(1, 200), 250, 251, 90_000, 2**33 + 7, 2**40])
)


def sealed(term: int, index: int, count: int, bitmap: bytes) -> bytes:
    return seal(b"TLLI", 1, pack("<QQQ", term, index, count) + bitmap)


@given(
    st.sets(st.integers(1, 300) | st.integers(1, 2**63)),
    st.lists(st.tuples(st.integers(1, 200_000), st.integers(1, 70_000)), max_size=4),
    st.integers(0, 2**64 - 1),
)
def test_live_indexes_come_back(
    singles: set[int], ranges: list[tuple[int, int]], term: int
) -> None:
    live = BitMap64(singles)
    for begin, length in ranges:
        live.add_range(begin, begin + length)
    before = live.copy()
    found = decode_live_index(encode_live_index(LiveIndex(term, 2**63, live)))
    assert found == LiveIndex(term, 2**63, before)


def test_all_damage_is_noticed() -> None:
    data = encode_live_index(EXAMPLE)
    assert check_damage(data, decode_live_index) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for data in (body, seal(b"TLLI", 1, body), sealed(1, 9, 0, body)):
        try:
            found = decode_live_index(data)
        except CorruptData:
            continue
        assert len(found.live) == 0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_bitmap_with_a_good_checksum_but_bad_structure_is_refused_or_whole(
    changes: list[tuple[int, int]],
) -> None:
    bitmap = bytearray(EXAMPLE.live.serialize())
    for place, byte in changes:
        bitmap[place % len(bitmap)] = byte
    data = sealed(3, 2**40, len(EXAMPLE.live), bytes(bitmap))
    try:
        found = decode_live_index(data)
    except CorruptData:
        return
    assert list(found.live) == sorted(found.live)
    assert len(list(found.live)) == len(EXAMPLE.live)


@pytest.mark.parametrize(
    ("index", "count", "tail", "words"),
    [
        (99, 2, b"", "I1"),
        (100, 3, b"", "2 live entries instead of 3"),
        (100, 2, b"\0", "I2"),
    ],
)
def test_numbers_that_contradict_the_bitmap_are_refused(
    index: int, count: int, tail: bytes, words: str
) -> None:
    bitmap = BitMap64([5, 100]).serialize()
    with pytest.raises(CorruptData, match=words):
        decode_live_index(sealed(1, index, count, bitmap + tail))


@pytest.mark.parametrize("live", [[0], [0, 5], [11]])
def test_an_index_outside_the_snapshot_is_never_written(live: list[int]) -> None:
    with pytest.raises(InvariantViolation, match="I1"):
        encode_live_index(LiveIndex(1, 10, BitMap64(live)))


def test_a_dense_range_takes_few_bytes() -> None:
    data = encode_live_index(LiveIndex(1, 10**6, BitMap64(range(1, 10**6))))
    assert len(data) < 400


def test_the_golden_live_index_is_read_and_written_the_same() -> None:
    assert encode_live_index(EXAMPLE) == golden("live_index.bin")
    assert decode_live_index(golden("live_index.bin")) == EXAMPLE
