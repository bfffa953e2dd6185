"""The metadata repository's replicated state: the order layer, the storage nodes, who collects.

Input: the batches of the Raft log, in its order.  Output: what each of them decides.  The same
batches give the same state on every metadata node, so each can answer its storage nodes itself
and nothing has to be handed over when the leader dies ("masterless global commit").

Invariants:
  M1  a replica is only placed on a storage node that is registered, and a storage node with a
      replica stays registered
  M2  ``hosted`` names exactly the streams in whose ensemble a storage node is
  M3  whenever that changes for a node, its ``placements`` is a number that was never given before
  M4  whenever topics, streams or storage nodes change by anything but a cut, ``changes`` rises
  M5  the revision of a storage node, a member or the pause is the number of the change that wrote
      it last, assignments apart; of a node or member that is not there: that of the last removal.
      So it never comes back, and a change that names an older one is refused for ever
  M6  what was refused for another reason is refused again when the log has it once more
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog import limits
from tidelog.core.metadata.commands import (
    Assign,
    Batch,
    NameMember,
    RegisterNode,
    Request,
    SetPaused,
    UnregisterNode,
)
from tidelog.core.metadata.refusals import Refusals
from tidelog.core.metadata.state import Member, MetadataState, StorageNode
from tidelog.core.order.commands import (
    AddStreams,
    CreateTopic,
    Cut,
    CutDecided,
    NewStream,
    RemoveStream,
    Report,
    RetainTopic,
    TopicChange,
    UpdateStream,
)
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.reports import says_more
from tidelog.errors import BadOption, CorruptData, Rejected, RevisionConflict
from tidelog.invariants import check
from tidelog.types import NO_NODE, NO_REVISION, NodeId, Revision, StreamId


class Answered(msgspec.Struct, frozen=True):
    """A change was applied, or refused with this error; the state is the same on all nodes."""

    origin: NodeId
    number: int
    error: Rejected | None


class Outcome(msgspec.Struct, frozen=True):
    """What a batch led to."""

    cuts: tuple[CutDecided, ...]
    answers: tuple[Answered, ...]
    changed_streams: tuple[StreamId, ...]
    """Streams whose ensemble, term or status is another now."""
    assigned: tuple[NodeId, ...]
    """Storage nodes that have another collector now, or none."""
    placed: tuple[NodeId, ...]
    """Storage nodes that host other streams now."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(MetadataState)


class MetadataMachine:
    """Applies batches; ``apply`` is the only way to change it."""

    __slots__ = (
        "_absent_revision",
        "_assignments",
        "_changes",
        "_hosted",
        "_is_paused",
        "_members",
        "_nodes",
        "_order",
        "_paused_revision",
        "_placed",
        "_placements",
        "_refusals",
    )

    def __init__(self) -> None:
        self._order = OrderMachine()
        self._nodes: dict[NodeId, StorageNode] = {}
        # Dicts as ordered sets.
        self._hosted: dict[NodeId, dict[StreamId, None]] = {}
        self._placed: dict[NodeId, None] = {}
        self._assignments = 0
        self._placements = 0
        self._changes = 0
        self._is_paused = False
        self._paused_revision = NO_REVISION
        self._members: dict[NodeId, Member] = {}
        self._absent_revision = NO_REVISION
        self._refusals = Refusals()

    @classmethod
    def restore(cls, data: bytes) -> MetadataMachine:
        """Go on from a snapshot; raise CorruptData if it is none.  No data: the very beginning."""
        machine = cls()
        if not data:
            return machine
        try:
            state = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise CorruptData(f"a snapshot of the metadata cannot be read: {error}") from error
        machine._order = OrderMachine.restore(state.order)
        machine._nodes = {node.node: node for node in state.nodes}
        machine._hosted = {node.node: {} for node in state.nodes}
        machine._assignments = state.assignments
        machine._placements = state.placements
        machine._changes = state.changes
        machine._is_paused = state.is_paused
        machine._paused_revision = state.paused_revision
        machine._members = {member.node: member for member in state.members}
        machine._absent_revision = state.absent_revision
        machine._refusals = Refusals(state.refused)
        for stream in state.order.streams:
            if any(node not in machine._nodes for node in stream.ensemble):
                raise CorruptData(f"M1: stream {stream.stream} lies on an unknown storage node")
            for node in stream.ensemble:
                machine._hosted[node][stream.stream] = None
        return machine

    def snapshot(self) -> bytes:
        """Return all of the state; equal for equal histories of batches."""
        nodes = tuple(self._nodes[node] for node in sorted(self._nodes))
        state = MetadataState(
            self._order.state,
            nodes,
            self._assignments,
            self._placements,
            self._changes,
            self._is_paused,
            self._paused_revision,
            tuple(self._members[node] for node in sorted(self._members)),
            self._absent_revision,
            self._refusals.known,
        )
        return _encoder.encode(state)

    @property
    def order(self) -> OrderMachine:
        """The order layer, to be read."""
        return self._order

    @property
    def nodes(self) -> Mapping[NodeId, StorageNode]:
        """The registered storage nodes."""
        return MappingProxyType(self._nodes)

    @property
    def changes(self) -> int:
        """How often topics, streams or storage nodes changed, cuts apart (M4)."""
        return self._changes

    @property
    def is_paused(self) -> bool:
        """Whether operators are to leave everything as it is."""
        return self._is_paused

    @property
    def paused_revision(self) -> Revision:
        """The revision of that."""
        return self._paused_revision

    @property
    def members(self) -> Mapping[NodeId, Member]:
        """Where nodes of the metadata repository are found, as far as they were named."""
        return MappingProxyType(self._members)

    @property
    def absent_revision(self) -> Revision:
        """The revision of every storage node and member that is not there (M5)."""
        return self._absent_revision

    def member_revision(self, node: NodeId) -> Revision:
        """What the next change of a member must have seen, be it there or not."""
        member = self._members.get(node)
        return self._absent_revision if member is None else member.revision

    def hosted(self, node: NodeId) -> tuple[StreamId, ...]:
        """Return the streams that a storage node has a replica of, in order."""
        return tuple(sorted(self._hosted.get(node, ())))

    def hosts(self, node: NodeId, stream: StreamId) -> bool:
        """Tell whether a storage node has a replica of a stream."""
        return stream in self._hosted.get(node, ())

    def is_news(self, report: Report) -> bool:
        """Tell a report from one that says no more than those in the log.

        One that was held up on its way, and after a takeover the first of every replica, says
        nothing new, and is no reason to write.
        """
        if not self.hosts(report.node, report.stream):
            return False
        order = self._order.stream(report.stream)
        if report.term != order.term:
            return report.term > order.term
        return any(
            replica.node == report.node and says_more(report, replica, order)
            for replica in order.replicas
        )

    def apply(self, batch: Batch) -> Outcome:
        """Apply a batch, command by command."""
        cuts: list[CutDecided] = []
        answers: list[Answered] = []
        changed: list[StreamId] = []
        assigned: list[NodeId] = []
        for command in batch.commands:
            match command:
                case Report() | Cut():
                    cuts.extend(self._order.step(command))
                case Request():
                    answers.append(self._answer(command, changed, assigned))
                case Assign():
                    assigned.extend(self._assign(command))
        placed = tuple(self._placed)
        self._placed.clear()
        return Outcome(tuple(cuts), tuple(answers), tuple(changed), tuple(assigned), placed)

    def _answer(
        self, request: Request, changed: list[StreamId], assigned: list[NodeId]
    ) -> Answered:
        error: Rejected | None = None
        try:
            self._refusals.refuse_repeated(request)
            match request.change:
                case RegisterNode():
                    self._register(request.change)
                case UnregisterNode():
                    self._unregister(request.change)
                    assigned.append(request.change.node)
                case SetPaused():
                    self._set_paused(request.change)
                case NameMember():
                    self._name_member(request.change)
                case _:
                    changed.extend(self._change_streams(request.change))
            self._changes += 1
        except Rejected as rejected:
            error = rejected
            if not isinstance(rejected, RevisionConflict):  # That one lasts by itself (M5).
                self._refusals.note(request)
        return Answered(request.origin, request.number, error)

    def _register(self, command: RegisterNode) -> None:
        _refuse_address(command.node, command.address)
        known = self._nodes.get(command.node)
        self._refuse_node_revision(command)
        if known is None:
            if len(self._nodes) >= limits.STORAGE_NODES_MAX:
                raise BadOption(f"a cluster has at most {limits.STORAGE_NODES_MAX} storage nodes")
            self._nodes[command.node] = StorageNode(command.node, command.address)
            self._hosted[command.node] = {}
            self._count_placement(command.node)
        else:
            self._nodes[command.node] = msgspec.structs.replace(
                known, address=command.address, revision=self._number
            )

    def _set_paused(self, command: SetPaused) -> None:
        _refuse_revision("the pause of operators", self._paused_revision, command.revision)
        self._is_paused, self._paused_revision = command.is_paused, self._number

    def _name_member(self, command: NameMember) -> None:
        node, address = command.node, command.address
        _refuse_address(node, address)
        _refuse_revision(f"metadata node {node}", self.member_revision(node), command.revision)
        if not address:
            # Also of one that was never named: what would name it, and is under way, is void.
            self._members.pop(node, None)
            self._absent_revision = self._number
        elif node in self._members or len(self._members) < limits.RAFT_MEMBERS_MAX:
            self._members[node] = Member(node, address, self._number)
        else:
            raise BadOption(f"at most {limits.RAFT_MEMBERS_MAX} metadata nodes are named")

    def _unregister(self, command: UnregisterNode) -> None:
        node = command.node
        self._refuse_node_revision(command)
        if node not in self._nodes:
            raise BadOption(f"there is no storage node {node}")
        if self._hosted[node]:
            streams = ", ".join(map(str, self.hosted(node)))
            raise BadOption(f"M1: storage node {node} holds replicas of the streams {streams}")
        del self._nodes[node], self._hosted[node]
        self._absent_revision = self._number

    @property
    def _number(self) -> Revision:
        """Of the change that is being applied."""
        return Revision(self._changes + 1)

    def _refuse_node_revision(self, command: RegisterNode | UnregisterNode) -> None:
        known = self._nodes.get(command.node)
        present = self._absent_revision if known is None else known.revision
        _refuse_revision(f"storage node {command.node}", present, command.revision)

    def _assign(self, command: Assign) -> Iterable[NodeId]:
        known = self._nodes.get(command.node)
        if known is None or known.collector == command.collector:
            return ()
        self._assignments += 1
        self._changes += 1
        self._nodes[command.node] = msgspec.structs.replace(
            known, collector=command.collector, assignment=self._assignments
        )
        return (command.node,)

    def _change_streams(self, change: TopicChange) -> Iterable[StreamId]:
        match change:
            case CreateTopic(streams=streams) | AddStreams(streams=streams):
                for new in streams:
                    self._check_registered(new.ensemble)
                self._order.step(change)
                for new in streams:
                    self._place(new.stream, (), new.ensemble)
                return map(_stream_number, streams)
            case RetainTopic():
                self._order.step(change)
                return ()
            case RemoveStream():
                before = self._order.stream(change.stream).ensemble
                self._order.step(change)
                self._place(change.stream, before, ())
            case UpdateStream():
                before = self._order.stream(change.stream).ensemble
                self._check_registered(change.ensemble)
                self._order.step(change)
                self._place(change.stream, before, change.ensemble)
        return (change.stream,)

    def _check_registered(self, ensemble: Iterable[NodeId]) -> None:
        for node in ensemble:
            if node not in self._nodes:
                raise BadOption(f"M1: there is no storage node {node}; register it first")

    def _place(
        self, stream: StreamId, before: tuple[NodeId, ...], after: tuple[NodeId, ...]
    ) -> None:
        """Keep M2 and M3 when the ensemble of a stream changes."""
        for node in before:
            check(stream in self._hosted[node], "M2: a replica was on no list")
            if node not in after:
                del self._hosted[node][stream]
                self._count_placement(node)
        for node in after:
            if node not in before:
                self._hosted[node][stream] = None
                self._count_placement(node)

    def _count_placement(self, node: NodeId) -> None:
        self._placements += 1
        self._nodes[node] = msgspec.structs.replace(
            self._nodes[node], placements=self._placements, revision=self._number
        )
        self._placed[node] = None


def _refuse_address(node: NodeId, address: str) -> None:
    if not NO_NODE < node < limits.ORDER_NUMBER_END:
        raise BadOption("a node has a number from 1 on")
    if len(address) > limits.NODE_ADDRESS_CHARS_MAX:
        raise BadOption(f"an address has at most {limits.NODE_ADDRESS_CHARS_MAX} characters")


def _refuse_revision(what: str, present: Revision, seen: Revision) -> None:
    if seen != present:
        raise RevisionConflict(f"{what} is at revision {present}, not at {seen}")


def _stream_number(stream: NewStream) -> StreamId:
    return stream.stream
