"""Three real replicas of one stream, each over a real disk; the test plays network and operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import cast

from tests.storage_replica.twin import STREAM, TOPIC, data_of, open_disk
from tidelog.core.order.commands import CreateTopic, Cut, NewStream, Quorum, UpdateStream
from tidelog.core.order.machine import OrderMachine
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    Message,
    Role,
    ToReplica,
)
from tidelog.core.replica.options import Appended, ReplicaOptions
from tidelog.core.replica.replica import Replica
from tidelog.errors import LogError
from tidelog.formats.entry import Entry, Kind
from tidelog.storage.compaction import compact_major
from tidelog.storage.replica_batches import flaw_in_data
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.testing.disk import Choice, SimDisk
from tidelog.types import FIRST_LLSN, Llsn, NodeId, ProducerId, Term, TopicId

OPERATOR = NodeId(99)
NODES = (NodeId(1), NodeId(2), NodeId(3))
OPTIONS = ReplicaOptions(recent_bytes_max=256, message_bytes_max=512)
"""Small, so that followers are served from the store."""


@dataclass(slots=True)
class Host:
    """One node: its disk, its replica, and what it sends."""

    node: NodeId
    sim: SimDisk = field(default_factory=SimDisk)
    sent: list[Message] = field(default_factory=list)
    ordered: Llsn = FIRST_LLSN
    lives: int = 0
    disk: ReplicaDisk = field(init=False)
    replica: Replica = field(init=False)
    _sequences: dict[int, int] = field(default_factory=dict)
    """Number of a write → its sequence in the replica."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.lives += 1
        self.disk = open_disk(self.sim.vfs(), phase=f"{self.node} life {self.lives}")
        stored = self.disk.stored(STREAM)
        self.ordered = stored.context.llsn_end
        reader = self.disk.reader(STREAM)
        self.replica = Replica(self.node, STREAM, stored, reader, OPTIONS)
        self.replica.joined(self.disk.settled_index(STREAM))
        self.sent.clear()
        self._sequences.clear()

    def crash(self, kept: Choice) -> None:
        self.disk.node.close()
        self.sim = self.sim.after_crash(kept)
        self.start()

    def settle(self) -> None:
        while self.replica.has_output:
            output = self.replica.take()
            if output.write is not None:
                for batch in output.write.batches:
                    assert flaw_in_data(batch) is None
                number = self.disk.begin(STREAM, TOPIC, output.write)
                self._sequences[number] = output.write.sequence
            self.sent.extend(output.messages)
            self.ordered = output.ordered or self.ordered
        self.replica.validate()

    def sync(self) -> None:
        if not self.disk.has_begun:
            return
        durable = self.disk.sync()
        done = [number for number in self._sequences if number <= durable]
        if done:
            self.replica.written(self._sequences[max(done)])
            for number in done:
                del self._sequences[number]
        self.settle()

    def flush(self) -> None:
        if STREAM not in self.disk.node.streams:
            return
        self.disk.roll()
        while self.disk.node.flush_oldest():
            pass
        self.replica.joined(self.disk.settled_index(STREAM))

    def compact(self) -> None:
        """As a host may: only what the replica knows to be ordered, and nobody is being filled."""
        store = self.disk.node.streams.get(STREAM)
        if store is None or not self.replica.is_complete or self.replica.is_filling:
            return
        if self.disk.has_begun or store.ordered_end != self.ordered or store.ordered_end == 1:
            return
        store.take_snapshot()
        self.replica.compacted(Llsn(store.snapshot.index))
        self.flush()
        compact_major(store, full=True)
        store.sweep()
        self.settle()


@dataclass(slots=True)
class Group:
    """The nodes, the metadata repository, and the log as clients know it."""

    chance: Random
    hosts: dict[NodeId, Host] = field(init=False)
    order: OrderMachine = field(default_factory=OrderMachine)
    had_leader: bool = False
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """First LLSN → value, of appends that were ordered."""
    _waiting: dict[int, bytes] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self.hosts = {node: Host(node) for node in NODES}
        self.order.step(CreateTopic(TopicId(1), (NewStream(STREAM, NODES),)))

    # --- network ---

    def deliver(self, *, loss: float = 0.0) -> None:
        """Deliver what is on its way; some of it is lost."""
        for host in self.hosts.values():
            messages, host.sent = host.sent, []
            for message in messages:
                target = self.hosts.get(message.target)
                if target is not None and self.chance.random() >= loss:
                    target.replica.step(cast(ToReplica, message))
                    target.settle()

    def settle(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            for host in self.hosts.values():
                host.sync()
                host.replica.tick()
                host.settle()
            self.deliver()

    # --- operator ---

    def elect(self, *, first: bool = False) -> bool:
        """Hold an election; False if too few are complete."""
        row = self.order.stream(STREAM)
        term = Term(row.term + 1)
        self._write_row(term, NodeId(0))
        heads: list[FollowerHead] = []
        hads: list[EntryId | None] = []
        for host in self.hosts.values():
            request = FenceRequest(OPERATOR, host.node, STREAM, term, is_first=first)
            answer = self._ask(host, request)
            assert isinstance(answer, FenceResponse)
            heads.append(FollowerHead(answer.source, answer.head, answer.is_complete))
            hads.append(answer.had)
        complete = [each for each in heads if each.is_complete]
        if len(complete) < 2:
            return False
        best = max(complete, key=lambda each: each.head)
        others = tuple(each for each in heads if each.node != best.node)
        lead = BecomeLeaderRequest(
            OPERATOR, best.node, STREAM, term, NODES, Quorum.MAJORITY, others
        )
        assert isinstance(self._ask(self.hosts[best.node], lead), BecomeLeaderResponse)
        self._write_row(term, best.node)
        return True

    def _ask(self, host: Host, request: FenceRequest | BecomeLeaderRequest) -> Message:
        host.replica.step(request)
        host.settle()
        for _ in range(4):
            host.sync()
        answers = [message for message in host.sent if message.target == OPERATOR]
        host.sent = [message for message in host.sent if message.target != OPERATOR]
        return answers[-1]

    def _write_row(self, term: Term, leader: NodeId) -> None:
        row = self.order.stream(STREAM)
        self.order.step(
            UpdateStream(STREAM, row.revision, term, row.ensemble, leader, row.status, b"")
        )

    @property
    def leader(self) -> Host | None:
        leading = [h for h in self.hosts.values() if h.replica.role is Role.LEADER]
        return max(leading, key=lambda host: host.replica.term) if leading else None

    # --- clients and order ---

    def append(self) -> None:
        leader = self.leader
        if leader is None:
            return
        self._number += 1
        value = f"value {self._number}".encode() * 3
        key = f"k{self._number % 5}".encode() if self.chance.random() < 0.5 else b""
        kind = Kind.PUT if key else Kind.APPEND
        data = data_of([Entry(kind, value, key)])
        try:
            answer = leader.replica.append(
                data, 1, producer=ProducerId(1 + self._number % 3), sequence=self._number
            )
        except LogError:
            return
        if isinstance(answer, Appended):
            self._waiting[answer.llsn_begin] = value
        leader.settle()

    def cut(self) -> None:
        """Order what a quorum reports, and tell everybody."""
        for host in self.hosts.values():
            report = host.replica.report()
            if report is not None:
                self.order.step(report)
        self.order.step(Cut())
        for host in self.hosts.values():
            commits = self.order.commits_after(STREAM, host.replica.version)
            if commits is None:
                host.replica.fall_behind(self.order.version)
            else:
                host.replica.commit(commits, self.order.version)
            host.settle()
        leader = self.leader
        if leader is not None:
            for llsn in [llsn for llsn in self._waiting if llsn < leader.ordered]:
                self.acknowledged[llsn] = self._waiting.pop(llsn)

    def crash(self, node: NodeId) -> None:
        was_leader = self.hosts[node].replica.role is Role.LEADER
        self.hosts[node].crash(self.chance.choice([Choice.LOST, Choice.KEPT]))
        if was_leader:
            self._waiting.clear()

    def lose_disk(self, node: NodeId) -> None:
        """The node gives its replica up, as if its files were damaged."""
        host = self.hosts[node]
        if STREAM in host.disk.node.streams and host.disk.stored(STREAM).hard_state is not None:
            host.disk.give_up(STREAM)
            host.disk.sync()
            self.crash(node)

    def heal(self) -> None:
        """Let all go well until all replicas are complete and equal."""
        for _ in range(20):
            if self.leader is None and not self.elect():
                raise AssertionError("no quorum is complete")
            self.settle(10)
            self.cut()
            self.settle(10)
            replicas = [host.replica for host in self.hosts.values()]
            ends = {(one.head, one.context.llsn_end) for one in replicas}
            ends |= {(one.durable_head, one.durable_context.llsn_end) for one in replicas}
            if len(ends) == 1 and all(one.is_complete for one in replicas):
                return
            if self.chance.random() < 0.2:
                self.elect()
        raise AssertionError("the replicas do not become equal")
