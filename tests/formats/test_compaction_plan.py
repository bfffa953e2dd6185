"""A compaction plan on its way to a node."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.formats.flips import check_damage, damaged, golden
from tidelog.errors import CorruptData
from tidelog.formats.compaction_plan import StreamPlan, decode_plan, encode_plan, plan_parts
from tidelog.formats.envelope import seal
from tidelog.invariants import InvariantViolation

EXAMPLE = StreamPlan(
    log_id=bytes(range(16)),
    stream=7,
    index=2**40,
    boundary=(3 << 64) + 5,
    dead=BitMap64([*range(1, 200), 250, 90_000, 2**33 + 7, 2**40]),
)


def sealed(index: int, count: int, bitmap: bytes) -> bytes:
    start = pack("<16sQQQQQ", bytes(16), 1, index, 0, 9, count)
    return seal(b"TLCP", 1, start + bitmap)


@given(st.sets(st.integers(1, 300) | st.integers(1, 2**63)), st.integers(0, 2**128 - 1))
def test_a_plan_comes_back(llsns: set[int], boundary: int) -> None:
    plan = StreamPlan(bytes(16), 2**63 - 1, 2**63, boundary, BitMap64(llsns))
    assert decode_plan(encode_plan(plan)) == plan


def test_all_damage_is_noticed() -> None:
    data = encode_plan(EXAMPLE)
    assert check_damage(data, decode_plan) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for data in (body, seal(b"TLCP", 1, body), sealed(9, 0, body)):
        try:
            assert not decode_plan(data).dead
        except CorruptData:
            continue


@pytest.mark.parametrize(
    ("index", "count", "tail", "words"),
    [(99, 2, b"", "Q1"), (100, 3, b"", "2 claims instead of 3"), (100, 2, b"\0", "Q2")],
)
def test_numbers_that_contradict_the_bitmap_are_refused(
    index: int, count: int, tail: bytes, words: str
) -> None:
    with pytest.raises(CorruptData, match=words):
        decode_plan(sealed(index, count, BitMap64([5, 100]).serialize() + tail))


def test_a_claim_beyond_what_was_looked_at_is_never_written() -> None:
    with pytest.raises(InvariantViolation, match="Q1"):
        encode_plan(replace(EXAMPLE, index=2**40 - 1))


def test_parts_of_a_plan_are_disjoint_and_make_up_the_whole() -> None:
    parts = list(plan_parts(EXAMPLE, llsns_max=100))
    assert [part.dead.max() - part.dead.min() < 100 for part in parts] == [True] * len(parts)
    assert sum(len(part.dead) for part in parts) == len(EXAMPLE.dead)
    assert BitMap64.union(*(part.dead for part in parts)) == EXAMPLE.dead
    assert list(plan_parts(replace(EXAMPLE, dead=BitMap64()))) == []


def test_the_golden_plan_is_read_and_written_the_same() -> None:
    assert encode_plan(EXAMPLE) == golden("compaction_plan.bin")
    assert decode_plan(golden("compaction_plan.bin")) == EXAMPLE
