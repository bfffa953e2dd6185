"""One node of a simulated metadata repository, on the real store and a simulated disk.

Invariants:
  N1  outputs are carried out as ``core.metadata.repository`` says, and looked at before they leave
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.messages import CommitResult, NodeReport, Share
from tidelog.core.metadata.repository import PeerMessage, Repository, RepositoryOutput
from tidelog.core.raft.entries import NO_INDEX
from tidelog.errors import LogError, RevisionConflict
from tidelog.testing.journal import Happened
from tidelog.testing.raft_disk import RaftDisk
from tidelog.testing.raft_process import beginning
from tidelog.testing.raft_witness import RaftWitness
from tidelog.testing.sometimes import Rare
from tidelog.testing.world import MILLISECOND, Process
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.log_cluster import LogCluster

TICK: Final = 10 * MILLISECOND
VALIDATE_EVERY: Final = 16
"""The order machine's full self-check is made every so many looks."""


class MetadataProcess(Process):
    """A metadata node and who waits for it."""

    __slots__ = (
        "_cluster",
        "_disk",
        "_draws",
        "_looked_at",
        "_looks",
        "_waiting",
        "repository",
        "witness",
        "writes",
    )

    def __init__(self, cluster: LogCluster, node: NodeId) -> None:
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
        self.repository: Repository
        self.writes = 0
        """How many entries this node asked to be written, to see that an idle one asks for none."""
        self._looks = 0
        self._looked_at = NO_INDEX
        self._waiting: dict[int, tuple[Change, Callable[[LogError | None], None]]] = {}
        cluster.add(self, disk)

    def on_start(self) -> None:
        stored = self._disk.open(beginning(self._cluster.metadata_nodes))
        cluster = self._cluster
        self.repository = Repository(self.node, stored, cluster.options, self._draws.randrange)
        self._looked_at = NO_INDEX
        self._waiting.clear()
        cluster.agreement.on_restart(self.node)
        self.after(self._draws.randrange(TICK), self._tick)
        self.settle()

    def on_stop(self, *, power_lost: bool) -> None:
        self.witness.stopped()
        disk = self._cluster.disks[self.node]
        if power_lost:
            disk.lose_power()
        else:
            disk.keep()

    def receive(self, message: PeerMessage | NodeReport) -> None:
        """Take a message of another metadata node or of a storage node."""
        if isinstance(message, NodeReport):
            if message.version < self.repository.machine.order.version:
                self._cluster.sometimes.count(Rare.STALE_REPORT_ANSWERED)
            self.repository.report(message)
        else:
            self.repository.step(message)
        self.settle()

    # What operators and clients ask for.

    def ask(self, change: Change, answered: Callable[[LogError | None], None]) -> None:
        """Ask for a change; ``answered`` is called with its outcome unless the node dies."""
        self._waiting[self.repository.ask(change)] = (change, answered)
        self.settle()

    def read(self, context: int) -> None:
        """Ask for a linearizable look at the metadata."""
        self.world.journal.note(Happened.READ, self.node, context)
        self.repository.read(context)
        self.settle()

    # The host's duties.

    def _tick(self) -> None:
        self.after(TICK, self._tick)
        self.repository.tick()
        self._cluster.look_at_collectors(self.repository.machine)
        self.settle()

    def _written(self, sequence: int) -> None:
        self.repository.written(sequence)
        self.settle()

    def settle(self) -> None:
        """Carry out all that the node wants done."""
        repository = self.repository
        while repository.has_output:
            self._carry_out(repository.take())
        self.witness.look(repository.raft)

    def _carry_out(self, output: RepositoryOutput) -> None:
        cluster = self._cluster
        if output.write is not None:
            self.witness.asked(output.write)
            self.writes += len(output.write.entries)
            if output.write.snapshot is not None:
                self._look_at_snapshot(replaces_log=output.write.replaces_log)
        self.witness.look(self.repository.raft)
        self._look_at_order()
        for message in output.to_peers:
            if not isinstance(message, Share):
                self.witness.says(message)
            cluster.network.send(self.node, message.target, message)
        for answer in output.to_storage:
            if isinstance(answer, CommitResult):
                cluster.bounded.on_commit_result(answer)
            cluster.network.send(self.node, answer.target, answer)
        for outcome in output.answers:
            change, answered = self._waiting.pop(outcome.number)
            if outcome.error is None or isinstance(outcome.error, RevisionConflict):
                cluster.answers.on_answer(self.node, change)
            # Later, for who is answered may ask again, and this output is not carried out yet.
            self.world.plan(0, partial(answered, outcome.error))
        self._serve_reads(output)
        if output.write is not None:
            # Last, for a crash inside this call must not leave the rest undone.
            self._disk.add(output.write)

    def _look_at_snapshot(self, *, replaces_log: bool) -> None:
        sometimes = self._cluster.sometimes
        sometimes.count(Rare.SNAPSHOT_INSTALLED if replaces_log else Rare.COMPACTED)
        if replaces_log:
            self._cluster.agreement.on_restart(self.node)

    def _look_at_order(self) -> None:
        machine, applied = self.repository.machine, self.repository.raft.applied
        if applied == self._looked_at:
            return
        self._looked_at = applied
        self._cluster.agreement.on_applied(self.node, machine, applied)
        self._cluster.bounded.on_order(self.node, machine.order)
        self._looks += 1
        if self._looks % VALIDATE_EVERY == 0:
            machine.order.validate()

    def _serve_reads(self, output: RepositoryOutput) -> None:
        cluster = self._cluster
        for context in output.reads:
            if cluster.reads.serve(self.node, context, self.repository.raft.applied):
                cluster.sometimes.count(Rare.LINEARIZABLE_READ)
        for context in output.lost_reads:
            cluster.sometimes.count(Rare.READ_LOST)
            cluster.reads.end(context)
