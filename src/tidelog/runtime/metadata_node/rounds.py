"""How long batches take from their proposal until they are applied, where they are proposed.

A leader has one batch on its way at a time, so its log ends where that batch does.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.core.raft.entries import NO_INDEX, Index
from tidelog.core.raft.options import Role


class Log(Protocol):
    """What is looked at; a Raft node."""

    @property
    def role(self) -> Role: ...

    @property
    def applied(self) -> Index: ...

    @property
    def last_index(self) -> Index: ...


class Rounds:
    """Belongs to one event loop, which looks at the end of each turn."""

    __slots__ = ("_begin", "_end", "_raft", "count", "seconds")

    def __init__(self, raft: Log) -> None:
        self._raft = raft
        self._end = NO_INDEX
        self._begin = 0.0
        self.count = 0
        """Batches since the start."""
        self.seconds = 0.0
        """What all of them took."""

    def look(self, begin: float, now: float) -> None:
        """Note what was proposed and applied in a turn that began at ``begin``."""
        raft = self._raft
        if self._end != NO_INDEX and raft.applied >= self._end:
            self.count += 1
            self.seconds += now - self._begin
            self._end = NO_INDEX
        if raft.role is not Role.LEADER:
            self._end = NO_INDEX  # Another leader's batches are its own to time.
        elif self._end == NO_INDEX and raft.last_index > raft.applied:
            self._end, self._begin = raft.last_index, begin
