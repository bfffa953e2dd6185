"""The 48 bytes of a commit context."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.flips import check_damage, damaged, golden
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.checksum import crc32c
from tidelog.formats.commit_context import (
    COMMIT_CONTEXT_BYTES,
    NONE,
    CommitContext,
    decode_commit_context,
    encode_commit_context,
)
from tidelog.invariants import InvariantViolation

EXAMPLE = CommitContext(version=7, high_watermark=120, glsn_begin=101, llsn_begin=40, length=12)


@st.composite
def contexts(draw: st.DrawFn) -> CommitContext:
    length = draw(st.integers(0, 2**32))
    llsn_begin = draw(st.integers(1, 2**61))
    glsn_begin = llsn_begin + draw(st.integers(0, 2**61))
    return CommitContext(
        version=draw(st.integers(1, 2**64 - 1)),
        high_watermark=glsn_begin + length - 1 + draw(st.integers(0, 2**62)),
        glsn_begin=glsn_begin,
        llsn_begin=llsn_begin,
        length=length,
    )


@given(contexts())
def test_a_commit_context_comes_back(context: CommitContext) -> None:
    data = encode_commit_context(context)
    assert len(data) == COMMIT_CONTEXT_BYTES
    assert decode_commit_context(data) == decode_commit_context(memoryview(data)) == context


def test_all_damage_is_noticed() -> None:
    data = encode_commit_context(EXAMPLE)
    assert check_damage(data, decode_commit_context) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=64) | st.binary(min_size=48, max_size=48))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_commit_context(data)


@given(st.tuples(*[st.integers(0, 2**64 - 1) | st.integers(0, 3)] * 5))
def test_any_numbers_are_decoded_or_refused(numbers: tuple[int, ...]) -> None:
    body = pack("<5Q", *numbers)
    data = b"TLC\x01" + pack("<I", crc32c(body)) + body
    try:
        context = decode_commit_context(data)
    except CorruptData:
        return
    assert encode_commit_context(context) == data


def test_ends_are_behind_the_range() -> None:
    assert (EXAMPLE.glsn_end, EXAMPLE.llsn_end) == (113, 52)
    assert (NONE.glsn_end, NONE.llsn_end, NONE.version) == (1, 1, 0)


def test_numbers_of_more_than_64_bits_are_never_written() -> None:
    with pytest.raises(InvariantViolation, match="64 bits"):
        encode_commit_context(CommitContext(2**64, 5, 5, 1, 1))


def test_a_range_above_the_high_watermark_is_never_written() -> None:
    with pytest.raises(InvariantViolation, match="X4"):
        encode_commit_context(CommitContext(1, 5, 5, 1, 2))


def test_another_version_is_told_apart() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_commit_context(b"TLC\x02" + bytes(44))


def test_the_golden_commit_context_is_read_and_written_the_same() -> None:
    assert encode_commit_context(EXAMPLE) == golden("commit_context.bin")
    assert decode_commit_context(golden("commit_context.bin")) == EXAMPLE
