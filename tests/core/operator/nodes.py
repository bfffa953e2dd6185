"""Storage nodes as an operator meets them: the answers of docs/protocol.md, over a log in memory.

Replication and truncation are one step here: only what operators bring about is under test.
"""

from __future__ import annotations

from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.messages import (
    AbortRequest,
    AbortResponse,
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    CommitRequest,
    CommitResponse,
    DropRequest,
    DropResponse,
    FenceRequest,
    FenceResponse,
    FromOperator,
    PrepareRequest,
    PrepareResponse,
    Reason,
    Refusal,
    Role,
    SnapshotRequest,
    SnapshotResponse,
    StatusRequest,
    StatusResponse,
    ToOperator,
)
from tidelog.types import NO_NODE, NO_VERSION, Llsn, NodeId, StreamId, Term


class Node:
    """One node's replica of one stream."""

    def __init__(self, node: NodeId, stream: StreamId) -> None:
        self.node = node
        self.stream = stream
        self.is_up = True
        self.version = NO_VERSION
        """The last cut that it knows."""
        self.forget_all()

    def forget_all(self) -> None:
        """The log is damaged, and nobody knows what was in it."""
        self.had: EntryId | None = None
        self.term = Term(0)
        self.log: list[EntryId] = []
        self.is_complete = False
        self._begin_life()

    def restart(self) -> None:
        """Term, log and completeness are durable, nothing else is."""
        self._begin_life()

    def _begin_life(self) -> None:
        self.role = Role.FENCED if self.term else Role.NOT_MEMBER
        self.reign = Term(0)
        self.entered = Term(0)
        """The last term that it went to in this life."""
        self.ensemble: tuple[NodeId, ...] = ()
        self.cursors: dict[NodeId, Node | None] = {}
        self.confirmed: dict[NodeId, int] = {}
        self.commit = 0
        self.inherited = 0
        """How long the log was when it was elected."""
        self.change: tuple[ChangeKind, NodeId, NodeId] | None = None
        self.applied_in = Term(0)
        self.aborted_in = Term(0)
        self.wanted: SnapshotRequest | None = None

    @property
    def head(self) -> EntryId:
        return self.log[-1] if self.log else NO_ENTRY

    @property
    def leads(self) -> bool:
        return self.is_up and self.role is Role.LEADER

    # -- the log ----------------------------------------------------------------------------------

    def append(self) -> None:
        assert self.leads
        self.log.append(EntryId(self.term, Llsn(len(self.log) + 1)))
        self.settle()

    def replicate(self, peers: dict[NodeId, Node]) -> None:
        """Bring every follower that takes it up to this leader's log."""
        for node in self.cursors:
            if self.change is not None and node == self.change[1]:
                continue
            if peers[node].follow(self):
                self.confirmed[node] = len(self.log)
            elif peers[node].is_up and peers[node].term < self.reign:
                self.confirmed.pop(node, None)  # It says that it knows nothing of this.
        self.settle()

    def follow(self, leader: Node) -> bool:
        if not self.is_up or not leader.reign <= self.term <= leader.term or self is leader:
            return False
        if self.wanted is not None:
            return False
        self.term, self.role, self.is_complete = leader.term, Role.FOLLOWER, True
        self.log = list(leader.log)
        return True

    def settle(self) -> None:
        """Move the commit index: a majority has it, and its term is of this reign."""
        index = self.quorum_index(self.ensemble)
        if index and self.log[index - 1].term >= self.reign:
            self.commit = max(self.commit, index)

    def quorum_index(self, ensemble: tuple[NodeId, ...]) -> int:
        ends = [
            len(self.log) if node == self.node else self.confirmed.get(node, 0)
            for node in ensemble
            if self.change is None or node != self.change[1]
        ]
        ends += [0] * (len(ensemble) - len(ends))
        return sorted(ends, reverse=True)[len(ensemble) // 2]

    def synchronise(self, peers: dict[NodeId, Node]) -> None:
        """Carry out a snapshot request, if its leader still leads."""
        if self.wanted is None:
            return
        leader = peers[self.wanted.leader]
        if leader.leads and leader.term >= self.wanted.term >= leader.reign:
            self.log, self.is_complete = list(leader.log), True
            self.wanted = None

    # -- messages ---------------------------------------------------------------------------------

    def step(self, message: FromOperator) -> ToOperator | None:
        if isinstance(message, StatusRequest):
            return self._status(message)
        if message.term < self.term:
            return self._refuse(message, Reason.TERM_PASSED)
        match message:
            case FenceRequest():
                return self._on_fence(message)
            case BecomeLeaderRequest():
                return self._on_become_leader(message)
            case AddFollowerRequest():
                return self._on_add_follower(message)
            case PrepareRequest():
                return self._on_prepare(message)
            case SnapshotRequest():
                return self._on_snapshot(message)
            case CommitRequest():
                return self._on_commit(message)
            case AbortRequest():
                return self._on_abort(message)
            case DropRequest():
                return self._on_drop(message)

    def _answer(self, to: FromOperator) -> tuple[NodeId, NodeId, StreamId, Term]:
        return self.node, to.source, self.stream, to.term

    def _refuse(self, request: FromOperator, reason: Reason) -> Refusal:
        return Refusal(*self._answer(request), self.term, reason)

    def _go_to(self, term: Term) -> None:
        self.term = self.entered = term

    def _status(self, request: StatusRequest) -> StatusResponse:
        attached = tuple(node for node in sorted(self.cursors) if node in self.confirmed)
        return StatusResponse(
            *self._answer(request),
            self.term,
            self.role,
            self.node if self.leads else NO_NODE,
            self.head,
            self.is_complete,
            self.ensemble,
            attached,
            self.version,
        )

    def _on_fence(self, request: FenceRequest) -> ToOperator:
        if request.term == self.term and self.role is not Role.FENCED:
            return self._refuse(request, Reason.ROLE)
        if request.term > self.term:
            if not self.term and request.is_first:
                self.is_complete = True
            self._begin_life()
            self._go_to(request.term)
            self.role = Role.FENCED
        return FenceResponse(
            *self._answer(request), self.head, self.is_complete, self.version, self.had
        )

    def _on_become_leader(self, request: BecomeLeaderRequest) -> ToOperator:
        if self.role is not Role.LEADER or self.reign != request.term:
            if self.term != request.term:
                return self._refuse(request, Reason.NOT_FENCED)
            if self.entered != request.term:
                return self._refuse(request, Reason.LED_BEFORE)
            if self.role is not Role.FENCED:
                return self._refuse(request, Reason.ROLE)
            if not self.is_complete:
                return self._refuse(request, Reason.INCOMPLETE)
            if self.node not in request.ensemble:
                return self._refuse(request, Reason.NOT_MEMBER)
            self.role, self.reign = Role.LEADER, request.term
            self.ensemble = request.ensemble
            self.inherited = len(self.log)
            self.cursors = {follower.node: None for follower in request.followers}
        return BecomeLeaderResponse(*self._answer(request))

    def _is_leader_of(self, term: Term) -> bool:
        return self.role is Role.LEADER and self.reign <= term <= self.term

    def _on_add_follower(self, request: AddFollowerRequest) -> ToOperator:
        if not self._is_leader_of(request.term):
            return self._refuse(request, Reason.NOT_LEADER)
        if request.follower.node not in self.ensemble:
            return self._refuse(request, Reason.NOT_MEMBER)
        self.cursors.setdefault(request.follower.node, None)
        return AddFollowerResponse(*self._answer(request), request.follower.node)

    def _on_prepare(self, request: PrepareRequest) -> ToOperator:
        if self.role is not Role.LEADER:
            return self._refuse(request, Reason.NOT_LEADER)
        if request.term == self.aborted_in:
            return self._refuse(request, Reason.ABORTED)
        if request.term > self.term:
            if self.change is not None:
                return self._refuse(request, Reason.BUSY)
            self._go_to(request.term)
            self.change = (request.kind, request.old, request.new)
        return PrepareResponse(*self._answer(request), self.reign, self.head)

    def _on_snapshot(self, request: SnapshotRequest) -> ToOperator | None:
        if request.term > self.term:
            self._begin_life()
            self._go_to(request.term)
            self.role, self.is_complete, self.wanted = Role.FENCED, False, request
        if self.wanted is not None:
            return None
        return SnapshotResponse(*self._answer(request), self.head, self.version)

    def _on_commit(self, request: CommitRequest) -> ToOperator:
        if self.role is not Role.LEADER:
            return self._refuse(request, Reason.NOT_LEADER)
        if request.term == self.aborted_in:
            return self._refuse(request, Reason.ABORTED)
        if self.applied_in == request.term:
            return CommitResponse(*self._answer(request), is_done=True)
        if self.change is None or request.term != self.term:
            return self._refuse(request, Reason.NOT_PREPARED)
        ensemble = [node for node in self.ensemble if node != request.old]
        if request.new != NO_NODE:
            ensemble.append(request.new)
        if request.kind is ChangeKind.CONTRACT:
            # What older reigns left may be committed, whether this one knows it or not.
            if self.quorum_index(tuple(ensemble)) < max(self.commit, self.inherited):
                return CommitResponse(*self._answer(request), is_done=False)
        else:
            self.cursors[request.new] = None
            self.confirmed[request.new] = request.head.llsn
        self.cursors.pop(request.old, None)
        self.confirmed.pop(request.old, None)
        self.ensemble = tuple(sorted(ensemble))
        self.change, self.applied_in = None, request.term
        return CommitResponse(*self._answer(request), is_done=True)

    def _on_abort(self, request: AbortRequest) -> ToOperator:
        if self.role is not Role.LEADER:
            return self._refuse(request, Reason.NOT_LEADER)
        if self.applied_in == request.term:
            return self._refuse(request, Reason.COMMITTED)
        self._go_to(request.term)
        self.change, self.aborted_in = None, request.term
        return AbortResponse(*self._answer(request))

    def _on_drop(self, request: DropRequest) -> ToOperator:
        if self.role is Role.LEADER:
            return self._refuse(request, Reason.ROLE)
        self.forget_all()
        return DropResponse(*self._answer(request))
