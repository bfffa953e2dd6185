"""The roles of a replica, and how one follows another.

What a replica has in every role is its ``State``; what it has only in one lives in an object that
is made when the role begins and dropped when it ends.

Invariants:
  N1  a leader has a leading and a changing, a follower a following, and no replica has both
  N2  a replica leads a term only if it was fenced in it in this life, and only once (T3)
  N3  a follower's term lies at or above the reign that it follows (T2)
"""

from __future__ import annotations

from typing import TypeAlias

from tidelog.core.order.commands import Report
from tidelog.core.replica.changing import Changing
from tidelog.core.replica.following import Following
from tidelog.core.replica.leading import Leading
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    DropRequest,
    DropResponse,
    FenceRequest,
    FenceResponse,
    Reason,
    Role,
    SnapshotRequest,
    SyncEntriesRequest,
    SyncInitRequest,
    TruncateRequest,
)
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.ordering import Ordering
from tidelog.core.replica.state import State
from tidelog.core.replica.sync_target import SyncTarget
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, NO_LLSN, NO_NODE, NO_TERM, Llsn, NodeId, Version

FromLeader: TypeAlias = TruncateRequest | AddEntriesRequest | SyncInitRequest | SyncEntriesRequest
"""What only the leader of a term sends."""


class Roles:
    """What a replica is to its stream, and what makes it another."""

    __slots__ = (
        "_asked",
        "_electable",
        "_state",
        "changing",
        "following",
        "leading",
        "ordering",
        "target",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self.ordering = Ordering(state)
        self.leading: Leading | None = None
        self.changing: Changing | None = None
        self.following: Following | None = None
        self.target: SyncTarget | None = None
        self._asked = 0
        self._electable = NO_TERM
        """The term that it was fenced in in this life, until it leads or follows in it (N2)."""

    @property
    def role(self) -> Role:
        """What it is to the stream at the moment."""
        if not self._state.is_member:
            return Role.NOT_MEMBER
        if self.leading is not None:
            return Role.LEADER
        return Role.FENCED if self.following is None else Role.FOLLOWER

    @property
    def leader(self) -> NodeId:
        """Who leads, if known."""
        if self.leading is not None:
            return self._state.node
        return self.following.leader if self.following is not None else NO_NODE

    # --- time and durability ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        if self.leading is not None:
            self.leading.tick()
        if self.target is not None:
            self.target.tick()
        if self.ordering.is_behind and self._state.is_complete:
            self._ask_for_cuts()

    def _ask_for_cuts(self) -> None:
        """Ask the leader for missing cuts; a leader asks the others, one after the other.

        It may be one that is about to leave, or has other entries, who alone knows them.
        """
        peer, term = self.leader, self._state.term
        if self.leading is not None:
            term = self.leading.term
            others = [node for node in self.leading.ensemble if node != self._state.node]
            self._asked += 1
            peer = others[self._asked % len(others)] if others else NO_NODE
        if peer != NO_NODE:
            self.ordering.request(peer, term)

    def settle(self) -> None:
        """Do what had to wait until something was durable or committed."""
        if self.leading is not None:
            self.leading.settle()
        elif self.following is not None:
            self.following.settle()
        self.apply_cuts()

    def apply_cuts(self) -> None:
        """Commit what cuts prove to be on a quorum, and apply those that can be (T8)."""
        llsn = min(self.ordering.proven, self._agreed)
        if self.leading is not None:
            self.leading.commit_to(llsn)
        else:
            self._state.commit_to(llsn)
        self.ordering.apply()

    @property
    def _agreed(self) -> Llsn:
        """Up to here our log is surely that of our term's leader."""
        if self.leading is not None:
            return Llsn(self._state.log.end - 1)
        return self.following.matched if self.following is not None else NO_LLSN

    def report(self) -> Report | None:
        """Tell what may be ordered next; a fenced replica is silent, and one in a new term (T7)."""
        state, leading, following = self._state, self.leading, self.following
        if leading is not None:
            end, committed_end = Llsn(state.log.end - 1), Llsn(state.commit + 1)
            return self.ordering.report(leading.term, leading.reign, end, committed_end)
        if following is None or not following.is_matched or not state.writes.hard_state_durable:
            return None
        return self.ordering.report(state.term, following.reign, following.matched)

    # --- fenced ---

    def fence(self, request: FenceRequest) -> None:
        """End all older terms; say what the log is like."""
        state = self._state
        if request.term > state.term:
            self.step_down()
            is_first = request.is_first and state.log.end == FIRST_LLSN
            state.go_to(request.term, is_complete=state.is_complete or is_first)
            self._electable = request.term
        elif self.role is not Role.FENCED:
            state.refuse(request, self._role_or_none())
            return
        state.promise(
            FenceResponse(
                *state.address(request.source),
                request.term,
                state.log.head,
                state.is_complete,
                Version(state.settled_context.version),
                state.had,
                self.ordering.is_behind,
            )
        )

    def step_down(self) -> None:
        """End whatever role there was; what was not said in it stays unsaid."""
        if self.leading is not None:
            self._state.deposed = True
        self._state.break_promises()
        self._state.is_filling = False
        self.leading = self.changing = self.following = self.target = None
        self._electable = NO_TERM

    def make_way(self, other: NodeId) -> None:
        """Another one cannot tell this leader the cuts that it misses: let that one lead (T11)."""
        cursor = self.leading.cursors.get(other) if self.leading is not None else None
        is_able = cursor is not None and cursor.may_lead_next(self._state.log.end)
        if is_able and self.ordering.is_behind:
            self.step_down()
        else:
            self._state.ignore(Ignored.LATE)

    def _role_or_none(self) -> Reason:
        return Reason.ROLE if self._state.is_member else Reason.NOT_MEMBER

    # --- leader ---

    def lead(self, request: BecomeLeaderRequest) -> None:
        """Lead the term that the replica was fenced in; who leads already goes on."""
        state = self._state
        if self.leading is None or self.leading.reign != request.term:
            reason = self._why_not_lead(request)
            if reason is not None:
                state.refuse(request, reason)
                return
            self._electable = NO_TERM
            self.leading = Leading(state, request)
            self.changing = Changing(state, self.leading)
        state.promise(BecomeLeaderResponse(*state.address(request.source), request.term))

    def _why_not_lead(self, request: BecomeLeaderRequest) -> Reason | None:
        state = self._state
        if request.term > state.term or not state.writes.hard_state_durable:
            return Reason.NOT_FENCED
        if state.node not in request.ensemble:
            return Reason.NOT_MEMBER
        if self.role is not Role.FENCED:
            return self._role_or_none()
        if not self._was_fenced_in_this_life(request):
            return Reason.LED_BEFORE
        return None if state.is_complete else Reason.INCOMPLETE

    def _was_fenced_in_this_life(self, request: BecomeLeaderRequest) -> bool:
        """Whether no entry of this term can have been written and lost (T3)."""
        return self._electable == request.term

    # --- follower ---

    def follow(self, message: FromLeader) -> Following | None:
        """Follow the sender if its terms and ours are of one reign (T1, T2)."""
        state = self._state
        reason = self._why_not_follow(message)
        if reason is not None:
            state.refuse(message, reason)
            return None
        if self._has_another_leader(message):
            state.ignore(Ignored.SECOND_LEADER)
            return None
        state.go_to(message.term)
        if self.following is None:
            self._electable = NO_TERM
            self.following = Following(state, message.source, message.reign)
        return self.following

    def _why_not_follow(self, message: FromLeader) -> Reason | None:
        if self.has_passed(message):
            return Reason.TERM_PASSED
        if not self._state.is_member:
            return Reason.NOT_MEMBER
        return None if self._was_fenced_by_election(message) else Reason.NOT_FENCED

    def has_passed(self, request: FromLeader) -> bool:
        """Whether a request is of a term that is over (T1)."""
        return request.term < self._state.term

    def _was_fenced_by_election(self, message: FromLeader) -> bool:
        """Whether the leader's election knows of us: its reign began at or before our term (T2)."""
        return message.reign <= self._state.term

    def _has_another_leader(self, message: FromLeader) -> bool:
        """Whether somebody else leads, or is to fill this replica up, in these terms."""
        following, target = self.following, self.target
        if following is not None:
            return (following.leader, following.reign) != (message.source, message.reign)
        return self.leading is not None or (target is not None and target.leader != message.source)

    # --- filled up ---

    def fill_up(self, request: SnapshotRequest) -> None:
        """Be filled up by a leader, for an operator that waits for it."""
        state = self._state
        if request.term > state.term:
            self.step_down()
            state.go_to(request.term, is_complete=False)
        elif not state.is_member or self.leader not in (NO_NODE, request.leader):
            state.refuse(request, self._role_or_none())
            return
        if state.is_complete:
            self._answer_snapshot(request)
        elif self.target is None:
            self._ask_to_be_filled(request)
        else:
            self.target.asker = request.source

    def _ask_to_be_filled(self, request: SnapshotRequest) -> None:
        if self.target is None:
            self.target = SyncTarget(self._state, request.leader, request.head, request.source)
        self.target.asker = request.source
        self.target.ask()

    def _answer_snapshot(self, request: SnapshotRequest) -> None:
        """The replica is complete: say so again, if it has what the snapshot must have."""
        if not self._state.log.contains(request.head):
            self._state.refuse(request, Reason.ROLE)
        elif self._state.settled_context.version >= request.version:
            SyncTarget(self._state, request.leader).answer(request.source)
        elif not self._state.is_filling:
            # Its leader, who was behind then, may have heard of these cuts by now.
            self._ask_to_be_filled(request)

    def begin_filling(self, request: SyncInitRequest, following: Following) -> None:
        """The leader begins to fill the replica up."""
        if self.target is None:
            self.target = SyncTarget(self._state, request.source)
        if self.target.begin(request):
            following.begin_anew()

    def end_idle_filling(self) -> None:
        """The leader serves the replica from its log: end a synchronisation that stored nothing.

        It was begun by a late message, or the leader's will be: then it has to begin anew.
        """
        if self._state.is_filling and self._state.is_complete:
            self._state.is_filling, self.target = False, None

    def take_part(self, request: SyncEntriesRequest) -> None:
        """A part of a synchronisation has arrived."""
        if self.target is None:
            self.target = SyncTarget(self._state, request.source)
        if self.target.receive(request):
            self.ordering.replaced()
            self.target.answer(self.target.asker)

    # --- not a member ---

    def drop(self, request: DropRequest) -> None:
        """Delete the replica; a leader is none to be dropped."""
        state = self._state
        if self.leading is not None:
            state.refuse(request, Reason.ROLE)
            return
        if state.is_member or request.term > state.term:
            self.step_down()
            self.ordering.forget()
            state.drop(request.term)
        state.promise(DropResponse(*state.address(request.source), request.term))

    # --- checks ---

    def validate(self) -> None:
        """Check every invariant, at the cost of looking at the whole log."""
        state, following = self._state, self.following
        check(self.leading is None or following is None, "N1: a replica leads and follows")
        check((self.leading is None) == (self.changing is None), "N1: half of a leader is left")
        check(self._electable in (NO_TERM, state.term), "N2: it may lead a term that is over")
        if following is not None:
            check(following.reign <= state.term, "N3: the reign began after the replica's term")
        parts = (state, self.ordering, self.leading, self.changing, following)
        flaws = (part.flaw() for part in parts if part is not None)
        flaw = next((flaw for flaw in flaws if flaw is not None), None)
        check(flaw is None, flaw or "")
