"""Log sessions and the epochs that they keep open; what a master tells about epochs.

An epoch is *due* for its group commit when a later one has begun and every log session of it, and
of all earlier ones, is finished.  An epoch in which nothing was written needs no group commit: it
counts as safe as soon as those before it are.

Invariants:
  E1  in a channel the epochs of log sessions never fall
  E2  recorded <= stored < current, and no unfinished log session is of an epoch <= recorded
  E3  propagated <= stored; each only grows, and each growth is told once, STORED first
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Final

from tidelog.core.session.output import Durability, Notice
from tidelog.errors import BadOption, WrongState
from tidelog.invariants import check
from tidelog.limits import WRITE_VERSION_END

EPOCH_END: Final = 1 << 63
BOUNDARY_END: Final = WRITE_VERSION_END - EPOCH_END
"""Above a GC boundary there must be room for stamps: each life of a master writes one."""


class LogSession:
    """One writer's part in an epoch."""

    __slots__ = ("blobs", "epoch", "is_empty", "llsn_begin")

    def __init__(self, epoch: int, llsn_begin: int) -> None:
        self.epoch = epoch
        self.llsn_begin = llsn_begin
        self.is_empty = True
        """Whether it has no entries, or none any more."""
        self.blobs: set[int] = set()
        """BLOBs that were sent for it."""


class Epochs:
    """How far the epochs of a master have come."""

    __slots__ = (
        "_notices",
        "_open",
        "_unfinished",
        "_upper",
        "_written",
        "current",
        "propagated",
        "recorded",
        "stored",
    )

    def __init__(self, epoch: int, channels: int) -> None:
        self.current = 0
        """0 before the first switch."""
        self.recorded = epoch
        """The last group commit that is durable here."""
        self.stored = epoch
        self.propagated = epoch
        self._upper = epoch
        """The highest epoch that is over: nothing will be written in it or before it."""
        self._open: list[LogSession | None] = [None] * channels
        self._unfinished: list[deque[LogSession]] = [deque() for _ in range(channels)]
        self._written: list[int] = []
        """Epochs of finished log sessions with entries that are not recorded, ascending."""
        self._notices: list[Notice] = []

    # --- log sessions ---

    def switch(self, epoch: int) -> None:
        """Begin an epoch; earlier ones take no new log sessions."""
        if not self._grows(epoch):
            last = max(self.current, self.recorded)
            raise BadOption(f"epoch {epoch} must be above {last} and below 2**63")
        self.current = epoch
        self._upper = self._over()

    def _grows(self, epoch: int) -> bool:
        return max(self.current, self.recorded) < epoch < EPOCH_END

    def begin(self, channel: int, llsn: int) -> LogSession:
        """Open a log session in the current epoch."""
        if self.current == 0:
            raise WrongState("no epoch has begun: switch to one first")
        if self._open[channel] is not None:
            raise WrongState(f"a log session is open on channel {channel}: end it first")
        session = LogSession(self.current, llsn)
        self._open[channel] = session
        self._unfinished[channel].append(session)
        return session

    def session(self, channel: int) -> LogSession:
        """The open log session of a channel."""
        session = self._open[channel]
        if session is None:
            raise WrongState(f"no log session is open on channel {channel}: begin one first")
        return session

    def end(self, channel: int) -> None:
        """The log session takes no more entries; it is finished later."""
        self._open[channel] = None

    def finished(self, channel: int, session: LogSession) -> None:
        """All that a log session has to wait for has come."""
        first = self._unfinished[channel].popleft()
        check(first is session, "E1: log sessions of a channel are finished in their order")
        if not session.is_empty and session.epoch not in self._written:
            insort(self._written, session.epoch)
        self._upper = self._over()

    # --- group commits ---

    def _over(self) -> int:
        """A log session that begins is of the current epoch, so only its end changes this."""
        upper = self.current - 1
        for sessions in self._unfinished:
            if sessions:
                upper = min(upper, sessions[0].epoch - 1)
        return upper

    def due(self) -> int | None:
        """The epoch for the next group commit; None if there is nothing to commit."""
        return self._upper if self._written and self._written[0] <= self._upper else None

    def pass_empty(self) -> None:
        """Epochs in which nothing was written are safe without a group commit."""
        check(self.due() is None, "E2: entries are recorded before their epoch is told")
        if self._upper > self.stored:
            self._tell_stored(self._upper)
            self._tell_propagated(self._upper)

    def record(self, epoch: int) -> None:
        """The epoch is durable here."""
        check(self.recorded < epoch <= self._upper, f"E2: {epoch} was recorded, but is not over")
        self.recorded = epoch
        del self._written[: bisect_right(self._written, epoch)]
        self._tell_stored(epoch)

    def propagate(self, epoch: int) -> None:
        """The epoch is durable on every replica."""
        self._tell_propagated(epoch)

    # --- notices ---

    def take_notices(self) -> list[Notice]:
        """What became safe since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def _tell_stored(self, epoch: int) -> None:
        check(epoch > self.stored, f"E3: {epoch} is stored after {self.stored}")
        self.stored = epoch
        self._notices.append(Notice(epoch, Durability.STORED))

    def _tell_propagated(self, epoch: int) -> None:
        check(epoch <= self.stored, f"E3: {epoch} was propagated before it was stored")
        check(epoch > self.propagated, f"E3: {epoch} is propagated after {self.propagated}")
        self.propagated = epoch
        self._notices.append(Notice(epoch, Durability.PROPAGATED))
