"""One node of the metadata repository: Raft, the replicated state, and its storage nodes.

Every node collects from the storage nodes assigned to it and gives the leader what is to be
ordered; the leader puts what piled up, and a cut over it, into one Raft entry; every node applies
the entry and answers its own storage nodes.  There is no timer in that path: the next batch is
what came in while the last one was on its way.

Input: ticks, messages, reports, changes asked for, completions of writes.  Output: ``take``.

Invariants:
  R1  only a leader proposes, one batch at a time; what a leader that is lost was given is offered
      again: reports until the log has them, changes until they are answered, at last as unknown
  R2  the applied state is a function of the Raft log alone
  R3  an idle cluster proposes nothing
  R4  a storage node is answered by the node that it is assigned to
  R5  the Raft log behind the snapshot is bounded in entries and in bytes: one that outgrew its file
      could neither be written to nor be opened again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from tidelog import limits
from tidelog.core.metadata.collector import Collector
from tidelog.core.metadata.commands import Batch, Change, Request, decode_batch, request_bytes
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import NodeReport, Share, ToStorage
from tidelog.core.metadata.proposing import Proposing, Unheeded
from tidelog.core.metadata.waiting import Answer, Waiting
from tidelog.core.order.commands import Report
from tidelog.core.raft.entries import Entry, EntryKind, Snapshot, Stored
from tidelog.core.raft.log import weight
from tidelog.core.raft.messages import Message
from tidelog.core.raft.node import Raft, RaftOptions
from tidelog.core.raft.output import Write
from tidelog.errors import BadOption, Busy, Rejected
from tidelog.types import NodeId

REQUEST_NUMBERS: Final = 1 << 48

PeerMessage: TypeAlias = Message | Share


class RepositoryOptions(msgspec.Struct, frozen=True):
    """The times are ticks of the host."""

    raft: RaftOptions = RaftOptions()
    snapshot_entries: int = 10_000
    """Applied entries after which the Raft log is cut off behind a snapshot."""
    snapshot_bytes: int = limits.METADATA_LOG_BYTES
    """The same in bytes, for entries may be large."""
    collect_ticks: int = 10
    """How often a storage node is asked for all of its replicas."""
    resend_ticks: int = 5
    """After which a report or a commit result that shows no effect is sent again."""
    takeover_ticks: int = 20
    """After which the storage nodes of a silent metadata node move to others."""
    leader_collects: int = 16
    """From up to so many storage nodes the leader collects alone; of more, each has its share."""
    request_ticks: int = 100
    """After which a change is answered as unknown."""


class RepositoryOutput(msgspec.Struct, frozen=True):
    """What the host is to do; see ``core.raft.output`` for ``write``."""

    to_peers: tuple[PeerMessage, ...]
    to_storage: tuple[ToStorage, ...]
    write: Write | None
    answers: tuple[Answer, ...]
    reads: tuple[int, ...]
    """Contexts of ``read`` whose state is here now."""
    lost_reads: tuple[int, ...]


class Repository:
    """A metadata node; ``take`` until ``has_output`` is false after anything was put in."""

    __slots__ = (
        "_applied_bytes",
        "_collector",
        "_delivery",
        "_machine",
        "_node",
        "_options",
        "_proposing",
        "_raft",
        "_snapshot_index",
        "_ticks",
        "_to_storage",
        "_unheeded",
        "_waiting",
    )

    def __init__(
        self,
        node: NodeId,
        stored: Stored,
        options: RepositoryOptions,
        draw: Callable[[int], int],
    ) -> None:
        self._node = node
        self._options = options
        self._raft = Raft(node, stored, options.raft, draw)
        self._machine = MetadataMachine.restore(stored.snapshot.data)
        self._snapshot_index = stored.snapshot.head.index
        self._applied_bytes = 0
        """Of the entries behind the snapshot."""
        self._collector = Collector()
        self._delivery = Delivery(node, self._machine, options.resend_ticks)
        self._waiting = Waiting(options.request_ticks, draw(REQUEST_NUMBERS))
        self._proposing = Proposing(
            self._raft,
            self._collector,
            self._waiting.unanswered,
            options.takeover_ticks,
            options.leader_collects,
        )
        self._to_storage: list[ToStorage] = []
        self._unheeded: dict[Unheeded, int] = {}
        self._ticks = 0

    # What a host and a test may look at.

    @property
    def node(self) -> NodeId:
        """The number of this node."""
        return self._node

    @property
    def raft(self) -> Raft:
        """The Raft node, for its state, membership changes and leadership transfer."""
        return self._raft

    @property
    def machine(self) -> MetadataMachine:
        """The replicated state as applied here; linearizable only after a ``read``."""
        return self._machine

    @property
    def unheeded(self) -> Mapping[Unheeded, int]:
        """How much was left without effect, by reason, since the start."""
        return MappingProxyType(self._unheeded)

    @property
    def assigned(self) -> tuple[NodeId, ...]:
        """The storage nodes that this node collects from."""
        nodes = self._machine.nodes.values()
        return tuple(sorted(node.node for node in nodes if node.collector == self._node))

    @property
    def has_output(self) -> bool:
        """Whether ``take`` would return anything."""
        return bool(
            self._raft.has_output
            or self._to_storage
            or self._waiting.has_output
            or self._proposing.is_ready(self._machine)
        )

    # Input.

    def tick(self) -> None:
        """One unit of time passed."""
        self._ticks += 1
        self._raft.tick()
        self._waiting.tick()
        self._proposing.tick(self._machine)
        self._to_storage.extend(self._delivery.tick())
        if self._ticks % self._options.resend_ticks == 0:
            self._collector.offer_again()
        if self._ticks % self._options.collect_ticks == 0:
            self._ask(self.assigned)

    def step(self, message: PeerMessage) -> None:
        """Take a message of another metadata node."""
        self._proposing.heard(message.source)
        if not isinstance(message, Share):
            self._raft.step(message)
        elif message.target == self._node:
            reason = self._proposing.take_in(message.commands, self._machine)
            if reason is not None:
                self._leave(reason)

    def report(self, message: NodeReport) -> None:
        """Take what a storage node has to report."""
        node = self._machine.nodes.get(message.source)
        if node is None or node.collector != self._node or message.target != self._node:
            self._leave(Unheeded.NOT_ASSIGNED)
            return
        self._to_storage.extend(self._delivery.reported(message))
        if self._delivery.must_tell_placements(message.source):
            self._ask((message.source,))
        for report in message.reports:
            if report.node != message.source or not self._machine.hosts(report.node, report.stream):
                self._leave(Unheeded.NO_REPLICA)
            elif self._machine.is_news(report):
                self._collector.collect(report)

    def ask(self, change: Change) -> int:
        """Ask for a change of the metadata; an ``Answer`` with the returned number follows."""
        number = self._waiting.begin()
        request = Request(self._node, number, change)
        if self._proposing.add(request):
            self._waiting.keep(request)
        else:
            self._waiting.answered(number, _refusal(request))
        return number

    def read(self, context: int) -> None:
        """Ask for a state that holds all changes answered before; it comes out as ``reads``."""
        self._raft.read(context)

    def written(self, sequence: int) -> None:
        """All writes up to this one are durable."""
        self._raft.written(sequence)

    # Output.

    def take(self) -> RepositoryOutput:
        """Hand over what is to be done."""
        share = self._proposing.propose_or_share(self._machine)
        output = self._raft.take()
        if output.install is not None:
            self._install(output.install)
        self._apply(output.committed)
        self._waiting.reads(output.reads, output.lost_reads, self._raft.applied)
        self._compact()
        to_storage, self._to_storage = tuple(self._to_storage), []
        answers, reads, lost_reads = self._waiting.take()
        return RepositoryOutput(
            to_peers=output.messages if share is None else (*output.messages, share),
            to_storage=to_storage,
            write=output.write,
            answers=answers,
            reads=reads,
            lost_reads=lost_reads,
        )

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        version = self._machine.order.version
        for entry in entries:
            self._applied_bytes += weight(entry)
            if entry.kind is EntryKind.COMMAND:
                self._apply_batch(decode_batch(entry.data))
        if self._machine.order.version > version:
            self._to_storage.extend(self._delivery.decided())

    def _apply_batch(self, batch: Batch) -> None:
        outcome = self._machine.apply(batch)
        for command in batch.commands:
            if isinstance(command, Report):
                self._collector.applied(command)
        for answer in outcome.answers:
            if answer.origin == self._node:
                self._waiting.answered(answer.number, answer.error)
        if outcome.changed_streams:
            self._collector.streams_changed(frozenset(outcome.changed_streams))
        if outcome.assigned:
            self._adopt(outcome.assigned)
        if outcome.placed:
            mine = set(self.assigned)
            self._ask(tuple(node for node in outcome.placed if node in mine))

    def _adopt(self, nodes: tuple[NodeId, ...]) -> None:
        """Act on another assignment of these nodes (R4)."""
        mine = set(self.assigned)
        for node in nodes:
            if node not in mine:
                self._collector.forget(node)
                self._delivery.forget(node)
        self._ask(tuple(node for node in nodes if node in mine))

    def _ask(self, nodes: tuple[NodeId, ...]) -> None:
        known = self._machine.nodes
        for node in nodes:
            self._to_storage.append(self._delivery.collect(node, known[node].assignment))

    def _install(self, snapshot: Snapshot) -> None:
        before = self.assigned
        self._machine = MetadataMachine.restore(snapshot.data)
        self._snapshot_index, self._applied_bytes = snapshot.head.index, 0
        self._waiting.jumped()
        self._delivery.replace_machine(self._machine)
        self._adopt(tuple(sorted({*before, *self.assigned})))
        self._to_storage.extend(self._delivery.decided())

    def _compact(self) -> None:
        if self._is_long:
            applied = self._raft.applied
            self._raft.compact(applied, self._machine.snapshot())
            self._snapshot_index, self._applied_bytes = applied, 0

    @property
    def _is_long(self) -> bool:
        """Whether it is time for a snapshot (R5)."""
        entries = self._raft.applied - self._snapshot_index
        return (
            entries >= self._options.snapshot_entries
            or self._applied_bytes >= self._options.snapshot_bytes
        )

    def _leave(self, reason: Unheeded) -> None:
        self._unheeded[reason] = self._unheeded.get(reason, 0) + 1


def _refusal(request: Request) -> Rejected:
    """Say why a change was not taken in; it is not applied."""
    size = request_bytes(request)
    if size > limits.METADATA_REQUEST_BYTES_MAX:
        return BadOption(
            f"a change of {size} bytes is larger than {limits.METADATA_REQUEST_BYTES_MAX}; "
            "make it in several steps"
        )
    return Busy(f"{limits.METADATA_REQUESTS_MAX} changes wait already; ask again later")
