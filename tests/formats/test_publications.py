"""What publications and named positions look like in their topics; whatever else is CorruptData."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BadOption, CorruptData, RevisionConflict
from tidelog.formats.messages import NamedPosition
from tidelog.formats.publications import (
    Intent,
    boundary_key,
    decode_boundary,
    decode_intent,
    decode_keys,
    decode_number,
    encode_boundary,
    encode_intent,
    encode_keys,
    encode_number,
    producer_of,
    writer_key,
)
from tidelog.formats.stored_positions import (
    NO_POSITION,
    decode_position,
    encode_position,
    next_position,
    position_key,
)

NATURALS: Final = st.integers(0, (1 << 63) - 1)
INTENTS: Final = st.builds(
    Intent, NATURALS, NATURALS, NATURALS, st.lists(NATURALS, max_size=9).map(tuple), NATURALS
)


@given(intent=INTENTS, keys=st.lists(st.binary(max_size=30), max_size=5), number=NATURALS)
def test_what_is_written_is_read(intent: Intent, keys: list[bytes], number: int) -> None:
    assert decode_intent(encode_intent(intent)) == intent
    assert decode_keys(encode_keys(tuple(keys))) == tuple(keys)
    assert decode_number(encode_number(number)) == number
    assert decode_boundary(encode_boundary(number << 65)) == number << 65
    position = NamedPosition(number, number)
    assert decode_position(encode_position(position)) == position


def test_what_was_never_written_is_nothing() -> None:
    assert (decode_keys(None), decode_number(None), decode_boundary(None)) == ((), 0, 0)


@pytest.mark.parametrize("decode", [decode_intent, decode_keys, decode_number, decode_position])
@given(data=st.binary(max_size=40))
def test_bytes_that_mean_nothing_are_damage(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except CorruptData:
        pass


def test_numbers_of_two_publications_of_a_writer_never_meet() -> None:
    first = Intent(1, 7, 1, (10, 11, 12))
    done = Intent(1, 7, first.next_sequence, (), 5, is_done=True)
    assert first.next_sequence == 4
    assert done.next_sequence == 4


def test_writers_topics_and_boundaries_have_keys_of_their_own() -> None:
    keys = [
        writer_key(1, "a"),
        writer_key(2, "a"),
        writer_key(1, "1 a"),
        boundary_key(1),
        boundary_key(2),
    ]
    assert len(set(keys)) == len(keys)
    assert len({producer_of(key) for key in keys}) == len(keys)


def test_a_position_follows_on_the_revision_that_was_seen() -> None:
    first = next_position("me", NO_POSITION, 5, 0)
    assert first == NamedPosition(5, 1)
    assert next_position("me", first, 3, 1) == NamedPosition(3, 2)
    with pytest.raises(RevisionConflict, match="revision 1, not 0"):
        next_position("me", first, 9, 0)
    with pytest.raises(BadOption):
        next_position("me", first, 0, 1)
    with pytest.raises(BadOption):
        position_key(1, "")
