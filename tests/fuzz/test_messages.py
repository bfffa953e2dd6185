"""Any bytes as messages of a session and as its batches: a value, or the one declared error.

Declared are BadFrame for bytes that are no message, and CorruptData (UnsupportedVersion is one) for
bytes that are no batches of the channel and epoch that they are said to be of.
"""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.shapes import answers, damaged, message_bytes, requests
from tidelog.core.session.messages import Answer, Request
from tidelog.errors import BadFrame
from tidelog.formats.session_messages import (
    decode_session_answer,
    decode_session_request,
    encode_session_message,
)
from tidelog.limits import KIB

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=20),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
near_messages = st.builds(
    lambda tag, fields: msgspec.msgpack.encode([tag, *fields]),
    st.integers(0, 40),
    st.lists(anything, max_size=6),
)
hostile_messages = st.one_of(
    st.binary(max_size=200),
    near_messages,
    anything.map(msgspec.msgpack.encode),
    damaged(message_bytes),
)


@given(hostile_messages)
def test_bytes_are_a_request_or_a_bad_frame(data: bytes) -> None:
    try:
        request = decode_session_request(data)
    except BadFrame:
        return
    assert decode_session_request(encode_session_message(request)) == request


@given(hostile_messages)
def test_bytes_are_an_answer_or_a_bad_frame(data: bytes) -> None:
    try:
        answer = decode_session_answer(data)
    except BadFrame:
        return
    assert decode_session_answer(encode_session_message(answer)) == answer


@given(requests, answers)
def test_sound_messages_come_back_and_are_never_taken_for_the_other_kind(
    request: Request, answer: Answer
) -> None:
    assert decode_session_request(encode_session_message(request)) == request
    assert decode_session_answer(encode_session_message(answer)) == answer
    with pytest.raises(BadFrame):
        decode_session_request(encode_session_message(answer))
    with pytest.raises(BadFrame):
        decode_session_answer(encode_session_message(request))


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 100_000,
        b"\x81\xa0" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\x01",
        b"\x95\x01\x01\xdb\xff\xff\xff\xff",
        b"\x92\x04\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x95\x01\x01\xa1\xff\x01\x01",
    ],
    ids=[
        "arrays in arrays",
        "maps in maps",
        "endless array",
        "endless map",
        "endless text",
        "endless bytes",
        "endless extension",
        "text that is not UTF-8",
    ],
)
def test_a_message_that_announces_much_takes_little(data: bytes) -> None:
    tracemalloc.start()
    try:
        for decode in (decode_session_request, decode_session_answer):
            with pytest.raises(BadFrame):
                decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 512 * KIB
