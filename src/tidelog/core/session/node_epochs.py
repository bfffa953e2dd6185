"""Which group commits of one session a follower may answer.

The messages of an epoch travel on several connections and overtake one another; its group commit
comes with one of them, and says how many they are.  Epochs are numbered from 1 on, without gaps.
Numbers of writes are those of the host: one sequence for all that it writes, of which a prefix is
durable.

Invariants:
  E1  a group commit is answered when all messages of its epoch have come, each was delivered, and
      all that was written by then is durable
  E2  group commits are answered in the order of their epochs, each once, in whatever order they
      come
  E3  messages of an epoch come before its group commit is answered, or never
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidelog.core.session.node_answers import Owed
from tidelog.invariants import check


class OpenEpoch(msgspec.Struct):
    """What has come of an epoch that was not answered for."""

    carries: int = 0
    undelivered: int = 0
    bytes: int = 0
    sequence: int = 0
    """The last write that its messages may have caused."""
    counted: int = 0
    """How many messages its group commit counts; 0: that has not come."""
    owed: Owed | None = None
    """Where the group commit is to be answered."""


NOTHING_CAME = OpenEpoch()


class Answerable(NamedTuple):
    """A group commit that may be answered."""

    epoch: int
    owed: Owed


class NodeEpochs:
    """The epochs of one session, as its follower sees them."""

    __slots__ = ("_answered", "_epochs", "bytes", "count")

    def __init__(self) -> None:
        self._epochs: dict[int, OpenEpoch] = {}
        self._answered = 0
        """The last epoch that was answered for; all before it were, too."""
        self.bytes = 0
        """What has come and was not answered for."""
        self.count = 0
        """How many messages that is."""

    @property
    def is_answer_due(self) -> bool:
        """Whether a group commit is to be answered, now or when it has come."""
        return bool(self._epochs)

    # --- what may come ---

    def is_over(self, epoch: int) -> bool:
        """Whether nothing of this epoch may come any more (E3)."""
        return epoch <= self._answered

    def ahead(self, epoch: int) -> int:
        """How many epochs are to be answered for before this one is, and it."""
        return epoch - self._answered

    def is_complete(self, epoch: int) -> bool:
        """Whether all has come that the group commit of an epoch counts, if that has come."""
        one = self._epochs.get(epoch, NOTHING_CAME)
        return 0 < one.counted <= one.carries

    def may_commit(self, epoch: int, counted: int) -> bool:
        """Whether a group commit that comes with one more message may be right."""
        one = self._epochs.get(epoch, NOTHING_CAME)
        return one.counted == 0 and counted > one.carries

    # --- what comes ---

    def arrived(self, epoch: int, size: int) -> None:
        """A message of an epoch has come."""
        check(not self.is_over(epoch), f"E3: epoch {epoch} was answered for")
        one = self._epochs.setdefault(epoch, OpenEpoch())
        one.carries += 1
        one.undelivered += 1
        one.bytes += size
        self.bytes += size
        self.count += 1

    def commit(self, epoch: int, counted: int, owed: Owed) -> None:
        """The message that came last has brought the group commit of its epoch."""
        one = self._epochs[epoch]
        check(one.owed is None, f"E2: epoch {epoch} has a group commit")
        one.counted, one.owed = counted, owed

    def delivered(self, epoch: int, sequence: int) -> None:
        """A message was delivered; all that it caused is written by ``sequence``."""
        one = self._epochs[epoch]
        one.undelivered -= 1
        one.sequence = max(one.sequence, sequence)

    # --- answers ---

    def take_answerable(self, durable: int) -> Answerable | None:
        """Hand over the next group commit if it may be answered (E1, E2)."""
        epoch = self._next()
        one = self._epochs.get(epoch)
        if (
            one is None
            or one.owed is None
            or not self._has_come(one)
            or not self._is_delivered(one)
            or not self._is_durable(one, durable)
        ):
            return None
        del self._epochs[epoch]
        self._answered = epoch
        self.bytes -= one.bytes
        self.count -= one.carries
        return Answerable(epoch, one.owed)

    def _next(self) -> int:
        """E2."""
        return self._answered + 1

    def _has_come(self, one: OpenEpoch) -> bool:
        """Whether nothing of it is on its way, or was lost."""
        return one.carries == one.counted

    def _is_delivered(self, one: OpenEpoch) -> bool:
        return one.undelivered == 0

    def _is_durable(self, one: OpenEpoch, durable: int) -> bool:
        return one.sequence <= durable
