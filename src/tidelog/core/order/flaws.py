"""What a stored order state can have wrong with it.  No state.

Invariants of an ``OrderState`` (``flaw_in_state`` names the first that is broken):
  S1  a stream belongs to exactly one topic, which names it; numbers are given once
  S2  the lengths of a topic's streams, and of those it once had, add up to its high watermark:
      its GLSNs are dense and unique
  S3  no stream or replica knows a version above the state's; a stream with ordered entries has one
  S4  a stream's own last GLSN lies between its own length and the topic's high watermark
  S5  a stream has replicas, sorted by node, and no more departed nodes than the limit allows, none
      of them in its ensemble
  S6  the kept cuts are sound, follow one another, and end at the state's version and at the
      topics' high watermarks
  S7  the kept commits of a stream follow one another and end where its ordered part ends; their
      terms do not fall, and none is beyond the stream's
  S8  nothing is trimmed that was not ordered; the other options of a topic are in range
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from tidelog import limits
from tidelog.core.order.commands import CutDecided, StreamCommit, VersionedCommit
from tidelog.core.order.decide import flaw_in_shape
from tidelog.core.order.state import OrderState, StreamHistory, StreamOrder, TopicOrder
from tidelog.types import (
    FIRST_GLSN,
    FIRST_LLSN,
    FIRST_REVISION,
    FIRST_TERM,
    NO_LLSN,
    NO_NODE,
    NO_VERSION,
    Glsn,
    StreamId,
    TopicId,
    Version,
)


def flaw_in_state(state: OrderState) -> str | None:
    """Say which invariant a state breaks; None if it breaks none."""
    streams = {order.stream: order for order in state.streams}
    topics = {topic.topic: topic for topic in state.topics}
    flaws = (
        _flaw_in_names(state, len(topics), len(streams)),
        *(_flaw_in_topic(topic, streams, state.version) for topic in state.topics),
    )
    return (
        next(filter(None, flaws), None)
        or _flaw_in_cuts(state, streams, topics)
        or _flaw_in_histories(state, streams)
    )


# -- topics and streams --------------------------------------------------------------------------


def _flaw_in_names(state: OrderState, topics: int, streams: int) -> str | None:
    if topics != len(state.topics) or streams != len(state.streams):
        return "S1: a topic or stream occurs twice"
    names = [topic.name for topic in state.topics if topic.name]
    if len(frozenset(names)) != len(names):
        return "S1: two topics have the same name"
    if sum(len(topic.streams) for topic in state.topics) != streams:
        return "S1: topics and streams do not name one another"
    if state.version < NO_VERSION:
        return f"S3: the state has version {state.version}"
    return None


def _flaw_in_topic(
    topic: TopicOrder, streams: Mapping[StreamId, StreamOrder], version: Version
) -> str | None:
    if len(frozenset(topic.streams)) != len(topic.streams):
        return f"S1: topic {topic.topic} has a stream twice"
    ordered = topic.removed_entries
    for number in topic.streams:
        order = streams.get(number)
        if order is None or order.topic != topic.topic:
            return f"S1: stream {number} is not one of topic {topic.topic}"
        flaw = _flaw_in_stream(order, topic.high_watermark, version) or _flaw_in_replicas(
            order, version
        )
        if flaw is not None:
            return flaw
        ordered += order.llsn_end - FIRST_LLSN
    if ordered != topic.high_watermark or topic.removed_entries < 0:
        return (
            f"S2: topic {topic.topic} issued GLSNs up to {topic.high_watermark},"
            f" but {ordered} entries were ordered"
        )
    return _flaw_in_options(topic)


def _flaw_in_options(topic: TopicOrder) -> str | None:
    if not FIRST_GLSN <= topic.trim_glsn_end <= topic.high_watermark + 1:
        return f"S8: topic {topic.topic} is trimmed up to {topic.trim_glsn_end}"
    if not 0 <= topic.boundary < limits.WRITE_VERSION_END or topic.boundary_low < 0:
        return f"S8: topic {topic.topic} has a GC boundary out of range"
    if not 0 <= topic.key_streams <= limits.STREAMS_PER_TOPIC_MAX:
        return f"S8: topic {topic.topic} has {topic.key_streams} streams for keys"
    return None


def _flaw_in_stream(order: StreamOrder, high_watermark: Glsn, version: Version) -> str | None:
    if not NO_VERSION <= order.version <= version:
        return f"S3: stream {order.stream} knows version {order.version}, the log {version}"
    if order.term < FIRST_TERM or order.revision < FIRST_REVISION:
        return f"S3: stream {order.stream} has a term or revision out of range"
    if (order.llsn_end > FIRST_LLSN) != (order.version > NO_VERSION):
        return f"S3: stream {order.stream} has ordered entries or a version, but not both"
    if not FIRST_LLSN <= order.llsn_end <= order.glsn_end <= high_watermark + 1:
        return (
            f"S4: stream {order.stream} ends at LLSN {order.llsn_end}, GLSN"
            f" {order.glsn_end}, its topic at {high_watermark}"
        )
    if order.committed_end < NO_LLSN:
        return f"S3: the leader of stream {order.stream} speaks of LLSN {order.committed_end}"
    if order.llsn_end == FIRST_LLSN and order.glsn_end != FIRST_GLSN:
        return f"S4: stream {order.stream} has no entry and yet a GLSN"
    return None


def _flaw_in_replicas(order: StreamOrder, version: Version) -> str | None:
    if not order.replicas or order.replicas[0].node <= NO_NODE:
        return f"S5: stream {order.stream} has no replica, or one on no node"
    if any(a.node >= b.node for a, b in pairwise(order.replicas)):
        return f"S5: the replicas of stream {order.stream} are out of order"
    if (
        any(a >= b for a, b in pairwise(order.departed))
        or any(node <= NO_NODE or node in order.ensemble for node in order.departed)
        or len(order.departed) > limits.ENSEMBLE_DEPARTED_MAX
    ):
        return f"S5: {order.departed} cannot have left stream {order.stream}"
    for replica in order.replicas:
        if not NO_VERSION <= replica.version <= version or replica.end < NO_LLSN:
            return f"S3: the replica of stream {order.stream} on {replica.node} is out of range"
    return None


# -- history -------------------------------------------------------------------------------------


def _flaw_in_cuts(
    state: OrderState,
    streams: Mapping[StreamId, StreamOrder],
    topics: Mapping[TopicId, TopicOrder],
) -> str | None:
    highs: dict[TopicId, int] = {}
    for number, cut in enumerate(state.cuts, state.version - len(state.cuts) + 1):
        if cut.version != number or number <= NO_VERSION:
            return f"S6: version {cut.version} is kept in the place of {number}"
        flaw = flaw_in_shape(cut)
        if flaw is not None:
            return f"S6: {flaw}"
        for commit in cut.commits:
            flaw = _flaw_in_commit(commit, state, streams)
            if flaw is not None:
                return f"S6: version {cut.version}: {flaw}"
            high = highs.get(commit.topic, commit.glsn_begin - 1)
            if commit.glsn_begin != high + 1:
                return f"S6: version {cut.version} leaves a gap in topic {commit.topic}"
            highs[commit.topic] = commit.glsn_end - 1
    for topic, high in highs.items():
        if topic not in topics or topics[topic].high_watermark != high:
            return f"S6: topic {topic} ends at GLSN {high} in the kept cuts"
    return None


def _flaw_in_commit(
    commit: StreamCommit, state: OrderState, streams: Mapping[StreamId, StreamOrder]
) -> str | None:
    order = streams.get(commit.stream)
    if order is None:
        was_removed = commit.stream <= state.retired
        return None if was_removed else f"stream {commit.stream} never existed"
    if order.topic != commit.topic:
        return f"stream {commit.stream} is not one of topic {commit.topic}"
    return None


def _flaw_in_histories(state: OrderState, streams: Mapping[StreamId, StreamOrder]) -> str | None:
    if any(a.stream >= b.stream for a, b in pairwise(state.histories)):
        return "S7: the histories of streams are out of order"
    recent: dict[StreamId, list[VersionedCommit]] = {}
    for commit in _commits_of(state.cuts):
        if commit.commit.stream in streams:
            recent.setdefault(commit.commit.stream, []).append(commit)
    first = Version(state.version - len(state.cuts) + 1)
    for history in state.histories:
        order = streams.get(history.stream)
        flaw = (
            "it does not exist"
            if order is None
            else _flaw_in_history(history, recent.pop(history.stream, []), order, first)
        )
        if flaw is not None:
            return f"S7: stream {history.stream}: {flaw}"
    if recent:
        return f"S7: streams {list(recent)} have kept commits but no history"
    return None


def _commits_of(cuts: tuple[CutDecided, ...]) -> Iterator[VersionedCommit]:
    for cut in cuts:
        for commit in cut.commits:
            yield VersionedCommit(cut.version, commit)


def _flaw_in_history(
    history: StreamHistory, recent: list[VersionedCommit], order: StreamOrder, first: Version
) -> str | None:
    kept = [*history.older, *recent]
    if not kept:
        return "its history is empty"
    if history.older and history.older[-1].version >= first:
        return f"version {history.older[-1].version} is kept twice"
    if not NO_VERSION <= history.forgotten < kept[0].version:
        return f"version {history.forgotten} is forgotten, but {kept[0].version} comes first"
    for a, b in pairwise(kept):
        if a.version >= b.version or a.commit.glsn_end > b.commit.glsn_begin:
            return f"version {b.version} does not follow {a.version}"
        if a.commit.llsn_end != b.commit.llsn_begin:
            return f"version {b.version} leaves a gap after {a.version}"
        if a.commit.term > b.commit.term:
            return f"version {b.version} was decided in an earlier term than {a.version}"
    if any(each.commit.stream != order.stream or each.commit.length < 1 for each in kept):
        return "a kept commit is empty, or of another stream"
    last = kept[-1]
    ends = (last.version, last.commit.glsn_end, last.commit.llsn_end)
    if ends != (order.version, order.glsn_end, order.llsn_end):
        return f"its history ends at version {last.version}, its order at {order.version}"
    if last.commit.term > order.term:
        return f"version {last.version} was decided in term {last.commit.term}, after the stream's"
    return None
