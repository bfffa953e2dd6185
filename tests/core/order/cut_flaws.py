"""The proof that a cut continues the order before it (D1 to D4 of ``core/order/decide``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from tidelog.core.order.commands import CutDecided, StreamCommit, StreamStatus
from tidelog.core.order.decide import flaw_in_shape
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.types import StreamId, TopicId, Version


def flaw_in_cut(
    cut: CutDecided,
    version: Version,
    streams: Mapping[StreamId, StreamOrder],
    topics: Mapping[TopicId, TopicOrder],
) -> str | None:
    """Say why ``cut`` cannot come right after ``version``; None if it can."""
    if cut.version != version + 1:
        return f"D1: version {cut.version} after version {version}"
    flaw = flaw_in_shape(cut)
    if flaw is not None:
        return flaw
    for number, commits in groupby(cut.commits, key=attrgetter("topic")):
        topic = topics.get(number)
        if topic is None:
            return f"D2: version {cut.version} names topic {number}, which does not exist"
        flaw = _flaw_in_topic(tuple(commits), topic, streams)
        if flaw is not None:
            return f"{flaw} (version {cut.version})"
    return None


def _flaw_in_topic(
    commits: Sequence[StreamCommit],
    topic: TopicOrder,
    streams: Mapping[StreamId, StreamOrder],
) -> str | None:
    glsn = topic.high_watermark + 1
    if commits[0].glsn_begin != glsn:
        return f"D4: topic {topic.topic} goes on at GLSN {commits[0].glsn_begin}, not at {glsn}"
    for commit in commits:
        order = streams.get(commit.stream)
        if order is None or order.topic != topic.topic:
            return f"D2: stream {commit.stream} is not one of topic {topic.topic}"
        if order.status is StreamStatus.SEALED:
            return f"D2: stream {commit.stream} is sealed"
        if commit.llsn_begin != order.llsn_end:
            return (
                f"D3: stream {commit.stream} continues at LLSN {commit.llsn_begin},"
                f" but its ordered part ends at {order.llsn_end}"
            )
    return None
