"""The order layer as a deterministic machine: reports in, cuts out.

Input: one ``Command`` at a time.  Output: the cuts that it decides.  A cut visits only the
streams that have something to order, whatever their number is in all.

Invariants:
  O1  every decided cut is sound after the one before it (D1 to D4 of ``decide``)
  O2  a stream waits for the next cut exactly when it was reported beyond what is ordered
  O3  no entry is ordered twice: ordered ends and the version never go back
  O4  a report counts only in the stream's current term; a new term voids what was reported
      in the old one, for the new leader may not have it
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from msgspec.structs import replace

from tidelog import limits
from tidelog.core.order.commands import (
    AddStreams,
    ChangeTerm,
    Command,
    CreateTopic,
    Cut,
    CutDecided,
    Effect,
    Report,
    StreamCommit,
)
from tidelog.core.order.decide import decide, flaw_in_cut
from tidelog.core.order.state import OrderState, StreamOrder, TopicOrder, flaw_in_state
from tidelog.errors import BadOption, CorruptData, TopicExists, UnknownStream, UnknownTopic
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, NO_VERSION, Llsn, StreamId, TopicId, Version


class Ignored(Enum):
    """Why a command was left without effect."""

    UNKNOWN_STREAM = "no stream has that number"
    OLD_TERM = "the term has passed"
    UNKNOWN_TERM = "the term has not begun"
    INVALID = "the report has no valid position"
    UNKNOWN_VERSION = "the replica knows a version that was never decided"
    GAP = "the reported entries begin beyond what is ordered"
    CONTRADICTION = "what the replica has ordered is not what its version ordered"
    ALREADY_ORDERED = "all reported entries are ordered already"
    REPEATED = "as much or more was reported before"


class OrderMachine:
    """Decides cuts; ``step`` is the only way to change it once it runs."""

    __slots__ = ("_ignored", "_pending", "_streams", "_topics", "_version")

    def __init__(self) -> None:
        self._version = NO_VERSION
        self._topics: dict[TopicId, TopicOrder] = {}
        self._streams: dict[StreamId, StreamOrder] = {}
        # A dict, since the order of a set is not the same on every node.
        self._pending: dict[StreamId, None] = {}
        self._ignored: dict[Ignored, int] = {}

    @classmethod
    def restore(cls, state: OrderState) -> OrderMachine:
        """Go on from a stored state; raise CorruptData if it contradicts itself."""
        flaw = flaw_in_state(state)
        if flaw is not None:
            raise CorruptData(f"the stored order state is not sound: {flaw}")
        machine = cls()
        machine._version = state.version
        machine._topics = {topic.topic: topic for topic in state.topics}
        for stream in state.streams:
            machine._put(stream)
        return machine

    @property
    def state(self) -> OrderState:
        """All that must be kept to go on from here; equal for equal histories of commands."""
        return OrderState(
            version=self._version,
            topics=tuple(self._topics[topic] for topic in sorted(self._topics)),
            streams=tuple(self._streams[stream] for stream in sorted(self._streams)),
        )

    @property
    def version(self) -> Version:
        """The version of the last cut."""
        return self._version

    @property
    def ignored(self) -> Mapping[Ignored, int]:
        """How many commands were left without effect, by reason, since the start."""
        return MappingProxyType(self._ignored)

    def topic(self, topic: TopicId) -> TopicOrder:
        """Return a topic as it stands."""
        found = self._topics.get(topic)
        if found is None:
            raise UnknownTopic(f"there is no topic {topic}")
        return found

    def stream(self, stream: StreamId) -> StreamOrder:
        """Return a stream as it stands."""
        found = self._streams.get(stream)
        if found is None:
            raise UnknownStream(f"there is no stream {stream}")
        return found

    def empty_commit(self, stream: StreamId) -> tuple[Version, StreamCommit]:
        """Return what a stream learns from a cut that ordered nothing for it."""
        order = self.stream(stream)
        topic = self._topics[order.topic]
        return self._version, StreamCommit(
            topic=order.topic,
            stream=stream,
            high_watermark=topic.high_watermark,
            glsn_begin=order.glsn_end,
            llsn_begin=order.llsn_end,
            length=0,
        )

    def step(self, command: Command) -> list[Effect]:
        """Apply one command; a ``Rejected`` error means that nothing changed."""
        match command:
            case Report():
                self._on_report(command)
            case Cut():
                cut = self._decide()
                return [] if cut is None else [cut]
            case ChangeTerm():
                self._on_change_term(command)
            case CreateTopic():
                self._on_create_topic(command)
            case AddStreams():
                self._on_add_streams(command)
        return []

    def order(self, ends: Mapping[StreamId, Llsn]) -> CutDecided | None:
        """Report streams as durable up to these ends, each in its term, and decide a cut.

        The same as the ``Report`` of each of them and then a ``Cut``; for a log whose only
        replica sits beside the order, so that no report can be late, repeated or of another term.
        """
        for stream, end in ends.items():
            order = self.stream(stream)
            check(end >= order.reported_end, "O4: a replica took back what it had reported")
            self._put(replace(order, reported_end=end))
        return self._decide()

    def replay(self, cut: CutDecided) -> None:
        """Apply a cut that was decided before; raise CorruptData unless it comes next."""
        flaw = flaw_in_cut(cut, self._version, self._streams, self._topics)
        if flaw is not None:
            raise CorruptData(f"a stored cut does not continue the log: {flaw}")
        self._apply(cut)

    def _on_report(self, report: Report) -> None:
        reason = self._ignore_report(report)
        if reason is not None:
            self._ignore(reason)
            return
        order = self._streams[report.stream]
        self._put(replace(order, reported_end=Llsn(report.llsn_begin + report.length)))

    def _ignore_report(self, report: Report) -> Ignored | None:
        order = self._streams.get(report.stream)
        if order is None:
            return Ignored.UNKNOWN_STREAM
        if report.term != order.term:
            return Ignored.OLD_TERM if report.term < order.term else Ignored.UNKNOWN_TERM
        if report.llsn_begin < FIRST_LLSN or report.length < 0 or report.version < NO_VERSION:
            return Ignored.INVALID
        if report.version > self._version:
            return Ignored.UNKNOWN_VERSION
        if report.llsn_begin > order.llsn_end:
            return Ignored.GAP
        # Knowing the last cut of the stream and standing at its end are the same thing.
        if (report.version >= order.version) != (report.llsn_begin == order.llsn_end):
            return Ignored.CONTRADICTION
        end = report.llsn_begin + report.length
        if end <= order.reported_end:
            return Ignored.ALREADY_ORDERED if end <= order.llsn_end else Ignored.REPEATED
        return None

    def _decide(self) -> CutDecided | None:
        """Order all that waits; O1 holds by what ``decide`` does, which its tests show."""
        streams = self._streams
        cut = decide(self._version, [streams[stream] for stream in self._pending], self._topics)
        check((cut is None) == (not self._pending), "O2: a waiting stream had nothing to order")
        if cut is not None:
            self._apply(cut)
        return cut

    def _apply(self, cut: CutDecided) -> None:
        for commit in cut.commits:
            order = self._streams[commit.stream]
            topic = self._topics[commit.topic]
            check(commit.llsn_end > order.llsn_end, "O3: an ordered end would not grow")
            check(commit.high_watermark >= topic.high_watermark, "O3: a high watermark went back")
            llsn_end = commit.llsn_end
            self._put(
                StreamOrder(
                    topic=commit.topic,
                    stream=commit.stream,
                    term=order.term,
                    version=cut.version,
                    glsn_end=commit.glsn_end,
                    llsn_end=llsn_end,
                    reported_end=max(order.reported_end, llsn_end),
                )
            )
            if topic.high_watermark != commit.high_watermark:
                self._topics[commit.topic] = replace(topic, high_watermark=commit.high_watermark)
        self._version = cut.version

    def _on_change_term(self, command: ChangeTerm) -> None:
        order = self.stream(command.stream)
        if command.term <= order.term:
            self._ignore(Ignored.OLD_TERM)
            return
        self._put(replace(order, term=command.term, reported_end=order.llsn_end))

    def _on_create_topic(self, command: CreateTopic) -> None:
        if command.topic in self._topics:
            raise TopicExists(f"there is a topic {command.topic} already")
        if command.name and any(topic.name == command.name for topic in self._topics.values()):
            raise TopicExists(f"there is a topic named {command.name!r} already")
        if len(command.name) > limits.TOPIC_NAME_CHARS_MAX:
            raise BadOption(f"a topic name has at most {limits.TOPIC_NAME_CHARS_MAX} characters")
        if len(self._topics) >= limits.TOPICS_MAX:
            raise BadOption(f"a log has at most {limits.TOPICS_MAX} topics")
        self._check_new_streams(command.streams, present=0)
        self._topics[command.topic] = TopicOrder(command.topic, command.streams, command.name)
        self._add_streams(command.topic, command.streams)

    def _on_add_streams(self, command: AddStreams) -> None:
        topic = self.topic(command.topic)
        self._check_new_streams(command.streams, present=len(topic.streams))
        self._topics[topic.topic] = replace(topic, streams=topic.streams + command.streams)
        self._add_streams(topic.topic, command.streams)

    def _check_new_streams(self, streams: tuple[StreamId, ...], *, present: int) -> None:
        if not streams:
            raise BadOption("a topic needs at least one stream")
        if present + len(streams) > limits.STREAMS_PER_TOPIC_MAX:
            raise BadOption(f"a topic has at most {limits.STREAMS_PER_TOPIC_MAX} streams")
        if len(frozenset(streams)) != len(streams):
            raise BadOption("a stream is named twice")
        for stream in streams:
            if stream in self._streams:
                raise BadOption(f"stream {stream} exists already")

    def _add_streams(self, topic: TopicId, streams: tuple[StreamId, ...]) -> None:
        for stream in streams:
            self._put(StreamOrder(topic, stream))

    def _put(self, order: StreamOrder) -> None:
        """Set a stream and keep O2; the only place that does either."""
        check(order.reported_end >= order.llsn_end, "O2: ordered beyond what was reported")
        self._streams[order.stream] = order
        if order.reported_end > order.llsn_end:
            self._pending[order.stream] = None
        else:
            self._pending.pop(order.stream, None)

    def _ignore(self, reason: Ignored) -> None:
        self._ignored[reason] = self._ignored.get(reason, 0) + 1
