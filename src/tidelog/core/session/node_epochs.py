"""Which group commits of one session a follower may answer.

Messages of an epoch and its group commit travel on different connections and overtake one another;
so a group commit says how many messages it covers.  Numbers of writes are those of the host: one
sequence for all that it writes, of which a prefix is durable.

Invariants:
  E1  a group commit is answered when all messages that it covers have come, each was delivered,
      and all that was written by then is durable
  E2  group commits are answered in their order, each once
  E3  messages of an epoch come before its group commit is answered, or never
"""

from __future__ import annotations

from collections import deque

import msgspec

from tidelog.core.session.node_messages import NodeGroupCommit
from tidelog.invariants import check


class OpenEpoch(msgspec.Struct):
    """What has come of an epoch that was not answered for."""

    carries: int = 0
    undelivered: int = 0
    bytes: int = 0
    sequence: int = 0
    """The last write that its messages may have caused."""


class NodeEpochs:
    """The epochs of one session, as its follower sees them."""

    __slots__ = (
        "_answered",
        "_answered_carries",
        "_asked",
        "_commits",
        "_epochs",
        "bytes",
        "count",
    )

    def __init__(self) -> None:
        self._epochs: dict[int, OpenEpoch] = {}
        self._commits: deque[NodeGroupCommit] = deque()
        self._asked = NodeGroupCommit(0, 0)
        """The last group commit that has come."""
        self._answered = 0
        self._answered_carries = 0
        self.bytes = 0
        """What has come and was not answered for."""
        self.count = 0
        """How many messages that is."""

    @property
    def open_commits(self) -> int:
        """How many group commits are not answered."""
        return len(self._commits)

    @property
    def is_answer_due(self) -> bool:
        """Whether a group commit is to be answered, now or when it has come."""
        return bool(self._commits or self._epochs)

    # --- messages ---

    def is_over(self, epoch: int) -> bool:
        """Whether nothing of this epoch may come any more (E3)."""
        return epoch <= self._answered

    def arrived(self, epoch: int, size: int) -> None:
        """A message of an epoch has come."""
        check(not self.is_over(epoch), f"E3: epoch {epoch} was answered for")
        one = self._epochs.setdefault(epoch, OpenEpoch())
        one.carries += 1
        one.undelivered += 1
        one.bytes += size
        self.bytes += size
        self.count += 1

    def delivered(self, epoch: int, sequence: int) -> None:
        """A message was delivered; all that it caused is written by ``sequence``."""
        one = self._epochs[epoch]
        one.undelivered -= 1
        one.sequence = max(one.sequence, sequence)

    # --- group commits ---

    def is_next(self, commit: NodeGroupCommit) -> bool:
        """Whether a group commit may follow the last one."""
        return (
            commit.epoch > self._asked.epoch
            and commit.carries >= self._asked.carries
            and self.covers(commit)
        )

    def covers(self, commit: NodeGroupCommit) -> bool:
        """Whether no more messages have come than a group commit speaks of."""
        return self._come(commit) <= commit.carries

    def commit(self, commit: NodeGroupCommit) -> None:
        """Take a group commit."""
        self._asked = commit
        self._commits.append(commit)

    def is_exceeded(self) -> bool:
        """Whether a message has come that a group commit does not speak of, but should."""
        return any(not self.covers(commit) for commit in self._commits)

    def take_answerable(self, durable: int) -> int | None:
        """Return the epoch of the oldest group commit if it may be answered (E1, E2)."""
        if not self._commits:
            return None
        commit = self._commits[0]
        if not (
            self._has_come(commit)
            and self._is_delivered(commit)
            and self._is_durable(commit, durable)
        ):
            return None
        self._commits.popleft()
        self._close(commit)
        return commit.epoch

    def _has_come(self, commit: NodeGroupCommit) -> bool:
        """Whether nothing of it is on its way, or was lost."""
        return self._come(commit) == commit.carries

    def _is_delivered(self, commit: NodeGroupCommit) -> bool:
        return all(one.undelivered == 0 for one in self._covered(commit))

    def _is_durable(self, commit: NodeGroupCommit, durable: int) -> bool:
        return all(one.sequence <= durable for one in self._covered(commit))

    def _come(self, commit: NodeGroupCommit) -> int:
        return self._answered_carries + sum(one.carries for one in self._covered(commit))

    def _covered(self, commit: NodeGroupCommit) -> list[OpenEpoch]:
        return [one for epoch, one in self._epochs.items() if epoch <= commit.epoch]

    def _close(self, commit: NodeGroupCommit) -> None:
        self._answered = commit.epoch
        self._answered_carries = self._come(commit)
        for epoch in [epoch for epoch in self._epochs if epoch <= commit.epoch]:
            one = self._epochs.pop(epoch)
            self.bytes -= one.bytes
            self.count -= one.carries
