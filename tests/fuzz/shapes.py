"""What hypothesis sends: frames, messages and batches, sound ones and damaged ones.  No state."""

from __future__ import annotations

from hypothesis import strategies as st

from tidelog.core.session.messages import (
    Ack,
    Answer,
    BlobWrite,
    Error,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import encode_frame

NATURAL_MAX = (1 << 63) - 1
WORD_MAX = (1 << 64) - 1

naturals = st.one_of(st.integers(0, 12), st.integers(0, NATURAL_MAX), st.just(NATURAL_MAX))
words = st.one_of(st.integers(0, 12), st.integers(0, WORD_MAX), st.just(WORD_MAX))
versions = st.binary(min_size=16, max_size=16)
texts = st.text(max_size=20)

requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(SessionBegin, st.integers(0, 2), texts, naturals, naturals),
    st.just(SessionEnd()),
    st.builds(GroupCommit, naturals),
    st.builds(GcBoundarySwitch, versions),
    st.builds(SafeSnapshotSwitch, versions),
    st.builds(LogChannelCreate, texts, naturals),
    st.just(LogChannelDispose()),
    st.builds(LogEntryWrite, naturals, *[st.booleans()] * 4),
    st.just(LogChannelFlush()),
    st.builds(BlobWrite, words, words, words),
)
answers: st.SearchStrategy[Answer] = st.one_of(
    st.builds(SessionBegun, texts),
    st.builds(Ack, naturals, naturals),
    st.builds(Error, naturals, texts),
)
message_bytes = st.one_of(
    st.builds(encode_session_message, st.one_of(requests, answers)), st.binary(max_size=300)
)
sound_frames = st.lists(
    st.tuples(words, message_bytes, st.one_of(st.just(b""), st.binary(max_size=300))),
    min_size=1,
    max_size=5,
)


def frame_bytes(request: int, message: bytes, attachment: bytes = b"") -> bytes:
    return encode_frame(message, request=request, attachment_bytes=len(attachment)) + attachment


@st.composite
def damaged(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    """Sound bytes with up to four pieces put in, taken out, or overwritten."""
    data = bytearray(draw(sound))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(begin + draw(st.integers(0, 40)), len(data))
        data[begin:end] = draw(st.one_of(st.just(b""), st.binary(max_size=40)))
    return bytes(data)


frame_sequences = sound_frames.map(lambda frames: b"".join(frame_bytes(*one) for one in frames))
hostile_bytes = st.one_of(st.binary(max_size=500), frame_sequences, damaged(frame_sequences))
cuts = st.lists(st.integers(1, 100), max_size=20)
