"""Follow cursors: what a leader believes of one follower, and what is on its way to it.

Invariants:
  C1  confirmed <= pushed < the end of the leader's log
  C2  what is in flight is a run of messages with rising ends above ``confirmed``
  C3  only an attached cursor that is not leaving has anything in flight, and only it counts
  C4  behind enough messages in flight, little waits for an answer and for what comes until then:
      under load messages grow, and nobody waits for a timer
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId
from tidelog.core.replica.log import weight
from tidelog.core.replica.options import CursorKind, CursorStatus, ReplicaOptions
from tidelog.types import NO_LLSN, Llsn, Term

UNTOLD: Final = Llsn(-1)
"""The follower was sent nothing since it was attached."""


class Cursor:
    """One follower, as its leader sees it."""

    __slots__ = (
        "_gathers_to",
        "_inflight",
        "_inflight_bytes",
        "_is_leaving",
        "_kind",
        "_waited_ticks",
        "commit_told",
        "confirmed",
        "cut",
        "heard_in",
        "is_asked",
        "previous",
        "pushed",
        "told",
    )

    def __init__(self) -> None:
        self._kind = CursorKind.TRUNCATING
        self._is_leaving = False
        self._inflight: deque[tuple[Llsn, int]] = deque()
        self._inflight_bytes = 0
        self._gathers_to = 0
        """What the leader must have taken before more leaves, unless an answer comes first."""
        self._waited_ticks = 0
        self.confirmed = NO_LLSN
        """The follower has all up to here, durable and equal to the leader's log."""
        self.heard_in = Term(0)
        """The last term in which it acknowledged anything."""
        self.pushed = NO_LLSN
        self.previous = NO_ENTRY
        """What the last message was to follow."""
        self.commit_told = UNTOLD
        self.told = NO_ENTRY
        """The head that the follower told, while it truncates."""
        self.cut = NO_ENTRY
        self.is_asked = False
        """Whether the request to truncate is on its way."""

    @property
    def kind(self) -> CursorKind:
        """How the follower is served."""
        return CursorKind.LEAVING if self._is_leaving else self._kind

    @property
    def counts(self) -> bool:
        """Whether what it confirms counts for the commit index (C3)."""
        return self._kind is CursorKind.ATTACHED and not self._is_leaving

    @property
    def status(self) -> CursorStatus:
        """The cursor as it stands."""
        return CursorStatus(self.kind, self.pushed, self.confirmed)

    @property
    def is_quiet(self) -> bool:
        """Whether all that was sent is answered."""
        return not self._inflight

    def may_lead_next(self, end: Llsn) -> bool:
        """Whether the follower has the leader's whole log, or is about to.

        One that is to leave gets no more of it until an election has kept it.
        """
        return self._is_leaving or (self.counts and self.pushed + 1 == end)

    def lacks_word_of(self, commit: Llsn) -> bool:
        """Whether no entries on their way tell the commit index, nor any before them.

        Telling it has time until the next tick: a cut tells as much of what it orders (T8).
        """
        return self.is_quiet and self.commit_told < commit

    def has_room(self, taken: int, options: ReplicaOptions) -> bool:
        """Whether more may be sent before something is answered.

        ``taken``: the bytes of all appends that the leader took in its reign.
        """
        return self._inflight_bytes < options.inflight_bytes_max and taken >= self._gathers_to

    def gathers(self, batches: Sequence[Batch], taken: int, options: ReplicaOptions) -> bool:
        """Whether these wait for an answer, and leave with what comes until then (C4)."""
        if len(self._inflight) < options.inflight_messages:
            return False
        self._gathers_to = taken + options.gather_bytes - sum(map(weight, batches))
        return taken < self._gathers_to

    # --- how it is served ---

    def attach(self, llsn: Llsn) -> None:
        """The follower's head is an entry of the leader's log, durable there."""
        self._become(CursorKind.ATTACHED)
        self.confirmed = self.pushed = llsn
        self.commit_told = UNTOLD

    def truncate(self, told: EntryId, cut: EntryId) -> None:
        """The follower has entries above ``cut`` that the leader does not have."""
        self._become(CursorKind.TRUNCATING)
        self.told, self.cut, self.is_asked = told, cut, False

    def synchronise(self) -> None:
        """The follower cannot be served from the log."""
        self._become(CursorKind.SYNCHRONISING)

    def leave(self) -> None:
        """The follower is to be removed."""
        self._is_leaving = True
        self._rewind()

    def stay(self) -> None:
        """The follower is not to be removed after all."""
        self._is_leaving = False
        self.is_asked = False

    def _become(self, kind: CursorKind) -> None:
        self._kind = kind
        self.confirmed = NO_LLSN
        self._rewind()

    def _rewind(self) -> None:
        self.pushed = self.confirmed
        self._inflight.clear()
        self._inflight_bytes = 0
        self._gathers_to = 0
        self._waited_ticks = 0

    # --- what is sent and answered ---

    def sent(self, previous: EntryId, batches: Sequence[Batch], commit: Llsn) -> None:
        """Note a message."""
        self.commit_told = commit
        if batches or self.is_quiet:
            self.previous = previous
        if batches:
            if self.is_quiet:
                self._waited_ticks = 0
            size = sum(map(weight, batches))
            self.pushed = batches[-1].head.llsn
            self._inflight.append((self.pushed, size))
            self._inflight_bytes += size

    def acknowledge(self, confirmed: Llsn) -> bool:
        """The follower has all up to ``confirmed``; say whether that is news."""
        while self._inflight and self._inflight[0][0] <= confirmed:
            self._inflight_bytes -= self._inflight.popleft()[1]
            self._gathers_to = 0
            self._waited_ticks = 0
        if confirmed <= self.confirmed:
            return False
        self.confirmed = confirmed
        self.pushed = max(self.pushed, confirmed)
        return True

    def tick(self, options: ReplicaOptions) -> None:
        """Let time pass: what was not answered for long is sent again."""
        self._waited_ticks += 1
        if self._waited_ticks >= options.resend_ticks:
            self._rewind()
            self.is_asked = False

    def flaw(self, end: Llsn) -> str | None:
        """Say which invariant is broken."""
        if not self.confirmed <= self.pushed < end:
            return f"C1: confirmed {self.confirmed}, pushed {self.pushed}, end {end}"
        ends = [sent for sent, _ in self._inflight]
        if ends != sorted(ends) or (ends and not self.confirmed < ends[0] <= self.pushed):
            return f"C2: in flight up to {ends}, confirmed {self.confirmed}, pushed {self.pushed}"
        if ends and not self.counts:
            return f"C3: {len(ends)} messages in flight, the cursor is {self.kind.value}"
        return None
