"""What a replica has only while it follows a leader: how far their logs agree.

Invariants:
  F1  all up to ``matched`` is the same in the leader's log; within a reign that only grows
  F2  only what is durable here and matched is acknowledged, and only once the term is durable
  F3  only what an older reign left is cut, and nothing that is committed
"""

from __future__ import annotations

from typing import Final

from tidelog.core.replica.entries import Batch, EntryId
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    Reason,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.core.replica.options import Ignored
from tidelog.core.replica.state import State
from tidelog.types import Llsn, NodeId, Term

UNKNOWN: Final = Llsn(-1)
"""Not even the beginning of the log was compared yet."""


class Following:
    """One replica's following of one leader, in one reign."""

    __slots__ = ("_acknowledged", "_is_asked", "_state", "leader", "matched", "reign")

    def __init__(self, state: State, leader: NodeId, reign: Term, matched: Llsn = UNKNOWN) -> None:
        self._state = state
        self.leader = leader
        self.reign = reign
        self.matched = matched
        self._acknowledged = UNKNOWN
        self._is_asked = False

    def begin_anew(self) -> None:
        """The log is being filled up: nothing is known of it until it is compared again."""
        self.matched = self._acknowledged = UNKNOWN
        self._is_asked = False

    # --- entries ---

    def add_entries(self, request: AddEntriesRequest) -> None:
        """Take over the leader's entries, if they join our log."""
        state = self._state
        if not state.is_complete:
            self._refuse(request)
            return
        fresh = self._entries_that_join(request)
        if fresh is None:
            self._refuse(request)
            return
        for batch in fresh:
            state.append(batch)
        last = request.batches[-1].head if request.batches else request.previous
        self.matched = max(self.matched, last.llsn)
        state.commit_to(min(request.commit, self.matched))
        self._is_asked = True
        if self.confirmed == self.matched:
            self.settle()

    def _entries_that_join(self, request: AddEntriesRequest) -> tuple[Batch, ...] | None:
        """Return the batches that our log lacks; None if they are not right behind it (T4)."""
        log = self._state.log
        if not self._has(request.previous):
            return None
        for place, batch in enumerate(request.batches):
            if batch.llsn_begin == log.end:
                return request.batches[place:]
            if not self._has(batch.head):
                return None
        return ()

    def _has(self, entry: EntryId) -> bool:
        """Whether an entry of the leader is in our log; what is committed and gone was equal."""
        known = self._state.log.id_at(entry.llsn)
        return known == entry if known is not None else entry.llsn <= self._state.commit

    def _refuse(self, request: AddEntriesRequest) -> None:
        state = self._state
        state.promise(
            AddEntriesRefusal(
                *state.address(self.leader),
                request.term,
                request.previous,
                state.log.head,
                state.is_complete,
            )
        )

    # --- acknowledgements ---

    @property
    def confirmed(self) -> Llsn:
        """What is durable here and equal to the leader's log (F2)."""
        return Llsn(min(self.matched, self._state.writes.durable_end - 1))

    def settle(self) -> None:
        """Tell the leader what became durable of its log; a message that brought nothing, too."""
        is_news = self.confirmed > self._acknowledged
        is_due = self._is_asked and self.confirmed == self.matched
        if self._state.writes.hard_state_durable and (is_news or is_due):
            self._acknowledge()

    def _acknowledge(self) -> None:
        state = self._state
        self._acknowledged = self.confirmed
        self._is_asked = False
        state.send(AddEntriesResponse(*state.address(self.leader), state.term, self.confirmed))

    @property
    def is_matched(self) -> bool:
        """Whether the logs were compared at all."""
        return self.matched > UNKNOWN

    # --- truncation ---

    def truncate(self, request: TruncateRequest) -> None:
        """Cut off what the leader does not have (T5)."""
        state = self._state
        if not state.is_complete:
            state.promise(
                AddEntriesRefusal(
                    *state.address(self.leader), request.term, request.cut, state.log.head, False
                )
            )
            return
        if self._names_our_head(request):
            kept = state.log.highest_at_or_below(request.cut)
            end = Llsn(kept.llsn + 1) if kept is not None else Llsn(0)
            if self._is_settled(end):
                state.refuse(request, Reason.ORDERED)
                return
            if end < state.log.end and not self._is_of_present_reign(end):
                state.truncate(end)
        state.promise(TruncateResponse(*state.address(self.leader), request.term, state.log.head))

    def _names_our_head(self, request: TruncateRequest) -> bool:
        """Whether the request is the answer to what our log is now, not to what it was."""
        return request.head == self._state.log.head

    def _is_settled(self, end: Llsn) -> bool:
        """Whether entries from ``end`` on are committed, or the leader's by our own word (F3)."""
        return end <= max(self._state.commit, self.matched)

    def _is_of_present_reign(self, end: Llsn) -> bool:
        """Whether the first entry to be cut is the leader's own (F3)."""
        term = self._state.log.term_at(end)
        if term is None or term < self.reign:
            return False
        self._state.ignore(Ignored.PRESENT_REIGN)
        return True

    def flaw(self) -> str | None:
        """Say which invariant is broken."""
        if self.matched >= self._state.log.end:
            return f"F1: matched {self.matched} beyond the log"
        if self._acknowledged > self.matched:
            return f"F2: acknowledged {self._acknowledged} of {self.matched}"
        return None
