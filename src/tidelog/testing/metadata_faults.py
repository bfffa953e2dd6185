"""What people change in the metadata at bad times: seals, pauses, more streams, old entries.

Whatever stops something is taken back: a sealed stream runs again, a pause ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.metadata.commands import Change, SetPaused
from tidelog.core.order.commands import (
    AddStreams,
    NewStream,
    RetainTopic,
    StreamStatus,
    UpdateStream,
)
from tidelog.errors import LogError
from tidelog.testing.faults import Fault
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND, State
from tidelog.types import Glsn, StreamId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster
    from tidelog.testing.metadata_process import MetadataProcess

AGAIN: Final = 100 * MILLISECOND
"""What is to be taken back is tried again after so long, until it is."""
STREAMS_MAX: Final = 6


class MetadataFaults:
    """The changes of one seed that are not about ensembles and leaders."""

    __slots__ = ("_cluster", "_paused_until", "_until")

    def __init__(self, cluster: LogCluster) -> None:
        self._cluster = cluster
        self._until: dict[StreamId, int] = {}
        """How long streams may be sealed."""
        self._paused_until = 0
        cluster.world.plan(AGAIN, self._take_back)

    def ask(self, fault: Fault) -> None:
        """Let somebody change something."""
        match fault.strength % 6:
            case 0 | 1:
                self._seal(fault)
            case 2:
                self._pause(fault)
            case 3:
                self._add_stream(fault)
            case _:
                self._retain(fault)

    def _ask(self, change: Change, rare: Rare | None = None) -> None:
        self._cluster.ask(change, partial(self._on_answer, rare))

    def _on_answer(self, rare: Rare | None, error: LogError | None) -> None:
        if error is None and rare is not None:
            self._cluster.sometimes.count(rare)

    def _take_back(self) -> None:
        """Let streams run and operators go on: the word that stops them may be late."""
        cluster = self._cluster
        cluster.world.plan(AGAIN, self._take_back)
        now = cluster.world.now
        for stream, until in self._until.items():
            order = cluster.agreement.order.streams.get(stream)
            is_sealed = order is not None and order.status is not StreamStatus.RUNNING
            if is_sealed and (cluster.is_healed or now >= until):
                self._write(stream, StreamStatus.RUNNING)
        is_paused = any(one.repository.machine.is_paused for one in self._running())
        if is_paused and (cluster.is_healed or now >= self._paused_until):
            self._set_paused(False)

    # Seals.

    def _seal(self, fault: Fault) -> None:
        """Stop a stream for a while: cuts take nothing from it, or a leader is to take nothing."""
        streams = list(self._cluster.streams)
        stream = streams[fault.target % len(streams)]
        status = StreamStatus.SEALING if fault.target // 8 % 3 == 0 else StreamStatus.SEALED
        self._write(stream, status, Rare.STREAM_SEALED)
        self._until[stream] = self._cluster.world.now + fault.duration

    def _write(self, stream: StreamId, status: StreamStatus, rare: Rare | None = None) -> None:
        order = self._cluster.view(stream)
        if order is not None:
            plan = order.plan
            row = (order.revision, order.term, order.ensemble, order.leader, status, plan)
            self._ask(UpdateStream(stream, *row), rare)

    # Pauses.

    def _pause(self, fault: Fault) -> None:
        self._set_paused(True)
        self._paused_until = self._cluster.world.now + fault.duration

    def _set_paused(self, is_paused: bool) -> None:
        for process in self._running()[:1]:
            machine = process.repository.machine
            self._ask(SetPaused(is_paused, machine.paused_revision), Rare.OPERATORS_PAUSED)

    def _running(self) -> list[MetadataProcess]:
        return [process for process in self._cluster.metadata.values() if process.is_up]

    # Topics.

    def _add_stream(self, fault: Fault) -> None:
        """Add a stream to a topic, as large as the others; it is tried until it is there."""
        cluster = self._cluster
        streams = cluster.agreement.order.streams
        if not streams or len(cluster.streams) >= STREAMS_MAX:
            return
        pattern = list(streams.values())[fault.target % len(streams)]
        nodes = [node for node, one in cluster.storage.items() if one.state is not State.GONE]
        size = len(pattern.ensemble)
        if len(nodes) < size:
            return
        first = fault.target // 8 % (len(nodes) - size + 1)
        new = NewStream(StreamId(max(cluster.streams) + 1), tuple(sorted(nodes[first:])[:size]))
        cluster.streams[new.stream] = pattern.topic
        cluster.sometimes.count(Rare.STREAM_ADDED)
        cluster.set_up_also(AddStreams(pattern.topic, (new,)))

    def _retain(self, fault: Fault) -> None:
        topics = self._cluster.agreement.order.topics
        if topics:
            topic = list(topics.values())[fault.target % len(topics)]
            end = Glsn(1 + fault.target // 8 % (topic.high_watermark + 1))
            self._ask(RetainTopic(topic.topic, end, boundary_low=fault.target))
