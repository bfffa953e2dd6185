"""The order layer as a deterministic machine: reports in, cuts out.

Input: one ``Command`` at a time.  Output: the cuts that it decides.  A report costs the same
whatever the number of streams is; a cut visits only the streams that have something to order.

Invariants:
  O1  every decided cut is sound after the one before it (D1 to D4 of ``decide``)
  O2  a stream waits for the next cut exactly when it is running, its write quorum has more
      durable than is ordered, by its own reports or by the leader's word, and a majority keeps up
      with its cuts
  O3  no entry is ordered twice: ordered ends and the version never go back
  O4  a new term voids what was reported in the old one, for the new leader may not have it;
      the word of the old one too, which the new one will repeat
  O5  a stream's metadata is written only by who has seen its latest revision
  O6  an ensemble changes only if more of its new replicas know the forgotten cuts than may fail
  O7  what need not be kept of a topic only grows: a later command never takes it back
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from tidelog.core.order.commands import (
    AddStreams,
    Command,
    CreateTopic,
    Cut,
    CutDecided,
    Effect,
    NewStream,
    RemoveStream,
    Report,
    RetainTopic,
    StreamCommit,
    StreamStatus,
    UpdateStream,
    VersionedCommit,
)
from tidelog.core.order.decide import decide
from tidelog.core.order.flaws import flaw_in_state
from tidelog.core.order.history import History
from tidelog.core.order.quorum import durable_end
from tidelog.core.order.refusals import (
    refuse_forgetting,
    refuse_retention,
    refuse_revision,
    refuse_streams,
    refuse_topic,
    refuse_update,
)
from tidelog.core.order.reports import Ignored, committed_after, updated, weigh
from tidelog.core.order.state import (
    NO_STREAM,
    OrderState,
    ReplicaOrder,
    StreamOrder,
    TopicOrder,
)
from tidelog.core.order.topics import new_topic, retained, without_stream
from tidelog.errors import CorruptData, UnknownStream, UnknownTopic
from tidelog.invariants import check
from tidelog.types import (
    NO_VERSION,
    Llsn,
    StreamId,
    TopicId,
    Version,
)


class OrderMachine:
    """Decides cuts; ``step`` is the only way to change it once it runs."""

    __slots__ = (
        "_history",
        "_ignored",
        "_names",
        "_pending",
        "_retired",
        "_streams",
        "_topics",
        "_version",
    )

    def __init__(self) -> None:
        self._version = NO_VERSION
        self._topics: dict[TopicId, TopicOrder] = {}
        self._names: dict[str, TopicId] = {}
        self._streams: dict[StreamId, StreamOrder] = {}
        self._retired = NO_STREAM
        self._history = History()
        self._pending: dict[StreamId, Llsn] = {}
        """How far the next cut will order the streams that wait for it (O2)."""
        self._ignored: dict[Ignored, int] = {}

    # -- storing ------------------------------------------------------------------------------

    @classmethod
    def restore(cls, state: OrderState) -> OrderMachine:
        """Go on from a stored state; raise CorruptData if it contradicts itself."""
        flaw = flaw_in_state(state)
        if flaw is not None:
            raise CorruptData(f"the stored order state is not sound: {flaw}")
        return cls._resume(state)

    @classmethod
    def _resume(cls, state: OrderState) -> OrderMachine:
        machine = cls()
        machine._version = state.version
        machine._topics = {topic.topic: topic for topic in state.topics}
        machine._names = {topic.name: topic.topic for topic in state.topics if topic.name}
        machine._streams = {order.stream: order for order in state.streams}
        machine._retired = state.retired
        machine._history = History.restore(
            state.cuts, state.histories, machine._streams, state.version
        )
        for order in state.streams:
            machine._update_pending(order)
        return machine

    @property
    def state(self) -> OrderState:
        """All that the machine knows; ``restore`` goes on from it."""
        return OrderState(
            self._version,
            tuple(self._topics.values()),
            tuple(self._streams.values()),
            self._history.cuts,
            self._history.histories(self._version),
            self._retired,
        )

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        state = self.state
        flaw = flaw_in_state(state)
        check(flaw is None, str(flaw))
        fresh = self._resume(state)
        check(fresh._pending == self._pending, "O2: the waiting streams are not those that should")
        self._history.validate(fresh._history, self._streams, self._version)

    # -- asking -------------------------------------------------------------------------------

    @property
    def version(self) -> Version:
        """The last cut."""
        return self._version

    @property
    def first_version(self) -> Version:
        """The oldest cut that is still kept; ``version`` + 1 if none is."""
        return self._history.first_version(self._version)

    @property
    def has_pending(self) -> bool:
        """Whether a cut would order anything."""
        return bool(self._pending)

    @property
    def topics(self) -> Mapping[TopicId, TopicOrder]:
        """All topics, as they stand."""
        return MappingProxyType(self._topics)

    @property
    def streams(self) -> Mapping[StreamId, StreamOrder]:
        """All streams, as they stand."""
        return MappingProxyType(self._streams)

    @property
    def next_stream(self) -> StreamId:
        """The lowest number that a new stream may have."""
        return StreamId(max(self._retired, max(self._streams, default=NO_STREAM)) + 1)

    @property
    def ignored(self) -> Mapping[Ignored, int]:
        """How many reports were left without effect, by reason, since the start."""
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

    def commits_after(
        self, stream: StreamId, version: Version
    ) -> tuple[VersionedCommit, ...] | None:
        """Return what a replica that knows ``version`` has missed of a stream, oldest first.

        None if that is not kept any more: the replica has to synchronise from a peer.
        """
        return self._history.commits_after(self.stream(stream), version)

    def cuts_after(self, version: Version) -> tuple[CutDecided, ...] | None:
        """Return all cuts above ``version``, oldest first; None if one is not kept any more."""
        return self._history.cuts_after(version, self._version)

    def empty_commit(self, stream: StreamId) -> VersionedCommit:
        """Return what a stream learns from a cut that ordered nothing for it."""
        order = self.stream(stream)
        high = self._topics[order.topic].high_watermark
        commit = StreamCommit(
            order.topic, stream, high, order.glsn_end, order.llsn_end, length=0, term=order.term
        )
        return VersionedCommit(self._version, commit)

    # -- changing -----------------------------------------------------------------------------

    def step(self, command: Command) -> list[Effect]:
        """Apply one command; a ``Rejected`` error means that nothing changed."""
        match command:
            case Report():
                self._on_report(command)
            case Cut():
                cut = self._on_cut()
                return [] if cut is None else [cut]
            case UpdateStream():
                self._on_update_stream(command)
            case CreateTopic():
                self._on_create_topic(command)
            case AddStreams():
                self._on_add_streams(command)
            case RemoveStream():
                self._on_remove_stream(command)
            case RetainTopic():
                self._on_retain_topic(command)
        return []

    def order(self, ends: Mapping[StreamId, Llsn]) -> CutDecided | None:
        """Report streams as durable up to these ends, cut, and report the cut as known.

        For a log whose only replica sits beside the order: no report can be late, repeated or of
        another term, and nobody can miss a cut.
        """
        for stream, end in ends.items():
            replicas = self.stream(stream).replicas
            check(len(replicas) == 1, "O2: ordering at once is for streams with one replica")
            check(end >= replicas[0].end, "R3: a replica took back what it had reported")
        check(self._history.is_empty, "H3: a log with one replica misses no cut")
        cut = decide(self._version, ends, self._streams, self._topics)
        if cut is not None:
            self._advance(cut, is_known=True)
        return cut

    # -- reports and cuts ---------------------------------------------------------------------

    def _on_report(self, report: Report) -> None:
        order = self._streams.get(report.stream)
        weighed = (
            Ignored.UNKNOWN_STREAM
            if order is None
            else weigh(report, order, self._version, self._history)
        )
        if isinstance(weighed, Ignored):
            self._ignored[weighed] = self._ignored.get(weighed, 0) + 1
        else:
            order = self._streams[report.stream]
            self._put_replica(order, weighed, committed_after(report, order))

    def _put_replica(self, order: StreamOrder, new: ReplicaOrder, committed_end: Llsn) -> None:
        replicas = list(order.replicas)
        place = order.ensemble.index(new.node)
        old, replicas[place] = replicas[place], new
        changed = replace(order, replicas=tuple(replicas), committed_end=committed_end)
        self._streams[order.stream] = changed
        if new.version > old.version or not old.end:
            self._history.release(order, old, self._version)
            self._history.hold(changed, new, self._version)
            self._history.settle(changed, self._version)
        self._update_pending(changed)

    def is_backlogged(self, order: StreamOrder) -> bool:
        """Whether a stream waits until more replicas have applied its cuts."""
        return self._history.is_backlogged(order)

    def _update_pending(self, order: StreamOrder) -> None:
        """Keep O2 for a stream that changed."""
        end = self._orderable_end(order)
        if end > order.llsn_end:
            self._pending[order.stream] = end
        else:
            self._pending.pop(order.stream, None)

    def _orderable_end(self, order: StreamOrder) -> Llsn:
        """How far the next cut may order a stream; at or below its ordered end if it may not."""
        if order.status is StreamStatus.SEALED or self.is_backlogged(order):
            return order.llsn_end
        quorum = self._topics[order.topic].quorum
        return max(order.committed_end, durable_end(order.replicas, quorum))

    def _on_cut(self) -> CutDecided | None:
        """Order all that waits; O1 holds by what ``decide`` does, which its tests show."""
        cut = decide(self._version, self._pending, self._streams, self._topics)
        check((cut is None) == (not self._pending), "O2: a waiting stream had nothing to order")
        if cut is not None:
            self._pending.clear()
            self._apply(cut)
        return cut

    def _apply(self, cut: CutDecided) -> None:
        self._history.add(cut, self._streams)
        self._advance(cut)
        self._history.trim(self._streams)

    def _advance(self, cut: CutDecided, *, is_known: bool = False) -> None:
        """Move the ends of streams and topics; ``is_known``: the only replica has learnt it too."""
        for commit in cut.commits:
            order = self._streams[commit.stream]
            topic = self._topics[commit.topic]
            llsn_end = commit.llsn_end
            check(llsn_end > order.llsn_end, "O3: an ordered end would not grow")
            check(commit.high_watermark >= topic.high_watermark, "O3: a high watermark went back")
            replicas = order.replicas
            if is_known:
                replicas = (ReplicaOrder(replicas[0].node, cut.version, llsn_end),)
            self._streams[commit.stream] = order.advanced(commit, cut.version, replicas)
            if topic.high_watermark != commit.high_watermark:
                self._topics[commit.topic] = replace(topic, high_watermark=commit.high_watermark)
        self._version = cut.version

    # -- topics and streams -------------------------------------------------------------------

    def _on_create_topic(self, command: CreateTopic) -> None:
        refuse_topic(command, self._topics, self._names)
        self._refuse_streams(command.streams, present=0)
        topic = new_topic(command)
        if command.name:
            self._names[command.name] = command.topic
        self._add_streams(topic, command.streams)

    def _on_add_streams(self, command: AddStreams) -> None:
        topic = self.topic(command.topic)
        self._refuse_streams(command.streams, present=len(topic.streams))
        self._add_streams(topic, command.streams)

    def _refuse_streams(self, new: tuple[NewStream, ...], *, present: int) -> None:
        refuse_streams(new, present=present, streams=self._streams, retired=self._retired)

    def _add_streams(self, topic: TopicOrder, new: tuple[NewStream, ...]) -> None:
        names = tuple([each.stream for each in new])
        self._topics[topic.topic] = replace(topic, streams=topic.streams + names)
        for each in new:
            replicas = tuple([ReplicaOrder(node) for node in each.ensemble])
            self._streams[each.stream] = StreamOrder(topic.topic, each.stream, replicas)

    def _on_retain_topic(self, command: RetainTopic) -> None:
        refuse_retention(command, self.topic(command.topic))
        self._topics[command.topic] = retained(self.topic(command.topic), command)

    def _on_remove_stream(self, command: RemoveStream) -> None:
        order = self.stream(command.stream)
        refuse_revision(order, command.revision)
        self._history.forget_stream(order, self._version)
        self._pending.pop(order.stream, None)
        del self._streams[order.stream]
        self._topics[order.topic] = without_stream(self._topics[order.topic], order)
        self._retired = max(self._retired, order.stream)

    def _on_update_stream(self, command: UpdateStream) -> None:
        order = self.stream(command.stream)
        refuse_update(command, order, self._version)
        refuse_forgetting(command, order, self._history.forgotten(order))
        for replica in order.replicas:
            self._history.release(order, replica, self._version)
        changed = updated(order, command)
        for replica in changed.replicas:
            self._history.hold(changed, replica, self._version)
        self._history.settle(changed, self._version)
        self._streams[order.stream] = changed
        self._update_pending(changed)
