"""A reconfiguration, as the leader sees it: prepared, then committed or aborted.

Invariants:
  G1  at most one is in progress, and it began with a term of its own
  G2  the leader is never removed, and nobody is added twice
  G3  a removed node's confirmations end to count when it is prepared; a new node's begin to count
      when it is committed
  G4  a contraction is committed only if all up to the commit index, and all that the old node may
      have helped to order, is on a write quorum without it that was heard of since it was prepared
"""

from __future__ import annotations

from enum import Enum

from tidelog import limits
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.leading import Leading
from tidelog.core.replica.messages import (
    AbortRequest,
    AbortResponse,
    ChangeKind,
    CommitRequest,
    CommitResponse,
    FollowerHead,
    PrepareRequest,
    PrepareResponse,
    Reason,
)
from tidelog.core.replica.state import State
from tidelog.types import NO_NODE, NodeId, Term


class Phase(Enum):
    """How far a reconfiguration got."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Change:
    """One reconfiguration."""

    __slots__ = ("head", "kind", "new", "old", "phase", "term")

    def __init__(
        self, term: Term, kind: ChangeKind, old: NodeId, new: NodeId, head: EntryId
    ) -> None:
        self.term = term
        self.kind = kind
        self.old = old
        self.new = new
        self.head = head
        """The leader's head when the old node's confirmations ended to count.

        All that older reigns committed lies at or below it, and all that a cut ordered because the
        old node had it: whether the leader knows of either or not.
        """
        self.phase = Phase.PREPARED

    def is_asked_for(self, request: PrepareRequest | CommitRequest) -> bool:
        """Whether a request is about this very change."""
        asked = (request.term, request.kind, request.old, request.new)
        return asked == (self.term, self.kind, self.old, self.new)


class Changing:
    """The reconfigurations of one reign; the last one is remembered, for requests that repeat."""

    __slots__ = ("_change", "_leading", "_state")

    def __init__(self, state: State, leading: Leading) -> None:
        self._state = state
        self._leading = leading
        self._change: Change | None = None

    @property
    def newcomer(self) -> NodeId:
        """The node that is to be filled up before it is added, if any."""
        change = self._change
        return change.new if change is not None and change.phase is Phase.PREPARED else NO_NODE

    def _find(self, request: PrepareRequest | CommitRequest) -> Change | Reason:
        """Return the change that a request is about, or why there is none."""
        change = self._change
        if change is not None and change.term == request.term and change.phase is Phase.ABORTED:
            return Reason.ABORTED
        if change is None or not change.is_asked_for(request):
            return Reason.NOT_PREPARED
        return change

    # --- prepare ---

    def prepare(self, request: PrepareRequest) -> None:
        """Go to the request's term, and stop to count who is to leave."""
        state, is_new = self._state, request.term > self._state.term
        change = self._prepare(request) if is_new else self._find(request)
        if isinstance(change, Reason):
            state.refuse(request, change)
            return
        state.promise(
            PrepareResponse(
                *state.address(request.source), request.term, self._leading.reign, change.head
            )
        )

    def _prepare(self, request: PrepareRequest) -> Change | Reason:
        if self._is_busy():
            return Reason.BUSY
        if not self._is_possible(request):
            return Reason.NOT_MEMBER
        self._state.go_to(request.term)
        self._leading.let_go(request.old)
        head = self._state.log.head
        self._change = Change(request.term, request.kind, request.old, request.new, head)
        return self._change

    def _is_busy(self) -> bool:
        """Whether another change is in progress (G1)."""
        return self._change is not None and self._change.phase is Phase.PREPARED

    def _is_possible(self, request: PrepareRequest) -> bool:
        """Whether the old node is a follower of the ensemble, and the new one a stranger (G2)."""
        ensemble, old, new = self._leading.ensemble, request.old, request.new
        leaves = old in ensemble and old != self._state.node
        joins = new != NO_NODE and new not in ensemble
        match request.kind:
            case ChangeKind.SWAP:
                return leaves and joins
            case ChangeKind.EXPAND:
                return old == NO_NODE and joins and len(ensemble) < limits.ENSEMBLE_NODES_MAX
            case ChangeKind.CONTRACT:
                return leaves and new == NO_NODE

    # --- commit ---

    def commit(self, request: CommitRequest) -> None:
        """Apply what was prepared in the request's term."""
        state, change = self._state, self._find(request)
        if isinstance(change, Reason):
            state.refuse(request, change)
            return
        if change.phase is Phase.PREPARED and self._may_commit(change):
            self._commit(change, request.head)
        is_done = change.phase is Phase.COMMITTED
        state.promise(CommitResponse(*state.address(request.source), request.term, is_done))

    def _may_commit(self, change: Change) -> bool:
        """Whether the ensemble without the old node keeps all that may be committed (G4)."""
        if change.kind is not ChangeKind.CONTRACT:
            return True
        final = self._final_ensemble(change)
        kept = self._leading.quorum_place(final)
        is_kept = kept >= max(self._state.commit, change.head.llsn)
        # Who is dead by now may have confirmed everything: without them nobody could be elected.
        return is_kept and self._leading.is_followed_in(change.term, final)

    def _final_ensemble(self, change: Change) -> tuple[NodeId, ...]:
        stay = [node for node in self._leading.ensemble if node != change.old]
        return tuple(sorted(stay if change.new == NO_NODE else [*stay, change.new]))

    def _commit(self, change: Change, head: EntryId) -> None:
        change.phase = Phase.COMMITTED
        self._leading.change_ensemble(self._final_ensemble(change))
        if change.new != NO_NODE:
            self._leading.add(FollowerHead(change.new, head, True))
            self._leading.advance_commit()

    # --- abort ---

    def abort(self, request: AbortRequest) -> None:
        """Undo what was prepared in the request's term, and let it not be prepared any more."""
        state = self._state
        reason = self._why_not_abort(request)
        if reason is not None:
            state.refuse(request, reason)
            return
        if request.term > state.term:
            self._abort_in_advance(request)
        elif self._change is not None and self._change.phase is Phase.PREPARED:
            self._undo(self._change)
        state.promise(AbortResponse(*state.address(request.source), request.term))

    def _why_not_abort(self, request: AbortRequest) -> Reason | None:
        change = self._change
        if request.term > self._state.term:
            return Reason.BUSY if self._is_busy() else None
        if change is None or change.term != request.term:
            return Reason.NOT_PREPARED
        return Reason.COMMITTED if change.phase is Phase.COMMITTED else None

    def _abort_in_advance(self, request: AbortRequest) -> None:
        """The request to prepare is still on its way: it comes too late from now on."""
        self._state.go_to(request.term)
        head = self._state.log.head
        self._change = Change(request.term, ChangeKind.CONTRACT, NO_NODE, NO_NODE, head)
        self._change.phase = Phase.ABORTED

    def _undo(self, change: Change) -> None:
        change.phase = Phase.ABORTED
        self._leading.sources.stop(change.new)
        self._leading.keep(change.old)

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        change = self._change
        if change is not None and change.term > self._state.term:
            return f"G1: a change of term {change.term} in term {self._state.term}"
        return None
