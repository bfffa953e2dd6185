"""One node of a simulated Raft group: the core, its store on a simulated disk, a tiny machine.

Invariants:
  N1  outputs are carried out as ``core.raft.output`` says, and looked at before they leave
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from tidelog.core.raft.entries import (
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    Index,
    Membership,
    Snapshot,
    SnapshotHead,
)
from tidelog.core.raft.messages import Message
from tidelog.core.raft.node import Raft
from tidelog.core.raft.options import Refused
from tidelog.core.raft.output import Output, ReadReady
from tidelog.testing.journal import Happened
from tidelog.testing.raft_disk import RaftDisk
from tidelog.testing.raft_witness import RaftWitness
from tidelog.testing.sometimes import Rare
from tidelog.testing.violation import Violation
from tidelog.testing.world import MILLISECOND, Process
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.raft_cluster import RaftCluster

TICK: Final = 10 * MILLISECOND
SNAPSHOT_PADDING: Final = bytes(range(256)) * 4
"""Makes a snapshot take more than one chunk."""


class Chain(msgspec.Struct, array_like=True):
    """The state machine: how much was applied, and a checksum of all of it in its order."""

    index: Index = NO_INDEX
    value: int = 0

    def apply(self, entry: Entry) -> None:
        """Take the next entry."""
        self.index = entry.index
        self.value = crc32(entry.data, self.value ^ entry.term)

    def snapshot(self) -> bytes:
        """Return all of it."""
        return msgspec.msgpack.encode(self) + SNAPSHOT_PADDING

    @classmethod
    def restore(cls, data: bytes) -> Chain:
        """Go on from a snapshot; no data is the very beginning."""
        if not data:
            return cls()
        return msgspec.msgpack.decode(data[: -len(SNAPSHOT_PADDING)], type=cls)


class RaftProcess(Process):
    """A member of the group, or a machine that may become one."""

    __slots__ = (
        "_cluster",
        "_disk",
        "_draws",
        "_waiting",
        "_waiting_reads",
        "machine",
        "raft",
        "witness",
    )

    def __init__(self, cluster: RaftCluster, node: NodeId) -> None:
        super().__init__(cluster.world, node)
        disk = cluster.new_disk(node)
        self._cluster = cluster
        self._draws = cluster.chance.stream("raft", node)
        self.witness = RaftWitness(node, cluster.group)
        self._disk = RaftDisk(
            self,
            disk,
            self.witness,
            cluster.plan,
            cluster.chance.stream("sync", node),
            self._written,
        )
        self.raft: Raft
        self.machine = Chain()
        self._waiting: dict[Index, Entry] = {}
        self._waiting_reads: list[ReadReady] = []
        cluster.add(self, disk)

    def on_start(self) -> None:
        stored = self._disk.open(self._cluster.first_snapshot(self.node))
        self.raft = Raft(self.node, stored, self._cluster.options, self._draws.randrange)
        self.machine = Chain.restore(stored.snapshot.data)
        self._waiting.clear()
        self._waiting_reads.clear()
        self.after(self._draws.randrange(TICK), self._tick)
        self.settle()

    def on_stop(self, *, power_lost: bool) -> None:
        self.witness.stopped()
        disk = self._cluster.disks[self.node]
        if power_lost:
            disk.lose_power()
        else:
            disk.keep()

    def receive(self, message: Message) -> None:
        """Take a message of another node."""
        self.raft.step(message)
        self.settle()

    # What clients ask for.

    def propose(self, data: bytes) -> Index | Refused:
        """Propose a command; the cluster is told when it is applied here."""
        index = self.raft.propose(data)
        if not isinstance(index, Refused):
            entry = Entry(index, self.raft.term, EntryKind.COMMAND, data)
            self._waiting[index] = entry
            self.world.journal.note(Happened.PROPOSE, self.node, index, self.raft.term)
        self.settle()
        return index

    def read(self, context: int) -> None:
        """Ask for a linearizable read."""
        self.world.journal.note(Happened.READ, self.node, context)
        self.raft.read(context)
        self.settle()

    # The host's duties.

    def _tick(self) -> None:
        self.after(TICK, self._tick)
        self.raft.tick()
        self.settle()

    def _written(self, sequence: int) -> None:
        self.raft.written(sequence)
        self.settle()

    def settle(self) -> None:
        """Carry out all that the node wants done."""
        raft = self.raft
        while raft.has_output:
            self._carry_out(raft.take())
        self.witness.look(raft)

    def _carry_out(self, output: Output) -> None:
        if output.write is not None:
            self.witness.asked(output.write)
        self.witness.look(self.raft)
        network = self._cluster.network
        for message in output.messages:
            self.witness.says(message)
            network.send(self.node, message.target, message)
        if output.install is not None:
            self._install(output.install)
        for entry in output.committed:
            self._apply(entry)
        self._waiting_reads.extend(output.reads)
        for context in output.lost_reads:
            self._cluster.sometimes.count(Rare.READ_LOST)
            self._cluster.reads.end(context)
        if self._waiting_reads:
            self._serve_reads()
        self._compact()
        if output.write is not None:
            # Last, for a crash inside this call must not leave the rest undone.
            self._disk.add(output.write)

    def _apply(self, entry: Entry) -> None:
        cluster = self._cluster
        cluster.group.safety.on_apply(self.node, entry)
        if entry.index != self.machine.index + 1:
            raise Violation(
                "raft_safety", f"node {self.node} applies {entry} after {self.machine.index}"
            )
        self.machine.apply(entry)
        cluster.on_apply(self.node, entry, self.machine.value)
        proposed = self._waiting.pop(entry.index, None)
        if proposed is not None and proposed.term == entry.term:
            cluster.on_acknowledge(self.node, entry)

    def _install(self, snapshot: Snapshot) -> None:
        cluster = self._cluster
        cluster.group.safety.on_install(self.node, snapshot)
        cluster.sometimes.count(Rare.SNAPSHOT_INSTALLED)
        cluster.journal.note(Happened.INSTALL, self.node, snapshot.head.index, snapshot.head.term)
        self.machine = Chain.restore(snapshot.data)
        cluster.check_machine(self.node, self.machine)
        for index in [index for index in self._waiting if index <= snapshot.head.index]:
            del self._waiting[index]

    def _serve_reads(self) -> None:
        applied = self.machine.index
        for read in self._waiting_reads:
            if read.index <= applied and self._cluster.reads.serve(
                self.node, read.context, applied
            ):
                self._cluster.sometimes.count(Rare.LINEARIZABLE_READ)
                self.world.journal.note(Happened.SERVE, self.node, read.context, applied)
        self._waiting_reads = [read for read in self._waiting_reads if read.index > applied]

    def _compact(self) -> None:
        every = self._cluster.compact_every
        if every and self.machine.index - self.witness.log.head.index >= every:
            self._cluster.sometimes.count(Rare.COMPACTED)
            self.raft.compact(self.machine.index, self.machine.snapshot())


def beginning(voters: tuple[NodeId, ...]) -> Snapshot:
    """Return what the first voters of a group begin with, and without voters who joins it."""
    return Snapshot(SnapshotHead(NO_INDEX, NO_TERM, Membership(voters)), b"")
