"""Any bytes into both kinds of connections: frames, or one of the two declared errors.

Declared are BadFrame and UnsupportedVersion (a CorruptData) for bytes that are no frames, and
nothing else; for want of bytes a connection waits, and ConnectionLost ends a blocking one.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.feeding import Fed, Frame, Fuzzed, cut, feed, feed_blocking
from tests.fuzz.shapes import cuts, frame_bytes, hostile_bytes, message_bytes, sound_frames
from tidelog.errors import BadFrame, UnsupportedVersion
from tidelog.formats.wire import HEADER_BYTES, encode_frame
from tidelog.limits import (
    ATTACHMENT_BYTES_MAX,
    HELLO_BYTES_MAX,
    KIB,
    MESSAGE_BYTES_MAX,
    MIB,
    SESSION_ANSWER_BYTES_MAX,
)

DECLARED = (BadFrame, UnsupportedVersion)
LENGTH_MAX = (1 << 32) - 1
STATUS = Path("/proc/self/statm")
PAGE_KIB = 4
PEERS = 16


def fed(parts: Iterable[bytes], *, opened: bool = True) -> Fed:
    return asyncio.run(feed(parts, opened=opened))


def only_declared(came: Fed) -> None:
    assert len(came.errors) <= 1
    assert all(type(error) in DECLARED for error in came.errors), came.errors


def header(message: int, attachment: int) -> bytes:
    """A frame's header with these lengths, and the checksum of another."""
    head = bytearray(encode_frame(b"", request=1, attachment_bytes=attachment))
    head[8:12] = message.to_bytes(4, "little")
    return bytes(head)


@given(hostile_bytes, cuts, st.booleans())
def test_bytes_mean_the_same_however_they_are_cut(
    data: bytes, sizes: list[int], opened: bool
) -> None:
    whole = fed([data], opened=opened)
    only_declared(whole)
    for parts in (cut(data, sizes), cut(data, [1] * len(data))):
        came = fed(parts, opened=opened)
        assert came.frames == whole.frames
        assert list(map(type, came.errors)) == list(map(type, whole.errors))


@given(sound_frames, st.data())
def test_frames_before_the_damage_arrive_and_none_that_was_not_sent(
    frames: list[Frame], data: st.DataObject
) -> None:
    """Attachments bring checksums of their own, so damage of these shows elsewhere."""
    sent = b"".join(frame_bytes(*frame) for frame in frames)
    place = data.draw(st.integers(0, len(sent) - 1))
    flipped = data.draw(st.integers(1, 255))
    damaged = sent[:place] + bytes((sent[place] ^ flipped,)) + sent[place + 1 :]
    came = fed([damaged])
    only_declared(came)
    whole = 0
    for frame in frames:
        if place < (end := len(frame_bytes(*frame))):
            break
        whole, place = whole + 1, place - end
    assert came.frames[:whole] == frames[:whole]
    heads = [frame[:2] for frame in frames]
    assert [frame[:2] for frame in came.frames] == heads[: len(came.frames)]


@given(hostile_bytes, st.integers(1, 4))
def test_a_blocking_connection_raises_nothing_else(data: bytes, awaited: int) -> None:
    only_declared(feed_blocking(data, awaited))


@given(st.lists(message_bytes, min_size=1, max_size=5))
def test_a_blocking_connection_gets_all_sound_answers(messages: list[bytes]) -> None:
    frames = [(number, message, b"") for number, message in enumerate(messages, 1)]
    data = b"".join(frame_bytes(*frame) for frame in frames)
    assert feed_blocking(data, len(frames)) == (frames, [])


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("message", "attachment"), [(LENGTH_MAX, 0), (0, LENGTH_MAX), (LENGTH_MAX, LENGTH_MAX)]
)
def test_a_length_beyond_the_limits_allocates_nothing(
    message: int, attachment: int, opened: bool
) -> None:
    data = header(message, attachment)
    tracemalloc.start()
    try:
        came = fed([data], opened=opened)
        blocking = feed_blocking(data, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(error) for error in (*came.errors, *blocking.errors)] == [BadFrame, BadFrame]
    assert peak < MIB


@given(st.integers(0, LENGTH_MAX), st.integers(0, LENGTH_MAX), st.booleans())
def test_lengths_are_bounded_before_the_bytes_come(
    message: int, attachment: int, opened: bool
) -> None:
    limits = (MESSAGE_BYTES_MAX, ATTACHMENT_BYTES_MAX) if opened else (HELLO_BYTES_MAX, 0)
    fits = message <= limits[0] and attachment <= limits[1]
    if message:  # Else the checksum of the header is looked at.
        assert bool(fed([header(message, attachment)], opened=opened).errors) is not fits


def test_an_answer_of_a_replica_is_never_large() -> None:
    data = frame_bytes(1, bytes(max(SESSION_ANSWER_BYTES_MAX, HELLO_BYTES_MAX) + 1))
    assert [type(error) for error in feed_blocking(data, 1).errors] == [BadFrame]


@pytest.mark.skipif(not STATUS.exists(), reason="needs procfs")
def test_announced_bytes_take_no_memory_before_they_come() -> None:
    """Many peers announce the most that is allowed, and send a byte of it."""

    def resident_kib() -> int:
        return int(STATUS.read_text().split()[1]) * PAGE_KIB

    async def announce() -> int:
        data = encode_frame(b"m", request=1, attachment_bytes=ATTACHMENT_BYTES_MAX) + b"x"
        before = resident_kib()
        peers = [Fuzzed(opened=True) for _ in range(PEERS)]
        for peer in peers:
            peer.arrive(data)
        grown = resident_kib() - before
        assert [peer.end() for peer in peers] == [([], [])] * PEERS
        return grown

    assert asyncio.run(announce()) < PEERS * 256


def test_noise_behind_a_sound_frame_changes_nothing_of_it() -> None:
    random = Random(5)
    for _ in range(200):
        message, attachment = random.randbytes(50), random.randbytes(random.randrange(100 * KIB))
        noise = random.randbytes(HEADER_BYTES)
        came = fed([frame_bytes(7, message, attachment) + noise])
        assert came.frames == [(7, message, attachment)]
        only_declared(came)
