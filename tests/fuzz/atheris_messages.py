"""Bytes as messages of a session."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["tidelog.formats", "tidelog.core.session"]):
    from tidelog.formats.session_messages import (
        decode_session_answer,
        decode_session_request,
        encode_session_message,
    )

from tests.fuzz.atheris_run import fuzz
from tests.fuzz.samples import ANSWERS, REQUESTS
from tidelog.errors import BadFrame


def one_input(data: bytes) -> None:
    one_message(data)
    if len(data) > 1:
        fields, tag = data[0] % 6, data[1] % 40  # What coverage in C code would not lead to.
        one_message(bytes((0x91 + fields, tag)) + data[2:])


def one_message(data: bytes) -> None:
    try:
        request = decode_session_request(data)
        assert decode_session_request(encode_session_message(request)) == request
    except BadFrame:
        pass
    try:
        answer = decode_session_answer(data)
        assert decode_session_answer(encode_session_message(answer)) == answer
    except BadFrame:
        pass


if __name__ == "__main__":
    fuzz("messages", one_input, map(encode_session_message, (*REQUESTS, *ANSWERS)))
