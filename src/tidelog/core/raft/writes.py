"""What is on its way to the disk, and what may be promised because it has arrived.

Writes are handed out with rising sequence numbers and complete in that order; several may be on
their way at once.

Invariants:
  W1  durable <= handed <= the log's last index
  W2  a completed write counts only up to the first entry that was replaced after it was handed
      out: a later write, still on its way, will cut that entry off
  W3  term and vote are durable only if the write that brought them last has completed
"""

from __future__ import annotations

from collections import deque

from tidelog.core.raft.entries import HardState, Index, Snapshot
from tidelog.core.raft.log import RaftLog
from tidelog.core.raft.output import Write
from tidelog.invariants import check


class Writes:
    """Turns changes into writes and completions into durability."""

    __slots__ = (
        "_completed",
        "_hard_state",
        "_hard_state_sequence",
        "_outstanding",
        "_replaces_log",
        "_sequence",
        "_snapshot",
        "durable",
        "handed",
    )

    def __init__(self, last_index: Index) -> None:
        self._sequence = 0
        self._completed = 0
        self._hard_state: HardState | None = None
        self._hard_state_sequence = 0
        self._snapshot: Snapshot | None = None
        self._replaces_log = False
        # Sequence number, and the index up to which its entries are still the log's.
        self._outstanding: deque[tuple[int, Index]] = deque()
        self.handed = last_index
        self.durable = last_index

    @property
    def hard_state_durable(self) -> bool:
        """Whether term and vote would survive a crash (W3)."""
        return self._hard_state is None and self._hard_state_sequence <= self._completed

    def set_hard_state(self, hard_state: HardState) -> None:
        """Have a new term or vote written."""
        self._hard_state = hard_state

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Have our own snapshot written."""
        self._snapshot = snapshot

    def replace_log(self, snapshot: Snapshot, kept: Index) -> None:
        """Have the leader's snapshot written instead of all entries above ``kept``."""
        self.truncate(Index(kept + 1))
        self.handed = snapshot.head.index
        self._snapshot, self._replaces_log = snapshot, True

    def truncate(self, begin: Index) -> None:
        """Entries at ``begin`` and above were replaced: count no write for them any more (W2)."""
        kept = Index(begin - 1)
        self.handed = min(self.handed, kept)
        self.durable = min(self.durable, kept)
        for place, (sequence, end) in enumerate(self._outstanding):
            if end > kept:
                self._outstanding[place] = (sequence, kept)

    def is_due(self, log: RaftLog) -> bool:
        """Whether there is something to write."""
        return (
            self.handed < log.last_index
            or self._hard_state is not None
            or self._snapshot is not None
        )

    def take(self, log: RaftLog) -> Write | None:
        """Return all that has to be written, as one write."""
        if not self.is_due(log):
            return None
        self._sequence += 1
        write = Write(
            self._sequence,
            self._hard_state,
            self._snapshot,
            self._replaces_log,
            log.slice(self.handed + 1, log.last_index + 1) if self.handed < log.last_index else (),
        )
        if self._hard_state is not None:
            self._hard_state, self._hard_state_sequence = None, self._sequence
        self._snapshot, self._replaces_log = None, False
        self.handed = log.last_index
        self._outstanding.append((self._sequence, self.handed))
        return write

    def complete(self, sequence: int) -> None:
        """All writes up to this one are durable; a repeated or older word of it changes nothing."""
        check(sequence <= self._sequence, "W1: a write completed that was never handed out")
        while self._outstanding and self._outstanding[0][0] <= sequence:
            self._completed, end = self._outstanding.popleft()
            self.durable = max(self.durable, end)

    def flaw(self, log: RaftLog) -> str | None:
        """Say which invariant is broken."""
        if not self.durable <= self.handed <= log.last_index:
            return f"W1: durable {self.durable}, handed {self.handed}, last {log.last_index}"
        if any(end > self.handed for _, end in self._outstanding):
            return "W2: a write counts for entries that were replaced"
        return None
