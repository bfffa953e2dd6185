"""One connection of a session between nodes, as its leader sees it.

Invariants:
  N1  requests are sent in the order in which they were put, and those that have answers are
      answered in that order
  N2  at most ``window`` requests that have answers are on their way; what comes behind them waits
  N3  a message of an epoch, and what was put behind it, is not sent before its epoch is closed
"""

from __future__ import annotations

from collections import deque

import msgspec

from tidelog.core.session.node_messages import NO_EPOCH, NodeRequest, has_answer
from tidelog.core.session.node_output import Ask, Attachment


class Waiting(msgspec.Struct):
    """A request to be sent, and what it counts for until it is answered."""

    request: NodeRequest
    attachment: Attachment = ()
    bytes: int = 0
    count: int = 0
    epoch: int = NO_EPOCH

    def commit(self, count: int, size: int) -> None:
        """Have the last message of an epoch ask for its group commit, and count for all of it."""
        self.request = msgspec.structs.replace(self.request, commit=count)
        self.count, self.bytes = count, size


class NodeLane:
    """What waits for one connection, and what is on its way."""

    __slots__ = ("_asked", "_waiting", "_window", "connection", "is_connected", "is_open", "lane")

    def __init__(self, connection: int, lane: int, window: int) -> None:
        self.connection = connection
        self.lane = lane
        self.is_connected = False
        self.is_open = False
        """Whether the follower has taken the connection for what it is."""
        self._window = window
        self._waiting: deque[Waiting] = deque()
        self._asked: deque[Waiting] = deque()

    @property
    def is_awaiting(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._asked)

    @property
    def has_waiting(self) -> bool:
        """Whether something is to be sent, now or later."""
        return bool(self._waiting)

    def put(self, waiting: Waiting) -> None:
        """Add a request behind all others (N1)."""
        self._waiting.append(waiting)

    def take(self, closed: int) -> list[Ask]:
        """Hand out what may be sent now, all epochs up to ``closed`` being closed."""
        asks: list[Ask] = []
        while self._waiting and self._is_closed(self._waiting[0], closed):
            is_answered = has_answer(self._waiting[0].request)
            if is_answered and not self._has_window():
                break
            waiting = self._waiting.popleft()
            if is_answered:
                self._asked.append(waiting)
            asks.append(Ask(self.connection, waiting.request, waiting.attachment))
        return asks

    def _is_closed(self, waiting: Waiting, closed: int) -> bool:
        """N3."""
        return waiting.epoch <= closed

    def _has_window(self) -> bool:
        """N2."""
        return len(self._asked) < self._window

    def answered(self) -> Waiting | None:
        """Return the request that an answer belongs to; None if nothing was asked."""
        return self._asked.popleft() if self._asked else None
