"""Clients of a simulated cluster: they append as producers, try again, trim and compact.

Invariants:
  L1  a producer has one append under way, and tries it again until it is answered
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.testing.checkers.acked_entries import check_acknowledged
from tidelog.testing.checkers.real_time import AckedAppend, check_real_time
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND
from tidelog.types import NO_NODE, Llsn, NodeId, ProducerId, StreamId, TopicId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster
    from tidelog.testing.storage_process import StorageProcess

PAUSE_MEAN: Final = 30 * MILLISECOND
PATIENCE_MEAN: Final = 150 * MILLISECOND
PRODUCERS_PER_STREAM: Final = 4
WAITS_FOR_FILLING: Final = 0.7
"""So often a log is not trimmed or compacted while others are filled up from it."""


class Ack(Enum):
    """What a client waits for."""

    STORED = "stored"
    PROPAGATED = "propagated"
    ORDERED = "ordered"


ACKS: Final = (Ack.STORED, Ack.PROPAGATED, Ack.ORDERED, Ack.ORDERED, Ack.ORDERED)


class Append:
    """One append, however often it is tried."""

    __slots__ = (
        "ack",
        "count",
        "data",
        "invoked_at",
        "is_answered",
        "producer",
        "sequence",
        "stream",
        "tries",
    )

    def __init__(
        self,
        stream: StreamId,
        producer: ProducerId,
        sequence: int,
        *,
        count: int,
        ack: Ack,
        invoked_at: int,
    ) -> None:
        self.stream = stream
        self.producer = producer
        self.sequence = sequence
        self.count = count
        self.ack = ack
        self.invoked_at = invoked_at
        self.data = f"{stream}/{producer}/{sequence}".encode()
        self.is_answered = False
        self.tries = 0


class Clients:
    """All clients of one seed."""

    __slots__ = (
        "_acked",
        "_appends",
        "_cluster",
        "_draws",
        "_is_stopped",
        "_routes",
        "_sequences",
        "_stray",
        "_tries",
        "ordered",
    )

    def __init__(self, cluster: LogCluster) -> None:
        self._cluster = cluster
        self._draws = cluster.chance.stream("clients")
        self._tries = cluster.chance.stream("clients", "tries")
        self._sequences: dict[ProducerId, int] = {}
        self._appends: dict[ProducerId, Append] = {}
        self._routes: dict[StreamId, NodeId] = {}
        self._acked: dict[TopicId, list[AckedAppend]] = {}
        self._is_stopped = False
        self._stray = 0
        self.ordered: dict[StreamId, Llsn] = {}
        """The last append of each stream that its client knows to be ordered since the healing."""

    def start(self) -> None:
        """Begin to ask for things."""
        self._cluster.world.plan(self._draws.randrange(50 * MILLISECOND), self._ask_something)

    def stop(self) -> None:
        """Ask for nothing new; what is under way is tried until it is answered."""
        self._is_stopped = True

    @property
    def is_answered(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._appends

    def check_real_time(self) -> None:
        """Check the order of all appends that were answered with their GLSNs."""
        for appends in self._acked.values():
            check_real_time(appends)

    # Appends.

    def _ask_something(self) -> None:
        if self._is_stopped:
            return
        draws, cluster = self._draws, self._cluster
        cluster.world.plan(1 + int(draws.expovariate(1.0) * PAUSE_MEAN), self._ask_something)
        what = draws.random()
        if what < 0.1:
            cluster.read_somewhere(draws.randrange(1 << 30))
        elif what < 0.4 and cluster.plan.compacts:
            self._maintain()
        stream = draws.choice(list(cluster.streams))
        producer = ProducerId(stream * 100 + draws.randrange(PRODUCERS_PER_STREAM) + 1)
        count, ack = draws.choice((1, 1, 5)), draws.choice(ACKS)
        if producer not in self._appends:
            sequence = self._sequences[producer] = self._sequences.get(producer, 0) + 1
            append = Append(
                stream, producer, sequence, count=count, ack=ack, invoked_at=cluster.world.now
            )
            self._appends[producer] = append
            self._try(append)

    def append_to(self, process: StorageProcess, stream: StreamId) -> None:
        """Append something without a producer, and do not care what becomes of it."""
        self._stray += 1
        data = f"{stream}/stray/{self._stray}".encode()
        process.append_carelessly(stream, data, 1 + self._stray % 3)

    def _try(self, append: Append) -> None:
        """Send an append to who seems to lead, again and again (L1)."""
        if append.is_answered:
            return
        append.tries += 1
        cluster = self._cluster
        patience = 20 * MILLISECOND + int(self._tries.expovariate(1.0) * PATIENCE_MEAN)
        cluster.world.plan(patience, partial(self._try, append))
        leader = cluster.storage.get(self._route(append))
        if leader is not None:
            cluster.world.let(leader, partial(self._send, leader, append))

    def _route(self, append: Append) -> NodeId:
        """Return who leads a stream, as far as clients know: often who led it before."""
        stream = append.stream
        if append.tries > 1 or self._tries.random() < 0.3 or stream not in self._routes:
            order = self._cluster.view(stream)
            if order is not None and order.leader != NO_NODE:
                self._routes[stream] = order.leader
        return self._routes.get(stream, NO_NODE)

    def _send(self, process: StorageProcess, append: Append) -> None:
        if not append.is_answered:
            process.append(append)

    def on_acknowledged(self, process: StorageProcess, append: Append, llsn: Llsn) -> None:
        """Tell a client that its append is where it wanted it."""
        if append.is_answered:
            return
        append.is_answered = True
        del self._appends[append.producer]
        cluster = self._cluster
        cluster.sometimes.count(Rare.APPEND_ACKNOWLEDGED)
        cluster.journal.note(Happened.ACKNOWLEDGE, process.node, llsn, append.producer)
        if append.ack is Ack.STORED:
            return
        check_acknowledged(cluster.safety, append.stream, llsn, append.data)
        if append.ack is Ack.ORDERED:
            self._on_ordered(process, append, llsn)

    def _on_ordered(self, process: StorageProcess, append: Append, llsn: Llsn) -> None:
        cluster = self._cluster
        image = process.disk.durable(append.stream)
        runs = image.runs(llsn, Llsn(llsn + 1)) or ()
        topic = cluster.streams[append.stream]
        for run in runs:
            acked = AckedAppend(run.glsn_begin, append.invoked_at, cluster.world.now)
            self._acked.setdefault(topic, []).append(acked)
        if cluster.is_healed:
            self.ordered[append.stream] = llsn

    # Trims and compactions.

    def _maintain(self) -> None:
        """Trim or compact one replica; the others do so at other times, or never."""
        draws, cluster = self._draws, self._cluster
        stream, back = draws.choice(list(cluster.streams)), draws.randrange(1, 30)
        order = cluster.agreement.order.streams.get(stream)
        nodes = list(cluster.storage) if order is None else order.ensemble
        process = cluster.storage[draws.choice(nodes)]
        is_trim = draws.random() < 0.3
        ordered = cluster.agreement.llsn_end(stream)
        if ordered > back:
            act = process.trim if is_trim else process.compact
            place, waits = Llsn(ordered - back), draws.random() < WAITS_FOR_FILLING
            cluster.world.let(process, partial(act, stream, place, waits=waits))
