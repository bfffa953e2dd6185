"""All that the order layer must not forget, as plain values.  No state of its own.

Invariants of an ``OrderState`` (``flaw_in_state`` names the first that is broken):
  S1  a topic has at least one stream; a stream belongs to exactly one topic
  S2  the lengths of a topic's streams add up to its high watermark: its GLSNs are dense
      and unique
  S3  no stream knows a version above the state's; a stream with ordered entries has one
  S4  a stream's own last GLSN lies between its own length and the topic's high watermark,
      and what is reported is not below what is ordered
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.types import (
    FIRST_GLSN,
    FIRST_LLSN,
    FIRST_TERM,
    NO_VERSION,
    Glsn,
    Llsn,
    StreamId,
    Term,
    TopicId,
    Version,
)

NO_GLSN: Final = Glsn(0)


class TopicOrder(msgspec.Struct, frozen=True, gc=False):
    """A topic and how far its GLSN sequence got."""

    topic: TopicId
    streams: tuple[StreamId, ...]
    name: str = ""
    high_watermark: Glsn = NO_GLSN


class StreamOrder(msgspec.Struct, frozen=True, gc=False):
    """How far one stream is ordered, and reported.

    ``version`` is the last cut that ordered entries of it, ``glsn_end`` its own last GLSN + 1,
    ``llsn_end`` its next LLSN to be ordered, ``reported_end`` the end of what its replicas
    have durable in ``term``.
    """

    topic: TopicId
    stream: StreamId
    term: Term = FIRST_TERM
    version: Version = NO_VERSION
    glsn_end: Glsn = FIRST_GLSN
    llsn_end: Llsn = FIRST_LLSN
    reported_end: Llsn = FIRST_LLSN

    @classmethod
    def settled(
        cls,
        topic: TopicId,
        stream: StreamId,
        *,
        term: Term,
        version: Version,
        glsn_end: Glsn,
        llsn_end: Llsn,
    ) -> StreamOrder:
        """Make a stream whose reports are all ordered, as it is found in a manifest."""
        return cls(topic, stream, term, version, glsn_end, llsn_end, llsn_end)


class OrderState(msgspec.Struct, frozen=True, gc=False):
    """The whole order layer at one version."""

    version: Version = NO_VERSION
    topics: tuple[TopicOrder, ...] = ()
    streams: tuple[StreamOrder, ...] = ()


def flaw_in_state(state: OrderState) -> str | None:
    """Say which invariant a state breaks; None if it breaks none."""
    streams = {stream.stream: stream for stream in state.streams}
    if len(streams) != len(state.streams):
        return "S1: a stream occurs twice"
    if len({topic.topic for topic in state.topics}) != len(state.topics):
        return "S1: a topic occurs twice"
    if sum(len(topic.streams) for topic in state.topics) != len(streams):
        return "S1: topics and streams do not name one another"
    for topic in state.topics:
        if not topic.streams or len(frozenset(topic.streams)) != len(topic.streams):
            return f"S1: topic {topic.topic} has no stream, or one twice"
        ordered = 0
        for number in topic.streams:
            stream = streams.get(number)
            if stream is None or stream.topic != topic.topic:
                return f"S1: stream {number} is not one of topic {topic.topic}"
            flaw = _flaw_in_stream(stream, topic.high_watermark, state.version)
            if flaw is not None:
                return flaw
            ordered += stream.llsn_end - FIRST_LLSN
        if ordered != topic.high_watermark:
            return (
                f"S2: topic {topic.topic} issued GLSNs up to {topic.high_watermark},"
                f" but its streams hold {ordered} ordered entries"
            )
    return None


def _flaw_in_stream(stream: StreamOrder, high_watermark: Glsn, version: Version) -> str | None:
    if stream.version > version:
        return f"S3: stream {stream.stream} knows version {stream.version}, the log {version}"
    if stream.version < NO_VERSION or stream.term < FIRST_TERM:
        return f"S3: stream {stream.stream} has a version or term out of range"
    if stream.llsn_end > FIRST_LLSN and stream.version == NO_VERSION:
        return f"S3: stream {stream.stream} has ordered entries but no version"
    if not FIRST_LLSN <= stream.llsn_end <= stream.glsn_end <= high_watermark + 1:
        return (
            f"S4: stream {stream.stream} ends at LLSN {stream.llsn_end}, GLSN"
            f" {stream.glsn_end}, its topic at {high_watermark}"
        )
    if stream.llsn_end == FIRST_LLSN and stream.glsn_end != FIRST_GLSN:
        return f"S4: stream {stream.stream} has no entry and yet a GLSN"
    if stream.reported_end < stream.llsn_end:
        return f"S4: stream {stream.stream} is ordered beyond what was reported"
    return None
