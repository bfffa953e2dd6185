"""What the leader believes of one follower, and how much it may have on its way to it.

Invariants:
  P1  match < next <= the leader's last index + 1
  P2  what is in flight is a run of appends with rising ends above ``match``, and its bytes add up
  P3  only a replicating follower has appends in flight; only one that gets a snapshot has one
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum

from tidelog.core.raft.entries import Entry, Index, Snapshot
from tidelog.core.raft.log import weight
from tidelog.core.raft.options import RaftOptions
from tidelog.invariants import check


class Pace(IntEnum):
    """How the leader sends to a follower."""

    PROBE = 0
    """Where their logs agree is not known: one append at a time, until one fits."""
    REPLICATE = 1
    """They agree: appends follow one another without waiting."""
    SNAPSHOT = 2
    """What comes next is gone from the leader's log: a snapshot, part by part."""


class Progress:
    """One follower, as its leader sees it."""

    __slots__ = (
        "_inflight",
        "active",
        "awaiting",
        "commit_told",
        "inflight_bytes",
        "match",
        "match_at_heartbeat",
        "next",
        "offset",
        "pace",
        "read_round",
        "snapshot",
        "waited_ticks",
        "was_active",
    )

    def __init__(self, next_index: Index) -> None:
        self.match = Index(0)
        self.next = next_index
        self.pace = Pace.PROBE
        self.active = False
        """Heard of since the quorum was last checked."""
        self.was_active = False
        """Heard of between the last two checks."""
        self.awaiting = False
        """A probe or a part of a snapshot is on its way; the next one waits for its answer."""
        self.commit_told = Index(0)
        self.read_round = 0
        self.match_at_heartbeat = Index(0)
        self._inflight: deque[tuple[Index, int]] = deque()
        self.inflight_bytes = 0
        self.snapshot: Snapshot | None = None
        self.offset = 0
        self.waited_ticks = 0

    @property
    def inflight_count(self) -> int:
        """How many appends wait for an answer."""
        return len(self._inflight)

    def has_room(self, options: RaftOptions) -> bool:
        """Whether another append may be sent before one is answered."""
        return (
            len(self._inflight) < options.inflight_count_max
            and self.inflight_bytes < options.inflight_bytes_max
        )

    def sent(self, entries: Sequence[Entry]) -> None:
        """Note an append: a probe waits for its answer, others go on after it."""
        if self.pace is Pace.PROBE:
            self.awaiting = True
        elif entries:
            size = sum(map(weight, entries))
            self._inflight.append((entries[-1].index, size))
            self.inflight_bytes += size
            self.next = Index(entries[-1].index + 1)

    def acknowledge(self, match: Index) -> bool:
        """The follower has all up to ``match``; say whether that is news."""
        while self._inflight and self._inflight[0][0] <= match:
            self.inflight_bytes -= self._inflight.popleft()[1]
        news = match > self.match
        self.match = max(self.match, match)
        self.next = max(self.next, Index(self.match + 1))
        if self._is_settled(news=news):
            self.replicate()
        return news

    def _is_settled(self, *, news: bool) -> bool:
        """Whether an acknowledgement ended a probe or a snapshot."""
        if self.pace is Pace.PROBE:
            return news or self.match == self.next - 1
        return self.snapshot is not None and self.match >= self.snapshot.head.index

    def refuse(self, previous: Index, hint: Index) -> bool:
        """The entry at ``previous`` does not fit; say whether that is news."""
        if self.pace is Pace.SNAPSHOT or previous <= self.match:
            return False
        if self.pace is Pace.PROBE and previous != self.next - 1:
            return False  # The answer to an older probe.
        self.probe(Index(max(self.match + 1, min(previous, hint + 1))))
        return True

    def stalls(self) -> bool:
        """Whether an append may have been lost; asked at each answer to a heartbeat.

        A probe is small and may be repeated at once.  Appends in flight are waited for as long as
        some are acknowledged between two heartbeats.
        """
        stalled = bool(self._inflight) and self.match == self.match_at_heartbeat
        self.match_at_heartbeat = self.match
        return stalled or (self.pace is Pace.PROBE and self.awaiting)

    def probe(self, next_index: Index) -> None:
        """Find out where the logs agree, from here downwards."""
        self._pace(Pace.PROBE, next_index)

    def replicate(self) -> None:
        """The logs agree up to ``match``."""
        self._pace(Pace.REPLICATE, Index(self.match + 1))

    def send_snapshot(self, snapshot: Snapshot) -> None:
        """Send a snapshot from its start."""
        self._pace(Pace.SNAPSHOT, self.next)
        self.snapshot = snapshot

    def _pace(self, pace: Pace, next_index: Index) -> None:
        self.pace, self.next = pace, next_index
        self.awaiting = False
        self._inflight.clear()
        self.inflight_bytes = 0
        self.snapshot, self.offset, self.waited_ticks = None, 0, 0
        check(self.match < self.next, "P1: what the follower has would be sent again")

    def flaw(self, last_index: Index) -> str | None:
        """Say which invariant is broken."""
        if not self.match < self.next <= last_index + 1:
            return f"P1: match {self.match}, next {self.next}, last {last_index}"
        ends = [end for end, _ in self._inflight]
        if ends != sorted(ends) or (ends and not self.match < ends[0] <= ends[-1] < self.next):
            return f"P2: in flight up to {ends}, match {self.match}, next {self.next}"
        if self.inflight_bytes != sum(size for _, size in self._inflight):
            return "P2: the bytes in flight do not add up"
        if (ends and self.pace is not Pace.REPLICATE) or (
            (self.snapshot is not None) != (self.pace is Pace.SNAPSHOT)
        ):
            return f"P3: {len(ends)} appends in flight at pace {self.pace.name}"
        return None
