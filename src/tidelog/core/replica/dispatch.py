"""Which part of a replica takes which message.  No state."""

from __future__ import annotations

from typing import TypeAlias

from tidelog.core.replica.leading import Leading
from tidelog.core.replica.messages import (
    AbortRequest,
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderRequest,
    CommitRequest,
    CutsRequest,
    CutsResponse,
    DropRequest,
    FenceRequest,
    PrepareRequest,
    Reason,
    Refusal,
    SnapshotRequest,
    StatusRequest,
    StatusResponse,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
    ToReplica,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.roles import FromLeader, Roles
from tidelog.core.replica.soundness import is_nonsense
from tidelog.core.replica.state import State
from tidelog.types import Version

ToLeader: TypeAlias = (
    TruncateResponse
    | AddEntriesResponse
    | AddEntriesRefusal
    | SyncRequest
    | SyncInitResponse
    | SyncEntriesResponse
)
"""What only the leader of a term is sent."""

Change: TypeAlias = PrepareRequest | CommitRequest | AbortRequest
Order: TypeAlias = FenceRequest | BecomeLeaderRequest | SnapshotRequest | DropRequest | Change
"""What an operator asks for in a term; to ask for it in an older one is in vain."""


class Dispatch:
    """Hands each message to who it concerns."""

    __slots__ = ("_roles", "_state")

    def __init__(self, state: State, roles: Roles) -> None:
        self._state = state
        self._roles = roles

    def step(self, message: ToReplica) -> None:
        """Take in a message; one that makes no sense is ignored and counted."""
        state = self._state
        if (message.target, message.stream) != (state.node, state.stream):
            state.ignore(Ignored.WRONG_TARGET)
        elif is_nonsense(message):
            state.ignore(Ignored.NONSENSE)
        else:
            self._hand_over(message)
            self._roles.apply_cuts()

    def _hand_over(self, message: ToReplica) -> None:
        match message:
            case AddEntriesRequest() | TruncateRequest() | SyncInitRequest() | SyncEntriesRequest():
                self._from_leader(message)
            case (
                AddEntriesResponse()
                | AddEntriesRefusal()
                | TruncateResponse()
                | SyncRequest()
                | SyncInitResponse()
                | SyncEntriesResponse()
            ):
                self._to_leader(message)
            case Refusal():
                self._refusal(message)
            case CutsRequest():
                self._cuts_request(message)
            case CutsResponse():
                self._roles.ordering.catch_up(message)
            case StatusRequest():
                self._status(message)
            case AddFollowerRequest():
                self._add_follower(message)
            case _:
                self._order(message)

    # --- words of operators ---

    def _order(self, request: Order) -> None:
        roles = self._roles
        if self._has_passed(request):
            self._state.refuse(request, Reason.TERM_PASSED)
            return
        match request:
            case FenceRequest():
                roles.fence(request)
            case BecomeLeaderRequest():
                roles.lead(request)
            case SnapshotRequest():
                roles.fill_up(request)
            case DropRequest():
                roles.drop(request)
            case _:
                self._change(request)

    def _has_passed(self, request: Order) -> bool:
        """Whether a request is of a term that is over (T1)."""
        return request.term < self._state.term

    def _change(self, request: Change) -> None:
        changing = self._roles.changing
        if changing is None:
            self._state.refuse(request, Reason.NOT_LEADER)
            return
        match request:
            case PrepareRequest():
                changing.prepare(request)
            case CommitRequest():
                changing.commit(request)
            case AbortRequest():
                changing.abort(request)

    def _add_follower(self, request: AddFollowerRequest) -> None:
        """All terms of a reign are as good: an older one of them has not passed."""
        state, leading, follower = self._state, self._roles.leading, request.follower
        if leading is None or not leading.is_of_reign(request.term):
            passed = request.term < state.term
            state.refuse(request, Reason.TERM_PASSED if passed else Reason.NOT_LEADER)
        elif follower.node not in leading.ensemble or follower.node == state.node:
            state.refuse(request, Reason.NOT_MEMBER)
        else:
            leading.add(follower)
            state.promise(
                AddFollowerResponse(*state.address(request.source), request.term, follower.node)
            )

    def _status(self, request: StatusRequest) -> None:
        state, leading = self._state, self._roles.leading
        state.promise(
            StatusResponse(
                *state.address(request.source),
                request.term,
                state.term,
                self._roles.role,
                self._roles.leader,
                state.log.head,
                state.is_complete,
                leading.ensemble if leading is not None else (),
                leading.attached if leading is not None else (),
                Version(state.settled_context.version),
            )
        )

    # --- words between replicas ---

    def _from_leader(self, message: FromLeader) -> None:
        following = self._roles.follow(message)
        if following is None:
            return
        match message:
            case AddEntriesRequest():
                self._roles.end_idle_filling()
                following.add_entries(message)
            case TruncateRequest():
                self._roles.end_idle_filling()
                following.truncate(message)
            case SyncInitRequest():
                self._roles.begin_filling(message, following)
            case SyncEntriesRequest():
                self._roles.take_part(message)

    def _to_leader(self, message: ToLeader) -> None:
        leading = self._roles.leading
        if leading is None or not leading.is_of_reign(message.term):
            self._state.ignore(Ignored.LATE)
            return
        match message:
            case AddEntriesResponse():
                leading.acknowledge(message)
            case AddEntriesRefusal():
                leading.refused(message)
            case TruncateResponse():
                leading.truncated(message)
            case SyncRequest():
                self._sync_request(message, leading)
            case SyncInitResponse():
                leading.begun(message)
            case SyncEntriesResponse():
                leading.received(message)

    def _sync_request(self, request: SyncRequest, leading: Leading) -> None:
        """Fill up a follower that is to be filled up, or the new node of a change."""
        changing = self._roles.changing
        is_newcomer = changing is not None and changing.newcomer == request.source
        if is_newcomer and self._lacks_cuts():
            self._state.ignore(Ignored.BEHIND)
        elif is_newcomer or request.source in leading.sources:
            leading.fill(request.source)
        else:
            self._state.ignore(Ignored.UNKNOWN_SENDER)

    def _lacks_cuts(self) -> bool:
        """Whether the old node of a change may be the last one that knows some cuts."""
        return self._roles.ordering.is_behind

    def _refusal(self, refusal: Refusal) -> None:
        """A leader that hears of a later term stops to lead (T1)."""
        leading = self._roles.leading
        if leading is not None and self._tells_later_term(refusal):
            self._roles.step_down()
        elif leading is not None and leading.is_of_reign(refusal.term):
            if refusal.reason is Reason.COMPACTED:
                self._roles.make_way(refusal.source)
            else:
                leading.lost(refusal)
        else:
            self._state.ignore(Ignored.LATE)

    def _tells_later_term(self, refusal: Refusal) -> bool:
        return refusal.known_term > self._state.term

    def _cuts_request(self, request: CutsRequest) -> None:
        """What is ordered never changes, so whoever knows more may tell it."""
        leading = self._roles.leading
        if not self._state.is_complete:
            self._state.ignore(Ignored.LATE)
        elif self._roles.ordering.answer(request):
            pass
        elif leading is not None:
            leading.serve_anew(request.source)
        elif self._lacks_cuts():
            self._state.ignore(Ignored.BEHIND)
        else:
            self._state.refuse(request, Reason.COMPACTED)
