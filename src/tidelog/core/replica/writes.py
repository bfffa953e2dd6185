"""What is on its way to the disk, and what may be promised because it has arrived.

Changes pile up until they are handed out as one write.  Writes have rising sequence numbers and
complete in that order; several may be on their way at once.

Invariants:
  W1  durable end <= handed end <= the log's end
  W2  a completed write counts only up to the first entry that was cut off after it was handed
      out: a later write, still on its way, will cut that entry off
  W3  the term is durable only if the write that brought it last has completed
"""

from __future__ import annotations

from collections import deque

from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.log import ReplicaLog
from tidelog.core.replica.output import Filled, HardState, Write
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, Llsn


class Writes:
    """Turns changes into writes and completions into durability."""

    __slots__ = (
        "_batches",
        "_completed",
        "_context",
        "_drop",
        "_empty_context",
        "_filled",
        "_hard_state",
        "_hard_state_sequence",
        "_outstanding",
        "_runs",
        "_sequence",
        "_sparse",
        "_state",
        "_trim_to",
        "_truncate_to",
        "_wipe",
        "durable_context",
        "durable_end",
        "handed_end",
    )

    def __init__(self, end: Llsn, context: CommitContext) -> None:
        self._sequence = 0
        self._completed = 0
        self._hard_state_sequence = 0
        # Sequence number, the end of its entries that are still the log's, and its context.
        self._outstanding: deque[tuple[int, Llsn, CommitContext | None]] = deque()
        self.handed_end = end
        self.durable_end = end
        self.durable_context = context
        self._clear()

    def _clear(self) -> None:
        self._drop = False
        self._wipe = False
        self._hard_state: HardState | None = None
        self._truncate_to: Llsn | None = None
        self._batches: list[Batch] = []
        self._sparse = False
        self._runs: list[GlsnRun] = []
        self._context: CommitContext | None = None
        self._empty_context: CommitContext | None = None
        self._state: bytes | None = None
        self._filled: Filled | None = None
        self._trim_to: Llsn | None = None

    # --- changes ---

    def set_hard_state(self, hard_state: HardState) -> None:
        """Have a new term, or completeness, written."""
        self._hard_state = hard_state

    def append(self, batch: Batch, *, sparse: bool = False) -> None:
        """Have a batch written."""
        self._batches.append(batch)
        self._sparse = self._sparse or sparse

    def truncate(self, end: Llsn) -> None:
        """Entries from ``end`` on were cut off: count no write for them any more (W2)."""
        while self._batches and self._batches[-1].llsn_begin >= end:
            self._batches.pop()
        self._runs = [run for run in self._runs if run.llsn_begin < end]
        if end < self.handed_end:
            self._truncate_to = end if self._truncate_to is None else min(self._truncate_to, end)
            self.handed_end = end
        self.durable_end = min(self.durable_end, end)
        for place, (sequence, reach, context) in enumerate(self._outstanding):
            self._outstanding[place] = (sequence, min(reach, end), context)

    def order(self, runs: tuple[GlsnRun, ...], context: CommitContext | None) -> None:
        """Have GLSNs written, and the context that they belong to."""
        self._runs.extend(runs)
        if context is not None:
            self._context, self._empty_context = context, None

    def rise(self, context: CommitContext) -> None:
        """Have a context that orders nothing written along with something else."""
        if self._context is not None:
            self._context = context
        else:
            self._empty_context = context

    def install(self, filled: Filled, state: bytes | None) -> None:
        """Have written what ends a synchronisation; without a state ours stays."""
        self._filled, self._state = filled, state

    def trim(self, first: Llsn) -> None:
        """Have the entries before ``first`` deleted."""
        self._trim_to = first

    def wipe(self, first: Llsn) -> None:
        """Have the log and the context deleted; the next entry is ``first``."""
        hard_state, drop = self._hard_state, self._drop
        self._clear()
        self._hard_state, self._drop, self._wipe = hard_state, drop, True
        self._restart(first)

    def drop(self, hard_state: HardState) -> None:
        """Have all of the replica deleted, but what it must never forget."""
        self._clear()
        self._drop, self._hard_state = True, hard_state
        self._restart(FIRST_LLSN)

    def _restart(self, first: Llsn) -> None:
        self.handed_end = self.durable_end = first
        self.durable_context = NONE
        for place, (sequence, _, _) in enumerate(self._outstanding):
            self._outstanding[place] = (sequence, FIRST_LLSN, None)

    # --- writes ---

    @property
    def hard_state_durable(self) -> bool:
        """Whether the term would survive a crash (W3)."""
        return self._hard_state is None and self._hard_state_sequence <= self._completed

    def is_due(self, log: ReplicaLog) -> bool:
        """Whether there is something to write."""
        return bool(
            self._drop
            or self._wipe
            or self._batches
            or self._runs
            or self.handed_end < log.end
            or self._hard_state is not None
            or self._truncate_to is not None
            or self._context is not None
            or self._state is not None
            or self._trim_to is not None
        )

    def last_sequence(self, log: ReplicaLog) -> int:
        """The write after which all that happened so far is durable."""
        return self._sequence + 1 if self.is_due(log) else self._sequence

    def is_durable(self, sequence: int) -> bool:
        """Whether all writes up to this one have completed."""
        return sequence <= self._completed

    def take(self, log: ReplicaLog) -> Write | None:
        """Return all that has to be written, as one write."""
        if not self.is_due(log):
            return None
        self._sequence += 1
        context = self._context or self._empty_context
        write = Write(
            sequence=self._sequence,
            drop=self._drop,
            wipe=self._wipe,
            hard_state=self._hard_state,
            truncate_to=self._truncate_to,
            batches=tuple(self._batches),
            sparse=self._sparse,
            runs=tuple(self._runs),
            context=context,
            state=self._state,
            filled=self._filled,
            trim_to=self._trim_to,
        )
        if self._hard_state is not None:
            self._hard_state_sequence = self._sequence
        self.handed_end = log.end
        self._outstanding.append((self._sequence, log.end, context))
        self._clear()
        return write

    def complete(self, sequence: int) -> None:
        """All writes up to this one are durable; a repeated or older word of it changes nothing."""
        check(sequence <= self._sequence, "W1: a write completed that was never handed out")
        while self._outstanding and self._outstanding[0][0] <= sequence:
            self._completed, end, context = self._outstanding.popleft()
            self.durable_end = max(self.durable_end, end)
            self.durable_context = context or self.durable_context

    def flaw(self, log: ReplicaLog) -> str | None:
        """Say which invariant is broken."""
        if not self.durable_end <= self.handed_end <= log.end:
            return f"W1: durable {self.durable_end}, handed {self.handed_end}, end {log.end}"
        if any(end > self.handed_end for _, end, _ in self._outstanding):
            return "W2: a write counts for entries that were cut off"
        return None
