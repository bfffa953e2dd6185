"""Linearizable reads: an index that is surely not older than the read.

The leader gives a read its commit index, and must then hear from a majority that it still was
the leader after the read had begun.  All reads that wait share one round of heartbeats.

Invariants:
  R1  a read gets its index only once an entry of the leader's term is committed: before, the
      leader may not know yet all that was committed before it
  R2  a read is answered only by a round that began after it
  R3  the reads that wait are bounded
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.core.raft.entries import NO_INDEX, Index
from tidelog.core.raft.membership import quorum_value
from tidelog.invariants import check
from tidelog.types import NodeId


class WaitingRead(msgspec.Struct, frozen=True, gc=False):
    """A read, and who asked for it."""

    requester: NodeId
    context: int


class ReadRounds:
    """The reads of one leadership."""

    __slots__ = ("_confirming", "_index", "_limit", "_queued", "_round")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued: list[WaitingRead] = []
        self._confirming: list[WaitingRead] = []
        self._round = 0
        self._index = NO_INDEX

    @property
    def awaited_round(self) -> int:
        """The round that waits for a majority; 0 if none does."""
        return self._round if self._confirming else 0

    def add(self, read: WaitingRead) -> bool:
        """Queue a read for the next round; say whether there was room (R3)."""
        if len(self._queued) + len(self._confirming) >= self._limit:
            return False
        self._queued.append(read)
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether reads wait for the next round, and none is under way."""
        return bool(self._queued) and not self._confirming

    def begin(self, commit: Index) -> None:
        """Begin a round for all queued reads: what is committed now is what they may see."""
        check(bool(self._queued) and not self._confirming, "R2: a round overtakes another")
        self._confirming, self._queued = self._queued, []
        self._round += 1
        self._index = commit

    def confirmed(self, rounds: Iterable[int]) -> tuple[Index, list[WaitingRead]]:
        """Return what a majority confirmed, given the newest round of each voter."""
        if not self._confirming or quorum_value(rounds) < self._round:
            return NO_INDEX, []
        done, self._confirming = self._confirming, []
        return self._index, done

    def drop(self) -> list[WaitingRead]:
        """Give up all reads."""
        dropped = self._confirming + self._queued
        self._confirming, self._queued = [], []
        return dropped
