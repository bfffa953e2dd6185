"""Bytes into both kinds of connections.  The first byte says how they are cut and who gets them."""

from __future__ import annotations

import asyncio

import atheris

with atheris.instrument_imports(include=["tidelog.net", "tidelog.formats"]):
    from tests.fuzz.feeding import cut, feed, feed_blocking
    from tidelog.formats.messages import Hello, Refused, encode_message
    from tidelog.formats.wire import encode_frame

from tests.fuzz.atheris_run import fuzz
from tidelog.core.session.messages import Ack, GroupCommit, LogEntryWrite
from tidelog.errors import BadFrame, UnsupportedVersion
from tidelog.formats.session_messages import encode_session_message

LOOP = asyncio.new_event_loop()
BLOCKING_BYTES_MAX = 16_000
"""What a socket takes before anybody reads."""
SEEDS = (
    encode_frame(encode_message(Hello("fuzz")), request=0),
    encode_frame(encode_message(Refused("Busy", "no")), request=0),
    encode_frame(encode_session_message(Ack()), request=1) * 3,
    encode_frame(encode_session_message(GroupCommit(7)), request=2),
    encode_frame(encode_session_message(LogEntryWrite(7)), request=3, attachment_bytes=9)
    + bytes(9),
)


def one_input(data: bytes) -> None:
    how, data = data[0] if data else 0, data[1:]
    if how & 1 and len(data) <= BLOCKING_BYTES_MAX:
        errors = feed_blocking(data, 3).errors
    else:
        sizes = [how >> 2] * len(data) if how >> 2 else ()
        errors = LOOP.run_until_complete(feed(cut(data, sizes), opened=bool(how & 2))).errors
    assert len(errors) <= 1
    for error in errors:
        assert isinstance(error, BadFrame | UnsupportedVersion)


if __name__ == "__main__":
    fuzz("frames", one_input, [bytes((how,)) + seed for seed in SEEDS for how in (0, 1, 2, 6)])
