"""Messages between storage nodes as bytes: a message comes back, anything else is a bad frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_messages import (
    CARRY_OVERHEAD_BYTES,
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeAnswer,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegin,
    NodeSessionBegun,
    Said,
)
from tidelog.errors import BadFrame
from tidelog.formats.node_messages import (
    decode_node_answer,
    decode_node_request,
    encode_node_message,
)
from tidelog.limits import NODE_ANSWER_MESSAGES_MAX

REQUESTS: tuple[NodeRequest, ...] = (
    NodeSessionBegin(1, "a cluster", 2, 1, 4),
    LaneOpen(2, "a secret", 3),
    Carry(70, 7, b"message"),
    Carry(70, 7, b"message", 100),
    ChannelDispose(70),
)
ANSWERS: tuple[NodeAnswer, ...] = (
    NodeSessionBegun("a secret"),
    NodeGroupCommitted(7, (Said(70, b"durable"), Said(71, b""))),
    Ack(),
    Error(10, "another cluster"),
)
Decode = Callable[[bytes], NodeRequest | NodeAnswer]
BOTH = pytest.mark.parametrize("decode", [decode_node_request, decode_node_answer])


def test_a_message_comes_back_as_it_was() -> None:
    assert {type(one) for one in REQUESTS} == set(get_args(NodeRequest))
    assert {type(one) for one in ANSWERS} == set(get_args(NodeAnswer))
    for request in REQUESTS:
        assert decode_node_request(encode_node_message(request)) == request
    for answer in ANSWERS:
        assert decode_node_answer(encode_node_message(answer)) == answer


def test_a_message_has_always_the_same_bytes() -> None:
    golden = {
        REQUESTS[0]: "964001a9" + b"a cluster".hex() + "020104",
        REQUESTS[1]: "944802a8" + b"a secret".hex() + "03",
        REQUESTS[2]: "95494607c407" + b"message".hex() + "00",
        REQUESTS[3]: "95494607c407" + b"message".hex() + "64",
        REQUESTS[4]: "924a46",
        ANSWERS[0]: "9250a8" + b"a secret".hex(),
        ANSWERS[1]: "9351079292" + "46c407" + b"durable".hex() + "9247c400",
    }
    for message, expected in golden.items():
        assert encode_node_message(message).hex() == expected


def test_a_request_is_no_answer_and_an_answer_no_request() -> None:
    for request in REQUESTS:
        with pytest.raises(BadFrame):
            decode_node_answer(encode_node_message(request))
    for answer in ANSWERS:
        with pytest.raises(BadFrame):
            decode_node_request(encode_node_message(answer))


def test_what_a_carry_has_besides_its_message_is_bounded() -> None:
    largest = Carry((1 << 63) - 1, (1 << 63) - 1, bytes(1 << 20), (1 << 63) - 1)
    assert len(encode_node_message(largest)) - (1 << 20) <= CARRY_OVERHEAD_BYTES


def test_an_answer_with_too_many_messages_is_refused() -> None:
    said = [[1, b""]] * (NODE_ANSWER_MESSAGES_MAX + 1)
    with pytest.raises(BadFrame):
        decode_node_answer(msgspec.msgpack.encode([81, 1, said]))


anything = st.recursive(
    st.one_of(
        st.none(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.text(max_size=5),
        st.binary(max_size=9),
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=5,
)
hostile = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda tag, fields: msgspec.msgpack.encode([tag, *fields]),
        st.one_of(st.integers(60, 85), st.sampled_from((33, 34))),
        st.lists(anything, max_size=6),
    ),
)


@BOTH
@settings(max_examples=50)
@given(data=hostile)
def test_bytes_are_a_message_or_a_bad_frame(decode: Decode, data: bytes) -> None:
    try:
        message = decode(data)
    except BadFrame:
        return
    assert decode(encode_node_message(message)) == message
