"""Messages: what goes in comes out, and anything else is refused in one way."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BadFrame
from tidelog.formats import admin_messages, audit_messages, messages
from tidelog.formats.admin_messages import ChangeEnsemble, CreateStream
from tidelog.formats.audit_messages import CheckedFile, FilesChecked, ReadReplica, ReplicaPage
from tidelog.formats.message_fields import Message, PieceHeader
from tidelog.formats.messages import (
    Answer,
    AppendBatches,
    Describe,
    Hello,
    Page,
    ReadPage,
    Refused,
    Request,
    decode_answer,
    decode_request,
    encode_message,
)

EXAMPLES: list[Request | Answer] = [
    Hello("client", b"0123456789abcdef"),
    AppendBatches("t", (1, 2), producer=(1 << 64) - 1, sequence=5, after=(0, 4)),
    ReadPage("t", 1, 9, (3,), 100, 5),
    Page((PieceHeader(1, 0, 2, 100, ((1, 1, 1), (2, 5, 1))),), 1, 6, 1, 5),
    Refused("Trimmed", "gone", 7),
    ChangeEnsemble(3, "swap", 1, 2),
    CreateStream("t", (1, 2, 3)),
    ReadReplica(3, 1, 9, 100),
    ReplicaPage((PieceHeader(1, 0, 2, 100, ((1, 1, 2),)),), 1, 3, 0),
    FilesChecked((CheckedFile("a.wal", 9, "torn"),), 4),
]


def kinds(union: Any) -> list[type[msgspec.Struct]]:
    assert isinstance(union, UnionType)
    return list(get_args(union))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_what_is_encoded_is_decoded(message: Request | Answer) -> None:
    decode = decode_request if type(message) in kinds(Request) else decode_answer
    assert decode(encode_message(message)) == message


def test_messages_have_always_the_same_bytes() -> None:
    assert encode_message(Describe("topic")) == b"\x92\xa8Describe\xa5topic"
    assert encode_message(Hello("c")) == b"\x94\xa5Hello\xa1c\xc4\x00\xa0"


def test_every_message_is_a_request_or_an_answer() -> None:
    known = {*kinds(Request), *kinds(Answer)}
    defined = {
        thing
        for module in (messages, admin_messages, audit_messages)
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Message) and thing is not Message
    }
    assert known == defined
    assert not set(kinds(Request)) & set(kinds(Answer))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_bad_frame(data: bytes) -> None:
    for decode in (decode_request, decode_answer):
        try:
            decode(data)
        except BadFrame:
            pass


SHAPES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.sampled_from([kind.__name__ for kind in (*kinds(Request), *kinds(Answer))]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(SHAPES)
def test_any_value_is_a_message_or_a_bad_frame(value: object) -> None:
    data = msgspec.msgpack.encode(value)
    for decode in (decode_request, decode_answer):
        try:
            decode(data)
        except BadFrame:
            pass


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_message_is_a_message_or_a_bad_frame(
    message: Request | Answer, data: st.DataObject
) -> None:
    damaged = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_request, decode_answer):
        try:
            decode(bytes(damaged))
        except BadFrame:
            pass


def test_deep_nesting_is_a_bad_frame() -> None:
    with pytest.raises(BadFrame):
        decode_request(b"\x91" * 100_000)


@pytest.mark.parametrize(
    "value",
    [
        ["Describe", "t" * 201],
        ["ReadPage", "t", -1],
        ["ReadPage", "t", 1 << 63],
        ["ReadReplica", 1, 1, -1],
        ["CheckFiles", 1 << 63],
        ["FindEnd", "t", 1, 0, 0, 0, "r" * 201],
        ["AppendBatches", "t", [1] * 5000],
        ["Describe", "t", "too many fields"],
        ["SetGcBoundary", "t", b"short"],
        ["Nothing"],
    ],
)
def test_what_is_out_of_bounds_is_refused(value: object) -> None:
    with pytest.raises(BadFrame, match="not a request"):
        decode_request(msgspec.msgpack.encode(value))
