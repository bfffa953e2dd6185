"""One storage node: the real replicas and hosting over a modelled disk.

Invariants:
  N1  outputs are carried out as ``core.replica.output`` says, and looked at before they leave
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tidelog.core.metadata.messages import Collect, CommitResult
from tidelog.core.replica.hosting import Hosting, Unheard
from tidelog.core.replica.messages import Message, Role, SyncEntriesRequest, TruncateRequest
from tidelog.core.replica.output import Output, Write
from tidelog.core.replica.replica import Appended, Replica
from tidelog.errors import Busy, ProducerConflict
from tidelog.testing.checkers.stream_safety import Holder
from tidelog.testing.clients import Ack, Append
from tidelog.testing.journal import Happened
from tidelog.testing.sometimes import Rare
from tidelog.testing.storage_disk import StorageDisk
from tidelog.testing.world import MILLISECOND, Process, State
from tidelog.types import FIRST_LLSN, Llsn, NodeId, StreamId, Term

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster, ToStorageNode

TICK: Final = 20 * MILLISECOND
VALIDATE_EVERY: Final = 16
"""A replica's full self-check is made every so many looks."""


class StorageProcess(Process):
    """The replicas of one node and its one disk."""

    __slots__ = (
        "_cluster",
        "_delays",
        "_ends",
        "_looks",
        "_truncations",
        "_waiting",
        "disk",
        "hosting",
        "replicas",
    )

    def __init__(self, cluster: LogCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        self._cluster = cluster
        self._delays = cluster.chance.stream("sync", node)
        self._looks = 0
        self.disk = StorageDisk(
            self,
            cluster.plan,
            self._delays,
            cluster.chance.stream("disk", node),
            cluster.sometimes,
            self._written,
        )
        self._begin_life()

    def _begin_life(self) -> None:
        self.replicas: dict[StreamId, Replica] = {}
        self.hosting = Hosting(self.node, self.replicas.get)
        self._waiting: dict[StreamId, list[tuple[Llsn, Append]]] = {}
        """Appends that clients wait for, with their first LLSN."""
        self._ends: dict[tuple[StreamId, Ack], Llsn] = {}
        """How far each of a leader's streams is stored, propagated and ordered, as it says."""
        self._truncations: dict[tuple[StreamId, Term, NodeId], TruncateRequest] = {}

    def on_start(self) -> None:
        self._begin_life()
        self._cluster.safety.on_restart(self.node)
        for stream in self.disk.streams():
            self._cluster.contexts.on_recovery(self.node, stream, self.disk.seen(stream))
            self._replica(stream)
        self.after(self._delays.randrange(TICK), self._tick)

    def on_stop(self, *, power_lost: bool) -> None:
        self.disk.lose(power_lost=power_lost)
        self._begin_life()

    def _replica(self, stream: StreamId) -> Replica:
        """Return the replica of a stream; an empty one is no member of anything."""
        replica = self.replicas.get(stream)
        if replica is None:
            image = self.disk.seen(stream)
            options = self._cluster.replica_options
            replica = Replica(self.node, stream, image.stored(), image, options)
            self.replicas[stream] = replica
            self._ends[stream, Ack.ORDERED] = image.context.llsn_end
        return replica

    def holder(self, stream: StreamId) -> Holder:
        """Return all that checkers want to know of a replica."""
        return Holder(
            self.node,
            self.replicas.get(stream),
            self.disk.seen(stream),
            self.disk.durable(stream),
            self.state is State.GONE,
        )

    # Time.

    def _tick(self) -> None:
        self.after(TICK, self._tick)
        for stream, replica in list(self.replicas.items()):
            replica.tick()
            self._settle(stream, replica)
        self.disk.flush()
        self.hosting.tick()
        self._report()

    # Clients.

    def append(self, append: Append) -> bool:
        """Take an append, if the stream's leader is here."""
        replica = self.replicas.get(append.stream)
        if replica is None:
            return False
        try:
            answer = replica.append(
                append.data, append.count, producer=append.producer, sequence=append.sequence
            )
        except (ProducerConflict, Busy):
            # A late try of an append that was answered long ago, or too much waits.
            return False
        if not isinstance(answer, Appended):
            return False
        if answer.is_repeated:
            self._cluster.sometimes.count(Rare.APPEND_REPEATED)
        self._waiting.setdefault(append.stream, []).append((answer.llsn_begin, append))
        self._settle(append.stream, replica)
        self._answer_clients(append.stream, replica)
        self._report()
        return True

    def append_carelessly(self, stream: StreamId, data: bytes, count: int) -> None:
        """Take an append that nobody waits for, if the stream's leader is here."""
        replica = self.replicas.get(stream)
        if replica is not None:
            with suppress(Busy):
                replica.append(data, count)
            self._settle(stream, replica)

    def trim(self, stream: StreamId, llsn: Llsn, *, waits: bool) -> None:
        """Delete what is ordered before the batch of an entry."""
        replica, batch = self.replicas.get(stream), self.disk.seen(stream).batch_at(llsn)
        if replica is not None and batch is not None and not (waits and replica.is_filling):
            self._count_filling(replica)
            replica.trim(batch.llsn_begin)
            self._settle(stream, replica)

    def compact(self, stream: StreamId, snapshot_index: Llsn, *, waits: bool) -> None:
        """Let dead entries go, if all of the replica is durable."""
        replica, image = self.replicas.get(stream), self.disk.durable(stream)
        if replica is None or not replica.is_complete or not self.disk.is_clean(stream):
            return
        if waits and replica.is_filling:
            return  # Others are told what is live here.
        index = Llsn(min(snapshot_index, image.context.llsn_end - 1))
        if index > image.snapshot_index:
            self._cluster.sometimes.count(Rare.REPLICA_COMPACTED)
            self._count_filling(replica)
            self.disk.compact(stream, index)
            replica.compacted(index)
            self._settle(stream, replica)

    def _count_filling(self, replica: Replica) -> None:
        if replica.is_filling:
            self._cluster.sometimes.count(Rare.SHORTENED_WHILE_FILLING)

    # Messages.

    def receive(self, message: ToStorageNode) -> None:
        """Take a message."""
        match message:
            case Collect():
                self.hosting.collect(message)
                self._check_ends()
            case CommitResult():
                self._on_commits(message)
            case _:
                replica = self._replica(message.stream)
                replica.step(message)
                self._settle(message.stream, replica)
        self._report()

    def _on_commits(self, result: CommitResult) -> None:
        before = self.hosting.unheard.get(Unheard.NO_NEWS, 0)
        self.hosting.commits(result)
        self._check_ends()  # Readers may look before the replicas are settled.
        if self.hosting.unheard.get(Unheard.NO_NEWS, 0) > before:
            self._cluster.sometimes.count(Rare.COMMIT_REPEATED)
        for stream, replica in list(self.replicas.items()):
            if replica.has_output:
                self._settle(stream, replica)

    def _check_ends(self) -> None:
        self._cluster.contexts.on_hosted(self.node, self.hosting.newest, self.hosting.ends)

    def _written(self, stream: StreamId, sequence: int) -> None:
        replica = self.replicas.get(stream)
        if replica is not None:
            replica.written(sequence)
            self._settle(stream, replica)
        self._report()

    # The host's duties.

    def _settle(self, stream: StreamId, replica: Replica) -> None:
        """Carry out all that a replica wants done."""
        while replica.has_output:
            self._carry_out(stream, replica, replica.take())
        if replica.is_awaited:
            self.disk.flush()
        self._look(stream, replica)
        self.hosting.touched(stream)

    def _carry_out(self, stream: StreamId, replica: Replica, output: Output) -> None:
        if output.write is not None:
            self._write(stream, output.write)
        self._look(stream, replica)
        if output.deposed:
            self._cluster.sometimes.count(Rare.LEADER_DEPOSED)
            self._waiting.pop(stream, None)
            self._ends.pop((stream, Ack.STORED), None)
            self._ends.pop((stream, Ack.PROPAGATED), None)
        self._note_progress(stream, output)
        for message in output.messages:
            self._count(message)
            self._cluster.network.send(self.node, message.target, message)
        self._answer_clients(stream, replica)

    def _write(self, stream: StreamId, write: Write) -> None:
        cluster = self._cluster
        cluster.safety.on_write(self.node, stream, write)
        if write.context is not None:
            self.world.journal.note(
                Happened.COMMIT, self.node, write.context.version, write.context.llsn_end, write
            )
            cluster.contexts.on_context(self.node, stream, write.context)
        if write.truncate_to is not None:
            cluster.sometimes.count(Rare.REPLICA_TRUNCATED)
        self.disk.add(stream, write)
        if write.runs:
            topic = cluster.streams[stream]
            cluster.values.on_ordered(self.node, topic, stream, write.runs, self.disk.seen(stream))

    def _look(self, stream: StreamId, replica: Replica) -> None:
        self._cluster.look_at_replica(stream, self)
        self._looks += 1
        if self._looks % VALIDATE_EVERY == 0:
            replica.validate()
            self.hosting.validate()

    def _count(self, message: Message) -> None:
        match message:
            case TruncateRequest():
                key = (message.stream, message.term, message.target)
                if self._truncations.setdefault(key, message) != message:
                    self._cluster.sometimes.count(Rare.TRUNCATION_LOOPED)
            case SyncEntriesRequest(context=context) if context is not None:
                self._cluster.sometimes.count(Rare.REPLICA_SYNCHRONISED)
            case _:
                pass

    def _report(self) -> None:
        while self.hosting.has_output:
            for report in self.hosting.take():
                count = len(report.reports)
                self.world.journal.note(Happened.REPORT, self.node, report.target, count)
                self._cluster.network.send(self.node, report.target, report)

    def _note_progress(self, stream: StreamId, output: Output) -> None:
        told = {
            Ack.STORED: output.stored,
            Ack.PROPAGATED: output.propagated,
            Ack.ORDERED: output.ordered,
        }
        for ack, end in told.items():
            if end is not None:
                self._ends[stream, ack] = end

    def _answer_clients(self, stream: StreamId, replica: Replica) -> None:
        """Tell clients what became of their appends."""
        waiting = self._waiting.get(stream)
        if not waiting or replica.role is not Role.LEADER:
            return
        left: list[tuple[Llsn, Append]] = []
        for llsn, append in waiting:
            if llsn + append.count <= self._ends.get((stream, append.ack), FIRST_LLSN):
                self._cluster.clients.on_acknowledged(self, append, llsn)
            else:
                left.append((llsn, append))
        self._waiting[stream] = left
