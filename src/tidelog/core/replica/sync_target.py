"""A replica that is filled up by its leader.

Invariants:
  Z1  a replica that gave its log up or is filled in part is not complete, and that is in the same
      write; it knows the head of the log that it had
  Z2  what this log has in common with the leader's is kept, if the leader's log reaches back to
      it: it may have been acknowledged, and counted when a cut was made
  Z3  entries arrive in order; LLSNs are left out only up to the leader's snapshot index
  Z4  the replica becomes complete with the context, in one write, at the head that the leader
      had when it began (T10)
  Z5  what is not ordered here is not kept if the leader may have compacted some of it: nobody
      would ever tell the GLSNs of the dead
  Z6  cuts that are known here stay known until the leader's, which are more, come in their place:
      the order layer counts on them, and may have forgotten them
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.messages import (
    SnapshotResponse,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
)
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.state import State
from tidelog.core.replica.sync_state import decode_sync_state
from tidelog.types import NO_LLSN, NO_NODE, Llsn, NodeId, Version


class SyncTarget:
    """One synchronisation, from the request or the leader's first word to the last part."""

    __slots__ = (
        "_init",
        "_is_done",
        "_needed",
        "_ordered_end",
        "_place",
        "_state",
        "_waited_ticks",
        "asker",
        "leader",
    )

    def __init__(
        self, state: State, leader: NodeId, needed: EntryId = NO_ENTRY, asker: NodeId = NO_NODE
    ) -> None:
        self._state = state
        self.leader = leader
        self._needed = needed
        self.asker = asker
        """The operator that waits for it, if one does."""
        self._init: SyncInitRequest | None = None
        self._is_done = False
        self._place = NO_LLSN
        """Entries before it are here."""
        self._ordered_end = NO_LLSN
        """GLSNs before it are here."""
        self._waited_ticks = 0

    def ask(self) -> None:
        """Ask the leader to begin."""
        state = self._state
        self._waited_ticks = 0
        state.promise(SyncRequest(*state.address(self.leader), state.term))

    def tick(self) -> None:
        """Let time pass: ask again while the leader has not begun."""
        self._waited_ticks += 1
        is_waiting = self._init is None and not self._state.is_complete
        if is_waiting and self._waited_ticks >= self._state.options.resend_ticks:
            self.ask()

    # --- the beginning ---

    def begin(self, request: SyncInitRequest) -> bool:
        """Cut what the leader does not have, and say what is missing; say whether it began."""
        number = self._init.number if self._init is not None else 0
        if request.number < number or (request.number == number and self._is_done):
            self._state.ignore(Ignored.LATE)
            return False
        is_new = request.number > number
        if is_new and not self._suffices(request):
            self._state.ignore(Ignored.CONTRADICTION)
            return False
        if is_new:
            self._begin(request)
        self._state.promise(
            SyncInitResponse(
                *self._state.address(self.leader),
                request.term,
                request.number,
                self._place,
                self._ordered_end,
            )
        )
        return is_new

    def _suffices(self, request: SyncInitRequest) -> bool:
        """Whether the leader has what was asked for, and all that is settled here."""
        needed_end = max(self._needed.llsn + 1, self._settled_end(request))
        return needed_end <= request.head.llsn + 1

    def _settled_end(self, request: SyncInitRequest) -> Llsn:
        """The end of what is ordered here, is known to be committed, or is the leader's own."""
        state, end = self._state, self._state.context.llsn_end
        if not state.is_complete:
            return end
        if self._is_of_present_reign(request):
            return state.log.end
        return Llsn(max(end, state.commit + 1))

    def _is_of_present_reign(self, request: SyncInitRequest) -> bool:
        """Whether the log ends with an entry of this leader, and so is a part of its log (T5)."""
        return self._state.log.head.term >= request.reign

    def _begin(self, request: SyncInitRequest) -> None:
        state = self._state
        if self._may_hold_dead(request):
            state.go_to(request.term, is_complete=False)  # Only the ordered part is kept then.
        end = self._kept_end(request)
        self._init, self._is_done = request, False
        state.break_promises()  # What was to be said of the log may be true no longer.
        if self._may_keep(end, request):
            state.cut_to(end)
        else:
            state.go_to(request.term, is_complete=False)
            self._give_up(request)
        state.is_filling = True
        self._place = max(state.log.end, request.first)
        self._ordered_end = max(state.context.llsn_end, request.first)

    def _may_hold_dead(self, request: SyncInitRequest) -> bool:
        """Whether entries are here without GLSNs that the leader has left out since (Z5)."""
        ordered_end = self._state.context.llsn_end
        return ordered_end <= request.snapshot_index and ordered_end < self._state.log.end

    def _kept_end(self, request: SyncInitRequest) -> Llsn:
        """The end of what this log surely has in common with the leader's (Z2)."""
        state, end = self._state, self._settled_end(request)
        if not state.is_complete:
            return end
        leaders = ReplicaLog(request.first, Llsn(request.head.llsn + 1), request.terms)
        return max(end, state.log.common_end(leaders))

    def _may_keep(self, end: Llsn, request: SyncInitRequest) -> bool:
        """Whether the leader's log goes on where the kept part ends (Z2)."""
        return self._state.is_sound and max(request.first, self._state.log.first) <= end

    def _give_up(self, request: SyncInitRequest) -> None:
        """Make room for entries beyond our log; the last part trims what is left of it (Z6)."""
        state = self._state
        ordered_end = state.context.llsn_end
        if state.is_sound and state.log.first <= ordered_end:
            state.cut_to(ordered_end)
        else:
            state.begin_anew(request.first)

    # --- the parts ---

    def receive(self, request: SyncEntriesRequest) -> bool:
        """Store a part if it is the next one; say whether it was the last."""
        state, init = self._state, self._init
        if init is None or request.number != init.number:
            self._answer_unknown(request)
            return False
        is_last = False
        if not self._is_done and request.begin == self._place:
            if self._tells_known_cuts(request):
                self.ask()
                return False
            if not self._fits(request, init):
                state.ignore(Ignored.NONSENSE)
                return False
            is_last = request.context is not None
            self._store(request, init)
        state.promise(
            SyncEntriesResponse(
                *state.address(self.leader), request.term, request.number, self._place
            )
        )
        return is_last

    def _answer_unknown(self, request: SyncEntriesRequest) -> None:
        """A part of a synchronisation that was forgotten in a crash: it has to begin anew."""
        if self._init is None or request.number > self._init.number:
            self.ask()
        else:
            self._state.ignore(Ignored.LATE)

    def _tells_known_cuts(self, request: SyncEntriesRequest) -> bool:
        """Whether the leader goes by an older answer to the same beginning: it has to begin anew.

        It gets none if a late word ended what was begun, and a repeated one began it again.
        """
        return any(run.llsn_begin < self._ordered_end for run in request.runs)

    def _fits(self, request: SyncEntriesRequest, init: SyncInitRequest) -> bool:
        """Whether a part is what the beginning announced (Z3)."""
        end = init.head.llsn + 1
        is_last = request.context is not None
        ordered_end = min(request.end, init.context.llsn_end)
        return (
            request.end <= end
            and is_last == (request.end == end)
            and (request.context in (None, init.context))
            and leaves_out_only_up_to(init.snapshot_index, request)
            and all(run.llsn_end <= ordered_end for run in request.runs)
            and (not is_last or is_state_of(init, request.state))
            and self._rises(request.batches)
        )

    def _rises(self, batches: Sequence[Batch]) -> bool:
        """Whether the terms of batches go on from those of our log."""
        return not batches or batches[0].term >= self._state.log.head.term

    def _store(self, request: SyncEntriesRequest, init: SyncInitRequest) -> None:
        state = self._state
        sync_state = decode_sync_state(request.state) if request.context is not None else None
        state.go_to(request.term, is_complete=state.is_complete and sync_state is not None)
        state.fill(request.batches, request.runs, request.end)
        self._place = request.end
        self._ordered_end = max(self._ordered_end, request.end)
        if sync_state is not None:
            state.install(sync_state.filled, init.context, init.first, sync_state.state)
            state.go_to(request.term, is_complete=True)
            state.is_filling, self._is_done = False, True

    # --- the end ---

    def answer(self, asker: NodeId) -> None:
        """Tell an operator that the snapshot is here, once it is durable."""
        state = self._state
        if asker == NO_NODE:
            return
        state.promise(
            SnapshotResponse(
                *state.address(asker),
                state.term,
                state.log.head,
                Version(state.settled_context.version),
            )
        )


def is_state_of(init: SyncInitRequest, data: bytes) -> bool:
    """Whether the last part's state is of the log that was announced."""
    state = decode_sync_state(data)
    return (
        state is not None
        and state.filled.end == init.head.llsn + 1
        and state.filled.snapshot_index == init.snapshot_index
        and state.filled.terms == init.terms
    )


def leaves_out_only_up_to(snapshot_index: Llsn, request: SyncEntriesRequest) -> bool:
    """Whether a part has all entries beyond a snapshot index."""
    place = request.begin
    for batch in request.batches:
        if batch.llsn_begin > max(place, snapshot_index + 1):
            return False
        place = batch.llsn_end
    return request.end <= max(place, snapshot_index + 1)
