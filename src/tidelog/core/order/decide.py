"""The one place where GLSNs are issued, and what a cut must be like by itself.  No state.

Invariants of a cut:
  D1  its version is the one before it + 1, and it orders at least one entry
  D2  its streams are sorted by (topic, stream), each once, none empty, none sealed
  D3  a stream's LLSNs begin where its ordered part ended
  D4  a topic's GLSNs continue from its high watermark without gap or overlap, in the order
      of the streams, and end at the high watermark that all of them carry
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.types import Glsn, Llsn, StreamId, TopicId, Version

place: Final = attrgetter("topic", "stream")
"""The order of streams in a cut."""
_topic: Final = attrgetter("topic")


def decide(
    version: Version,
    ends: Mapping[StreamId, Llsn],
    streams: Mapping[StreamId, StreamOrder],
    topics: Mapping[TopicId, TopicOrder],
) -> CutDecided | None:
    """Issue GLSNs for all entries up to ``ends``; None if that is nothing.

    ``version`` is that of the last cut.  Streams without an end are not looked at.
    """
    changed = [order for stream, end in ends.items() if end > (order := streams[stream]).llsn_end]
    if not changed:
        return None
    if len(changed) == 1:
        return CutDecided(Version(version + 1), (_commit(changed[0], ends, topics),))
    changed.sort(key=place)
    highs: dict[TopicId, Glsn] = {}
    for order in changed:
        high = highs.get(order.topic) or topics[order.topic].high_watermark
        highs[order.topic] = Glsn(high + ends[order.stream] - order.llsn_end)
    commits: list[StreamCommit] = []
    glsn, topic = Glsn(0), None
    for order in changed:
        if order.topic != topic:
            topic = order.topic
            glsn = Glsn(topics[topic].high_watermark + 1)
        length = ends[order.stream] - order.llsn_end
        commits.append(
            StreamCommit(
                topic, order.stream, highs[topic], glsn, order.llsn_end, length, order.term
            )
        )
        glsn = Glsn(glsn + length)
    return CutDecided(Version(version + 1), tuple(commits))


def _commit(
    order: StreamOrder, ends: Mapping[StreamId, Llsn], topics: Mapping[TopicId, TopicOrder]
) -> StreamCommit:
    """The only stream of a cut: what most cuts of a small log are."""
    high = topics[order.topic].high_watermark
    begin = order.llsn_end
    length = ends[order.stream] - begin
    return StreamCommit(
        order.topic, order.stream, Glsn(high + length), Glsn(high + 1), begin, length, order.term
    )


def flaw_in_shape(cut: CutDecided) -> str | None:
    """Say what is wrong with a cut by itself; None if nothing is."""
    if not cut.commits:
        return f"D1: version {cut.version} orders nothing"
    if any(place(a) >= place(b) for a, b in pairwise(cut.commits)):
        return f"D2: the streams of version {cut.version} are out of order"
    for number, group in groupby(cut.commits, key=_topic):
        commits = tuple(group)
        glsn = commits[0].glsn_begin
        for commit in commits:
            if commit.length < 1:
                return f"D2: stream {commit.stream} is listed with {commit.length} entries"
            if commit.glsn_begin != glsn:
                return f"D4: stream {commit.stream} gets GLSN {commit.glsn_begin} instead of {glsn}"
            glsn = commit.glsn_end
        if any(commit.high_watermark != glsn - 1 for commit in commits):
            return f"D4: topic {number} ends at GLSN {glsn - 1}, its high watermark says otherwise"
    return None
